//! What holds for every plan: it is the same in every process and order, it converges, and no override displaces a stamp.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::canonical;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::pod::{CHECKSUM, CONSUMED, GENERATION};
use skep_plan::world::{DefaultRedis, Found, Live, LiveWorkload, Policies, PolicyError, Settings, Site, World};

#[derive(Debug)]
pub(crate) struct Engines;

impl Policies for Engines {
    fn check(&self, _: &str, _: &Value) -> Result<(), PolicyError> {
        Ok(())
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        runner_image: "registry.example/runner:1".into(),
        vmcp_image: "registry.example/vmcp:1".into(),
        registry_image: "registry.example/registry:1".into(),
        proxy_host: "0.0.0.0".into(),
        pull_secrets: vec!["pull".into()],
        default_redis: Some(DefaultRedis { address: "redis:6379".into(), secret: None }),
        openshift: false,
        site: Site::Cluster,
        unsupported: BTreeSet::new(),
        unsupported_by_vmcp: None,
    }
}

pub(crate) fn resource(kind: KindName, name: &str, generation: i64, spec: &Value) -> Resource {
    let object = json!({
        "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": generation },
        "spec": spec,
    });
    Resource::from_value(kind, object).unwrap()
}

/// An object of ours as a world has it.
pub(crate) fn found(kind: KindName, name: &str, spec: &Value) -> (Key, Found) {
    (Key::resource(kind, "ns", name), Found::Resource(Arc::new(resource(kind, name, 1, spec))))
}

pub(crate) fn world_objects() -> BTreeMap<Key, Found> {
    let mut found = BTreeMap::new();
    let hooks = json!({
        "validating": [{ "name": "a", "url": "https://h/1", "hmacSecretRef": { "name": "s", "key": "k" } }],
        "mutating": [{ "name": "b", "url": "https://h/2", "tlsConfig": { "caSecretRef": { "name": "s", "key": "ca" } } }],
    });
    let oidc = json!({ "type": "inline", "inline": { "issuer": "https://idp", "clientSecretRef": { "name": "s", "key": "k" } } });
    for (kind, name, spec) in [
        (KindName::MCPWebhookConfig, "hooks", hooks),
        (KindName::MCPOIDCConfig, "idp", oidc),
        (
            KindName::MCPToolConfig,
            "tools",
            json!({ "toolsFilter": ["x", "y"], "toolsOverride": { "b": { "name": "x" }, "a": { "name": "y" } } }),
        ),
        (
            KindName::MCPTelemetryConfig,
            "otel",
            json!({ "openTelemetry": { "enabled": true, "endpoint": "o:1", "tracing": { "enabled": true } } }),
        ),
        (KindName::MCPGroup, "g", json!({})),
    ] {
        let (key, object) = self::found(kind, name, &spec);
        found.insert(key, object);
    }
    let digests = BTreeMap::from([("k".to_owned(), "1".to_owned()), ("ca".to_owned(), "2".to_owned())]);
    found.insert(
        Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() },
        Found::Secret(digests.into()),
    );
    found
}

pub(crate) fn planned(me: &Resource, found: &BTreeMap<Key, Found>, live: &Live) -> Plan {
    let (settings, users) = (settings(), BTreeSet::new());
    plan(me, &World { settings: &settings, found, users: &users, live, policies: &Engines })
}

/// Everything that a plan would send, as text.
fn text(plan: &Plan) -> String {
    let children: Vec<String> = plan.children.iter().map(|child| canonical::to_string(child.body())).collect();
    format!(
        "{:?}\n{}\n{}",
        plan.verdict,
        children.join("\n"),
        canonical::to_string(&plan.status.onto(&json!({}), 1, "now"))
    )
}

fn deployment(plan: &Plan) -> Option<&Value> {
    plan.children.iter().find(|child| child.kind().as_str() == "Deployment").map(skep_plan::child::Child::body)
}

