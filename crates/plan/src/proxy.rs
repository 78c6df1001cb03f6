//! What the proxies of an MCPServer and of an MCPRemoteProxy have in common: their files, their Service, their RunConfig.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::authz::AuthzConfig;
use skep_api::kinds::{MCPExternalAuthConfigSpec, MCPOIDCConfigSpec, MCPTelemetryConfigSpec};
use skep_api::resource::Resource;
use skep_api::schema::Object;
use skep_api::workload::{MetadataOverrides, ProxyOverrides, SessionAffinity};
use skep_runconfig::feature::Feature;
use skep_runconfig::{RunConfig, middleware};

use crate::child::{Child, ChildKind};
use crate::merge::check_pod_template;
use crate::overrides::PROXY_ENV;
use crate::plan::Verdict;
use crate::pod::{Env, PodStamps, workload_labels};
use crate::refusal::{Refusal, check_untaken};
use crate::status::Status;
use crate::support::NOT_SUPPORTED;
use crate::text::secret_identifier;
use crate::world::World;
use crate::{auth_server, canonical, names, run_config};

/// Volumes of a pod and where they are mounted, in the order of the contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Volumes {
    pub(crate) volumes: Vec<Value>,
    pub(crate) mounts: Vec<Value>,
}

impl Volumes {
    /// The RunConfig.
    pub(crate) fn run_config(&mut self, me: &Resource) -> &mut Self {
        self.config_map("runconfig", &names::run_config(me.name()), None, "/etc/runconfig")
    }

    /// Policies that stand in the spec or in a ConfigMap that it names.
    pub(crate) fn authz(&mut self, me: &Resource, authz: Option<&AuthzConfig>) -> &mut Self {
        let Some(authz) = authz else { return self };
        let (map, key) = authz.config_map.as_ref().map_or_else(
            || (names::inline_authz(me.name()), "authz.json".to_owned()),
            |map| (map.name.clone(), map.key.clone()),
        );
        self.config_map("authz-config", &map, Some((&key, "authz.json")), "/etc/toolhive/authz")
    }

    /// Certificate authorities of the identity provider.
    pub(crate) fn oidc_ca(&mut self, oidc: Option<&MCPOIDCConfigSpec>) -> Result<&mut Self, String> {
        if let Some((map, key, directory)) = oidc.and_then(|oidc| oidc.inline.as_ref()).and_then(run_config::ca_mount) {
            self.config_map(&short_volume("oidc-ca-bundle", map)?, map, Some((key, key)), &directory);
        }
        Ok(self)
    }

    /// Certificate authorities of the telemetry collector.
    pub(crate) fn telemetry_ca(&mut self, telemetry: Option<&MCPTelemetryConfigSpec>) -> Result<&mut Self, String> {
        if let Some((map, key)) = telemetry.and_then(run_config::telemetry_ca) {
            let directory = format!("/config/certs/otel/{map}");
            self.config_map(&short_volume("otel-ca-bundle", map)?, map, Some((key, key)), &directory);
        }
        Ok(self)
    }

    /// Keys of the embedded authorization server.
    pub(crate) fn auth_server(&mut self, server: Option<&EmbeddedAuthServer>) -> &mut Self {
        if let Some(server) = server {
            let (volumes, mounts) = auth_server::volumes(server);
            self.volumes.extend(volumes);
            self.mounts.extend(mounts);
        }
        self
    }

    /// A ConfigMap, whole or one key of it under a file name.
    pub(crate) fn config_map(&mut self, volume: &str, map: &str, item: Option<(&str, &str)>, path: &str) -> &mut Self {
        let mut source = json!({ "name": map });
        if let (Some((key, file)), Some(source)) = (item, source.as_object_mut()) {
            source.insert("items".into(), json!([{ "key": key, "path": file }]));
        }
        self.volumes.push(json!({ "name": volume, "configMap": source }));
        self.mounts.push(json!({ "name": volume, "mountPath": path, "readOnly": true }));
        self
    }
}

