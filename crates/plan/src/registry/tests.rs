use serde_json::json;
use skep_api::resource::KindName;

use super::*;
use crate::child::ChildKind;
use crate::plan::{Finalizer, Verdict};
use crate::pod::{CONFIG_HASH, INPUTS};
use crate::status::ConditionStatus;
use crate::validate::testing::{Surroundings, assert_golden, changed, crash, deleted, resource};
use crate::world::{Failure, LiveWorkload, PodState};

fn spec() -> Value {
    json!({ "configYAML": "sources: []\n" })
}

fn full() -> Value {
    json!({
        "configYAML": "sources: []\n",
        "volumes": [{ "name": "data", "configMap": { "name": "d" } }],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        "pgpassSecretRef": { "name": "pg", "key": "file" },
        "imagePullSecrets": [{ "name": "own" }],
        "podTemplateSpec": {
            "metadata": {
                "labels": { "team": "a", "app.kubernetes.io/name": "users" },
                "annotations": { "vault": "yes", CONFIG_HASH: "mine" },
            },
            "spec": {
                "serviceAccountName": "mine",
                "tolerations": [{ "key": "gpu" }],
                "volumes": [{ "name": "more", "emptyDir": {} }],
                "containers": [
                    { "name": "sidecar", "image": "s" },
                    {
                        "name": "registry-api",
                        "resources": { "limits": { "cpu": "2" } },
                        "env": [{ "name": "LOG", "value": "debug" }],
                        "volumeMounts": [{ "name": "more", "mountPath": "/more" }],
                    },
                ],
            },
        },
    })
}

fn planned(spec: &Value, surroundings: &Surroundings) -> Plan {
    let me = resource(KindName::MCPRegistry, "registry", spec);
    let Resource::MCPRegistry(object) = &me else { panic!("another kind") };
    plan(&me, object, &surroundings.world())
}

fn child(plan: &Plan, kind: ChildKind) -> Value {
    plan.children.iter().find(|child| child.kind() == kind).unwrap().body().clone()
}

fn running(replicas: i32, ready: i32) -> Surroundings {
    let mut surroundings = Surroundings::default();
    surroundings.live.workload = Some(LiveWorkload { replicas, ready, ours: true, ..LiveWorkload::default() });
    surroundings
}

#[test]
fn the_children_are_those_of_the_original() {
    let plan = planned(&spec(), &Surroundings::default());
    assert_eq!(plan.verdict, Verdict::Apply);
    assert_golden(&plan.children, KindName::MCPRegistry);
    let kinds: Vec<ChildKind> = plan.children.iter().map(Child::kind).collect();
    assert!(kinds.is_sorted(), "what is referred to comes first: {kinds:?}");
    let status = plan.status.onto(&json!({}), 1, "now");
    assert_eq!(
        (&status["phase"], &status["message"]),
        (&json!("Pending"), &json!("Registry API deployment is not ready yet"))
    );
    assert_eq!(status.get("url"), None);
    assert!(plan.status.find("PodTemplateValid").is_none());
    assert_eq!(plan.status.find("Ready").unwrap().reason, "NotReady");
}

#[test]
fn the_users_template_comes_first_and_ours_fills_its_gaps() {
    let plan = planned(&full(), &Surroundings::default());
    let deployment = child(&plan, ChildKind::Deployment);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "mine");
    assert_eq!(pod["tolerations"], json!([{ "key": "gpu" }]));
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["volumes"]), ["more", "registry-server-config", "data", "pgpass-secret", "pgpass"]);
    assert_eq!(names(&pod["containers"]), ["sidecar", "registry-api"]);
    assert_eq!(names(&pod["initContainers"]), ["setup-pgpass"]);
    let container = &pod["containers"][1];
    assert_eq!(container["image"], "registry.example/registry-api:1");
    assert_eq!(container["resources"], json!({ "limits": { "cpu": "2" } }));
    assert_eq!(names(&container["env"]), ["LOG", "PGPASSFILE"]);
    assert_eq!(names(&container["volumeMounts"]), ["more", "registry-server-config", "data", "pgpass"]);
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "own" }]));
    assert_eq!(plan.status.find("PodTemplateValid").unwrap().message, "PodTemplateSpec is valid");
}

