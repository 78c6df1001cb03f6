//! The embedded authorization server: its document, and the variables and files through which its secrets reach it.

use skep_api::auth_server::{
    self as api, EmbeddedAuthServer, RedisStorage, UpstreamProvider, UpstreamProviderType, UserInfoMethod,
};
use skep_api::reference::SecretKeyRef;
use skep_api::workload::StorageProvider;
use skep_runconfig::EmbeddedAuthServerConfig;
use skep_runconfig::auth_server::{
    ClientIdMetadata, DelegateClient, DynamicRegistration, IdentityFromToken, JwtBearerGrant, RedisAclUser,
    RedisConfig, RedisSentinel, RedisTls, SigningKeys, Storage, SubjectBinding, TokenLifespans, TokenResponseMapping,
    TrustedIssuer, Upstream, UpstreamOAuth2, UpstreamOidc, UserInfo, UserInfoFields,
};
use skep_runconfig::run_config::OidcConfig;

use crate::error::PlanError;
use crate::names;
use crate::pod::{Env, FileSource, Mount};
use crate::text::sanitise;

const KEYS: &str = "/etc/toolhive/authserver/keys";
const HMAC: &str = "/etc/toolhive/authserver/hmac";
const REDIS_TLS: &str = "/etc/toolhive/authserver/redis-tls";
const REDIS_USERNAME: &str = "TOOLHIVE_AUTH_SERVER_REDIS_USERNAME";
const REDIS_PASSWORD: &str = "TOOLHIVE_AUTH_SERVER_REDIS_PASSWORD";
/// The scopes that are advertised where the spec names none.
const DEFAULT_SCOPES: [&str; 4] = ["openid", "profile", "email", "offline_access"];

/// The document. Scopes that the spec does not name are filled in on both sides.
pub(crate) fn document(
    server: &EmbeddedAuthServer,
    oidc: &mut OidcConfig,
    namespace: &str,
    name: &str,
) -> Result<EmbeddedAuthServerConfig, PlanError> {
    let resource = oidc.resource_url.trim_end_matches('/').to_owned();
    if resource.is_empty() {
        let problem = "oidcConfigRef.resourceUrl is missing: the authorization server issues tokens for it";
        return Err(PlanError::InvalidSpec(problem.to_owned()));
    }
    if oidc.audience.trim_end_matches('/') != resource {
        return Err(PlanError::InvalidSpec(format!(
            "oidcConfigRef.audience `{}` must equal the resource URL `{resource}`: the embedded authorization server issues tokens for it",
            oidc.audience
        )));
    }
    let scopes_supported = oidc.scopes.clone().unwrap_or_default();
    if scopes_supported.is_empty() {
        oidc.scopes = Some(DEFAULT_SCOPES.map(str::to_owned).to_vec());
    }
    let keys = server.signing_key_secret_refs.len();
    let files = |directory: &str, prefix: &str, suffix: &str, from: usize, to: usize| -> Vec<String> {
        (from..to).map(|index| format!("{directory}{prefix}-{index}{suffix}")).collect()
    };
    Ok(EmbeddedAuthServerConfig {
        schema_version: "v0.1.0".into(),
        issuer: server.issuer.clone(),
        authorization_endpoint_base_url: server.authorization_endpoint_base_url.clone().unwrap_or_default(),
        signing_key_config: (keys > 0).then(|| SigningKeys {
            key_dir: KEYS.into(),
            signing_key_file: "key-0.pem".into(),
            fallback_key_files: files("", "key", ".pem", 1, keys),
            ..SigningKeys::default()
        }),
        hmac_secret_files: files(&format!("{HMAC}/"), "hmac", "", 0, server.hmac_secret_refs.len()),
        token_lifespans: server.token_lifespans.as_ref().map(|lifespans| TokenLifespans {
            access_token_lifespan: lifespans.access_token_lifespan.clone().unwrap_or_default(),
            refresh_token_lifespan: lifespans.refresh_token_lifespan.clone().unwrap_or_default(),
            auth_code_lifespan: lifespans.auth_code_lifespan.clone().unwrap_or_default(),
            ..TokenLifespans::default()
        }),
        upstreams: server.upstream_providers.iter().map(|provider| upstream(provider, &resource)).collect(),
        scopes_supported,
        baseline_client_scopes: server.baseline_client_scopes.clone(),
        allowed_audiences: vec![resource.clone()],
        storage: storage(server, namespace, name),
        disable_upstream_token_injection: server.disable_upstream_token_injection,
        cimd: server.cimd.as_ref().map(|cimd| ClientIdMetadata {
            enabled: cimd.enabled,
            cache_max_size: cimd.cache_max_size.unwrap_or_default(),
            cache_fallback_ttl: cimd.cache_fallback_ttl.clone().unwrap_or_default(),
            ..ClientIdMetadata::default()
        }),
        insecure_allow_http: server.insecure_allow_http,
        trusted_issuers: server.trusted_issuers.iter().map(trusted_issuer).collect(),
        allow_confidential_client_registration: server.allow_confidential_client_registration,
        force_confidential_redirect_uris: server.force_confidential_redirect_uris.clone(),
        insecure_allow_confidential_over_loopback_http: server.insecure_allow_confidential_over_loopback_http,
        delegate_clients: server
            .delegate_clients
            .iter()
            .enumerate()
            .map(|(index, client)| DelegateClient {
                client_id: client.client_id.clone(),
                client_secret_env_var: delegate_env(index),
                scopes: client.scopes.clone(),
                audiences: client.audiences.clone(),
                ..DelegateClient::default()
            })
            .collect(),
        ..EmbeddedAuthServerConfig::default()
    })
}

