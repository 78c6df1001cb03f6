//! One plan of a proxy, and its two renderings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_api::virtual_config::VirtualConfig;
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::pod::{EnvSource, Variable};
use skep_plan::proxy::{ProxyPlan, SecretFile};
use skep_plan::world::{Feature, Found, Live, Settings, World};
use skep_runconfig::run_config::Webhook;
use skep_runconfig::{RunConfig, VirtualDocument, middleware};

use crate::laws::{Engines, found, planned, resource, settings, world_objects};

fn objects() -> BTreeMap<Key, Found> {
    let mut all = world_objects();
    let exchange = json!({ "tokenUrl": "https://t", "audience": "a" });
    let exchange = json!({ "type": "tokenExchange", "tokenExchange": exchange });
    all.extend([
        found(KindName::MCPExternalAuthConfig, "exchange", &exchange),
        found(KindName::MCPAuthzConfig, "policy", &json!({ "type": "cedarv1", "config": { "policies": ["p"] } })),
    ]);
    all
}

fn server() -> Plan {
    let spec = json!({
        "image": "i", "transport": "streamable-http", "audit": { "enabled": true }, "oidcConfigRef": { "name": "idp", "audience": "a" },
        "externalAuthConfigRef": { "name": "exchange" }, "toolConfigRef": { "name": "tools" },
        "telemetryConfigRef": { "name": "otel" }, "webhookConfigRef": { "name": "hooks" },
        "authzConfigRef": { "name": "policy" },
        "rateLimiting": { "shared": { "maxTokens": 1, "refillPeriod": "60s" } },
    });
    planned(&resource(KindName::MCPServer, "s", 1, &spec), &objects(), &Live::default())
}

fn remote_proxy(template: &Value) -> Plan {
    let spec = json!({
        "remoteUrl": "https://mcp.example/mcp", "transport": "sse",
        "headerForward": { "addPlaintextHeaders": { "x-a": "1" } },
        "resourceOverrides": { "proxyDeployment": { "env": [{ "name": "MINE", "value": "1" }] } },
        "podTemplateSpec": template,
    });
    planned(&resource(KindName::MCPRemoteProxy, "r", 1, &spec), &objects(), &Live::default())
}

fn proxy(plan: Plan) -> ProxyPlan {
    *plan.proxy.unwrap_or_else(|| panic!("{:?}", plan.verdict))
}

/// The original accepts it and sends no header.
#[test]
fn a_header_is_injected_by_the_proxies_of_both_kinds_and_its_value_stays_in_the_secret() {
    let inject = json!({ "headerName": "X-Api-Key", "valueSecretRef": { "name": "keys", "key": "k" } });
    let inject = json!({ "type": "headerInjection", "headerInjection": inject });
    let mut all = objects();
    all.extend([found(KindName::MCPExternalAuthConfig, "inject", &inject)]);
    let server = json!({ "image": "i", "transport": "streamable-http", "externalAuthConfigRef": { "name": "inject" } });
    let remote = json!({
        "remoteUrl": "https://mcp.example/mcp", "externalAuthConfigRef": { "name": "inject" },
        "headerForward": { "addPlaintextHeaders": { "x-api-key": "replaced", "x-b": "2" } },
    });
    for (kind, name, spec) in [(KindName::MCPServer, "s", server), (KindName::MCPRemoteProxy, "r", remote)] {
        let plan = planned(&resource(kind, name, 1, &spec), &all, &Live::default());
        assert!(plan.status.find("ExternalAuthInForce").is_none());
        let plan = proxy(plan);
        let forward = plan.run_config.header_forward.clone().unwrap();
        let identifier = format!("HEADER_INJECTION_X_API_KEY_{}", name.to_uppercase());
        assert_eq!(forward.add_headers_from_secret, [("X-Api-Key".to_owned(), identifier.clone())].into());
        assert!(!forward.add_plaintext_headers.contains_key("x-api-key"));
        let variable = format!("TOOLHIVE_SECRET_{identifier}");
        let variables = plan.env.list();
        let variable = variables.as_array().unwrap().iter().find(|one| one["name"] == variable.as_str());
        assert_eq!(variable.unwrap()["valueFrom"]["secretKeyRef"], json!({ "name": "keys", "key": "k" }));
    }
}

