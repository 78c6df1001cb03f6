//! What the configuration of a virtual server says about its clients, in the document that every proxy reads: so the chain of a virtual server
//! is built as any other.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skep_api::virtual_config::{AuditSettings, IncomingAuthz, IncomingOidc, ResolvedTelemetry};
use skep_api::workload::StorageProvider;
use skep_runconfig::run_config::{AuditConfig, OidcConfig, ScalingConfig, SessionRedis, TelemetryConfig};
use skep_runconfig::{Json, RunConfig};

use super::Config;

/// What is put in front of the keys of sessions, unless the configuration says otherwise.
const KEY_PREFIX: &str = "thv:vmcp:session:";
/// The variable by which every proxy gets the secret of the client that introspects tokens.
const CLIENT_SECRET: &str = "TOOLHIVE_OIDC_CLIENT_SECRET";

/// Why there is no document for the chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunConfigError {
    /// A variable is missing.
    #[error("{place}: the environment variable `{variable}` is not set")]
    NoVariable {
        /// What names it.
        place: &'static str,
        /// The variable.
        variable: String,
    },
}

// === impl Config ===

impl Config {
    /// The document of the proxy that serves the virtual server, with what it needs of the environment.
    pub fn run_config(
        &self,
        host: &str,
        port: u16,
        environment: &mut BTreeMap<String, String>,
    ) -> Result<RunConfig, RunConfigError> {
        let document = self.document();
        let mut config = RunConfig {
            name: self.name().to_owned(),
            base_name: self.name().to_owned(),
            transport: "streamable-http".to_owned(),
            host: host.to_owned(),
            port: i64::from(port),
            group: self.group().to_owned(),
            optimizer: document.optimizer.is_some(),
            rate_limit_namespace: environment.get("VMCP_NAMESPACE").cloned().unwrap_or_else(|| "local".to_owned()),
            ..RunConfig::default()
        };
        if let Some(auth) = &document.incoming_auth {
            if let Some(oidc) = auth.oidc.as_ref().filter(|_| auth.method == "oidc") {
                config.oidc_config = Some(authentication(oidc));
                if let Some(variable) = oidc.client_secret_env.as_ref().filter(|variable| !variable.is_empty()) {
                    let secret = environment.get(variable).cloned().ok_or_else(|| RunConfigError::NoVariable {
                        place: "incomingAuth.oidc.clientSecretEnv",
                        variable: variable.clone(),
                    })?;
                    environment.insert(CLIENT_SECRET.to_owned(), secret);
                }
            }
            if let Some(authz) = auth.authz.as_ref().filter(|authz| authz.engine == "cedar") {
                config.authz_config = authorization(authz);
            }
        }
        config.audit_config = document.audit.as_ref().map(|audit| audit_config(audit, self.name()));
        config.telemetry_config = document.telemetry.as_ref().map(|telemetry| telemetry_config(telemetry, self.name()));
        if let Some(webhooks) = &document.webhooks {
            (config.mutating_webhooks, config.validating_webhooks) = skep_plan::virtual_config::webhooks(webhooks);
        }
        config.rate_limit_config = document.rate_limiting.as_ref().map(skep_plan::rate_limits::document);
        let storage = document.session_storage.as_ref();
        if let Some(storage) = storage.filter(|storage| storage.provider == StorageProvider::Redis) {
            let prefix = storage.key_prefix.clone().filter(|prefix| !prefix.is_empty());
            let redis = SessionRedis {
                address: storage.address.clone().unwrap_or_default(),
                db: storage.db,
                key_prefix: prefix.unwrap_or_else(|| KEY_PREFIX.to_owned()),
                ..SessionRedis::default()
            };
            config.scaling_config = Some(ScalingConfig { session_redis: Some(redis), ..ScalingConfig::default() });
        }
        Ok(config)
    }
}

fn authentication(oidc: &IncomingOidc) -> OidcConfig {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    // The resource of the metadata is the audience, unless another one is named.
    let resource = oidc.resource.clone().filter(|resource| !resource.is_empty());
    OidcConfig {
        issuer: oidc.issuer.clone(),
        audience: oidc.audience.clone(),
        jwks_url: text(&oidc.jwks_url),
        client_id: oidc.client_id.clone(),
        ca_cert_path: text(&oidc.ca_bundle_path),
        allow_private_ip: oidc.jwks_allow_private_ip || oidc.protected_resource_allow_private_ip,
        insecure_allow_http: oidc.insecure_allow_http,
        introspection_url: text(&oidc.introspection_url),
        resource_url: resource.unwrap_or_else(|| oidc.audience.clone()),
        scopes: (!oidc.scopes.is_empty()).then(|| oidc.scopes.clone()),
        ..OidcConfig::default()
    }
}

fn authorization(authz: &IncomingAuthz) -> Json {
    let mut cedar = json!({ "policies": authz.policies });
    let texts = [
        ("entities_json", &authz.entities_json),
        ("primary_upstream_provider", &authz.primary_upstream_provider),
        ("group_claim_name", &authz.group_claim_name),
        ("role_claim_name", &authz.role_claim_name),
        ("group_entity_type", &authz.group_entity_type),
    ];
    if let Some(cedar) = cedar.as_object_mut() {
        let given = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        cedar.extend(given.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name.to_owned(), json!(text))));
        cedar.entry("entities_json").or_insert_with(|| Value::from("[]"));
    }
    Json::of(&json!({ "version": "1.0", "type": "cedarv1", "cedar": cedar })).unwrap_or(Json::Null)
}

fn audit_config(audit: &AuditSettings, name: &str) -> AuditConfig {
    let component = audit.component.clone().filter(|component| !component.is_empty());
    AuditConfig {
        enabled: true,
        component: component.unwrap_or_else(|| name.to_owned()),
        event_types: audit.event_types.clone(),
        exclude_event_types: audit.exclude_event_types.clone(),
        include_request_data: audit.include_request_data,
        include_response_data: audit.include_response_data,
        detect_application_errors: Some(audit.detect_application_errors),
        max_data_size: audit.max_data_size,
        max_delegation_depth: audit.max_delegation_depth,
        log_file: audit.log_file.clone().unwrap_or_default(),
        ..AuditConfig::default()
    }
}

fn telemetry_config(telemetry: &ResolvedTelemetry, name: &str) -> TelemetryConfig {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let service = telemetry.service_name.clone().filter(|service| !service.is_empty());
    TelemetryConfig {
        endpoint: text(&telemetry.endpoint),
        service_name: service.unwrap_or_else(|| name.to_owned()),
        service_version: text(&telemetry.service_version),
        tracing_enabled: telemetry.tracing_enabled,
        metrics_enabled: telemetry.metrics_enabled,
        sampling_rate: telemetry.sampling_rate.clone(),
        headers: telemetry.headers.clone(),
        insecure: telemetry.insecure,
        enable_prometheus_metrics_path: telemetry.enable_prometheus_metrics_path,
        prometheus_port: telemetry.prometheus_port.unwrap_or_default(),
        // A virtual server has one port, unless it is told otherwise.
        metrics_on_transport_port: Some(telemetry.metrics_on_transport_port.unwrap_or(true)),
        environment_variables: telemetry.environment_variables.clone(),
        custom_attributes: telemetry.custom_attributes.clone(),
        use_legacy_attributes: telemetry.use_legacy_attributes,
        ca_cert_path: text(&telemetry.ca_cert_path),
        ..TelemetryConfig::default()
    }
}
