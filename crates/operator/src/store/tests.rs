use std::sync::Arc;

use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::key::{Key, ObjectKind};

use super::*;

mod contents;

fn pod_id(name: &str) -> PodId {
    PodId { namespace: "ns".into(), name: name.into() }
}

fn object(kind: KindName, name: &str, version: u32, generation: u32, spec: &Value) -> Value {
    json!({
        "kind": kind.as_str(),
        "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(), "generation": generation },
        "spec": spec,
    })
}

/// Takes an object in as the API server would send it.
fn put(store: &Store, kind: KindName, object: Value) -> Wake {
    store.see_resource(kind, serde_json::from_value(object).unwrap())
}

fn server(name: &str, version: u32, config: &str) -> Value {
    object(KindName::MCPServer, name, version, version, &json!({ "image": "i", "toolConfigRef": { "name": config } }))
}

fn key(kind: KindName, name: &str) -> Key {
    Key::resource(kind, "ns", name)
}

#[test]
fn a_config_wakes_its_users_and_a_user_wakes_its_configs_soon() {
    let store = Store::default();
    put(&store, KindName::MCPToolConfig, object(KindName::MCPToolConfig, "c", 1, 1, &json!({})));
    let wake = put(&store, KindName::MCPServer, server("s", 2, "c"));
    assert_eq!(wake.now, BTreeSet::from([key(KindName::MCPServer, "s")]));
    assert_eq!(wake.soon, BTreeSet::from([key(KindName::MCPToolConfig, "c")]));
    let wake = put(&store, KindName::MCPToolConfig, object(KindName::MCPToolConfig, "c", 3, 2, &json!({})));
    assert_eq!(wake.now, BTreeSet::from([key(KindName::MCPToolConfig, "c"), key(KindName::MCPServer, "s")]));
}

#[test]
fn the_status_of_a_config_queues_nothing() {
    let store = Store::default();
    put(&store, KindName::MCPToolConfig, object(KindName::MCPToolConfig, "c", 1, 1, &json!({})));
    put(&store, KindName::MCPServer, server("s", 2, "c"));
    let mut written = object(KindName::MCPToolConfig, "c", 3, 1, &json!({}));
    written["status"] = json!({ "configHash": "x" });
    assert_eq!(put(&store, KindName::MCPToolConfig, written), Wake::default());
}

#[test]
fn a_report_of_the_process_of_a_virtual_server_queues_it_and_our_own_status_does_not() {
    let store = Store::default();
    let spec = json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } });
    let with = |version: u32, status: Value| {
        let mut object = object(KindName::VirtualMCPServer, "v", version, 1, &spec);
        object["status"] = status;
        object
    };
    put(&store, KindName::VirtualMCPServer, with(1, json!({})));
    assert_eq!(put(&store, KindName::VirtualMCPServer, with(2, json!({ "message": "ours" }))), Wake::default());
    let reported = json!({ "message": "ours", "discoveredBackends": [{ "name": "a", "status": "unavailable" }] });
    let wake = put(&store, KindName::VirtualMCPServer, with(3, reported));
    assert_eq!(wake.now, BTreeSet::from([key(KindName::VirtualMCPServer, "v")]));
}

#[test]
fn an_object_never_goes_back_to_an_older_version_and_never_comes_back_from_the_dead() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 5, "new"));
    assert_eq!(put(&store, KindName::MCPServer, server("s", 4, "old")), Wake::default());
    assert_eq!(store.entry(&key(KindName::MCPServer, "s")).unwrap().metadata().resource_version.as_deref(), Some("5"));
    store.remove_resource(&key(KindName::MCPServer, "s"));
    let late = serde_json::from_value(server("s", 6, "late answer")).unwrap();
    assert_eq!(store.put_response(KindName::MCPServer, late), Wake::default());
    assert!(store.entry(&key(KindName::MCPServer, "s")).is_none());
}