/// Says whether the user's pod template is one, and refuses it if not.
pub(crate) fn check_template(status: &mut Status, template: Option<&Object>) -> Option<Verdict> {
    let template = template?;
    match check_pod_template(&Value::Object(template.0.clone())) {
        Ok(()) => {
            status.condition("PodTemplateValid", true, "ValidPodTemplateSpec", "PodTemplateSpec is valid");
            None
        }
        Err(problem) => {
            let refusal = Refusal::template(problem);
            status.condition("PodTemplateValid", false, refusal.reason, &refusal.message);
            Some(Verdict::Refuse(refusal.message))
        }
    }
}

/// What planning the children of a proxy came to: the verdict from which all conditions follow.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) children: Vec<Child>,
    pub(crate) verdict: Verdict,
    /// Why it is refused, in one word, where building or applying the children was.
    pub(crate) reason: Option<&'static str>,
}

impl Outcome {
    /// The stamps of the pods that this plan asks for, if it has any.
    pub(crate) fn stamps(&self) -> Option<PodStamps> {
        PodStamps::planned(&self.children)
    }

    /// Why it is refused, in one word: a word of its own where it is not the spec that is at fault, else that of the kind.
    pub(crate) fn refusal_reason<'a>(&self, of_the_kind: &'a str) -> &'a str {
        match self.reason {
            Some(reason @ (NOT_SUPPORTED | Refusal::NAME_TAKEN | Refusal::APPLY_REFUSED)) => reason,
            _ => of_the_kind,
        }
    }

    /// Whether the configuration is at fault, and not the cluster that does not take the children.
    pub(crate) fn is_misconfigured(&self) -> bool {
        let is_of_the_cluster = matches!(self.reason, Some(Refusal::NAME_TAKEN | Refusal::APPLY_REFUSED));
        self.verdict != Verdict::Apply && !is_of_the_cluster
    }
}

/// The children, unless something failed before, fails while they are built, or the cluster does not take them.
pub(crate) fn children_unless(
    failure: Option<Verdict>,
    build: impl FnOnce() -> Result<Vec<Child>, Refusal>,
    me: &Resource,
    world: &World<'_>,
) -> Outcome {
    let refused = |children, Refusal { reason, message }| Outcome {
        children,
        verdict: Verdict::Refuse(message),
        reason: Some(reason),
    };
    if let Some(verdict) = failure {
        return Outcome { children: Vec::new(), verdict, reason: None };
    }
    match (build(), check_untaken(me, world)) {
        (Err(refusal), _) => refused(Vec::new(), refusal),
        (Ok(children), Err(refusal)) => refused(children, refusal),
        (Ok(children), Ok(())) => Outcome { children, verdict: Verdict::Apply, reason: None },
    }
}

/// What of a telemetry configuration only observes calls, and whether it is asked for.
pub(crate) fn observed_by(telemetry: Option<&MCPTelemetryConfigSpec>, audit: bool) -> [(Feature, bool); 3] {
    let otel = telemetry.and_then(|spec| spec.open_telemetry.as_ref()).filter(|otel| otel.enabled);
    let tracing = otel.and_then(|otel| otel.tracing.as_ref()).is_some_and(|tracing| tracing.enabled);
    let metrics = otel.filter(|otel| otel.endpoint.as_deref().is_some_and(|endpoint| !endpoint.is_empty()));
    let metrics = metrics.and_then(|otel| otel.metrics.as_ref()).is_some_and(|metrics| metrics.enabled);
    [(Feature::Audit, audit), (Feature::Tracing, tracing), (Feature::MetricsExport, metrics)]
}

/// The secret with which opaque tokens are looked up.
pub(crate) fn oidc_env(env: &mut Env, oidc: Option<&MCPOIDCConfigSpec>) {
    let inline = oidc.and_then(|oidc| oidc.inline.as_ref());
    if let Some(secret) = inline.and_then(|inline| inline.client_secret_ref.as_ref()) {
        env.secret("TOOLHIVE_OIDC_CLIENT_SECRET", &secret.name, &secret.key);
    }
}

