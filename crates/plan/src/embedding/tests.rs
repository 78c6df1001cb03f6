use serde_json::json;
use skep_api::resource::KindName;

use super::*;
use crate::child::ChildKind;
use crate::plan::{Finalizer, Verdict};
use crate::validate::testing::{Surroundings, assert_golden, changed, crash, deleted, resource};
use crate::world::PodState;

fn spec() -> Value {
    json!({ "model": "BAAI/bge-small-en-v1.5", "image": "registry.example/tei:1", "port": 8080 })
}

fn full() -> Value {
    json!({
        "model": "m",
        "image": "i",
        "port": 9000,
        "replicas": 2,
        "args": ["--pooling", "mean"],
        "env": [{ "name": "B", "value": "2" }, { "name": "A", "value": "1" }],
        "hfTokenSecretRef": { "name": "hf", "key": "token" },
        "resources": { "limits": { "cpu": "1" } },
        "modelCache": { "size": "20Gi", "accessMode": "ReadWriteMany", "storageClassName": "fast" },
        "podTemplateSpec": { "metadata": { "labels": { "app.kubernetes.io/instance": "users" } }, "spec": { "nodeSelector": { "disk": "ssd" }, "serviceAccountName": "mine" } },
        "resourceOverrides": {
            "statefulSet": {
                "labels": { "team": "a", "app.kubernetes.io/name": "users" },
                "annotations": { "note": "n" },
                "podTemplateMetadataOverrides": {
                    "labels": { "app.kubernetes.io/name": "users", "pod": "p" },
                    "annotations": { "vault": "yes" },
                },
            },
            "service": { "labels": { "team": "b" }, "annotations": { "lb": "internal" } },
            "persistentVolumeClaim": { "labels": { "backup": "no" }, "annotations": { "c": "d" } },
        },
    })
}

fn planned(spec: &Value, surroundings: &Surroundings) -> Plan {
    let me = resource(KindName::EmbeddingServer, "embed", spec);
    let Resource::EmbeddingServer(object) = &me else { panic!("another kind") };
    plan(&me, object, &surroundings.world())
}

fn child(plan: &Plan, kind: ChildKind) -> Value {
    plan.children.iter().find(|child| child.kind() == kind).unwrap().body().clone()
}

/// The surroundings after a plan was carried out: the StatefulSet is there, with what we noted on it.
fn after(plan: &Plan, pods: &[PodState]) -> Surroundings {
    Surroundings::default().with_secret("hf", "token").carried_out(plan, pods)
}

#[test]
fn the_children_are_those_of_the_original() {
    let plan = planned(&spec(), &Surroundings::default());
    assert_eq!(plan.verdict, Verdict::Apply);
    assert_eq!(plan.finalizer, Finalizer::Hold);
    assert_golden(&plan.children, KindName::EmbeddingServer);
    let status = plan.status.onto(&json!({}), 2, "now");
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["message"], "Waiting for statefulset");
    assert_eq!(status["url"], "http://embed.ns.svc.cluster.local:8080");
    let template = plan.status.find("PodTemplateValid").unwrap();
    assert_eq!((template.is_true(), template.reason.as_str()), (true, "ValidPodTemplateSpec"));
    assert_eq!(template.message, "No PodTemplateSpec provided");
}