#[test]
fn an_object_that_cannot_be_read_is_remembered_as_such_and_shown_to_its_users() {
    let store = Store::default();
    let broken = object(KindName::MCPToolConfig, "c", 1, 1, &json!({ "toolsFilter": "not a list" }));
    put(&store, KindName::MCPToolConfig, broken);
    put(&store, KindName::MCPServer, server("s", 2, "c"));
    assert!(matches!(store.entry(&key(KindName::MCPToolConfig, "c")), Some(Entry::Unreadable { .. })));
    let snapshot = store.snapshot(&key(KindName::MCPServer, "s")).unwrap();
    assert!(matches!(snapshot.found[&key(KindName::MCPToolConfig, "c")], Found::Unreadable(_)));
}

#[test]
fn an_object_that_a_watch_shows_exists_though_a_stale_list_lacked_it() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 5, "c"));
    store.remove_resource(&key(KindName::MCPServer, "s"));
    assert!(put(&store, KindName::MCPServer, server("s", 5, "c")).now.contains(&key(KindName::MCPServer, "s")));
}

#[test]
fn content_is_forgotten_with_its_last_user() {
    let store = Store::default();
    let secret = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() };
    let spec = |secrets: Value| json!({ "image": "i", "secrets": secrets });
    let refers = json!([{ "name": "s", "key": "k" }]);
    let stored = || store.contents(ObjectKind::Secret).len();
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 1, 1, &spec(refers.clone())));
    store.end_read(&secret, store.begin_read(&secret), Some((None, None)));
    assert_eq!(stored(), 1, "that it does not exist is known");
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 2, 2, &spec(json!([]))));
    assert_eq!(stored(), 0, "the reference is gone");
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 3, 3, &spec(refers)));
    let reading = store.begin_read(&secret);
    store.remove_resource(&key(KindName::MCPServer, "m"));
    store.end_read(&secret, reading, Some((None, None)));
    assert_eq!(stored(), 0, "the resource is gone");
}

#[test]
fn a_member_that_leaves_a_group_wakes_the_virtual_servers_of_both() {
    let store = Store::default();
    for group in ["one", "two"] {
        put(&store, KindName::MCPGroup, object(KindName::MCPGroup, group, 1, 1, &json!({})));
        let spec = json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": group } });
        put(&store, KindName::VirtualMCPServer, object(KindName::VirtualMCPServer, group, 1, 1, &spec));
    }
    let member = |version, group: &str| {
        let spec = json!({ "image": "i", "groupRef": { "name": group } });
        object(KindName::MCPServer, "s", version, version, &spec)
    };
    put(&store, KindName::MCPServer, member(1, "one"));
    let wake = put(&store, KindName::MCPServer, member(2, "two"));
    for group in ["one", "two"] {
        assert!(wake.now.contains(&key(KindName::VirtualMCPServer, group)), "{group}: {wake:?}");
    }
}

#[test]
fn a_pod_is_known_by_whichever_label_of_ours_it_has() {
    let pod = |labels: Value| {
        let metadata = json!({ "name": "p", "namespace": "ns", "labels": labels });
        pod_facts(&serde_json::from_value(json!({ "metadata": metadata })).unwrap()).map(|facts| facts.owner)
    };
    let embedding = |app: &str| json!({ "app": app, "app.kubernetes.io/name": "embeddingserver", "app.kubernetes.io/instance": "e" });
    let known = Some(key(KindName::EmbeddingServer, "e"));
    assert_eq!(pod(embedding("embeddingserver")), known);
    assert_eq!(pod(embedding("a user's own")), known);
    assert_eq!(pod(json!({ "app": "nginx", "app.kubernetes.io/instance": "e" })), None);
}

fn owner(kind: &str, uid: &str) -> Owner {
    let api_version = "toolhive.stacklok.dev/v1beta1".to_owned();
    Owner { api_version, kind: kind.into(), name: "s".into(), uid: uid.into() }
}

