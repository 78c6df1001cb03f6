use std::collections::BTreeMap;

use super::*;

fn server() -> Server {
    Server {
        name: "s".to_owned(),
        image: "i".to_owned(),
        args: vec!["mine".to_owned()],
        env: BTreeMap::from([("B".to_owned(), "2".to_owned()), ("A".to_owned(), "1".to_owned())]),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        ..Server::default()
    }
}

fn pod(server: &Server, platform: Platform) -> Value {
    stateful_set(server, "ns", platform, None).unwrap()["spec"]["template"].clone()
}

#[test]
fn variables_are_sorted_and_unique() {
    let patch = json!({ "spec": { "containers": [{ "name": "mcp", "env": [{ "name": "A", "value": "theirs" }, { "name": "MCP_TRANSPORT", "value": "theirs" }] }] } });
    let server = Server { patch: patch.to_string(), ..server() };
    let env = &pod(&server, Platform::Kubernetes)["spec"]["containers"][0]["env"];
    let wanted = json!([
        { "name": "A", "value": "theirs" }, { "name": "B", "value": "2" }, { "name": "MCP_TRANSPORT", "value": "stdio" },
    ]);
    assert_eq!(*env, wanted);
}

#[test]
fn a_patch_cannot_say_which_generation_was_applied() {
    let patch = json!({ "metadata": { "annotations": { GENERATION: "9999", "note": "theirs" } } }).to_string();
    for (generation, expected) in [(0, json!({ "note": "theirs" })), (3, json!({ "note": "theirs", GENERATION: "3" }))]
    {
        let server = Server { patch: patch.clone(), generation, ..server() };
        assert_eq!(pod(&server, Platform::Kubernetes)["metadata"]["annotations"], expected);
    }
}

#[test]
fn of_variables_that_a_patch_has_twice_the_last_one_counts() {
    let twice = json!([{ "name": "C", "value": "1" }, { "name": "D", "value": "2" }, { "name": "C", "value": "3" }]);
    let patch = json!({ "spec": { "containers": [{ "name": "mcp", "env": twice }] } });
    let server = Server { patch: patch.to_string(), env: BTreeMap::new(), ..server() };
    let env = &pod(&server, Platform::Kubernetes)["spec"]["containers"][0]["env"];
    let wanted = json!([
        { "name": "D", "value": "2" }, { "name": "C", "value": "3" }, { "name": "MCP_TRANSPORT", "value": "stdio" },
    ]);
    assert_eq!(*env, wanted);
}

#[test]
fn a_patch_is_the_base_and_keeps_whatever_it_has() {
    let patch = json!({
        "metadata": { "name": "ignored", "labels": { "app": "theirs", "own": "1" } },
        "spec": {
            "tolerations": [{ "key": "k" }],
            "newField": "of a later Kubernetes",
            "restartPolicy": "OnFailure",
            "securityContext": { "runAsUser": 7 },
            "containers": [{ "name": "side", "image": "x" }, { "name": "mcp", "image": "ignored", "args": ["theirs"], "securityContext": { "readOnlyRootFilesystem": false } }],
        },
    });
    let template = pod(&Server { patch: patch.to_string(), ..server() }, Platform::Kubernetes);
    assert_eq!(
        template["metadata"],
        json!({ "labels": { "app": "s", "own": "1", "team": "blue", "toolhive": "true" } })
    );
    let spec = &template["spec"];
    assert_eq!(spec["tolerations"], json!([{ "key": "k" }]));
    assert_eq!(spec["newField"], "of a later Kubernetes");
    assert_eq!(spec["restartPolicy"], "OnFailure");
    assert_eq!(spec["securityContext"]["runAsUser"], 7);
    assert_eq!(spec["securityContext"]["runAsGroup"], 1000);
    assert_eq!(spec["containers"][0], json!({ "name": "side", "image": "x" }));
    let container = &spec["containers"][1];
    assert_eq!(container["image"], "i");
    assert_eq!(container["args"], json!(["theirs", "mine"]));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], false);
    assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
}

#[test]
fn ports_of_a_patch_stay_and_ours_stands_among_them_once() {
    let ours = json!({ "containerPort": 8080, "protocol": "TCP" });
    let metrics = json!({ "name": "metrics", "containerPort": 9090 });
    let udp = json!({ "containerPort": 8080, "protocol": "UDP" });
    let named = json!({ "name": "mcp", "containerPort": 8080 });
    for (theirs, wanted) in [
        (json!(null), json!([ours])),
        (json!([metrics]), json!([metrics, ours])),
        (json!([udp]), json!([udp, ours])),
        (json!([named, metrics]), json!([named, metrics])),
        (json!([ours]), json!([ours])),
    ] {
        let patch = json!({ "spec": { "containers": [{ "name": "mcp", "ports": theirs }] } });
        let server = Server { patch: patch.to_string(), speaks: Speaks::Sse(8080), ..server() };
        assert_eq!(pod(&server, Platform::Kubernetes)["spec"]["containers"][0]["ports"], wanted);
    }
}