#[test]
fn neither_selector_nor_stamps_can_be_displaced() {
    let deployment = child(&planned(&full(), &Surroundings::default()), ChildKind::Deployment);
    let metadata = &deployment["spec"]["template"]["metadata"];
    assert_eq!((&metadata["labels"]["team"], &metadata["annotations"]["vault"]), (&json!("a"), &json!("yes")));
    for (name, value) in deployment["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&metadata["labels"][name], value);
    }
    assert_ne!(metadata["annotations"][CONFIG_HASH], "mine");
    assert_eq!(deployment["metadata"].get("annotations"), None);
}

#[test]
fn a_change_of_the_configuration_or_of_the_password_rolls_the_pods() {
    let stamp = |spec: &Value, surroundings: &Surroundings, name: &str| {
        let deployment = child(&planned(spec, surroundings), ChildKind::Deployment);
        deployment["spec"]["template"]["metadata"]["annotations"][name].clone()
    };
    let world = Surroundings::default();
    let other = changed(&spec(), "/configYAML", &json!("sources: [1]\n"));
    assert_ne!(stamp(&spec(), &world, CONFIG_HASH), stamp(&other, &world, CONFIG_HASH));
    let mut rotated = Surroundings::default().with_secret("pg", "file");
    let before = stamp(&full(), &rotated, INPUTS);
    rotated = rotated.with_secret("pg", "other");
    assert_ne!(before, stamp(&full(), &rotated, INPUTS));
    assert_eq!(stamp(&spec(), &world, INPUTS), Value::Null);
}

#[test]
fn replicas_belong_to_the_manager_that_scales() {
    assert_eq!(child(&planned(&spec(), &running(3, 3)), ChildKind::Deployment)["spec"].get("replicas"), None);
}

#[test]
fn pull_secrets_reach_pod_and_account_and_go_again() {
    let mut surroundings = Surroundings::default();
    surroundings.settings.pull_secrets = vec!["chart".into(), "own".into()];
    let spec_with = changed(&spec(), "/imagePullSecrets", &json!([{ "name": "own" }]));
    let expected = json!([{ "name": "own" }, { "name": "chart" }]);
    let plan = planned(&spec_with, &surroundings);
    assert_eq!(child(&plan, ChildKind::ServiceAccount)["imagePullSecrets"], expected);
    assert_eq!(child(&plan, ChildKind::Deployment)["spec"]["template"]["spec"]["imagePullSecrets"], expected);
    // The template's list replaces the pod's, and the account goes on following the spec.
    let template = json!({ "spec": { "imagePullSecrets": [{ "name": "template" }] } });
    let plan = planned(&changed(&spec_with, "/podTemplateSpec", &template), &surroundings);
    assert_eq!(child(&plan, ChildKind::ServiceAccount)["imagePullSecrets"], expected);
    let pod = child(&plan, ChildKind::Deployment)["spec"]["template"]["spec"].clone();
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "template" }]));
    assert_eq!(
        child(&planned(&spec(), &Surroundings::default()), ChildKind::ServiceAccount).get("imagePullSecrets"),
        None
    );
}