fn child(version: &str) -> (ChildId, ChildFacts) {
    let id = ChildId { kind: ChildKind::Service, namespace: "ns".into(), name: "mcp-s-proxy".into() };
    let owner = Some(owner("MCPServer", "s"));
    let (uid, version) = ("u".to_owned(), version.to_owned());
    (id, ChildFacts { uid, resource_version: version.clone(), version, owner, ..ChildFacts::default() })
}

/// A store with a server, whose child is being written, and its key.
fn writing() -> (Store, Key) {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    store.see_child(child("1").0, child("1").1);
    store.begin_write(&child("1").0);
    (store, key(KindName::MCPServer, "s"))
}

#[test]
fn our_own_write_that_the_watch_shows_before_the_response_queues_nothing() {
    let (store, _) = writing();
    let (id, facts) = child("2");
    assert_eq!(store.see_child(id.clone(), facts.clone()), Wake::default());
    assert_eq!(store.end_write(&id, Some(facts.clone())), Wake::default());
    assert_eq!(store.see_child(id.clone(), facts), Wake::default());
    assert_eq!(store.child(&id).unwrap().version, "2");
}

#[test]
fn a_change_by_another_client_while_a_child_is_written_is_not_missed() {
    for answer in [Some(child("2").1), None] {
        let (store, me) = writing();
        let (id, theirs) = child("3");
        assert_eq!(store.see_child(id.clone(), theirs), Wake::default());
        assert_eq!(store.end_write(&id, answer.clone()).now, BTreeSet::from([me]), "{answer:?}");
        assert_eq!(store.child(&id).unwrap().version, "3");

        let (store, me) = writing();
        assert_eq!(store.miss_child(&id), Wake::default());
        assert_eq!(store.end_write(&id, answer.clone()).now, BTreeSet::from([me]), "{answer:?}");
        assert_eq!(store.child(&id), None);
    }
}

#[test]
fn of_two_that_write_the_same_name_neither_ends_the_wait_of_the_other() {
    let (store, me) = writing();
    let (id, facts) = child("2");
    store.begin_write(&id);
    assert_eq!(store.end_write(&id, None), Wake::default());
    assert_eq!(store.see_child(id.clone(), facts), Wake::default());
    assert_eq!(store.end_write(&id, None).now, BTreeSet::from([me]));
}

/// A server that holds on to something, as the API server would send it.
fn held(version: u32, generation: u32) -> Object {
    let mut held = server("s", version, "c");
    held["metadata"]["generation"] = generation.into();
    held["metadata"]["finalizers"] = json!(["held"]);
    serde_json::from_value(held).unwrap()
}

/// A store with a server whose metadata is being written, and its key.
fn changing() -> (Store, Key) {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let me = key(KindName::MCPServer, "s");
    store.begin_change(&me);
    (store, me)
}

#[test]
fn the_watch_that_brings_our_own_change_of_a_resource_before_the_answer_queues_nothing() {
    let (store, me) = changing();
    assert_eq!(store.see_resource(KindName::MCPServer, held(2, 1)), Wake::default());
    assert_eq!(store.end_change(KindName::MCPServer, &me, Some(held(2, 1))), Wake::default());
    assert_eq!(store.see_resource(KindName::MCPServer, held(2, 1)), Wake::default());
    assert_eq!(store.entry(&me).unwrap().metadata().resource_version.as_deref(), Some("2"));
    // It waits no longer than that.
    assert!(store.see_resource(KindName::MCPServer, held(3, 2)).now.contains(&me));
}

#[test]
fn a_change_by_another_client_while_a_resource_is_changed_is_not_missed() {
    for answer in [Some(held(2, 1)), None] {
        let (store, me) = changing();
        assert_eq!(store.see_resource(KindName::MCPServer, held(3, 2)), Wake::default());
        assert!(store.end_change(KindName::MCPServer, &me, answer.clone()).now.contains(&me), "{answer:?}");
        assert_eq!(store.entry(&me).unwrap().metadata().generation, Some(2));

        let (store, me) = changing();
        assert_eq!(store.see_resource(KindName::MCPServer, held(2, 1)), Wake::default());
        assert!(store.remove_resource(&me).now.contains(&me));
        assert_eq!(store.end_change(KindName::MCPServer, &me, answer.clone()), Wake::default(), "{answer:?}");
        assert!(store.entry(&me).is_none(), "{answer:?}");
    }
}