/// Credentials of every type that a proxy puts on its requests.
fn credentials() -> [(&'static str, Value); 3] {
    let key = json!({ "name": "keys", "key": "k" });
    [
        ("tokenExchange", json!({ "tokenUrl": "https://t", "audience": "a", "clientId": "c", "clientSecretRef": key })),
        ("headerInjection", json!({ "headerName": "X-Api-Key", "valueSecretRef": key })),
        ("bearerToken", json!({ "tokenSecretRef": key })),
    ]
}

#[test]
fn credentials_that_cannot_reach_a_server_on_stdio_are_not_shown_as_in_force() {
    for (method, settings) in credentials() {
        let mut all = objects();
        all.extend([found(KindName::MCPExternalAuthConfig, "auth", &json!({ "type": method, method: settings }))]);
        for (transport, reason) in
            [("stdio", Some("StdioServer")), ("streamable-http", None), ("sse", None), ("remote", None)]
        {
            let mut spec = json!({ "externalAuthConfigRef": { "name": "auth" } });
            let kind = if transport == "remote" {
                spec["remoteUrl"] = json!("https://mcp.example/mcp");
                KindName::MCPRemoteProxy
            } else {
                spec["image"] = json!("i");
                spec["transport"] = json!(transport);
                KindName::MCPServer
            };
            let plan = planned(&resource(kind, "p", 1, &spec), &all, &Live::default());
            let place = format!("{method} {transport}: {:?}", plan.status);
            assert_eq!(plan.verdict, Verdict::Apply, "{place}");
            let found = plan.status.find("ExternalAuthInForce");
            assert_eq!(
                found.map(|one| (one.is_false(), one.reason.as_str())),
                reason.map(|reason| (true, reason)),
                "{place}"
            );
            let hash = plan.status.onto(&json!({}), 1, "").get("externalAuthConfigHash").cloned();
            assert_eq!(hash.is_some_and(|hash| hash.is_string()), reason.is_none(), "{place}");
            let proxy = proxy(plan);
            let config = &proxy.run_config;
            let is_sent = config.token_exchange_config.is_some()
                || config.header_forward.is_some()
                || config.remote_auth_config.is_some();
            assert_eq!(is_sent, reason.is_none(), "{place}");
            let has_secret = proxy.env.list().to_string().contains("\"keys\"");
            assert_eq!(has_secret, reason.is_none(), "{place}: a Secret that is not used is not in the pod");
        }
    }
}

/// The tokens of upstream providers are those of a virtual server's clients.
#[test]
fn credentials_that_only_virtual_servers_send_are_not_shown_as_in_force() {
    let access = json!({
        "idpTokenUrl": "https://idp.example/token", "idpClientId": "a", "targetTokenUrl": "https://mcp.example/token",
        "targetClientId": "b", "targetAudience": "https://mcp.example",
    });
    for (method, settings) in [("xaa", access), ("upstreamInject", json!({ "providerName": "idp" }))] {
        let mut all = objects();
        all.extend([found(KindName::MCPExternalAuthConfig, "auth", &json!({ "type": method, method: settings }))]);
        for (kind, mut spec) in [
            (KindName::MCPServer, json!({ "image": "i", "transport": "streamable-http" })),
            (KindName::MCPRemoteProxy, json!({ "remoteUrl": "https://mcp.example/mcp" })),
        ] {
            spec["externalAuthConfigRef"] = json!({ "name": "auth" });
            let plan = planned(&resource(kind, "p", 1, &spec), &all, &Live::default());
            let place = format!("{method} {kind:?}: {:?}", plan.status);
            let condition = plan.status.find("ExternalAuthInForce").expect(&place);
            assert_eq!(
                (condition.is_false(), condition.reason.as_str()),
                (true, "UsedByVirtualServersOnly"),
                "{place}"
            );
            assert!(condition.message.contains(method) && condition.message.contains("`auth`"), "{place}");
            assert_eq!(plan.verdict, Verdict::Apply, "{place}");
            let config = proxy(plan).run_config;
            assert!(config.token_exchange_config.is_none() && config.remote_auth_config.is_none(), "{place}");
        }
    }
}

/// Its proxy would exit when it starts: there is no URL that its signatures could be for.
#[test]
fn requests_to_a_server_of_the_cluster_cannot_be_signed() {
    let sts = json!({ "region": "eu-central-1", "fallbackRoleArn": "arn:aws:iam::123456789012:role/r" });
    let mut all = objects();
    all.extend([found(KindName::MCPExternalAuthConfig, "aws", &json!({ "type": "awsSts", "awsSts": sts }))]);
    for transport in ["stdio", "streamable-http", "sse"] {
        let spec = json!({ "image": "i", "transport": transport, "externalAuthConfigRef": { "name": "aws" } });
        let plan = planned(&resource(KindName::MCPServer, "s", 1, &spec), &all, &Live::default());
        assert!(matches!(&plan.verdict, Verdict::Refuse(why) if why.contains("use an MCPRemoteProxy")), "{transport}");
        let condition = plan.status.find("ExternalAuthConfigValidated").unwrap();
        assert_eq!((condition.is_false(), condition.reason.as_str()), (true, "RemoteServerRequired"));
    }
    let spec = json!({ "remoteUrl": "https://mcp.example/mcp", "externalAuthConfigRef": { "name": "aws" } });
    let plan = planned(&resource(KindName::MCPRemoteProxy, "r", 1, &spec), &all, &Live::default());
    assert!(proxy(plan).run_config.aws_sts_config.is_some());
}

#[test]
fn the_value_of_a_header_is_never_sent_in_another_one() {
    let header =
        |name: &str, key: &str| json!({ "headerName": name, "valueSecretRef": { "name": "keys", "key": key } });
    let headers = [header("x-a", "one"), header("x_a", "two"), header("X-B", "three")];
    let spec = json!({ "remoteUrl": "https://mcp.example/mcp", "headerForward": { "addHeadersFromSecret": headers } });
    let mut all = objects();
    let keys = ["one", "two", "three"].map(|key| (key.to_owned(), "digest".to_owned()));
    all.insert(
        Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "keys".into() },
        Found::Secret(BTreeMap::from(keys).into()),
    );
    let proxy = proxy(planned(&resource(KindName::MCPRemoteProxy, "r", 1, &spec), &all, &Live::default()));
    let forward = proxy.run_config.header_forward.clone().unwrap();
    let variables = proxy.env.list();
    for (name, key) in [("x-a", "one"), ("x_a", "two"), ("X-B", "three")] {
        let variable = format!("TOOLHIVE_SECRET_{}", forward.add_headers_from_secret[name]);
        let variable = variables.as_array().unwrap().iter().find(|one| one["name"] == variable.as_str());
        assert_eq!(variable.unwrap()["valueFrom"]["secretKeyRef"]["key"], key, "{name}");
    }
    assert_eq!(forward.add_headers_from_secret["X-B"], "HEADER_FORWARD_X_B_R", "as in the original");
}