/// The variables that carry its secrets.
pub(crate) fn environment(env: &mut Env, server: &EmbeddedAuthServer) {
    for provider in &server.upstream_providers {
        let (secret, token) = upstream_secrets(provider);
        if let Some(secret) = secret {
            env.secret(&upstream_env(provider), &secret.name, &secret.key);
        }
        if let Some(token) = token {
            env.secret(&registration_env(provider), &token.name, &token.key);
        }
    }
    for (index, client) in server.delegate_clients.iter().enumerate() {
        env.secret(&delegate_env(index), &client.client_secret_ref.name, &client.client_secret_ref.key);
    }
    if let Some(redis) = redis(server) {
        if let Some(user) = &redis.acl_user_config.username_secret_ref {
            env.secret(REDIS_USERNAME, &user.name, &user.key);
        }
        let password = &redis.acl_user_config.password_secret_ref;
        env.secret(REDIS_PASSWORD, &password.name, &password.key);
    }
}

/// The files that carry its keys: volumes of the pod, and where they are mounted.
pub(crate) fn files(server: &EmbeddedAuthServer) -> Vec<Mount> {
    let mut files = Vec::new();
    let mut file = |volume: String, secret: &SecretKeyRef, directory: &str, name: String| {
        let (path, key) = (format!("{directory}/{name}"), secret.key.clone());
        let source = FileSource::Secret { name: secret.name.clone(), key, file: name.clone(), mode: Some(0o400) };
        files.push(Mount { volume, source, path, file: Some(name), is_in_run_config: false });
    };
    for (index, secret) in server.signing_key_secret_refs.iter().enumerate() {
        file(format!("authserver-signing-key-{index}"), secret, KEYS, format!("key-{index}.pem"));
    }
    for (index, secret) in server.hmac_secret_refs.iter().enumerate() {
        file(format!("authserver-hmac-secret-{index}"), secret, HMAC, format!("hmac-{index}"));
    }
    if let Some(redis) = redis(server) {
        for (volume, tls, name) in [
            ("redis-tls-ca-master", redis.tls.as_ref(), "ca.crt"),
            ("redis-tls-ca-sentinel", redis.sentinel_tls.as_ref(), "sentinel-ca.crt"),
        ] {
            if let Some(secret) = tls.and_then(|tls| tls.ca_cert_secret_ref.as_ref()) {
                file(volume.to_owned(), secret, REDIS_TLS, name.to_owned());
            }
        }
    }
    files
}

fn redis(server: &EmbeddedAuthServer) -> Option<&RedisStorage> {
    let storage = server.storage.as_ref().filter(|storage| storage.provider == StorageProvider::Redis)?;
    storage.redis.as_ref()
}

fn upstream_env(provider: &UpstreamProvider) -> String {
    format!("TOOLHIVE_UPSTREAM_CLIENT_SECRET_{}", sanitise(&provider.name))
}