#[test]
fn a_child_queues_its_owner_when_another_client_changes_it_but_not_with_its_status() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let id = ChildId { kind: ChildKind::Service, namespace: "ns".into(), name: "mcp-s-proxy".into() };
    let owner = Some(owner("MCPServer", "s"));
    let facts = |version: &str| ChildFacts {
        uid: "u".into(),
        resource_version: version.into(),
        version: "v".into(),
        owner: owner.clone(),
        serves: None,
        upstream: None,
        workload: None,
    };
    assert_eq!(store.see_child(id.clone(), facts("1")).now.len(), 1);
    assert_eq!(store.see_child(id.clone(), facts("2")), Wake::default());
    assert_eq!(store.miss_child(&id).now, BTreeSet::from([key(KindName::MCPServer, "s")]));
}

#[test]
fn our_own_write_that_the_watch_shows_is_no_change() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 2, "c"));
    // Only the version counts: the same one is the same object.
    assert_eq!(put(&store, KindName::MCPServer, server("s", 2, "other")), Wake::default());
    let users = |config: &str| {
        store
            .snapshot(&key(KindName::MCPServer, "s"))
            .is_some_and(|seen| seen.me.references().iter().any(|reference| reference.name == config))
    };
    assert!(users("c") && !users("other"));
}

#[test]
fn a_deleted_object_is_reconciled_once_more_so_that_it_is_forgotten() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 2, "c"));
    let wake = store.remove_resource(&key(KindName::MCPServer, "s"));
    assert_eq!(wake.now, BTreeSet::from([key(KindName::MCPServer, "s")]));
}

/// A pod of the backend of server `s`, with this status.
fn backend_pod(name: &str, uid: &str, revision: &str, status: &Value) -> PodFacts {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "toolhive": "true", "toolhive-name": "s", "controller-revision-hash": revision },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": true }],
        },
        "spec": { "containers": [{ "name": "mcp" }] },
        "status": status,
    });
    pod_facts(&serde_json::from_value(pod).unwrap()).unwrap()
}

fn stateful_set() -> (ChildId, ChildFacts) {
    let id = ChildId { kind: ChildKind::StatefulSet, namespace: "ns".into(), name: "s".into() };
    let set = json!({
        "metadata": { "name": "s", "namespace": "ns", "uid": "u", "labels": { "toolhive": "true", "toolhive-name": "s" } },
        "spec": { "replicas": 1 },
    });
    let metadata = serde_json::from_value(set["metadata"].clone()).unwrap();
    (id, child_facts(ChildKind::StatefulSet, &metadata, Some(&set)))
}

