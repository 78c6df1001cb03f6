//! No override of a user displaces what the operator stamps: its own variables, annotations, labels, mounts and volumes are in the pods, and the
//! status names each override that gave way.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use skep_api::resource::KindName;
use skep_plan::plan::Plan;
use skep_plan::pod::{CHECKSUM, CONSUMED, GENERATION, INPUTS, TEMPLATE_HASH};
use skep_plan::world::Live;

use crate::laws::{planned, resource, world_objects};

/// Variables that the operator sets, some of them only where a spec asks for them, and some that it never sets.
const VARIABLES: &[&str] = &[
    "THV_MCPSERVER_GENERATION",
    "TOOLHIVE_RUNTIME",
    "TOOLHIVE_SECRETS_PROVIDER",
    "TOOLHIVE_OIDC_CLIENT_SECRET",
    "TOOLHIVE_SECRET_MINE",
    "VMCP_NAME",
    "VMCP_NAMESPACE",
    "VMCP_SESSION_HMAC_SECRET",
    "VMCP_OIDC_CLIENT_SECRET",
    "OTEL_RESOURCE_ATTRIBUTES",
    "THV_SESSION_REDIS_PASSWORD",
    "HOME",
    "XDG_CONFIG_HOME",
    "UNSTRUCTURED_LOGS",
    "LOG_LEVEL",
    "PATH",
];

/// Labels and annotations that the operator sets, and some that it does not.
const KEYS: &[&str] = &[
    CHECKSUM,
    GENERATION,
    INPUTS,
    CONSUMED,
    TEMPLATE_HASH,
    "mcpserver.toolhive.stacklok.dev/restarted-at",
    "toolhive.stacklok.io/managed-by",
    "app",
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "toolhive",
    "toolhive-name",
    "team",
    "vault.hashicorp.com/agent-inject",
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/last-applied-configuration",
    "toolhive.stacklok.dev/upstream-state",
];

/// Beginnings of the names of annotations that other programs write, and no override may.
const RESERVED: &[&str] =
    &["deployment.kubernetes.io/", "kubectl.kubernetes.io/last-", "toolhive.stacklok.dev/", "toolhive.stacklok.io/"];

/// Volumes of the operator's, and one that is not.
const VOLUMES: &[&str] = &["runconfig", "vmcp-config", "authz-config", "scratch"];

/// Where the operator mounts them, in and around these places, and elsewhere.
const PATHS: &[&str] = &[
    "/etc/runconfig",
    "/etc/runconfig/runconfig.json",
    "/etc/vmcp-config/",
    "/etc/vmcp-config/../vmcp-config",
    "/etc",
    "/scratch",
];

/// The kinds that run a container of Skep's, and its name.
const KINDS: &[(KindName, &str)] =
    &[(KindName::MCPServer, "toolhive"), (KindName::MCPRemoteProxy, "toolhive"), (KindName::VirtualMCPServer, "vmcp")];

fn texts() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(prop::sample::select(KEYS), "[a-z0-9]{0,5}", 0..5).prop_map(|all| json!(all))
}

fn metadata() -> impl Strategy<Value = Value> {
    (texts(), texts()).prop_map(|(labels, annotations)| json!({ "labels": labels, "annotations": annotations }))
}

/// A list map with entries of these names.
fn entries(
    key: &'static str,
    names: &'static [&'static str],
    entry: impl Strategy<Value = Value> + Clone + 'static,
) -> impl Strategy<Value = Vec<Value>> {
    prop::collection::btree_map(prop::sample::select(names), entry, 0..5).prop_map(move |all| {
        let keyed = |(name, entry): (&str, Value)| {
            let mut entry: Map<String, Value> = entry.as_object().cloned().unwrap();
            entry.insert(key.to_owned(), json!(name));
            Value::Object(entry)
        };
        all.into_iter().map(keyed).collect()
    })
}