#[test]
fn everything_in_the_spec_reaches_the_children() {
    let plan = planned(&full(), &Surroundings::default());
    let set = child(&plan, ChildKind::StatefulSet);
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["--model-id", "m", "--port", "9000", "--pooling", "mean"]));
    let env = json!([
        { "name": "MODEL_ID", "value": "m" },
        { "name": "HF_TOKEN", "valueFrom": { "secretKeyRef": { "name": "hf", "key": "token" } } },
        { "name": "A", "value": "1" },
        { "name": "B", "value": "2" },
        { "name": "HF_HOME", "value": "/data" },
    ]);
    assert_eq!(container["env"], env);
    assert_eq!(container["resources"], json!({ "limits": { "cpu": "1" } }));
    assert_eq!(container["volumeMounts"], json!([{ "name": "model-cache", "mountPath": "/data" }]));
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!((&pod["nodeSelector"]["disk"], &pod["serviceAccountName"]), (&json!("ssd"), &json!("mine")));
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        claim["spec"],
        json!({ "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "20Gi" } }, "storageClassName": "fast" })
    );
    assert_eq!(
        (&claim["metadata"]["labels"]["backup"], &claim["metadata"]["annotations"]),
        (&json!("no"), &json!({ "c": "d" }))
    );
    assert_eq!(set["spec"]["replicas"], 2);

    let service = child(&plan, ChildKind::Service);
    assert_eq!(service["spec"]["ports"][0]["port"], 9000);
    assert_eq!(service["metadata"]["labels"]["team"], "b");
    assert_eq!(service["metadata"]["annotations"], json!({ "lb": "internal" }));
    assert_eq!(plan.status.field("url"), Some(&json!("http://embed.ns.svc.cluster.local:9000")));
}

#[test]
fn the_users_labels_win_but_never_reach_the_selector() {
    let set = child(&planned(&full(), &Surroundings::default()), ChildKind::StatefulSet);
    assert_eq!(set["metadata"]["labels"]["app.kubernetes.io/name"], "users");
    assert_eq!(set["metadata"]["annotations"]["note"], "n");
    let template = &set["spec"]["template"]["metadata"];
    assert_eq!(template["labels"]["pod"], "p");
    assert_eq!(template["annotations"]["vault"], "yes");
    let selector = set["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert_eq!(selector.len(), 4);
    for (name, value) in selector {
        assert_eq!(&template["labels"][name], value, "the selector would not find its pods by {name}");
    }
}

#[test]
fn variables_of_the_user_win_and_are_written_once() {
    let env = json!([{ "name": "MODEL_ID", "value": "other" }, { "name": "HF_HOME", "value": "/elsewhere" }]);
    let set = child(&planned(&changed(&full(), "/env", &env), &Surroundings::default()), ChildKind::StatefulSet);
    let env = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let values =
        |name: &str| env.iter().filter(|one| one["name"] == name).map(|one| one["value"].clone()).collect::<Vec<_>>();
    assert_eq!(values("MODEL_ID"), ["other"]);
    assert_eq!(values("HF_HOME"), ["/elsewhere"]);
}

#[test]
fn the_same_input_gives_the_same_plan_in_any_order() {
    let surroundings = Surroundings::default();
    let plan = planned(&full(), &surroundings);
    assert_eq!(planned(&full(), &surroundings), plan);
    let permuted = json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]);
    assert_eq!(planned(&changed(&full(), "/env", &permuted), &surroundings), plan);
    // Here the order has a meaning: the second is made from the first.
    let made = json!([{ "name": "B", "value": "2" }, { "name": "A", "value": "$(B)" }]);
    let set = child(&planned(&changed(&full(), "/env", &made), &surroundings), ChildKind::StatefulSet);
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["env"][2]["name"], "B");
}

#[test]
fn an_invalid_spec_is_refused_with_a_reason() {
    let cases = [
        (
            "/podTemplateSpec",
            json!({ "spec": { "containers": 7 } }),
            "InvalidPodTemplateSpec",
            "Invalid PodTemplateSpec: spec.containers",
        ),
        (
            "/podTemplateSpec",
            json!({ "spec": { "containers": [{ "image": "x" }] } }),
            "InvalidPodTemplateSpec",
            "Invalid PodTemplateSpec: ",
        ),
        (
            "/resources",
            json!({ "limits": { "cpu": "lots" } }),
            "ValidationFailed",
            "spec.resources.limits.cpu: `lots` is not a quantity",
        ),
        ("/modelCache", json!({ "size": "big" }), "ValidationFailed", "spec.modelCache.size: `big` is not a quantity"),
    ];
    for (place, value, reason, message) in cases {
        let plan = planned(&changed(&spec(), place, &value), &Surroundings::default());
        let Verdict::Refuse(why) = &plan.verdict else { panic!("{place} was not refused") };
        assert!(why.starts_with(message), "{place}: {why}");
        assert!(plan.children.is_empty());
        assert_eq!(plan.status.field("phase"), Some(&json!("Failed")));
        let ready = plan.status.find("Ready").unwrap();
        assert_eq!((ready.is_true(), ready.reason.as_str(), &ready.message), (false, reason, why));
        assert_eq!(plan.status.find("PodTemplateValid").unwrap().is_true(), reason != "InvalidPodTemplateSpec");
    }
}

