//! The RunConfig of a proxy: what the spec and the resolved references come to, in the document that the proxy reads.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skep_api::authz::AuthzConfig;
use skep_api::kinds::{
    ExternalAuthMethod, InlineOidc, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPOIDCConfigSpec,
    MCPTelemetryConfigSpec, MCPToolConfigSpec, OidcSource, TokenExchange,
};
use skep_api::reference::{OidcConfigRef, TelemetryConfigRef};
use skep_api::workload::{SessionStorage, StorageProvider};
use skep_runconfig::run_config::{
    AuditConfig, AwsRoleMapping, AwsStsConfig, InboundPermissions, NetworkPermissions, OidcConfig, OutboundPermissions,
    PermissionProfile, RemoteAuthConfig, SCHEMA_VERSION, SessionRedis, TelemetryConfig, TokenExchangeConfig,
    ToolOverride,
};
use skep_runconfig::{GoDuration, Json, RunConfig};

use crate::text::secret_identifier;
use crate::world::Settings;

/// Where the pod's own ServiceAccount is.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What every proxy's document starts from.
pub(crate) fn base(name: &str, transport: &str, proxy_mode: &str, port: i32, settings: &Settings) -> RunConfig {
    let labels = [
        ("toolhive", "true".to_owned()),
        ("toolhive-name", name.to_owned()),
        ("toolhive-basename", name.to_owned()),
        ("toolhive-transport", transport.to_owned()),
        ("toolhive-port", port.to_string()),
    ];
    RunConfig {
        schema_version: SCHEMA_VERSION.into(),
        name: name.into(),
        container_name: name.into(),
        base_name: name.into(),
        transport: transport.into(),
        host: settings.proxy_host.clone(),
        port: port.into(),
        proxy_mode: if transport == "stdio" { proxy_mode.into() } else { transport.into() },
        env_vars: BTreeMap::from([("MCP_TRANSPORT".to_owned(), transport.to_owned())]),
        container_labels: labels.map(|(label, value)| (label.to_owned(), value)).into(),
        ..RunConfig::default()
    }
}

/// The permissions of a server that names none: it may reach everything.
pub(crate) fn open_profile() -> PermissionProfile {
    PermissionProfile {
        name: "network".into(),
        network: Some(NetworkPermissions {
            outbound: Some(OutboundPermissions { insecure_allow_all: true, ..OutboundPermissions::default() }),
            inbound: Some(InboundPermissions::default()),
            ..NetworkPermissions::default()
        }),
        ..PermissionProfile::default()
    }
}