#[test]
fn a_stateful_set_of_another_owner_is_no_backend_and_takes_the_name() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let me = key(KindName::MCPServer, "s");
    let (id, unowned) = stateful_set();
    let with = |owner: Option<Owner>, serves: Option<&str>| {
        let facts = ChildFacts { owner, serves: serves.map(str::to_owned), ..unowned.clone() };
        let wake = store.see_child(id.clone(), facts).now;
        let live = store.snapshot(&me).unwrap().live;
        store.miss_child(&id);
        let conflicts: Vec<String> =
            live.name_conflicts.into_iter().map(|(kind, name, whose)| format!("{kind} {name}: {whose}")).collect();
        (wake.contains(&me), live.backend.is_some(), conflicts.join(", "))
    };
    let mine = (true, true, String::new());
    assert_eq!(with(None, Some("s")), mine);
    assert_eq!(with(Some(owner("MCPServer", "s")), Some("s")), mine);
    let theirs = |whose: &str| (true, false, format!("StatefulSet s: {whose}"));
    assert_eq!(with(Some(owner("EmbeddingServer", "e")), None), theirs("EmbeddingServer `s`"));
    assert_eq!(with(Some(owner("EmbeddingServer", "e")), Some("s")), theirs("EmbeddingServer `s`"));
    assert_eq!(with(None, None), theirs("an object without an owner"));
    // The name is free again when it is gone, and resources of other kinds have no backend.
    store.see_child(id.clone(), ChildFacts { owner: Some(owner("EmbeddingServer", "e")), ..unowned.clone() });
    assert!(store.miss_child(&id).now.contains(&me));
    // That another resource makes it is reported as well.
    store.begin_write(&id);
    let made = ChildFacts { owner: Some(owner("EmbeddingServer", "e")), ..unowned.clone() };
    assert_eq!(store.end_write(&id, Some(made)).now, BTreeSet::from([me]));
    store.miss_child(&id);
    store.see_child(id, ChildFacts { owner: Some(owner("MCPServer", "s")), ..unowned.clone() });
    let spec = json!({ "remoteUrl": "https://mcp.example" });
    put(&store, KindName::MCPRemoteProxy, object(KindName::MCPRemoteProxy, "s", 1, 1, &spec));
    let live = store.snapshot(&key(KindName::MCPRemoteProxy, "s")).unwrap().live;
    assert!(live.backend.is_none() && live.name_conflicts.is_empty());
}

#[test]
fn why_the_pod_of_a_stateful_set_ended_is_remembered_until_one_of_its_template_was_ready() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let (id, set) = stateful_set();
    store.see_child(id.clone(), set.clone());
    let ends = || {
        let ended = store.snapshot(&key(KindName::MCPServer, "s")).unwrap().live.backend.unwrap().ended;
        ended.into_iter().map(|pod| pod.state).collect::<Vec<_>>()
    };
    let failed = |reason: &str, message: &str| {
        let failure = skep_plan::world::Failure { reason: reason.into(), message: message.into(), is_first: false };
        vec![skep_plan::world::PodState::Failed(failure)]
    };
    let rejected = |used: &str| json!({ "phase": "Failed", "reason": "OutOfcpu", "message": format!("used: {used}") });
    let pending = json!({ "phase": "Pending" });
    let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    store.put_pod(backend_pod("s-0", "1", "a", &rejected("1")));
    assert_eq!(ends(), failed("OutOfcpu", "used: 1"));
    // The controller deletes it and makes another one, which is rejected as well.
    store.remove_pod(&pod_id("s-0"));
    assert_eq!(ends(), failed("OutOfcpu", "used: 1"));
    store.put_pod(backend_pod("s-0", "2", "a", &pending));
    assert_eq!(ends(), failed("OutOfcpu", "used: 1"));
    store.put_pod(backend_pod("s-0", "2", "a", &rejected("2")));
    assert_eq!(ends(), failed("OutOfcpu", "used: 1"), "the same reason is the same end");
    let evicted = json!({ "phase": "Failed", "reason": "Evicted" });
    store.put_pod(backend_pod("s-0", "3", "a", &evicted));
    assert_eq!(ends(), failed("Evicted", ""));
    store.put_pod(backend_pod("s-0", "4", "b", &ready));
    store.put_pod(backend_pod("s-0", "4", "b", &pending));
    assert_eq!(ends(), failed("Evicted", ""), "one of another template says nothing of this one");
    store.put_pod(backend_pod("s-0", "5", "a", &ready));
    store.put_pod(backend_pod("s-0", "5", "a", &pending));
    assert!(ends().is_empty(), "it was ready since");
    // With its workload it is forgotten.
    store.put_pod(backend_pod("s-0", "6", "a", &evicted));
    store.remove_pod(&pod_id("s-0"));
    store.miss_child(&id);
    store.see_child(id, set);
    assert!(ends().is_empty());
}

