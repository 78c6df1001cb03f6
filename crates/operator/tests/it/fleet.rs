//! A workload of each kind that refers to a config of each kind: what several tests hold to the same rules.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;

use crate::running::Running;

/// A config kind: an object of it, and an edit that changes what a proxy runs with.
pub(crate) struct Config {
    pub(crate) kind: KindName,
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
    pub(crate) edit: Value,
}

/// The config kinds that workloads refer to.
pub(crate) fn configs() -> Vec<Config> {
    let one = |kind, name, spec, edit| Config { kind, name, spec, edit };
    let policies = |policy: &str| json!({ "config": { "policies": [policy], "entities_json": "[]" } });
    let exchange = json!({ "type": "tokenExchange", "tokenExchange": {
        "tokenUrl": "https://idp.example/token", "audience": "one", "clientId": "c", "clientSecretRef": { "name": "x", "key": "secret" },
    }});
    let mut authz = policies("permit(principal, action, resource);");
    authz["type"] = json!("cedarv1");
    vec![
        one(
            KindName::MCPOIDCConfig,
            "idp",
            json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } }),
            json!({ "inline": { "issuer": "https://other.example" } }),
        ),
        one(KindName::MCPAuthzConfig, "authz", authz, policies("permit(principal, action, resource == Tool::\"t\");")),
        one(
            KindName::MCPTelemetryConfig,
            "otel",
            json!({ "openTelemetry": { "enabled": true, "endpoint": "https://otel.example:4318", "tracing": { "enabled": true } } }),
            json!({ "openTelemetry": { "endpoint": "https://other.example:4318" } }),
        ),
        one(KindName::MCPExternalAuthConfig, "exchange", exchange, json!({ "tokenExchange": { "audience": "two" } })),
        one(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] }), json!({ "toolsFilter": ["a", "b"] })),
        one(
            KindName::MCPWebhookConfig,
            "hooks",
            json!({ "validating": [{ "name": "check", "url": "https://hooks.example/1" }] }),
            json!({ "validating": [{ "name": "check", "url": "https://hooks.example/2" }] }),
        ),
    ]
}

/// The variable that a user sets in the containers of an overridden workload.
pub(crate) const USER_VARIABLE: &str = "SET_BY_A_USER";

/// A workload that refers to every config kind that it can.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) kind: KindName,
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
}

pub(crate) fn workloads() -> [Workload; 3] {
    let oidc = json!({ "name": "idp", "audience": "a" });
    let named = |name: &str| json!({ "name": name });
    let common = json!({
        "oidcConfigRef": oidc, "authzConfigRef": named("authz"), "telemetryConfigRef": named("otel"),
        "externalAuthConfigRef": named("exchange"), "toolConfigRef": named("tools"),
    });
    let with = |more: Value| skep_plan::merge::merge_patch(&common, &more);
    let server = with(
        json!({ "image": "registry.example/a:1", "transport": "streamable-http", "webhookConfigRef": named("hooks") }),
    );
    let remote = with(json!({ "remoteUrl": "https://mcp.example/mcp", "webhookConfigRef": named("hooks") }));
    let outgoing = json!({ "source": "discovered", "default": { "type": "externalAuthConfigRef", "externalAuthConfigRef": named("exchange") } });
    let virtual_server = json!({
        "groupRef": named("g"),
        "incomingAuth": { "type": "oidc", "oidcConfigRef": oidc, "authzConfigRef": named("authz") },
        "outgoingAuth": outgoing,
        "telemetryConfigRef": named("otel"),
        "webhookConfigRef": named("hooks"),
        "config": { "aggregation": { "tools": [{ "workload": "member", "toolConfigRef": named("tools") }] } },
    });
    [
        Workload { kind: KindName::MCPServer, name: "s", spec: server },
        Workload { kind: KindName::MCPRemoteProxy, name: "r", spec: remote },
        Workload { kind: KindName::VirtualMCPServer, name: "v", spec: virtual_server },
    ]
}

impl Workload {
    /// Whether it refers to a config.
    pub(crate) fn uses(&self, config: &Config) -> bool {
        self.spec.to_string().contains(&format!(r#""name":"{}""#, config.name))
    }

    /// The same with annotations and labels of a user on everything that can have some, and with a variable of a user.
    pub(crate) fn overridden(&self, annotations: &Value, labels: &Value) -> Self {
        let deployment = json!({ "annotations": annotations, "labels": labels });
        let mut template = json!({ "metadata": { "annotations": annotations, "labels": labels } });
        let env = json!([{ "name": USER_VARIABLE, "value": "x" }]);
        let more = if self.kind == KindName::VirtualMCPServer {
            template["spec"] = json!({ "containers": [{ "name": "vmcp", "env": env }] });
            json!({ "podTemplateSpec": template })
        } else {
            let mut deployment = deployment;
            deployment["env"] = env;
            deployment["annotations"]["deploy"] = json!("x");
            deployment["podTemplateMetadataOverrides"] = template["metadata"].clone();
            json!({ "resourceOverrides": { "proxyDeployment": deployment } })
        };
        Self { spec: skep_plan::merge::merge_patch(&self.spec, &more), ..self.clone() }
    }

    pub(crate) async fn create(&self, operator: &Running) -> Result<()> {
        operator.create(self.kind, self.name, self.spec.clone()).await?;
        Ok(())
    }
}

/// Makes every config, and what configs and workloads need.
pub(crate) async fn prepare(operator: &Running) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(operator.client.clone(), &operator.namespace);
    let secret = json!({ "metadata": { "name": "x" }, "stringData": { "secret": "s3cret" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    for config in configs() {
        operator.create(config.kind, config.name, config.spec).await?;
    }
    Ok(())
}