#[test]
fn a_requested_rollout_restart_is_not_reverted() {
    let restarted =
        json!({ "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z", "theirs": "not ours to send" });
    let live = json!({ "spec": { "template": { "metadata": { "annotations": restarted } } } });
    let set = stateful_set(&server(), "ns", Platform::Kubernetes, Some(&live)).unwrap();
    assert_eq!(
        set["spec"]["template"]["metadata"]["annotations"],
        json!({ "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z" })
    );
}

#[test]
fn a_container_is_added_when_the_patch_has_none_of_that_name() {
    let patch = json!({ "spec": { "containers": [{ "name": "side" }] } });
    let spec = pod(&Server { patch: patch.to_string(), ..server() }, Platform::Kubernetes);
    assert_eq!(spec["spec"]["containers"][1]["name"], CONTAINER);
}

#[test]
fn open_shift_picks_its_own_users() {
    let patch = json!({ "spec": { "securityContext": { "runAsUser": 7, "fsGroup": 8 }, "containers": [{ "name": "mcp", "securityContext": { "runAsUser": 7 } }] } });
    let spec = pod(&Server { patch: patch.to_string(), ..server() }, Platform::OpenShift)["spec"].clone();
    for name in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert_eq!(spec["securityContext"].get(name), None, "{name}");
        assert_eq!(spec["containers"][0]["securityContext"].get(name), None, "{name}");
    }
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
}

#[test]
fn replicas_are_sent_only_when_they_are_given_and_zero_is_given() {
    for (replicas, wanted) in
        [(None, None), (Some(0), Some(json!(0))), (Some(1), Some(json!(1))), (Some(3), Some(json!(3)))]
    {
        let set = stateful_set(&Server { replicas, ..server() }, "ns", Platform::Kubernetes, None).unwrap();
        assert_eq!(set["spec"].get("replicas"), wanted.as_ref());
    }
}

#[test]
fn ports_are_unique_and_a_node_port_exists_only_when_the_user_sets_it() {
    let speaks = Speaks::StreamableHttp(30500);
    let publish = vec!["9000".to_owned(), "8080:9001".to_owned(), "31000:9002".to_owned(), "30500".to_owned()];
    let made = services(&Server { speaks, publish, ..server() }, "ns", "u").unwrap();
    let ports = |(_, service): &(String, Value)| {
        let list = service["spec"]["ports"].as_array().unwrap().clone();
        list.iter().map(|port| (port["port"].as_u64().unwrap(), port.get("nodePort").cloned())).collect::<Vec<_>>()
    };
    assert_eq!(ports(&made[0]), [(9000, None), (9001, None), (9002, None), (30500, None)]);
    assert_eq!(ports(&made[1]), [(9000, None), (9001, None), (9002, Some(json!(31000))), (30500, None)]);
    assert_eq!(made[1].1["spec"]["type"], "NodePort");
    let plain = services(&Server { speaks, ..server() }, "ns", "u").unwrap();
    assert_eq!(plain[1].1["spec"]["type"], "ClusterIP");
    assert!(services(&server(), "ns", "u").unwrap().is_empty());
}

#[test]
fn an_http_server_has_two_services_with_either_transport() {
    for speaks in [Speaks::Sse(8080), Speaks::StreamableHttp(8080)] {
        let server = Server { speaks, ..server() };
        let made = services(&server, "ns", "u").unwrap();
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mcp-s-headless", "mcp-s"]);
        let ports = json!([{ "name": "port-8080", "port": 8080, "targetPort": 8080, "protocol": "TCP" }]);
        let selector = json!({ "app": "s" });
        assert_eq!(
            made[0].1["spec"],
            json!({ "clusterIP": "None", "type": "ClusterIP", "selector": selector, "ports": ports })
        );
        assert_eq!(
            made[1].1["spec"],
            json!({
                "type": "ClusterIP", "selector": selector, "ports": ports, "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 1800 } },
            })
        );
        for (name, service) in &made {
            let owner = json!([{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u",
                "controller": true, "blockOwnerDeletion": true,
            }]);
            assert_eq!(service["metadata"]["ownerReferences"], owner, "{name}");
            let labels = json!({ "app": "s", "toolhive": "true", "team": "blue" });
            assert_eq!(service["metadata"]["labels"], labels, "{name}");
        }
        assert_eq!(server.url().as_deref(), Some("http://mcp-s:8080"));
    }
}