fn registration_env(provider: &UpstreamProvider) -> String {
    format!("TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_{}", sanitise(&provider.name))
}

fn delegate_env(index: usize) -> String {
    format!("TOOLHIVE_DELEGATE_CLIENT_SECRET_{index}")
}

fn upstream_secrets(provider: &UpstreamProvider) -> (Option<&SecretKeyRef>, Option<&SecretKeyRef>) {
    let oidc = provider.oidc_config.as_ref().and_then(|oidc| oidc.client_secret_ref.as_ref());
    let oauth2 = provider.oauth2_config.as_ref();
    let secret = oidc.or_else(|| oauth2.and_then(|oauth2| oauth2.client_secret_ref.as_ref()));
    let registration = oauth2.and_then(|oauth2| oauth2.dcr_config.as_ref());
    (secret, registration.and_then(|registration| registration.initial_access_token_ref.as_ref()))
}

fn upstream(provider: &UpstreamProvider, resource: &str) -> Upstream {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (secret, token) = upstream_secrets(provider);
    let secret = secret.map(|_| upstream_env(provider)).unwrap_or_default();
    let token = token.map(|_| registration_env(provider)).unwrap_or_default();
    let redirect = |uri: &Option<String>| {
        let named = uri.clone().filter(|uri| !uri.is_empty());
        named.unwrap_or_else(|| format!("{resource}/oauth/callback"))
    };
    Upstream {
        name: provider.name.clone(),
        kind: match provider.protocol {
            UpstreamProviderType::Oidc => "oidc".into(),
            UpstreamProviderType::OAuth2 => "oauth2".into(),
        },
        oidc_config: provider.oidc_config.as_ref().map(|oidc| UpstreamOidc {
            issuer_url: oidc.issuer_url.clone(),
            client_id: oidc.client_id.clone(),
            client_secret_env_var: secret.clone(),
            redirect_uri: redirect(&oidc.redirect_uri),
            scopes: oidc.scopes.clone(),
            userinfo_override: oidc.user_info_override.as_ref().map(user_info),
            additional_authorization_params: oidc.additional_authorization_params.clone(),
            subject_claim: text(&oidc.subject_claim),
            ..UpstreamOidc::default()
        }),
        oauth2_config: provider.oauth2_config.as_ref().map(|oauth2| UpstreamOAuth2 {
            authorization_endpoint: oauth2.authorization_endpoint.clone(),
            token_endpoint: oauth2.token_endpoint.clone(),
            client_id: text(&oauth2.client_id),
            client_secret_env_var: secret.clone(),
            redirect_uri: redirect(&oauth2.redirect_uri),
            scopes: oauth2.scopes.clone(),
            userinfo: oauth2.user_info.as_ref().map(user_info),
            token_response_mapping: oauth2.token_response_mapping.as_ref().map(|mapping| TokenResponseMapping {
                access_token_path: mapping.access_token_path.clone(),
                scope_path: text(&mapping.scope_path),
                refresh_token_path: text(&mapping.refresh_token_path),
                expires_in_path: text(&mapping.expires_in_path),
                ..TokenResponseMapping::default()
            }),
            identity_from_token: oauth2.identity_from_token.as_ref().map(|identity| IdentityFromToken {
                subject_path: identity.subject_path.clone(),
                name_path: text(&identity.name_path),
                email_path: text(&identity.email_path),
                ..IdentityFromToken::default()
            }),
            additional_authorization_params: oauth2.additional_authorization_params.clone(),
            dcr_config: oauth2.dcr_config.as_ref().map(|dcr| DynamicRegistration {
                discovery_url: text(&dcr.discovery_url),
                registration_endpoint: text(&dcr.registration_endpoint),
                initial_access_token_env_var: token.clone(),
                software_id: text(&dcr.software_id),
                software_statement: text(&dcr.software_statement),
                ..DynamicRegistration::default()
            }),
            allow_private_ips: oauth2.allow_private_ips,
            insecure_allow_http: oauth2.insecure_allow_http,
            ..UpstreamOAuth2::default()
        }),
        ..Upstream::default()
    }
}