/// Ways to change an entry of a list in a strategic merge patch.
fn change(set: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Value> + Clone {
    prop_oneof![4 => set.clone(), 1 => Just(json!({ "$patch": "delete" }))]
}

fn variables() -> impl Strategy<Value = Vec<Value>> {
    let value = "[a-z0-9]{0,5}".prop_map(|value| json!({ "value": value }));
    let source = Just(json!({ "valueFrom": { "secretKeyRef": { "name": "theirs", "key": "k" } } }));
    entries("name", VARIABLES, change(prop_oneof![value, source]))
}

/// A list, or a patch that replaces or removes the whole of it.
fn list(entries: impl Strategy<Value = Vec<Value>>) -> impl Strategy<Value = Value> {
    (entries, 0..8).prop_map(|(entries, way)| match way {
        0 => Value::Null,
        1 => Value::Array([vec![json!({ "$patch": "replace" })], entries].concat()),
        _ => Value::Array(entries),
    })
}

/// A pod template that changes a container of this name and the pod around it.
fn templates() -> impl Strategy<Value = Value> {
    let mount = Just(json!({ "name": "scratch" }));
    let volume = Just(json!({ "configMap": { "name": "theirs" } }));
    let container = (
        list(variables()),
        list(entries("mountPath", PATHS, change(mount))),
        prop::option::of(Just(json!([{ "configMapRef": { "name": "theirs" } }]))),
        prop_oneof![6 => Just("merge"), 1 => Just("replace"), 1 => Just("delete")],
        prop_oneof![6 => Just(true), 1 => Just(false)],
    );
    (container, list(entries("name", VOLUMES, change(volume))), metadata(), 0..8).prop_map(
        |((env, mounts, env_from, way, is_ours), volumes, metadata, around)| {
            let name = if is_ours { "CONTAINER" } else { "sidecar" };
            let mut container = json!({ "name": name, "env": env, "volumeMounts": mounts, "$patch": way });
            if let Some(env_from) = env_from {
                container["envFrom"] = env_from;
            }
            let mut spec = json!({ "containers": [container], "volumes": volumes });
            if around == 0 {
                spec["$patch"] = json!("replace");
            }
            json!({ "metadata": metadata, "spec": spec })
        },
    )
}

/// A spec of a kind without overrides.
fn plain(kind: KindName) -> Value {
    let oidc = json!({ "name": "idp", "audience": "a" });
    match kind {
        KindName::MCPServer => {
            json!({ "image": "i", "transport": "sse", "oidcConfigRef": oidc, "telemetryConfigRef": { "name": "otel" } })
        }
        KindName::MCPRemoteProxy => {
            json!({ "remoteUrl": "https://mcp.example", "oidcConfigRef": oidc, "telemetryConfigRef": { "name": "otel" } })
        }
        _ => {
            let incoming = json!({ "type": "oidc", "oidcConfigRef": oidc });
            json!({ "groupRef": { "name": "g" }, "incomingAuth": incoming, "webhookConfigRef": { "name": "hooks" } })
        }
    }
}

fn deployment(plan: &Plan) -> &Value {
    let child = plan.children.iter().find(|child| child.kind().as_str() == "Deployment");
    child.unwrap_or_else(|| panic!("{:?}", plan.verdict)).body()
}

fn container<'a>(plan: &'a Plan, name: &str) -> &'a Value {
    let containers = deployment(plan)["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let mut ours = containers.iter().filter(|container| container["name"] == name);
    let container = ours.next().unwrap();
    assert!(ours.next().is_none(), "{containers:?}");
    container
}

/// The entries of a list of the operator's own are in the list that came of it, each once, and none other under their keys.
fn assert_kept(key: &str, ours: &Value, came: &Value) {
    for entry in ours.as_array().unwrap() {
        let same: Vec<&Value> = came.as_array().unwrap().iter().filter(|one| one[key] == entry[key]).collect();
        assert_eq!(same, [entry]);
    }
}

/// The names that a status says were dropped.
fn dropped(plan: &Plan) -> String {
    plan.status.find("OverridesApplied").map(|condition| condition.message.clone()).unwrap_or_default()
}