/// Specs of servers, good and bad.
pub(crate) fn specs() -> impl Strategy<Value = Value> {
    let image = "((exec|npx|uvx|go|[a-z]{1,4})://)?[a-z]{0,6}";
    let key = prop_oneof![
        4 => "[a-z]{1,4}(/[a-z]{1,4})?",
        1 => prop::sample::select(&[CHECKSUM, GENERATION, "app", "toolhive-name"][..]).prop_map(str::to_owned),
    ];
    let map = prop::collection::btree_map(key, "[a-z]{0,5}", 0..4);
    let metadata =
        (map.clone(), map).prop_map(|(labels, annotations)| json!({ "labels": labels, "annotations": annotations }));
    let stamped =
        &["THV_MCPSERVER_GENERATION", "TOOLHIVE_RUNTIME", "HOME", "TOOLHIVE_OIDC_CLIENT_SECRET", "MCP_PORT"][..];
    let variable = prop_oneof![4 => "[A-Z]{1,4}", 1 => prop::sample::select(stamped).prop_map(str::to_owned)];
    let env = prop::collection::btree_map(variable, "[ -~]{0,8}", 0..4).prop_map(|all| {
        all.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect::<Vec<_>>()
    });
    let optional = |value: Value| prop_oneof![Just(Value::Null), Just(value)];
    (
        (image, prop_oneof![Just("stdio"), Just("sse"), Just("streamable-http")], 1..65535_i32, env.clone(), env),
        (metadata.clone(), metadata, prop::option::of(0..4_i32), prop_oneof![Just("100m"), Just("lots"), Just("1Gi")]),
        (
            optional(json!({ "name": "hooks" })),
            optional(json!({ "name": "idp", "audience": "a" })),
            optional(json!({ "name": "tools" })),
            optional(json!({ "name": "otel" })),
            optional(json!({ "name": "missing" })),
            optional(json!({ "metadata": { "annotations": { "x": "y" } }, "spec": { "containers": [{ "name": "mcp", "new": 1 }] } })),
        ),
    )
        .prop_map(|((image, transport, port, env, proxy_env), (deployment, pod, replicas, memory), (hooks, idp, tools, otel, group, template))| {
            let mut spec = json!({
                "image": image, "transport": transport, "proxyPort": port, "env": env,
                "resources": { "limits": { "memory": memory } },
                "resourceOverrides": { "proxyDeployment": {
                    "labels": deployment["labels"], "annotations": deployment["annotations"], "env": proxy_env, "podTemplateMetadataOverrides": pod,
                }},
                "webhookConfigRef": hooks, "oidcConfigRef": idp, "toolConfigRef": tools, "telemetryConfigRef": otel,
                "groupRef": group, "podTemplateSpec": template, "replicas": replicas,
            });
            spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            spec
        })
}