#[test]
fn a_planned_list_is_in_the_order_of_a_chain_that_a_proxy_builds_from_the_same_members() {
    for plan in [server(), remote_proxy(&json!({}))] {
        let planned = proxy(plan).run_config;
        let members = RunConfig { middleware_configs: Vec::new(), ..planned.clone() };
        assert_eq!(planned.middleware_configs, middleware::list(&members));
        let built = middleware::list_requested(&members);
        let in_both = planned.middleware_configs.iter().filter(|one| built.contains(one));
        assert_eq!(in_both.collect::<Vec<_>>(), built.iter().collect::<Vec<_>>());
    }
}

#[test]
fn the_config_map_holds_the_document_of_the_plan_and_the_container_its_variables() {
    for plan in [server(), remote_proxy(&json!({}))] {
        let child = |kind: ChildKind, name: &str| {
            plan.children.iter().find(|child| child.kind() == kind && child.name().contains(name)).unwrap().body()
        };
        let text = child(ChildKind::ConfigMap, "runconfig")["data"]["runconfig.json"].as_str().unwrap();
        let container = &child(ChildKind::Deployment, "")["spec"]["template"]["spec"]["containers"][0];
        let (text, env) = (text.to_owned(), container["env"].clone());
        let proxy = proxy(plan);
        assert_eq!(RunConfig::from_slice(text.as_bytes()).unwrap(), proxy.run_config);
        assert_eq!(env, proxy.env.list());
    }
}

#[test]
fn a_process_gets_the_variables_of_a_pod_but_for_those_that_only_a_pod_has() {
    let env =
        json!([{ "name": "MINE", "value": "2" }, { "name": "HOME", "value": "/x" }, { "name": "MORE", "value": "3" }]);
    let template = json!({ "spec": { "containers": [{ "name": "toolhive", "env": env }, { "name": "other" }] } });
    let process = proxy(remote_proxy(&template)).process().unwrap();
    assert_eq!(process.env, [Variable::value("MINE", "2"), Variable::value("MORE", "3")]);
    assert!(process.server_env.is_empty());
    let spec = json!({ "image": "i", "secrets": [{ "name": "s", "key": "k", "targetEnvName": "TOKEN" }] });
    let plan = planned(&resource(KindName::MCPServer, "s", 1, &spec), &objects(), &Live::default());
    let process = proxy(plan).process().unwrap();
    assert_eq!(process.server_env, [Variable::secret("TOKEN", "s", "k")]);
    assert!(!process.env.iter().any(|one| matches!(one.source, EnvSource::Pod(_))), "{:?}", process.env);
}