/// Writes the issuer and audience of valid tokens. `default_resource` is where the server is reached, unless the reference says otherwise; `namespace` is that of the
/// configuration.
pub(crate) fn oidc(
    config: &mut RunConfig,
    reference: &OidcConfigRef,
    spec: &MCPOIDCConfigSpec,
    (namespace, default_resource): (&str, &str),
) {
    let resource = reference.resource_url.as_deref().filter(|url| !url.is_empty()).unwrap_or(default_resource);
    let mut document = OidcConfig {
        audience: reference.audience.clone(),
        resource_url: resource.to_owned(),
        scopes: (!reference.scopes.is_empty()).then(|| reference.scopes.clone()),
        ..OidcConfig::default()
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (spec.source, &spec.kubernetes_service_account, &spec.inline) {
        (OidcSource::KubernetesServiceAccount, Some(account), _) => {
            document.issuer.clone_from(&account.issuer);
            document.jwks_url = text(&account.jwks_url);
            document.introspection_url = text(&account.introspection_url);
            let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
            match (given(&account.namespace), given(&account.service_account)) {
                (other, Some(name)) => {
                    let namespace = other.as_deref().unwrap_or(namespace);
                    document.required_subject = format!("system:serviceaccount:{namespace}:{name}");
                }
                // Without a name, the namespace still restricts who may call.
                (Some(namespace), None) => document.required_namespace = namespace,
                (None, None) => {}
            }
            if account.use_cluster_auth.unwrap_or(true) {
                document.ca_cert_path = format!("{ACCOUNT}/ca.crt");
                document.auth_token_file = format!("{ACCOUNT}/token");
                document.allow_private_ip = true;
            }
        }
        (OidcSource::Inline, _, Some(inline)) => {
            document.issuer.clone_from(&inline.issuer);
            document.jwks_url = text(&inline.jwks_url);
            document.introspection_url = text(&inline.introspection_url);
            document.client_id = text(&inline.client_id);
            document.auth_token_file = text(&inline.jwks_auth_token_path);
            document.allow_private_ip = inline.jwks_allow_private_ip || inline.protected_resource_allow_private_ip;
            document.insecure_allow_http = inline.insecure_allow_http;
            document.ca_cert_path = ca_path(inline).unwrap_or_default();
        }
        _ => {}
    }
    config.thv_ca_bundle.clone_from(&document.ca_cert_path);
    config.jwks_auth_token_file.clone_from(&document.auth_token_file);
    config.oidc_config = Some(document);
}

/// The ConfigMap with the certificate authorities of an identity provider: its name, the key, and where it is mounted.
pub(crate) fn ca_mount(inline: &InlineOidc) -> Option<(&str, &str, String)> {
    let reference = inline.ca_bundle_ref.as_ref()?.config_map_ref.as_ref()?;
    let key = if reference.key.is_empty() { "ca.crt" } else { &reference.key };
    Some((&reference.name, key, format!("/config/certs/{}", reference.name)))
}

fn ca_path(inline: &InlineOidc) -> Option<String> {
    ca_mount(inline).map(|(_, key, directory)| format!("{directory}/{key}"))
}

/// Which tools clients see.
pub(crate) fn tools(config: &mut RunConfig, spec: &MCPToolConfigSpec) {
    config.tools_filter.clone_from(&spec.tools_filter);
    for (tool, seen) in &spec.tools_override {
        let (name, description) = (seen.name.clone().unwrap_or_default(), seen.description.clone().unwrap_or_default());
        config.tools_override.insert(tool.clone(), ToolOverride { name, description, ..ToolOverride::default() });
    }
}

/// Where traces and metrics go.
pub(crate) fn telemetry(
    config: &mut RunConfig,
    reference: &TelemetryConfigRef,
    spec: &MCPTelemetryConfigSpec,
    name: &str,
) {
    let prometheus = spec.prometheus.as_ref().is_some_and(|prometheus| prometheus.enabled);
    let otel = spec.open_telemetry.as_ref().filter(|otel| otel.enabled);
    if otel.is_none() && !prometheus {
        return;
    }
    let mut document = TelemetryConfig {
        service_name: service_name(reference, name).to_owned(),
        enable_prometheus_metrics_path: prometheus,
        ..TelemetryConfig::default()
    };
    if let Some(otel) = otel {
        let given = otel.endpoint.as_deref().unwrap_or_default();
        let endpoint = given.strip_prefix("https://").or_else(|| given.strip_prefix("http://")).unwrap_or(given);
        endpoint.clone_into(&mut document.endpoint);
        // The document names no scheme, so it has to say that there is no TLS.
        document.insecure = otel.insecure || given.starts_with("http://");
        document.headers.clone_from(&otel.headers);
        document.custom_attributes.clone_from(&otel.resource_attributes);
        document.use_legacy_attributes = otel.use_legacy_attributes;
        document.metrics_enabled = otel.metrics.as_ref().is_some_and(|metrics| metrics.enabled);
        if let Some(tracing) = &otel.tracing {
            document.tracing_enabled = tracing.enabled;
            document.sampling_rate.clone_from(&tracing.sampling_rate);
        }
        if let Some((map, key)) = telemetry_ca(spec) {
            document.ca_cert_path = format!("/config/certs/otel/{map}/{key}");
        }
    }
    config.telemetry_config = Some(document);
}

/// The ConfigMap with the certificate authorities of a collector: its name and the key.
pub(crate) fn telemetry_ca(spec: &MCPTelemetryConfigSpec) -> Option<(&str, &str)> {
    let otel = spec.open_telemetry.as_ref().filter(|otel| otel.enabled)?;
    let reference = otel.ca_bundle_ref.as_ref()?.config_map_ref.as_ref()?;
    Some((&reference.name, if reference.key.is_empty() { "ca.crt" } else { &reference.key }))
}

/// The service name in traces and metrics.
pub(crate) fn service_name<'a>(reference: &'a TelemetryConfigRef, name: &'a str) -> &'a str {
    reference.service_name.as_deref().filter(|text| !text.is_empty()).unwrap_or(name)
}

/// The policies of an `authzConfig` that were written in place, as the proxy's document.
pub fn inline_authz(authz: &AuthzConfig) -> Option<Json> {
    let inline = authz.inline.as_ref()?;
    let mut cedar =
        json_object(&[("policies", json!(inline.policies)), ("entities_json", json!(inline.entities_json))]);
    add_claims(&mut cedar, authz);
    Some(ordered(&[("version", Json::from("1.0")), ("type", Json::from("cedarv1")), ("cedar", cedar)]))
}

/// The document of a ConfigMap, with the claims that the spec names and without the members that no proxy reads.
pub(crate) fn config_map_authz(authz: &AuthzConfig, mut document: Value) -> Json {
    if let Value::Object(members) = &mut document {
        let engine = members.get("type").and_then(Value::as_str).unwrap_or_default();
        let known = ["version", "type", authz_key(engine)];
        members.retain(|name, _| known.contains(&name.as_str()));
    }
    let mut json = Json::from(&document);
    if let Json::Object(members) = &mut json
        && let Some(cedar) = members.get_mut("cedar")
    {
        add_claims(cedar, authz);
    }
    json
}

/// The document of an MCPAuthzConfig.
pub(crate) fn shared_authz(spec: &MCPAuthzConfigSpec) -> Json {
    let config = Value::Object(spec.config.0.clone());
    Json::from(&json!({ "version": "1.0", "type": spec.engine, authz_key(&spec.engine): config }))
}

/// The member of an authorization document that holds an engine's own configuration.
pub(crate) fn authz_key(engine: &str) -> &'static str {
    match engine {
        "httpv1" => "pdp",
        _ => "cedar",
    }
}