proptest! {
    #[test]
    fn a_plan_is_total_and_the_same_each_time(spec in specs()) {
        let me = resource(KindName::MCPServer, "s", 3, &spec);
        let found = world_objects();
        prop_assert_eq!(text(&planned(&me, &found, &Live::default())), text(&planned(&me.clone(), &found.clone(), &Live::default())));
    }

    #[test]
    fn the_order_of_variables_and_maps_in_a_manifest_changes_nothing_but_the_order_of_variables(spec in specs()) {
        // A list map has no order of its own for the API server; a JSON map has none at all.
        let shuffled: Value = serde_json::from_str(&canonical::to_string(&spec)).unwrap();
        let found = world_objects();
        let plans = [&spec, &shuffled].map(|spec| text(&planned(&resource(KindName::MCPServer, "s", 3, spec), &found, &Live::default())));
        prop_assert_eq!(&plans[0], &plans[1]);
    }

    #[test]
    fn stamps_survive_every_override_and_deployment_annotations_stay_where_they_are(spec in specs()) {
        let plan = planned(&resource(KindName::MCPServer, "s", 3, &spec), &world_objects(), &Live::default());
        if let Some(deployment) = deployment(&plan) {
            let (own, pod) = (&deployment["metadata"], &deployment["spec"]["template"]["metadata"]);
            prop_assert_eq!(pod["annotations"][CHECKSUM].as_str().unwrap().len(), 64);
            prop_assert_eq!(&pod["annotations"][GENERATION], "3");
            let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
            let generation: Vec<&Value> = variables.iter().filter(|one| one["name"] == "THV_MCPSERVER_GENERATION").collect();
            prop_assert!(generation.len() == 1 && generation[0]["valueFrom"]["fieldRef"].is_object(), "{:?}", generation);
            prop_assert!(pod["annotations"].get(CONSUMED).is_none() && own["annotations"][CONSUMED].is_string());
            for (name, value) in deployment["spec"]["selector"]["matchLabels"].as_object().unwrap() {
                prop_assert_eq!(&pod["labels"][name], value);
                prop_assert_eq!(&own["labels"][name], value);
            }
        }
    }

    #[test]
    fn a_change_that_pods_do_not_read_moves_no_generation_and_the_second_pass_is_the_last(spec in specs(), replicas in 0..5_i32) {
        let found = world_objects();
        let first = planned(&resource(KindName::MCPServer, "s", 3, &spec), &found, &Live::default());
        if let Some(before) = deployment(&first) {
            // The next look sees what the first one made; scaling and regrouping bump the generation and roll nothing.
            let stamp = before["spec"]["template"]["metadata"]["annotations"][GENERATION].as_str().unwrap().parse().ok();
            let consumed = before["metadata"]["annotations"][CONSUMED].as_str().map(str::to_owned);
            let live = Live { workload: Some(LiveWorkload { generation_stamp: stamp, consumed, ours: true, ..LiveWorkload::default() }), ..Live::default() };
            let mut scaled = spec.clone();
            scaled["replicas"] = json!(replicas);
            scaled["groupRef"] = json!({ "name": "g" });
            let second = planned(&resource(KindName::MCPServer, "s", 4, &scaled), &found, &live);
            let after = deployment(&second).unwrap();
            prop_assert_eq!(&before["spec"]["template"], &after["spec"]["template"]);
            prop_assert_eq!(&before["metadata"]["annotations"], &after["metadata"]["annotations"]);
            let third = planned(&resource(KindName::MCPServer, "s", 4, &scaled), &found, &live);
            prop_assert_eq!(text(&second), text(&third));
        } else {
            prop_assert!(first.verdict != Verdict::Apply);
        }
    }

    /// Item 17-10: a proxy would run it in its own container.
    #[test]
    fn no_proxy_in_a_cluster_runs_a_host_process(spec in specs()) {
        let plan = planned(&resource(KindName::MCPServer, "s", 3, &spec), &world_objects(), &Live::default());
        if let Some(deployment) = deployment(&plan) {
            let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
            prop_assert!(!arguments.iter().any(|one| one.as_str().is_some_and(|one| one.contains("://"))), "{:?}", arguments);
        }
    }

    #[test]
    fn a_status_written_twice_is_a_no_op(spec in specs()) {
        let plan = planned(&resource(KindName::MCPServer, "s", 3, &spec), &world_objects(), &Live::default());
        let once = plan.status.onto(&json!({ "conditions": [{ "type": "Old", "status": "True" }] }), 3, "first");
        prop_assert_eq!(plan.status.onto(&once, 3, "second"), once);
    }
}

#[test]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test runs itself in another process")]
fn a_plan_is_equal_to_the_byte_in_another_process() {
    const CHILD: &str = "SKEP_PLAN_LAWS_CHILD";
    let spec = json!({
        "image": "i", "transport": "sse", "env": [{ "name": "B", "value": "1" }, { "name": "A", "value": "2" }],
        "webhookConfigRef": { "name": "hooks" }, "oidcConfigRef": { "name": "idp", "audience": "a" }, "toolConfigRef": { "name": "tools" },
        "resourceOverrides": { "proxyDeployment": { "labels": { "z": "1", "a": "2" } } },
    });
    let incoming = json!({ "type": "oidc", "oidcConfigRef": { "name": "idp", "audience": "a" } });
    let virtual_server =
        json!({ "groupRef": { "name": "g" }, "incomingAuth": incoming, "webhookConfigRef": { "name": "hooks" } });
    let plan = [(KindName::MCPServer, spec), (KindName::VirtualMCPServer, virtual_server)]
        .map(|(kind, spec)| text(&planned(&resource(kind, "s", 1, &spec), &world_objects(), &Live::default())))
        .concat();
    assert_eq!(plan.matches("whsec-").count(), 8, "both have the volumes and mounts of webhooks");
    let digest = canonical::sha256_hex(plan.as_bytes());
    if std::env::var_os(CHILD).is_some() {
        println!("digest {digest}");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let name = "laws::a_plan_is_equal_to_the_byte_in_another_process";
    let output =
        std::process::Command::new(own).args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("digest {digest}")), "{said}");
}
