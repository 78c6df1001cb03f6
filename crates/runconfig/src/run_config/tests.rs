use super::{MiddlewareConfig, OidcConfig, RunConfig, SCHEMA_VERSION, Webhook};
use crate::document::Field;
use crate::json::{Json, Members};
use crate::parameters;

/// Every member, in the order of the specification, and then those of our own.
const ORDER: &[&str] = &[
    "schema_version",
    "mcpserver_generation",
    "image",
    "remote_url",
    "registry_api_url",
    "registry_url",
    "registry_server_name",
    "remote_auth_config",
    "cmd_args",
    "name",
    "container_name",
    "base_name",
    "transport",
    "host",
    "port",
    "target_port",
    "target_host",
    "allowed_origins",
    "publish",
    "permission_profile_name_or_path",
    "permission_profile",
    "env_vars",
    "env_file_dir",
    "debug",
    "volumes",
    "container_labels",
    "oidc_config",
    "token_exchange_config",
    "upstream_swap_config",
    "aws_sts_config",
    "authz_config",
    "authz_config_path",
    "audit_config",
    "audit_config_path",
    "telemetry_config",
    "rate_limit_config",
    "rate_limit_namespace",
    "secrets",
    "k8s_pod_template_patch",
    "isolate_network",
    "allow_docker_gateway",
    "trust_proxy_headers",
    "strict_protocol_validation",
    "stateless",
    "session_ttl",
    "proxy_mode",
    "thv_ca_bundle",
    "jwks_auth_token_file",
    "group",
    "tools_filter",
    "tools_override",
    "ignore_config",
    "middleware_configs",
    "additional_middleware_configs",
    "validating_webhooks",
    "mutating_webhooks",
    "endpoint_prefix",
    "runtime_config",
    "header_forward",
    "embedded_auth_server_config",
    "scaling_config",
    "allow_private_endpoint",
];