#[test]
fn an_invalid_spec_is_refused_with_a_reason() {
    let mount = |path: &str| json!([{ "name": "data", "mountPath": path }]);
    let volume = |name: &str| json!([{ "name": "data", "emptyDir": {} }, { "name": name, "emptyDir": {} }]);
    let cases = [
        (
            "/volumes",
            volume("registry-server-config"),
            "spec.volumes[1]: `registry-server-config` is a volume of Skep's own",
        ),
        ("/volumes", volume("pgpass"), "spec.volumes[1]: `pgpass` is a volume of Skep's own"),
        ("/volumes", volume("data"), "spec.volumes[1]: there is another volume `data`"),
        ("/volumes", volume("more"), "spec.podTemplateSpec.spec.volumes[0]: there is another volume `more`"),
        ("/volumes", json!([{ "name": 7 }]), "spec.volumes[0]: it is not a volume"),
        ("/volumeMounts", json!([7]), "spec.volumeMounts[0]: it is not a volume mount"),
        ("/volumeMounts", mount("/config/"), "spec.volumeMounts[0]: Skep mounts `/config` itself"),
        (
            "/volumeMounts",
            mount("/home/appuser/.pgpass"),
            "spec.volumeMounts[0]: Skep mounts `/home/appuser/.pgpass` itself",
        ),
        (
            "/volumeMounts",
            mount("/more"),
            "spec.podTemplateSpec.spec.containers[registry-api].volumeMounts[0]: something else",
        ),
        (
            "/volumeMounts",
            json!([{ "name": "none", "mountPath": "/x" }]),
            "spec.volumeMounts[0]: there is no volume `none`",
        ),
        ("/pgpassSecretRef/key", json!(""), "spec.pgpassSecretRef.key: it is empty"),
        (
            "/podTemplateSpec/spec/initContainers",
            json!([{ "name": "setup-pgpass" }]),
            "spec.podTemplateSpec.spec.initContainers: `setup-pgpass` is an init container of Skep's own",
        ),
    ];
    for (place, value, expected) in cases {
        let plan = planned(&changed(&full(), place, &value), &running(1, 1));
        let Verdict::Refuse(why) = &plan.verdict else { panic!("{place} {value} was not refused") };
        assert!(why.starts_with(&format!("Spec validation failed: {expected}")), "{place}: {why}");
        assert_eq!(plan.status.field("phase"), Some(&json!("Failed")));
        assert_eq!(plan.status.find("Ready").unwrap().reason, "ValidationFailed");
    }
    // Without a password file its names are free.
    let free = changed(&changed(&full(), "/pgpassSecretRef", &Value::Null), "/volumes", &volume("pgpass"));
    assert_eq!(planned(&free, &Surroundings::default()).verdict, Verdict::Apply);
}

#[test]
fn an_unreadable_template_is_refused() {
    let plan = planned(
        &changed(&spec(), "/podTemplateSpec", &json!({ "spec": { "containers": "x" } })),
        &Surroundings::default(),
    );
    assert!(
        matches!(&plan.verdict, Verdict::Refuse(why) if why.starts_with("Invalid PodTemplateSpec: spec.containers"))
    );
    assert!(!plan.status.find("PodTemplateValid").unwrap().is_true());
    assert!(plan.children.is_empty());
}

#[test]
fn a_taken_name_is_refused_and_its_owner_named() {
    let mut surroundings = Surroundings::default();
    surroundings.live.name_conflicts.insert((
        ChildKind::Deployment,
        "registry-api".into(),
        "MCPServer `registry-api`".into(),
    ));
    let plan = planned(&spec(), &surroundings);
    assert!(
        matches!(&plan.verdict, Verdict::Refuse(why) if why.contains("in use by MCPServer `registry-api`; rename this MCPRegistry"))
    );
    assert_eq!(plan.status.find("Ready").unwrap().reason, "NameTaken");
}

#[test]
fn names_that_no_service_can_have_are_refused() {
    for name in ["has.dots".to_owned(), "x".repeat(51)] {
        let me = resource(KindName::MCPRegistry, &name, &spec());
        let Resource::MCPRegistry(object) = &me else { panic!("another kind") };
        assert!(matches!(plan(&me, object, &Surroundings::default().world()).verdict, Verdict::Refuse(_)), "{name}");
    }
}

/// The status once a plan for `spec` was carried out and has these pods.
fn status_of(spec: &Value, pods: &[PodState]) -> Status {
    let surroundings = Surroundings::default().with_secret("pg", "file");
    let first = planned(spec, &surroundings);
    planned(spec, &surroundings.carried_out(&first, pods)).status
}

/// Phase, message, status and reason of `Ready`, and whether it is stalled.
type Reported = (String, String, ConditionStatus, String, bool);