proptest! {
    #[test]
    fn no_override_displaces_what_the_operator_stamps(
        kind in prop::sample::select(KINDS),
        env in prop::collection::btree_map(prop::sample::select(VARIABLES), "[a-z0-9]{0,5}", 0..6),
        (own, pods, service) in (metadata(), metadata(), metadata()),
        template in templates(),
    ) {
        let (kind, name) = kind;
        let found = world_objects();
        let before = planned(&resource(kind, "s", 3, &plain(kind)), &found, &Live::default());
        let mut spec = plain(kind);
        let env: Vec<Value> = env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        if kind != KindName::VirtualMCPServer {
            spec["resourceOverrides"] = json!({
                "proxyDeployment": {
                    "labels": own["labels"], "annotations": own["annotations"], "env": env, "podTemplateMetadataOverrides": pods,
                },
                "proxyService": service,
            });
        }
        if kind != KindName::MCPServer {
            let template = skep_plan::canonical::to_string(&template).replace("CONTAINER", name);
            spec["podTemplateSpec"] = serde_json::from_str(&template).unwrap();
        }
        let after = planned(&resource(kind, "s", 3, &spec), &found, &Live::default());

        let (ours, came) = (container(&before, name), container(&after, name));
        assert_kept("name", &ours["env"], &came["env"]);
        assert_kept("mountPath", &ours["volumeMounts"], &came["volumeMounts"]);
        let pod = |plan: &Plan| deployment(plan)["spec"]["template"].clone();
        assert_kept("name", &pod(&before)["spec"]["volumes"], &pod(&after)["spec"]["volumes"]);
        for part in ["labels", "annotations"] {
            for (key, value) in pod(&before)["metadata"][part].as_object().unwrap() {
                prop_assert_eq!(&pod(&after)["metadata"][part][key], value);
            }
        }
        for (key, value) in deployment(&before)["metadata"]["labels"].as_object().unwrap() {
            prop_assert_eq!(&deployment(&after)["metadata"]["labels"][key], value);
        }
        // An annotation that another program writes is the operator's own or is not there, and the status names it.
        for (child, part) in [("Deployment", "proxyDeployment"), ("Service", "proxyService")] {
            let object = |plan: &Plan| plan.children.iter().find(|one| one.kind().as_str() == child).unwrap().body().clone();
            let wanted = spec.pointer(&format!("/resourceOverrides/{part}/annotations")).and_then(Value::as_object);
            for key in wanted.into_iter().flat_map(Map::keys).filter(|key| RESERVED.iter().any(|one| key.starts_with(one))) {
                let came = &object(&after)["metadata"]["annotations"][key];
                let is_digest = [CONSUMED, TEMPLATE_HASH].contains(&key.as_str());
                prop_assert!(came.is_null() || is_digest, "{key}: {came}");
                prop_assert!(dropped(&after).contains(&format!("`{key}` in spec.resourceOverrides.{part}.annotations")), "{}", dropped(&after));
            }
        }
        // Each variable that a user set and does not get is named.
        let reported = dropped(&after);
        for variable in spec.pointer("/resourceOverrides/proxyDeployment/env").and_then(Value::as_array).into_iter().flatten() {
            let is_ours = ours["env"].as_array().unwrap().iter().any(|one| one["name"] == variable["name"] && one != variable);
            if is_ours {
                prop_assert!(reported.contains(&format!("`{}` in spec.resourceOverrides.proxyDeployment.env", variable["name"].as_str().unwrap())), "{}", reported);
            }
        }
        prop_assert!(dropped(&before).is_empty(), "{}", dropped(&before));
    }
}

#[test]
fn the_frozen_generation_cannot_be_displaced_and_the_status_says_so() {
    let spec = json!({
        "image": "i",
        "resourceOverrides": { "proxyDeployment": {
            "env": [{ "name": "THV_MCPSERVER_GENERATION", "value": "0" }, { "name": "LOG_LEVEL", "value": "debug" }],
            "podTemplateMetadataOverrides": { "annotations": { GENERATION: "0" } },
        }},
        "podTemplateSpec": { "metadata": { "annotations": { GENERATION: "9999" } } },
    });
    let plan = planned(&resource(KindName::MCPServer, "s", 3, &spec), &world_objects(), &Live::default());
    let proxy = container(&plan, "toolhive");
    let variable = |name: &str| proxy["env"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    let path = format!("metadata.annotations['{GENERATION}']");
    let source = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": path } });
    assert_eq!(variable("THV_MCPSERVER_GENERATION").unwrap()["valueFrom"], source);
    assert_eq!(variable("LOG_LEVEL").unwrap()["value"], "debug");
    assert_eq!(deployment(&plan)["spec"]["template"]["metadata"]["annotations"][GENERATION], "3");
    assert!(
        !proxy["args"].to_string().contains("9999"),
        "the proxy must not get it for the backend: {}",
        proxy["args"]
    );
    let reported = dropped(&plan);
    for (name, field) in [
        ("THV_MCPSERVER_GENERATION", "spec.resourceOverrides.proxyDeployment.env"),
        (GENERATION, "spec.resourceOverrides.proxyDeployment.podTemplateMetadataOverrides.annotations"),
        (GENERATION, "spec.podTemplateSpec.metadata.annotations"),
    ] {
        assert!(reported.contains(&format!("`{name}` in {field}")), "{reported}");
    }
    assert!(!reported.contains("LOG_LEVEL"), "{reported}");
}