/// Both kinds of proxies and a virtual server, with nothing but webhooks.
fn with_webhooks(found: &BTreeMap<Key, Found>) -> [Plan; 3] {
    let hooks = json!({ "name": "hooks" });
    let server = json!({ "image": "i", "webhookConfigRef": hooks });
    let remote = json!({ "remoteUrl": "https://mcp.example/mcp", "webhookConfigRef": hooks });
    let virtual_server =
        json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "webhookConfigRef": hooks });
    [(KindName::MCPServer, server), (KindName::MCPRemoteProxy, remote), (KindName::VirtualMCPServer, virtual_server)]
        .map(|(kind, spec)| planned(&resource(kind, "p", 1, &spec), found, &Live::default()))
}

/// The webhooks that a process is started with, mutating and validating, and its files.
fn webhooks_of(plan: &Plan) -> (Vec<Webhook>, Vec<Webhook>, Vec<SecretFile>) {
    if let Some(process) = &plan.virtual_server {
        let config: VirtualConfig = VirtualDocument::from_yaml(&process.config).unwrap().decode().unwrap();
        let (mutating, validating) = skep_plan::virtual_config::webhooks(&config.webhooks.unwrap());
        return (mutating, validating, process.files.clone());
    }
    let process = plan.proxy.as_ref().unwrap().process().unwrap();
    (process.run_config.mutating_webhooks, process.run_config.validating_webhooks, process.files)
}

#[test]
fn the_secrets_of_webhooks_are_files_that_follow_their_secrets_in_a_pod_and_in_memory_of_a_process() {
    for plan in with_webhooks(&objects()) {
        let deployment = plan.children.iter().find(|child| child.kind() == ChildKind::Deployment).unwrap().body();
        let mounts = deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        let webhooks: Vec<&Value> =
            mounts.iter().filter(|mount| mount["name"].as_str().unwrap().starts_with("whsec-")).collect();
        assert_eq!(webhooks.len(), 2, "{mounts:?}");
        assert!(webhooks.iter().all(|mount| mount["subPath"].is_null()), "a subPath never changes: {mounts:?}");
        let (mutating, validating, files) = webhooks_of(&plan);
        let paths = [&mutating[0].tls_config.as_ref().unwrap().ca_bundle_path, &validating[0].hmac_secret_ref];
        assert_eq!(files.iter().map(|file| &file.path).collect::<Vec<_>>(), paths);
        let mounted = |path: &str| webhooks.iter().any(|mount| path.starts_with(mount["mountPath"].as_str().unwrap()));
        assert!(paths.iter().all(|path| mounted(path)), "{paths:?}");
        let sources: Vec<_> = files.iter().map(|file| (file.secret.as_str(), file.key.as_str())).collect();
        assert_eq!(sources, [("s", "ca"), ("s", "k")]);
    }
}

#[test]
fn a_new_value_of_a_webhooks_secret_restarts_nothing() {
    let mut found = objects();
    let before = with_webhooks(&found).map(|plan| plan.children);
    let secret = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() };
    let digests: BTreeMap<String, String> =
        [("k", "new"), ("ca", "new")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert!(found.insert(secret, Found::Secret(digests.into())).is_some());
    assert_eq!(with_webhooks(&found).map(|plan| plan.children), before);
}

#[test]
fn an_endpoint_over_http_needs_no_tls_whatever_else_is_said() {
    for (endpoint, insecure, expected) in [
        ("http://otel:4318", false, true),
        ("https://otel:4318", false, false),
        ("otel:4318", false, false),
        ("otel:4318", true, true),
    ] {
        let otel =
            json!({ "enabled": true, "endpoint": endpoint, "insecure": insecure, "tracing": { "enabled": true } });
        let mut all = objects();
        all.extend([found(KindName::MCPTelemetryConfig, "mine", &json!({ "openTelemetry": otel }))]);
        let spec = json!({ "image": "i", "telemetryConfigRef": { "name": "mine" } });
        let plan = planned(&resource(KindName::MCPServer, "s", 1, &spec), &all, &Live::default());
        let telemetry = proxy(plan).run_config.telemetry_config.unwrap();
        assert_eq!((telemetry.endpoint.as_str(), telemetry.insecure), ("otel:4318", expected), "{endpoint}");
    }
}