/// A value for any member: it is tried until one has the right type.
fn some_value(name: &str) -> Json {
    let candidates = [r#""x""#, "true", "7", r#"["x"]"#, r#"{"a":"x"}"#, r#"{"a":{}}"#, "[{}]", "{}"];
    let fits = |text: &&&str| {
        let member = Members::from_iter([(name.to_owned(), text.parse::<Json>().unwrap())]);
        RunConfig::read(Json::Object(member)).is_ok()
    };
    candidates.iter().find(fits).unwrap().parse().unwrap()
}

fn keys(json: &Json) -> Vec<&str> {
    match json {
        Json::Object(members) => members.iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn members_are_written_in_the_order_of_the_specification() {
    let backwards: Members = ORDER.iter().rev().map(|name| ((*name).to_owned(), some_value(name))).collect();
    let config = RunConfig::read(Json::Object(backwards)).unwrap();
    assert!(config.other.is_empty(), "not known: {:?}", config.other);
    assert_eq!(keys(&config.write()), ORDER);
}

#[test]
fn an_empty_document_has_only_what_is_always_written() {
    let config = RunConfig::from_slice(b"{}").unwrap();
    let expected = format!(
        r#"{{"schema_version":"{SCHEMA_VERSION}","image":"","name":"","transport":"","host":"","port":0,"permission_profile":null}}"#
    );
    assert_eq!(config.to_json_compact(), expected);
}

#[test]
fn the_provider_of_tokens_is_always_written_whole() {
    let expected = r#"{"Issuer":"","Audience":"","JWKSURL":"","ClientID":"","ClientSecret":"","CACertPath":"","AuthTokenFile":"","AllowPrivateIP":false,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"","Scopes":null}"#;
    assert_eq!(OidcConfig::default().write().to_compact(), expected);
}

#[test]
fn the_older_names_of_remote_authentication_are_read() {
    let text = br#"{"remote_auth_config":{"ClientID":"c","Scopes":["s"],"UsePKCE":true,"Timeout":5,"New":1}}"#;
    let auth = RunConfig::from_slice(text).unwrap().remote_auth_config.unwrap();
    assert_eq!((auth.client_id.as_str(), auth.use_pkce, auth.timeout.nanoseconds), ("c", true, 5));
    assert_eq!(auth.scopes, ["s"]);
    assert!(auth.other.get("New").is_some());
}

#[test]
fn a_policy_keeps_its_order_and_digits() {
    let text = r#"{"version":"1.0","type":"x","x":{"b":1.50,"a":[12345678901234567890123]}}"#;
    let config = RunConfig::from_slice(format!(r#"{{"authz_config":{text}}}"#).as_bytes()).unwrap();
    assert_eq!(config.authz_config.to_compact(), text);
}

#[test]
fn only_a_stdio_server_has_a_choice_of_proxy_mode() {
    let mode = |transport: &str, mode: &str| {
        let config = RunConfig { transport: transport.into(), proxy_mode: mode.into(), ..RunConfig::default() };
        config.proxy_mode_in_effect().to_owned()
    };
    assert_eq!(mode("stdio", ""), "streamable-http");
    assert_eq!(mode("stdio", "sse"), "sse");
    assert_eq!(mode("sse", "streamable-http"), "sse");
}

#[test]
fn a_webhook_without_a_timeout_gets_ten_seconds() {
    for (text, seconds) in
        [("{}", 10), (r#"{"timeout":0}"#, 10), (r#"{"timeout":null}"#, 10), (r#"{"timeout":"3s"}"#, 3)]
    {
        let webhook = Webhook::read(text.parse().unwrap()).unwrap();
        assert_eq!(webhook.timeout_in_effect().whole_seconds(), seconds);
    }
}

#[test]
fn the_settings_of_middleware_are_written_as_they_are_read() {
    for (kind, parameters, expected) in [
        ("bodylimit", parameters::BodyLimit { max_bytes: 8, ..Default::default() }.write(), r#"{"max_bytes":8}"#),
        ("auth", parameters::Auth::default().write(), "{}"),
        ("mcp-parser", parameters::NoParameters::default().write(), "{}"),
        ("recovery", Json::Null, "null"),
        ("tool-filter", parameters::ToolFilter::default().write(), r#"{"filter_tools":null,"tools_override":{}}"#),
    ] {
        let middleware = MiddlewareConfig::new(kind, &parameters);
        let expected = format!(r#"{{"type":"{kind}","parameters":{expected}}}"#);
        assert_eq!(middleware.write().to_compact(), expected);
    }
}

#[test]
fn how_a_server_is_scaled_and_what_was_not_said_come_back_as_they_were() {
    let always = r#""schema_version":"v0.1.0","mcpserver_generation":7,"image":"","name":"","transport":"","host":"","port":0,"permission_profile":null"#;
    for scaling in [
        "{}",
        r#"{"backend_replicas":0}"#,
        r#"{"backend_replicas":3}"#,
        r#"{"session_redis":{"address":"r:6379","db":2,"key_prefix":"p:"}}"#,
        r#"{"backend_replicas":1,"session_redis":{"address":"r:6379"}}"#,
    ] {
        let text = format!(r#"{{{always},"scaling_config":{scaling}}}"#);
        let config = RunConfig::from_slice(text.as_bytes()).unwrap();
        assert_eq!(config.to_json_compact(), text);
        let replicas = config.scaling_config.and_then(|scaling| scaling.backend_replicas);
        assert_eq!(replicas.is_some(), scaling.contains("backend_replicas"), "none is not zero");
    }
    // Whether metrics are on the proxy's own port is decided by the reader, not by a program that forwards it.
    for telemetry in ["", r#","metricsOnTransportPort":false"#, r#","metricsOnTransportPort":true"#] {
        let telemetry = format!(
            r#"{{"tracingEnabled":false,"metricsEnabled":false,"enablePrometheusMetricsPath":true{telemetry},"useLegacyAttributes":false}}"#
        );
        let read = RunConfig::from_slice(format!(r#"{{"telemetry_config":{telemetry}}}"#).as_bytes()).unwrap();
        assert!(read.to_json_compact().contains(&telemetry), "{telemetry}: {}", read.to_json_compact());
    }
}

#[test]
fn the_members_of_an_identity_provider_are_read_in_any_letter_case() {
    let text =
        r#"{"issuer":"https://a","AUDIENCE":"b","jwksUrl":"https://c","scopes":["d"],"allowprivateip":true,"x":1}"#;
    let oidc = OidcConfig::read(text.parse().unwrap()).unwrap().in_any_case().unwrap();
    assert_eq!((oidc.issuer.as_str(), oidc.audience.as_str(), oidc.jwks_url.as_str()), ("https://a", "b", "https://c"));
    assert_eq!((oidc.scopes, oidc.allow_private_ip), (Some(vec!["d".to_owned()]), true));
}