/// The secrets with which the proxy signs in to its server.
pub(crate) fn external_auth_env(env: &mut Env, auth: Option<&MCPExternalAuthConfigSpec>) {
    let Some(auth) = auth else { return };
    if let Some(secret) = auth.token_exchange.as_ref().and_then(|exchange| exchange.client_secret_ref.as_ref()) {
        env.secret("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", &secret.name, &secret.key);
    }
    if let Some(secret) = auth.bearer_token.as_ref().map(|bearer| &bearer.token_secret_ref) {
        env.secret(&format!("TOOLHIVE_SECRET_{}", secret_identifier(&secret.name)), &secret.name, &secret.key);
    }
}

/// The user's own variables.
pub(crate) fn override_env(env: &mut Env, overrides: Option<&ProxyOverrides>) {
    let deployment = overrides.and_then(|overrides| overrides.proxy_deployment.as_ref());
    for variable in deployment.iter().flat_map(|deployment| &deployment.env) {
        env.user(PROXY_ENV, &variable.name, &variable.value);
    }
}

/// The Service in front of a proxy.
pub(crate) fn service(
    me: &Resource,
    name: &str,
    port: i32,
    affinity: SessionAffinity,
    overrides: Option<&MetadataOverrides>,
) -> Child {
    let labels = workload_labels(me);
    let affinity = match affinity {
        SessionAffinity::ClientIP => "ClientIP",
        SessionAffinity::None => "None",
    };
    let body = json!({ "spec": {
        "selector": labels,
        "sessionAffinity": affinity,
        "ports": [{ "name": "http", "port": port, "targetPort": port, "protocol": "TCP" }],
    }});
    let (labels, annotations) = with_overrides(&labels, overrides);
    Child::new(me, ChildKind::Service, name, Value::Object(labels), Value::Object(annotations), body)
}

/// The ConfigMap with the RunConfig, and its checksum. `kind_label` is the last part of the label with the resource's name.
pub(crate) fn run_config_map(me: &Resource, kind_label: &str, mut config: RunConfig) -> (Child, String) {
    config.middleware_configs = middleware::list(&config);
    let data = BTreeMap::from([("runconfig.json".to_owned(), config.to_json_pretty())]);
    let labels: BTreeMap<String, String> = [
        ("toolhive.stacklok.io/component".to_owned(), "run-config".to_owned()),
        (format!("toolhive.stacklok.io/{kind_label}"), me.name().to_owned()),
        ("toolhive.stacklok.io/managed-by".to_owned(), "toolhive-operator".to_owned()),
    ]
    .into();
    let checksum = canonical::content_checksum(&data, &labels, &BTreeMap::new());
    let annotations = json!({ canonical::CONTENT_CHECKSUM: checksum });
    let body = json!({ "data": data });
    (Child::new(me, ChildKind::ConfigMap, &names::run_config(me.name()), json!(labels), annotations, body), checksum)
}

/// The ConfigMap with policies that were written in place.
pub(crate) fn inline_authz(me: &Resource, authz: Option<&AuthzConfig>) -> Option<Child> {
    let inline = authz?.inline.as_ref()?;
    let document = json!({
        "version": "1.0",
        "type": "cedarv1",
        "cedar": { "policies": inline.policies, "entities_json": inline.entities_json },
    });
    let mut labels = workload_labels(me);
    labels.insert("toolhive.stacklok.io/authz".into(), "inline".into());
    let data = json!({ "data": { "authz.json": canonical::to_string(&document) } });
    Some(Child::new(me, ChildKind::ConfigMap, &names::inline_authz(me.name()), json!(labels), json!({}), data))
}

/// Labels and annotations of an object: the user's, and ours, which win where the key is the same.
pub(crate) fn with_overrides(
    own: &BTreeMap<String, String>,
    overrides: Option<&MetadataOverrides>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    if let Some(overrides) = overrides {
        labels.extend(overrides.labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        annotations.extend(overrides.annotations.iter().map(|(name, value)| (name.clone(), json!(value))));
    }
    labels.extend(own.iter().map(|(name, value)| (name.clone(), json!(value))));
    (labels, annotations)
}

fn short_volume(prefix: &str, map: &str) -> Result<String, String> {
    let name = format!("{prefix}-{map}");
    if name.len() > 63 {
        let most = 62 - prefix.len();
        return Err(format!("the name of ConfigMap `{map}` is too long for a volume; use at most {most} characters"));
    }
    Ok(name)
}
