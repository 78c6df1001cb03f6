mod backends;
mod bounds;
mod conditions;
mod config;
mod webhooks;

use serde_json::{Value, json};
use skep_api::resource::KindName;

use super::*;
use crate::child::{Child, ChildKind};
use crate::pod::INPUTS;
use crate::validate::testing::{Surroundings, bare, changed, deleted, resource};
use crate::world::{DefaultRedis, PodState, SessionKeyError};

fn spec() -> Value {
    json!({
        "groupRef": { "name": "team" },
        "incomingAuth": { "type": "anonymous" },
        "config": { "aggregation": {
            "conflictResolution": "prefix",
            "conflictResolutionConfig": { "prefixFormat": "{workload}_" },
        }},
    })
}

/// A spec with some members of `spec` replaced.
fn with(members: &Value) -> Value {
    let mut spec = spec();
    for (name, value) in members.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

fn group() -> Surroundings {
    Surroundings::default().with(resource(KindName::MCPGroup, "team", &json!({})))
}

/// A group with a server and an entry.
fn team() -> Surroundings {
    let server = json!({ "image": "i", "transport": "streamable-http", "groupRef": { "name": "team" } });
    let entry = json!({ "remoteUrl": "https://mcp.example.com/mcp", "transport": "streamable-http", "groupRef": { "name": "team" } });
    group().with(resource(KindName::MCPServer, "member", &server)).with(resource(
        KindName::MCPServerEntry,
        "entry",
        &entry,
    ))
}

fn planned(spec: &Value, surroundings: &Surroundings) -> Plan {
    crate::plan::plan(&resource(KindName::VirtualMCPServer, "virtual", spec), &surroundings.world())
}

fn child(plan: &Plan, kind: ChildKind) -> Value {
    let child = plan.children.iter().find(|child| child.kind() == kind);
    child.unwrap_or_else(|| panic!("no {kind}: {:?}", plan.verdict)).body().clone()
}

fn config_yaml(plan: &Plan) -> String {
    child(plan, ChildKind::ConfigMap)["data"]["config.yaml"].as_str().unwrap().to_owned()
}

fn config(plan: &Plan) -> Value {
    skep_runconfig::VirtualDocument::from_yaml(&config_yaml(plan)).unwrap().decode().unwrap()
}

fn container(plan: &Plan) -> Value {
    child(plan, ChildKind::Deployment)["spec"]["template"]["spec"]["containers"][0].clone()
}

/// The names of the variables, in their order.
fn variables(plan: &Plan) -> Vec<String> {
    let container = container(plan);
    let env = container["env"].as_array().unwrap();
    env.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
}

/// Status, reason and message of a condition.
fn reported(plan: &Plan, kind: &str) -> (bool, String, String) {
    let condition = plan.status.find(kind).unwrap_or_else(|| panic!("nothing is said about {kind}"));
    (condition.is_true(), condition.reason.clone(), condition.message.clone())
}

fn phase(plan: &Plan) -> &str {
    plan.status.field("phase").unwrap().as_str().unwrap()
}

/// Nothing is applied, the condition says why, and so do phase and readiness.
#[track_caller]
fn assert_fails(plan: &Plan, waits: bool, expected: &str, condition: &str, reason: &str) {
    let (Verdict::Wait(why) | Verdict::Refuse(why)) = &plan.verdict else { panic!("{condition}: it was applied") };
    assert_eq!(matches!(plan.verdict, Verdict::Wait(_)), waits, "{why}");
    assert_eq!(phase(plan), expected, "{why}");
    assert_eq!(reported(plan, condition), (false, reason.to_owned(), why.clone()));
    assert_eq!(reported(plan, "Ready"), (false, reason.to_owned(), why.clone()));
    assert!(plan.children.is_empty());
    assert_eq!(plan.generated_secret, None);
}

#[test]
fn the_children_are_those_of_the_original() {
    let plan = planned(&spec(), &team());
    assert_eq!(plan.verdict, Verdict::Apply);
    let golden: Vec<Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert_eq!(golden.len(), plan.children.len());
    for mut expected in golden {
        let kind = expected["kind"].as_str().unwrap().to_owned();
        // What we do otherwise: the command of the container, since one image holds all our programs; a digest of the key of the
        // sessions, which the pods read when they start. The API server fills in for how long an address stays with its pod.
        match kind.as_str() {
            "Deployment" => {
                let digest =
                    child(&plan, ChildKind::Deployment)["spec"]["template"]["metadata"]["annotations"][INPUTS].clone();
                assert!(digest.is_string());
                expected["spec"]["template"]["metadata"]["annotations"][INPUTS] = digest;
                expected["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["skep", "vmcp"]);
            }
            "Service" => drop(expected["spec"].as_object_mut().unwrap().remove("sessionAffinityConfig")),
            _ => {}
        }
        let mine = plan.children.iter().find(|child| child.kind().as_str() == kind).unwrap();
        assert_eq!(bare(mine.body()), bare(&expected), "{kind}");
    }
}

#[test]
fn the_document_and_its_checksum_are_those_of_the_original_byte_for_byte() {
    let golden: Vec<Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    let golden = golden.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    let plan = planned(&spec(), &team());
    assert_eq!(config_yaml(&plan), golden["data"]["config.yaml"].as_str().unwrap());
    let mine = child(&plan, ChildKind::ConfigMap);
    assert_eq!(mine["metadata"]["annotations"], golden["metadata"]["annotations"]);
    assert_eq!(mine["metadata"]["labels"], golden["metadata"]["labels"]);
    let template = child(&plan, ChildKind::Deployment)["spec"]["template"]["metadata"]["annotations"].clone();
    let checksum = &golden["metadata"]["annotations"]["toolhive.stacklok.dev/content-checksum"];
    assert_eq!(&template["toolhive.stacklok.dev/runconfig-checksum"], checksum);
}

#[test]
fn another_session_key_rolls_the_pods_and_so_does_another_password_of_the_default_redis() {
    let digest = |surroundings: &Surroundings| {
        let template = child(&planned(&spec(), surroundings), ChildKind::Deployment)["spec"]["template"].clone();
        template["metadata"]["annotations"][INPUTS].clone()
    };
    let mut surroundings = team();
    let first = digest(&surroundings);
    surroundings = surroundings.with_secret("virtual-hmac-secret", "hmac-secret");
    let second = digest(&surroundings);
    assert_ne!(first, second);
    let secret = Some(("redis".to_owned(), "password".to_owned()));
    surroundings.settings.default_redis = Some(DefaultRedis { address: "redis:6379".to_owned(), secret });
    let third = digest(&surroundings);
    assert_ne!(second, third);
    assert_ne!(third, digest(&surroundings.with_secret("redis", "password")));
}

#[test]
fn the_status_is_that_of_the_original() {
    let plan = planned(&spec(), &team());
    let status = plan.status.onto(&json!({}), 1, "now");
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["message"], "No pods found for Virtual MCP server");
    assert_eq!(status["url"], "http://vmcp-virtual.ns.svc.cluster.local:4483");
    let said: Vec<(&str, &str, &str)> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["type"].as_str().unwrap(), one["status"].as_str().unwrap(), one["reason"].as_str().unwrap()))
        .collect();
    let expected = [
        ("AuthConfigured", "True", "AuthValid"),
        ("CompositeToolRefsValidated", "True", "CompositeToolRefsValid"),
        ("GroupRefValidated", "True", "GroupRefValid"),
        ("Ready", "False", "DeploymentNotReady"),
        ("SessionStorageWarning", "False", "SessionStorageWarningNotApplicable"),
        ("Valid", "True", "ValidationSucceeded"),
    ];
    assert_eq!(said, expected);
}