#[test]
fn traces_without_a_collector_are_reported_as_not_in_force() {
    for (endpoint, reason) in
        [(json!("otel:4318"), None), (json!(""), Some("NoEndpoint")), (Value::Null, Some("NoEndpoint"))]
    {
        let otel = json!({ "enabled": true, "endpoint": endpoint, "tracing": { "enabled": true } });
        let mut all = objects();
        all.extend([found(KindName::MCPTelemetryConfig, "mine", &json!({ "openTelemetry": otel }))]);
        let spec = json!({ "image": "i", "telemetryConfigRef": { "name": "mine" } });
        let plan = planned(&resource(KindName::MCPServer, "s", 1, &spec), &all, &Live::default());
        let reported = plan.status.find("TracingInForce").map(|condition| condition.reason.as_str());
        assert_eq!(reported, reason, "{endpoint}");
    }
}

#[test]
fn a_proxy_that_must_record_its_calls_is_refused_where_there_is_no_audit_log() {
    let lacking = Settings { unsupported: [Feature::Audit].into(), ..settings() };
    for (kind, mut spec) in [
        (KindName::MCPServer, json!({ "image": "i" })),
        (KindName::MCPRemoteProxy, json!({ "remoteUrl": "https://mcp.example/mcp" })),
    ] {
        for (is_enabled, is_refused) in [(false, false), (true, true)] {
            spec["audit"] = json!({ "enabled": is_enabled });
            let (users, found, live) = (BTreeSet::new(), objects(), Live::default());
            let world = World { settings: &lacking, found: &found, users: &users, live: &live, policies: &Engines };
            let plan = plan(&resource(kind, "p", 1, &spec), &world);
            let ready = plan.status.find("Ready").unwrap();
            assert_eq!((ready.reason == "NotSupported", plan.children.is_empty()), (is_refused, is_refused), "{kind}");
            let message = "spec.audit: audit logging is not supported by the configured image of Skep; remove it, or use an image";
            assert_eq!(matches!(&plan.verdict, Verdict::Refuse(why) if why.starts_with(message)), is_refused, "{kind}");
        }
    }
}

#[test]
fn a_server_waits_for_the_config_maps_that_it_names() {
    let policies = json!({ "authzConfig": { "type": "configMap", "configMap": { "name": "mine", "key": "k" } } });
    let profile = json!({ "permissionProfile": { "type": "configmap", "name": "mine", "key": "k" } });
    for (mut spec, field) in [(policies, "spec.authzConfig"), (profile, "spec.permissionProfile")] {
        spec["image"] = json!("i");
        let mut found = objects();
        let planned = |found: &_| planned(&resource(KindName::MCPServer, "s", 1, &spec), found, &Live::default());
        let missing = format!("{field}: ConfigMap `mine` not found; create it with the key `k`");
        assert_eq!(planned(&found).verdict, Verdict::Wait(missing));
        let key = Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: "mine".into() };
        found.insert(key, Found::ConfigMap(std::sync::Arc::default()));
        assert_eq!(planned(&found).verdict, Verdict::Wait(format!("{field}: ConfigMap `mine` has no key `k`; add it")));
    }
}

/// A namespace alone restricts who may call as well: without it in the RunConfig, every ServiceAccount of the cluster would pass.
#[test]
fn service_accounts_are_restricted_to_what_their_configuration_names() {
    for (account, subject, namespace) in [
        (json!({ "serviceAccount": "client", "namespace": "clients" }), "system:serviceaccount:clients:client", ""),
        (json!({ "serviceAccount": "client" }), "system:serviceaccount:ns:client", ""),
        (json!({ "namespace": "clients" }), "", "clients"),
        (json!({ "namespace": "clients", "serviceAccount": "" }), "", "clients"),
        (json!({}), "", ""),
    ] {
        let mut all = objects();
        let spec = json!({ "type": "kubernetesServiceAccount", "kubernetesServiceAccount": account });
        all.extend([found(KindName::MCPOIDCConfig, "accounts", &spec)]);
        let server = json!({ "image": "i", "oidcConfigRef": { "name": "accounts", "audience": "a" } });
        let plan = proxy(planned(&resource(KindName::MCPServer, "s", 1, &server), &all, &Live::default()));
        let oidc = plan.run_config.oidc_config.unwrap();
        assert_eq!((&*oidc.required_subject, &*oidc.required_namespace), (subject, namespace), "{account}");
    }
}