#[test]
fn a_pod_that_does_not_count_as_ready_yet_is_not_among_the_ready_ones_of_its_workload() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let (id, mut set) = stateful_set();
    set.workload.as_mut().unwrap().ready = 1;
    store.see_child(id, set);
    let ready = || store.snapshot(&key(KindName::MCPServer, "s")).unwrap().live.backend.unwrap().ready;
    assert_eq!(ready(), 1, "no pod of it is seen");
    let pod = |started: Timestamp| {
        let container = json!({
            "name": "mcp", "image": "i", "imageID": "i", "ready": true, "restartCount": 3,
            "state": { "running": { "startedAt": started } }, "lastState": { "terminated": { "exitCode": 1 } },
        });
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": [container] });
        backend_pod("s-0", "1", "a", &status)
    };
    store.put_pod(pod(Timestamp::now()));
    assert_eq!(ready(), 0, "it was started just now");
    store.put_pod(pod(Timestamp::now() - jiff::SignedDuration::from_mins(1)));
    assert_eq!(ready(), 1);
}

#[test]
fn the_pod_of_a_deployment_says_why_it_ended_for_as_long_as_it_is_there() {
    let store = Store::default();
    let spec = json!({ "remoteUrl": "https://mcp.example" });
    put(&store, KindName::MCPRemoteProxy, object(KindName::MCPRemoteProxy, "r", 1, 1, &spec));
    let id = ChildId { kind: ChildKind::Deployment, namespace: "ns".into(), name: "r".into() };
    let deployment = json!({
        "metadata": {
            "name": "r", "namespace": "ns", "uid": "d",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "MCPRemoteProxy", "name": "r", "uid": "r", "controller": true }],
        },
    });
    let metadata = serde_json::from_value(deployment["metadata"].clone()).unwrap();
    store.see_child(id, child_facts(ChildKind::Deployment, &metadata, Some(&deployment)));
    let pod = |name: &str, status: &Value| {
        let labels = json!({ "app": "mcpremoteproxy", "app.kubernetes.io/instance": "r", "pod-template-hash": "a" });
        let pod =
            json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": labels }, "status": status });
        store.put_pod(pod_facts(&serde_json::from_value(pod).unwrap()).unwrap())
    };
    let ends = || {
        let ended = store.snapshot(&key(KindName::MCPRemoteProxy, "r")).unwrap().live.workload.unwrap().ended;
        ended.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
    };
    let evicted = json!({ "phase": "Failed", "reason": "Evicted" });
    pod("one", &evicted);
    pod("two", &evicted);
    assert_eq!(ends(), ["one", "two"]);
    store.remove_pod(&pod_id("one"));
    assert_eq!(ends(), ["two"]);
    // Another one serves for a while. What ended before has nothing to do with what comes after.
    pod("three", &json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] }));
    pod("three", &json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] }));
    assert_eq!(pod("two", &evicted), Wake::default(), "a list that brings it again says nothing new");
    assert!(ends().is_empty());
}

#[test]
fn a_pod_that_runs_for_another_resource_now_is_no_pod_of_the_first_one() {
    let store = Store::default();
    for name in ["one", "two"] {
        put(&store, KindName::MCPServer, server(name, 1, "c"));
    }
    let pod = |instance: &str| {
        let labels = json!({ "app": "mcpserver", "app.kubernetes.io/instance": instance });
        let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "p", "labels": labels } });
        store.put_pod(pod_facts(&serde_json::from_value(pod).unwrap()).unwrap())
    };
    let pods = |name: &str| store.snapshot(&key(KindName::MCPServer, name)).unwrap().live.pods.len();
    pod("one");
    let both = ["one", "two"].map(|name| key(KindName::MCPServer, name));
    assert_eq!(pod("two").now, BTreeSet::from(both));
    assert_eq!((pods("one"), pods("two")), (0, 1));
}