#[test]
fn names_that_no_service_can_have_are_refused() {
    for name in ["has.dots".to_owned(), "1st".to_owned(), "x".repeat(53)] {
        let me = resource(KindName::EmbeddingServer, &name, &spec());
        let Resource::EmbeddingServer(object) = &me else { panic!("another kind") };
        assert!(matches!(plan(&me, object, &Surroundings::default().world()).verdict, Verdict::Refuse(_)), "{name}");
    }
}

#[test]
fn a_taken_name_is_refused_and_its_owner_named() {
    let mut surroundings = Surroundings::default();
    surroundings.live.name_conflicts.insert((ChildKind::StatefulSet, "embed".into(), "MCPServer `embed`".into()));
    let plan = planned(&spec(), &surroundings);
    let expected = "the name of StatefulSet `embed` is in use by MCPServer `embed`; rename this EmbeddingServer, or remove the other object";
    assert_eq!(plan.verdict, Verdict::Refuse(expected.into()));
    assert_eq!(plan.status.find("Ready").unwrap().reason, "NameTaken");
}

#[test]
fn the_phase_distinguishes_a_download_from_a_crash() {
    let first = planned(&full(), &Surroundings::default());
    let crash = crash("no memory");
    let cases: &[(i32, &[PodState], &str, &str, &str)] = &[
        (0, &[], "Pending", "NotReady", "Waiting for statefulset"),
        (0, &[PodState::Pending], "Downloading", "RollingOut", "Downloading embedding model"),
        (
            0,
            &[PodState::Pending, crash.clone()],
            "Failed",
            "RolloutStalled",
            "Embedding server failed to start: pod `embed-1`: CrashLoopBackOff: no memory",
        ),
        (
            1,
            &[PodState::Ready, crash],
            "Ready",
            "RolloutStalled",
            "the rollout is stalled: pod `embed-1`: CrashLoopBackOff: no memory",
        ),
        (
            1,
            &[PodState::Ready, PodState::Pending],
            "Ready",
            "RollingOut",
            "Embedding server is rolling out: 1 of 2 pods are ready",
        ),
        (2, &[PodState::Ready, PodState::Ready], "Ready", "Ready", "Embedding server is running"),
    ];
    for (ready, pods, phase, reason, message) in cases {
        let plan = planned(&full(), &after(&first, pods));
        assert_eq!(plan.verdict, Verdict::Apply);
        assert_eq!(plan.status.field("phase"), Some(&json!(phase)));
        assert_eq!(plan.status.field("message"), Some(&json!(message)));
        assert_eq!(plan.status.field("readyReplicas"), Some(&json!((*ready > 0).then_some(ready))));
        let reported = plan.status.find("Ready").unwrap();
        assert_eq!((reported.reason.as_str(), reported.is_true()), (*reason, *reason == "Ready"), "{message}");
    }
}

#[test]
fn a_refused_server_has_no_url_unless_its_service_is_there() {
    let first = planned(&full(), &Surroundings::default());
    assert!(first.status.field("url").is_some_and(Value::is_string));
    let refused = changed(&full(), "/modelCache/size", &json!("big"));
    assert_eq!(planned(&refused, &Surroundings::default()).status.field("url"), Some(&Value::Null));
    // The Service is as it was made before, so its address stays in the status as it is.
    assert_eq!(planned(&refused, &after(&first, &[PodState::Ready])).status.field("url"), None);
}