fn reported(status: &Status) -> Reported {
    let text = |name: &str| status.field(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let ready = status.find("Ready").unwrap();
    (text("phase"), text("message"), ready.status, ready.reason.clone(), status.find("Stalled").is_some())
}

#[test]
fn readiness_follows_the_pods() {
    use ConditionStatus::{False, True, Unknown};
    let (ready, pending) = (PodState::Ready, PodState::Pending);
    let no_node = Failure { reason: Failure::UNSCHEDULABLE.to_owned(), message: "no node".to_owned(), is_first: false };
    let expected = |phase: &str, message: &str, is_ready, reason: &str, is_stalled| -> Reported {
        (phase.to_owned(), message.to_owned(), is_ready, reason.to_owned(), is_stalled)
    };
    let fails = |why: &str, is_stalled| {
        let message = format!("Registry API failed to start: pod `registry-api-0`: {why}");
        expected("Failed", &message, False, "RolloutStalled", is_stalled)
    };
    let serves = expected("Ready", "Registry API is ready and serving requests", True, "Ready", false);
    let rolls = "Registry API is rolling out: 1 of 2 pods are ready";
    let cases: Vec<(Vec<PodState>, Reported)> = vec![
        (vec![], expected("Pending", "Registry API deployment is not ready yet", False, "NotReady", false)),
        (vec![pending.clone()], expected("Pending", "Registry API is starting", Unknown, "RollingOut", false)),
        (vec![ready.clone()], serves),
        (vec![ready.clone(), pending], expected("Ready", rolls, Unknown, "RollingOut", false)),
        (vec![crash("no database")], fails("CrashLoopBackOff: no database", true)),
        (vec![PodState::Failed(no_node)], fails("Unschedulable: no node", false)),
    ];
    for (pods, expected) in cases {
        let status = status_of(&spec(), &pods);
        assert_eq!(reported(&status), expected);
        let url = pods.contains(&ready).then_some("http://registry-api.ns.svc.cluster.local:8080");
        assert_eq!(status.field("url"), Some(&json!(url)), "{pods:?}");
    }
}

#[test]
fn only_pods_of_the_current_spec_make_a_registry_ready() {
    let surroundings = Surroundings::default();
    let first = planned(&spec(), &surroundings);
    let surroundings = surroundings.carried_out(&first, &[PodState::Ready]);
    let other = changed(&spec(), "/configYAML", &json!("sources: [1]\n"));
    let (phase, message, is_ready, ..) = reported(&planned(&other, &surroundings).status);
    assert_eq!((phase.as_str(), is_ready), ("Ready", ConditionStatus::Unknown), "{message}");
    assert!(message.starts_with("an earlier configuration is still serving"), "{message}");
    // A spec that is refused leaves what serves as it is, with its address.
    let refused = planned(&changed(&spec(), "/volumes", &json!([7])), &surroundings).status;
    let (phase, message, is_ready, reason, is_stalled) = reported(&refused);
    assert_eq!((phase.as_str(), is_ready, is_stalled), ("Ready", ConditionStatus::False, true), "{message}");
    assert_eq!((reason.as_str(), refused.field("url")), ("ValidationFailed", None));
}

#[test]
fn a_registry_without_pods_says_what_it_waits_for() {
    let stopped = reported(&planned(&spec(), &running(0, 0)).status);
    assert_eq!(stopped.1, "Registry API is scaled to zero; scale its Deployment up");
    assert_eq!((stopped.0.as_str(), stopped.2, stopped.4), ("Pending", ConditionStatus::False, false));
    let waiting = planned(&full(), &running(1, 0)).status;
    assert_eq!(waiting.find("Ready").unwrap().reason, "SecretNotFound");
    assert_eq!(reported(&status_of(&full(), &[PodState::Ready])).0, "Ready", "its Secret is there");
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let surroundings = running(1, 1).with_secret("pg", "file");
    assert_eq!(planned(&full(), &surroundings), planned(&full(), &surroundings));
}

#[test]
fn an_invalid_resource_can_be_deleted() {
    let me = deleted(KindName::MCPRegistry, "registry", &changed(&full(), "/volumes", &json!([7])));
    let Resource::MCPRegistry(object) = &me else { panic!("another kind") };
    let plan = plan(&me, object, &Surroundings::default().world());
    assert_eq!((plan.verdict, plan.finalizer, plan.children.len()), (Verdict::Apply, Finalizer::Release, 0));
    assert_eq!(plan.status.field("phase"), Some(&json!("Terminating")));
}