#[test]
fn the_objects_of_a_kind_go_with_its_definition_and_wake_those_they_refer_to() {
    let store = Store::default();
    let mut config = object(KindName::MCPToolConfig, "c", 1, 1, &json!({}));
    config["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    put(&store, KindName::MCPToolConfig, config);
    put(&store, KindName::MCPServer, server("s", 2, "c"));
    let (config, server) = (key(KindName::MCPToolConfig, "c"), key(KindName::MCPServer, "s"));
    assert_eq!(store.user_count(&config), 1);
    assert_eq!(store.remove_kind(KindName::MCPServer, Some("another")), Wake::default());
    assert!(store.has_kind(KindName::MCPServer, Some("ns")) && !store.has_kind(KindName::MCPServer, Some("another")));
    let wake = store.remove_kind(KindName::MCPServer, None);
    assert_eq!(wake.now, BTreeSet::from([config.clone(), server.clone()]));
    assert!(store.entry(&server).is_none() && !store.has_kind(KindName::MCPServer, None));
    assert_eq!(store.user_count(&config), 0);
    assert!(store.entry(&config).is_some());
}

/// The node of a pod is lost: it is being deleted for ever, and no other pod gets its name.
#[test]
fn a_pod_that_does_not_go_is_seen_once_it_is_overdue() {
    let store = Store::default();
    put(&store, KindName::MCPServer, server("s", 1, "c"));
    let (id, set) = stateful_set();
    store.see_child(id, set);
    let deleted = |at: jiff::Timestamp| {
        let mut facts = backend_pod("s-0", "p", "r", &json!({ "phase": "Running" }));
        facts.hangs_from = Some(at);
        facts.state = None;
        store.put_pod(facts);
        let seen = store.snapshot(&key(KindName::MCPServer, "s")).unwrap();
        (seen.live.backend.unwrap().hanging, seen.settles)
    };
    let now = jiff::Timestamp::now();
    let later = now.checked_add(jiff::SignedDuration::from_secs(30)).unwrap();
    assert_eq!(deleted(later), (vec![], Some(later)));
    assert_eq!(deleted(now), (vec!["s-0".to_owned()], None));
}

/// What one resource refers to is parsed all at once.
#[test]
fn large_resources_that_one_refers_to_are_parsed_up_to_a_limit_together() {
    let store = Store::default();
    let tools: Vec<String> = (0..15_000).map(|number| format!("tool-{number}")).collect();
    let spec = json!({ "toolsFilter": tools });
    let member = |number: usize| {
        let spec = json!({ "image": "i", "groupRef": { "name": "g" }, "podTemplateSpec": { "tools": tools } });
        object(KindName::MCPServer, &format!("s{number}"), 1, 1, &spec)
    };
    put(&store, KindName::MCPToolConfig, object(KindName::MCPToolConfig, "c", 1, 1, &spec));
    put(&store, KindName::MCPServer, server("user", 2, "c"));
    let found = |snapshot: Snapshot| snapshot.found.into_values().collect::<Vec<_>>();
    let of_user = found(store.snapshot(&key(KindName::MCPServer, "user")).unwrap());
    assert!(matches!(of_user.as_slice(), [Found::Resource(_)]), "one is parsed: {of_user:.200?}");
    (0..5).for_each(|number| drop(put(&store, KindName::MCPServer, member(number))));
    let group = json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } });
    put(&store, KindName::MCPGroup, object(KindName::MCPGroup, "g", 1, 1, &json!({})));
    put(&store, KindName::VirtualMCPServer, object(KindName::VirtualMCPServer, "v", 1, 1, &group));
    let of_group = found(store.snapshot(&key(KindName::VirtualMCPServer, "v")).unwrap());
    let parsed = of_group.iter().filter(|one| matches!(one, Found::Resource(_))).count();
    let refused: Vec<_> =
        of_group.iter().filter_map(|one| if let Found::Unreadable(why) = one { Some(why) } else { None }).collect();
    assert_eq!((parsed, refused.len()), (3 + 1, 2), "the group and three of its members are parsed");
    assert!(refused.iter().all(|why| why.contains("more than 60000 values")), "{refused:?}");
}