#[test]
fn a_missing_token_is_reported_and_the_pods_are_created_all_the_same() {
    let plan = planned(&full(), &Surroundings::default());
    assert_eq!(plan.verdict, Verdict::Apply);
    let ready = plan.status.find("Ready").unwrap();
    assert_eq!(ready.reason, "SecretNotFound");
    assert_eq!(ready.message, "spec.hfTokenSecretRef: Secret `hf` not found; create it with the key `token`");
}

#[test]
fn a_new_token_rolls_no_pod() {
    let with = planned(&full(), &Surroundings::default().with_secret("hf", "token"));
    assert_eq!(with.children, planned(&full(), &Surroundings::default()).children);
}

#[test]
fn a_change_of_the_volume_is_reported_and_touches_nothing() {
    let first = planned(&full(), &Surroundings::default());
    let running = after(&first, &[PodState::Ready, PodState::Ready]);
    for (place, value) in [
        ("/modelCache/size", json!("30Gi")),
        ("/modelCache/accessMode", json!("ReadWriteOnce")),
        ("/modelCache/enabled", json!(false)),
        ("/resourceOverrides/persistentVolumeClaim", json!({ "labels": { "backup": "yes" } })),
    ] {
        let plan = planned(&changed(&full(), place, &value), &running);
        assert!(
            matches!(&plan.verdict, Verdict::Refuse(why) if why.contains("kubectl delete statefulset embed")),
            "{place}"
        );
        let volume = plan.status.find("VolumeReady").unwrap();
        assert_eq!((volume.is_true(), volume.reason.as_str()), (false, "VolumeClaimImmutable"));
        // What runs goes on running, and says so; but it is not what the spec says.
        assert_eq!(plan.status.field("phase"), Some(&json!("Ready")));
        let ready = plan.status.find("Ready").unwrap();
        assert_eq!((ready.is_false(), ready.reason.as_str()), (true, "VolumeClaimImmutable"));
    }
    assert!(planned(&full(), &running).status.find("VolumeReady").is_none());
    // Nothing is there any more, or its maker recorded nothing: it is made as the spec says.
    let mut gone = after(&first, &[]);
    gone.live.workload = None;
    assert_eq!(planned(&changed(&full(), "/modelCache/size", &json!("30Gi")), &gone).verdict, Verdict::Apply);
}

#[test]
fn pull_secrets_of_the_operator_are_on_the_pod() {
    let mut surroundings = Surroundings::default();
    surroundings.settings.pull_secrets = vec!["a".into()];
    let set = child(&planned(&spec(), &surroundings), ChildKind::StatefulSet);
    assert_eq!(set["spec"]["template"]["spec"]["imagePullSecrets"], json!([{ "name": "a" }]));
}

#[test]
fn an_invalid_resource_can_be_deleted() {
    let me = deleted(KindName::EmbeddingServer, "embed", &changed(&spec(), "/podTemplateSpec", &json!({ "spec": 1 })));
    let Resource::EmbeddingServer(object) = &me else { panic!("another kind") };
    let plan = plan(&me, object, &Surroundings::default().world());
    assert_eq!((plan.verdict, plan.finalizer, plan.children.len()), (Verdict::Apply, Finalizer::Release, 0));
    assert_eq!(plan.status.field("phase"), Some(&json!("Terminating")));
}

/// As after `kubectl replace --force`: what is left of the one before goes by itself, so nothing is wrong.
#[test]
fn a_resource_waits_for_the_children_of_the_one_that_had_its_name() {
    let mut surroundings = Surroundings::default();
    surroundings.live.name_conflicts.insert((ChildKind::StatefulSet, "embed".into(), "EmbeddingServer `embed`".into()));
    let me = resource(KindName::EmbeddingServer, "embed", &spec());
    let plan = crate::plan::plan(&me, &surroundings.world());
    assert!(
        matches!(&plan.verdict, Verdict::Wait(why) if why.contains("is being garbage-collected")),
        "{:?}",
        plan.verdict
    );
    assert_eq!(plan.status.find("Ready").unwrap().reason, "WaitingForGarbageCollection");
    assert!(plan.status.find("Stalled").is_none() && plan.recheck);
}