/// Whether the proxy of an MCPServer or MCPRemoteProxy does what a type of external authentication says. A virtual server
/// implements the other types, as far as they are supported.
pub(crate) const fn is_used_by_proxies(method: ExternalAuthMethod) -> bool {
    match method {
        ExternalAuthMethod::TokenExchange
        | ExternalAuthMethod::BearerToken
        | ExternalAuthMethod::AwsSts
        | ExternalAuthMethod::EmbeddedAuthServer
        | ExternalAuthMethod::HeaderInjection
        | ExternalAuthMethod::Unauthenticated => true,
        ExternalAuthMethod::UpstreamInject | ExternalAuthMethod::Obo | ExternalAuthMethod::Xaa => false,
    }
}

/// Whether a type of external authentication goes with the HTTP requests to a server.
pub(crate) const fn needs_requests(method: ExternalAuthMethod) -> bool {
    match method {
        ExternalAuthMethod::TokenExchange
        | ExternalAuthMethod::BearerToken
        | ExternalAuthMethod::AwsSts
        | ExternalAuthMethod::HeaderInjection => true,
        ExternalAuthMethod::EmbeddedAuthServer
        | ExternalAuthMethod::Unauthenticated
        | ExternalAuthMethod::UpstreamInject
        | ExternalAuthMethod::Obo
        | ExternalAuthMethod::Xaa => false,
    }
}