fn user_info(info: &api::UserInfo) -> UserInfo {
    UserInfo {
        endpoint_url: info.endpoint_url.clone(),
        http_method: match info.http_method {
            None => String::new(),
            Some(UserInfoMethod::Get) => "GET".into(),
            Some(UserInfoMethod::Post) => "POST".into(),
        },
        additional_headers: info.additional_headers.clone(),
        field_mapping: info.field_mapping.as_ref().map(|fields| UserInfoFields {
            subject_fields: fields.subject_fields.clone(),
            name_fields: fields.name_fields.clone(),
            email_fields: fields.email_fields.clone(),
            ..UserInfoFields::default()
        }),
        ..UserInfo::default()
    }
}

fn storage(server: &EmbeddedAuthServer, namespace: &str, name: &str) -> Option<Storage> {
    let redis = redis(server)?;
    let tls = |tls: Option<&api::RedisTls>, file: &str| {
        tls.map(|tls| RedisTls {
            insecure_skip_verify: tls.insecure_skip_verify,
            ca_cert_file: tls.ca_cert_secret_ref.as_ref().map(|_| format!("{REDIS_TLS}/{file}")).unwrap_or_default(),
            ..RedisTls::default()
        })
    };
    let acl = &redis.acl_user_config;
    Some(Storage {
        kind: "redis".into(),
        redis_config: Some(RedisConfig {
            addr: redis.addr.clone().unwrap_or_default(),
            cluster_mode: redis.cluster_mode,
            sentinel_config: redis.sentinel_config.as_ref().map(|sentinel| {
                let service = sentinel.sentinel_service.as_ref().map(|service| {
                    let namespace = service.namespace.as_deref().filter(|own| !own.is_empty()).unwrap_or(namespace);
                    format!("{}:{}", names::host(&service.name, namespace), service.port)
                });
                RedisSentinel {
                    master_name: sentinel.master_name.clone(),
                    sentinel_addrs: service.map_or_else(|| sentinel.sentinel_addrs.clone(), |address| vec![address]),
                    db: sentinel.db.into(),
                    ..RedisSentinel::default()
                }
            }),
            auth_type: "aclUser".into(),
            acl_user_config: Some(RedisAclUser {
                username_env_var: acl
                    .username_secret_ref
                    .as_ref()
                    .map(|_| REDIS_USERNAME.to_owned())
                    .unwrap_or_default(),
                password_env_var: REDIS_PASSWORD.into(),
                ..RedisAclUser::default()
            }),
            key_prefix: format!("thv:auth:{{{namespace}:{name}}}:"),
            dial_timeout: redis.dial_timeout.clone(),
            read_timeout: redis.read_timeout.clone(),
            write_timeout: redis.write_timeout.clone(),
            tls: tls(redis.tls.as_ref(), "ca.crt"),
            sentinel_tls: tls(redis.sentinel_tls.as_ref(), "sentinel-ca.crt"),
            ..RedisConfig::default()
        }),
        ..Storage::default()
    })
}

fn trusted_issuer(issuer: &api::TrustedIssuer) -> TrustedIssuer {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    TrustedIssuer {
        issuer_url: issuer.issuer_url.clone(),
        expected_audience: text(&issuer.expected_audience),
        jwks_url: text(&issuer.jwks_url),
        insecure_allow_http: issuer.insecure_allow_http,
        allow_private_ips: issuer.allow_private_ips,
        actor_claim: text(&issuer.actor_claim),
        allowed_actors: issuer.allowed_actors.clone(),
        actor_matcher: text(&issuer.actor_matcher),
        allowed_delegate_clients: issuer.allowed_delegate_clients.clone(),
        allow_may_act: issuer.allow_may_act,
        jwt_bearer_grant: issuer.jwt_bearer_grant.as_ref().map(|grant| JwtBearerGrant {
            max_assertion_age: grant.max_assertion_age.clone(),
            subject_bindings: grant
                .subject_bindings
                .iter()
                .map(|binding| SubjectBinding {
                    subject: binding.subject.clone(),
                    allowed_resources: binding.allowed_resources.clone(),
                    ..SubjectBinding::default()
                })
                .collect(),
            accepted_audiences: grant.accepted_audiences.clone(),
            ..JwtBearerGrant::default()
        }),
        ..TrustedIssuer::default()
    }
}