#[test]
fn fields_that_the_process_writes_are_kept() {
    let old = json!({
        "discoveredBackends": [{ "name": "member", "status": "ready" }],
        "backendCount": 1,
        "conditions": [
            { "type": "BackendsDiscovered", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" },
            { "type": "BackendAuthConfig-gone", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "t" },
        ],
    });
    let next = planned(&spec(), &team()).status.onto(&old, 1, "now");
    assert_eq!(next["discoveredBackends"], old["discoveredBackends"]);
    assert_eq!(next["backendCount"], 1);
    let kinds: Vec<&Value> = next["conditions"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    assert!(kinds.contains(&&json!("BackendsDiscovered")));
    assert!(!kinds.contains(&&json!("BackendAuthConfig-gone")));
}

#[test]
fn the_session_key_is_generated_outside_of_the_plan() {
    let plan = planned(&spec(), &team());
    let key = plan.generated_secret.unwrap();
    assert_eq!((key.name.as_str(), key.key.as_str(), key.bytes), ("virtual-hmac-secret", "hmac-secret", 32));
    assert_eq!(key.labels["app.kubernetes.io/component"], "session-security");
    assert_eq!(key.annotations["toolhive.stacklok.dev/purpose"], "hmac-secret-for-session-token-binding");

    let mut surroundings = team();
    surroundings.live.session_key = Some(Ok("digest".into()));
    assert_eq!(planned(&spec(), &surroundings).children, planned(&spec(), &team()).children);
    surroundings.live.session_key = Some(Err(SessionKeyError("it has another owner".into())));
    let plan = planned(&spec(), &surroundings);
    assert_fails(&plan, false, "Failed", "SessionKeyValid", "HMACSecretValidationFailed");
    assert!(reported(&plan, "Ready").2.starts_with("Secret `virtual-hmac-secret`: it has another owner; delete"));
}

#[test]
fn a_taken_name_is_refused_and_its_owner_named() {
    let mut surroundings = team();
    surroundings.live.name_conflicts.insert((ChildKind::Deployment, "virtual".into(), "MCPServer `virtual`".into()));
    let plan = planned(&spec(), &surroundings);
    assert!(matches!(&plan.verdict, Verdict::Refuse(why) if why.contains("in use by MCPServer `virtual`")));
    assert_eq!((phase(&plan), reported(&plan, "Ready").1.as_str()), ("Failed", "NameTaken"));
}

#[test]
fn the_same_input_gives_the_same_plan() {
    assert_eq!(planned(&backends::inline(), &backends::mixed()), planned(&backends::inline(), &backends::mixed()));
}

#[test]
fn replicas_are_sent_only_where_they_are_set() {
    assert_eq!(child(&planned(&spec(), &team()), ChildKind::Deployment)["spec"].get("replicas"), None);
    let plan = planned(&with(&json!({ "replicas": 3 })), &team());
    assert_eq!(child(&plan, ChildKind::Deployment)["spec"]["replicas"], 3);
    assert_eq!(reported(&plan, "SessionStorageWarning").1, "SessionStorageMissingForReplicas");
}

#[test]
fn an_account_of_the_user_is_taken_and_none_made() {
    let plan = planned(&with(&json!({ "serviceAccount": "mine" })), &team());
    let kinds: Vec<ChildKind> = plan.children.iter().map(Child::kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap, ChildKind::Service, ChildKind::Deployment]);
    let pod = &child(&plan, ChildKind::Deployment)["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "mine");
}

#[test]
fn pull_secrets_are_on_pod_and_account_and_those_of_the_template_on_the_pod_only() {
    let plan = planned(
        &with(&json!({
            "imagePullSecrets": [{ "name": "b" }],
            "podTemplateSpec": { "spec": { "imagePullSecrets": [{ "name": "t" }] } },
        })),
        &team(),
    );
    let deployment = child(&plan, ChildKind::Deployment);
    let pod: Vec<&Value> = deployment["spec"]["template"]["spec"]["imagePullSecrets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert!(pod.contains(&&json!("b")) && pod.contains(&&json!("t")));
    assert_eq!(child(&plan, ChildKind::ServiceAccount)["imagePullSecrets"], json!([{ "name": "b" }]));
    let annotations = &deployment["metadata"]["annotations"];
    assert!(annotations["toolhive.stacklok.io/imagepullsecrets-hash"].is_string());
    assert!(annotations["toolhive.stacklok.io/podtemplatespec-hash"].is_string());
}

#[test]
fn the_users_template_is_merged_and_displaces_no_stamp() {
    let template = json!({
        "metadata": { "labels": { "app": "mine", "team": "a" }, "annotations": { "toolhive.stacklok.dev/runconfig-checksum": "x" } },
        "spec": { "nodeSelector": { "disk": "ssd" }, "containers": [{ "name": "vmcp", "env": [{ "name": "A", "value": "1" }] }] },
    });
    let plan = planned(&with(&json!({ "podTemplateSpec": template })), &team());
    assert!(reported(&plan, "PodTemplateSpecValid").0);
    let made = child(&plan, ChildKind::Deployment)["spec"]["template"].clone();
    assert_eq!(made["spec"]["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(made["metadata"]["labels"]["app"], "virtualmcpserver");
    assert_eq!(made["metadata"]["labels"]["team"], "a");
    assert_ne!(made["metadata"]["annotations"]["toolhive.stacklok.dev/runconfig-checksum"], "x");
    assert!(variables(&plan).contains(&"A".to_owned()) && variables(&plan).contains(&"VMCP_NAME".to_owned()));
}

#[test]
fn the_service_is_of_the_kind_that_is_asked_for() {
    let plan = planned(&with(&json!({ "serviceType": "LoadBalancer", "sessionAffinity": "None" })), &team());
    let service = child(&plan, ChildKind::Service);
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["sessionAffinity"]),
        (&json!("LoadBalancer"), &json!("None"))
    );
}

#[test]
fn an_invalid_resource_can_be_deleted() {
    let me = deleted(KindName::VirtualMCPServer, "virtual", &spec());
    let plan = crate::plan::plan(&me, &Surroundings::default().world());
    assert_eq!((plan.verdict, plan.children.len(), plan.generated_secret), (Verdict::Apply, 0, None));
}