/// The credentials that the proxy calls its server with.
pub(crate) fn external_auth(config: &mut RunConfig, spec: &MCPExternalAuthConfigSpec) {
    match spec.method {
        ExternalAuthMethod::TokenExchange => {
            config.token_exchange_config = spec.token_exchange.as_ref().map(token_exchange);
        }
        ExternalAuthMethod::BearerToken => {
            config.remote_auth_config = spec.bearer_token.as_ref().map(|token| RemoteAuthConfig {
                bearer_token: format!("{},target=bearer_token", secret_identifier(&token.token_secret_ref.name)),
                ..RemoteAuthConfig::default()
            });
        }
        ExternalAuthMethod::AwsSts => {
            config.aws_sts_config = spec.aws_sts.as_ref().map(|sts| AwsStsConfig {
                region: sts.region.clone(),
                service: sts.service.clone(),
                fallback_role_arn: sts.fallback_role_arn.clone().unwrap_or_default(),
                role_mappings: sts
                    .role_mappings
                    .iter()
                    .map(|mapping| AwsRoleMapping {
                        claim: mapping.claim.clone().unwrap_or_default(),
                        matcher: mapping.matcher.clone().unwrap_or_default(),
                        role_arn: mapping.role_arn.clone(),
                        priority: mapping.priority.map(i64::from),
                        ..AwsRoleMapping::default()
                    })
                    .collect(),
                role_claim: sts.role_claim.clone(),
                session_duration: sts.session_duration,
                session_name_claim: sts.session_name_claim.clone(),
                subject_provider_name: sts.subject_provider_name.clone().unwrap_or_default(),
                ..AwsStsConfig::default()
            });
        }
        // The embedded authorization server has a part of the document to itself; an injected header is one of those that are forwarded.
        ExternalAuthMethod::EmbeddedAuthServer
        | ExternalAuthMethod::Unauthenticated
        | ExternalAuthMethod::HeaderInjection
        | ExternalAuthMethod::UpstreamInject
        | ExternalAuthMethod::Obo
        | ExternalAuthMethod::Xaa => {}
    }
}

/// Where sessions are shared: as the spec says, else as the operator is set up.
pub(crate) fn session_redis(storage: Option<&SessionStorage>, settings: &Settings) -> Option<SessionRedis> {
    match storage {
        Some(storage) if storage.provider == StorageProvider::Redis => Some(SessionRedis {
            address: storage.address.clone().unwrap_or_default(),
            db: storage.db,
            key_prefix: storage.key_prefix.clone().unwrap_or_default(),
            ..SessionRedis::default()
        }),
        // Memory was asked for by name.
        Some(_) => None,
        None => settings
            .default_redis
            .as_ref()
            .map(|redis| SessionRedis { address: redis.address.clone(), ..SessionRedis::default() }),
    }
}

/// What is written down about each call.
pub(crate) fn audit() -> AuditConfig {
    AuditConfig { detect_application_errors: Some(true), max_data_size: 1024, ..AuditConfig::default() }
}

/// The full name of a kind of token, of which people may write the last part only.
pub(crate) fn token_type(text: Option<&str>) -> Option<String> {
    const URN: &str = "urn:ietf:params:oauth:token-type:";
    let text = text.filter(|text| !text.is_empty())?;
    Some(if text.starts_with(URN) { text.to_owned() } else { format!("{URN}{text}") })
}

fn token_exchange(spec: &TokenExchange) -> TokenExchangeConfig {
    let header = spec.external_token_header_name.clone().unwrap_or_default();
    TokenExchangeConfig {
        token_url: spec.token_url.clone(),
        client_id: spec.client_id.clone().unwrap_or_default(),
        audience: spec.audience.clone(),
        scopes: spec.scopes.clone(),
        subject_token_type: token_type(spec.subject_token_type.as_deref()).unwrap_or_default(),
        header_strategy: if header.is_empty() { "replace".into() } else { "custom".into() },
        external_token_header_name: header,
        ..TokenExchangeConfig::default()
    }
}

/// A duration as Go writes it; what is none stays as it is.
pub(crate) fn normal_duration(text: &str) -> String {
    text.parse::<GoDuration>().map_or_else(|_| text.to_owned(), |duration| duration.to_string())
}

fn add_claims(cedar: &mut Json, authz: &AuthzConfig) {
    let Json::Object(members) = cedar else { return };
    for (name, claim) in [
        ("group_claim_name", &authz.group_claim_name),
        ("role_claim_name", &authz.role_claim_name),
        ("group_entity_type", &authz.group_entity_type),
    ] {
        if let Some(claim) = claim.as_deref().filter(|claim| !claim.is_empty()) {
            members.insert(name, claim);
        }
    }
}

fn json_object(members: &[(&str, Value)]) -> Json {
    ordered(&members.iter().map(|(name, value)| (*name, Json::from(value))).collect::<Vec<_>>())
}

fn ordered(members: &[(&str, Json)]) -> Json {
    Json::Object(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}
