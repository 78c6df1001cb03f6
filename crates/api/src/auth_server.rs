//! The embedded authorization server's settings: in an MCPExternalAuthConfig, or right in a VirtualMCPServer.

mod storage;
mod trust;
mod upstream;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use storage::{AuthServerStorage, RedisAcl, RedisSentinel, RedisStorage, RedisTls, SentinelService};
pub use trust::{DelegateClient, JwtBearerGrant, SubjectBinding, TrustedIssuer};
pub use upstream::{
    DynamicRegistration, IdentityFromToken, TokenResponseMapping, UpstreamOAuth2, UpstreamOidc, UpstreamProvider,
    UpstreamProviderType, UserInfo, UserInfoFields, UserInfoMethod,
};

use crate::reference::{References, SecretKeyRef};
use crate::schema::{Rule, atomic, map_by, rules, unsized_integer};

/// A duration as Go writes it: `1h30m`, `250ms`.
pub(crate) const DURATION: &str = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";

const RULES: &[Rule] = &[
    Rule {
        cel: "!(has(self.allowConfidentialClientRegistration) && self.allowConfidentialClientRegistration && has(self.insecureAllowHTTP) && self.insecureAllowHTTP)",
        message: "allowConfidentialClientRegistration with insecureAllowHTTP would send client secrets in the clear: turn one of them off",
    },
    Rule {
        cel: "!has(self.delegateClients) || size(self.delegateClients) == 0 || !self.issuer.startsWith('http://')",
        message: "delegateClients send their secrets to the issuer: give issuer an https:// URL, or remove delegateClients",
    },
    Rule {
        cel: "!has(self.forceConfidentialRedirectUris) || size(self.forceConfidentialRedirectUris) == 0 || (has(self.allowConfidentialClientRegistration) && self.allowConfidentialClientRegistration)",
        message: "forceConfidentialRedirectUris makes confidential clients: set allowConfidentialClientRegistration to true, or remove it",
    },
];

/// An OAuth 2.1 authorization server inside the proxy: users sign in to it, and it sends them to an upstream provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the resource")]
pub struct EmbeddedAuthServer {
    /// The issuer of its tokens: its public URL, without a trailing slash.
    #[schemars(regex(pattern = r"^https?://[^\s?#]+[^/\s?#]$"))]
    pub issuer: String,
    /// Another base URL for the authorization endpoint, where browsers reach it by another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://[^\s?#]+[^/\s?#]$"))]
    pub authorization_endpoint_base_url: Option<String>,
    /// Secret keys with private keys that sign tokens: the first one signs, all verify. Left out, a key is made at start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), transform = atomic)]
    pub signing_key_secret_refs: Vec<SecretKeyRef>,
    /// Secret keys that protect authorization codes and refresh tokens: the first one writes, all read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub hmac_secret_refs: Vec<SecretKeyRef>,
    /// How long its tokens last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_lifespans: Option<TokenLifespans>,
    /// The providers that users really sign in to.
    #[schemars(length(min = 1), transform = map_by("name"))]
    pub upstream_providers: Vec<UpstreamProvider>,
    /// The provider that says who the client is, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub primary_upstream_provider: Option<String>,
    /// Where its state is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<AuthServerStorage>,
    /// Whether the upstream's token is kept away from the MCP server.
    #[serde(default)]
    pub disable_upstream_token_injection: bool,
    /// Whether the issuer may be reached without TLS. For development only.
    #[serde(default, rename = "insecureAllowHTTP")]
    pub insecure_allow_http: bool,
    /// Scopes that every client gets, whatever it registers with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 10),
        inner(length(min = 1), regex(pattern = r"^[\x21\x23-\x5B\x5D-\x7E]+$")),
        transform = atomic
    )]
    pub baseline_client_scopes: Vec<String>,
    /// Whether clients may register with a secret.
    #[serde(default)]
    pub allow_confidential_client_registration: bool,
    /// Whether clients with a secret are let in over plain HTTP from this machine. For development only.
    #[serde(default, rename = "insecureAllowConfidentialOverLoopbackHTTP")]
    pub insecure_allow_confidential_over_loopback_http: bool,
    /// Clients that may exchange a user's token for one of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), transform = atomic)]
    pub delegate_clients: Vec<DelegateClient>,
    /// Other issuers whose tokens can be exchanged here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), transform = atomic)]
    pub trusted_issuers: Vec<TrustedIssuer>,
    /// Clients that register with one of these redirect URIs must have a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(regex(pattern = r"^https://[^\s?#]+$")), transform = atomic)]
    pub force_confidential_redirect_uris: Vec<String>,
    /// Clients that are known by a metadata document at their own URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cimd: Option<ClientIdMetadata>,
}

/// How long tokens last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenLifespans {
    /// Access tokens, such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub access_token_lifespan: Option<String>,
    /// Refresh tokens, such as `168h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub refresh_token_lifespan: Option<String>,
    /// Authorization codes, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub auth_code_lifespan: Option<String>,
}

/// Client ID metadata documents: a client whose id is a URL is described by the document at that URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled"]))]
pub struct ClientIdMetadata {
    /// Whether such clients are let in.
    #[serde(default)]
    pub enabled: bool,
    /// How many documents are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), transform = unsized_integer)]
    pub cache_max_size: Option<i64>,
    /// How long a document is remembered that does not say so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub cache_fallback_ttl: Option<String>,
}

// === impl EmbeddedAuthServer ===

impl EmbeddedAuthServer {
    /// The Secrets that it reads, in the order of its fields. `path` is where these settings stand.
    pub fn references(&self, path: &str, references: &mut References) {
        for (index, secret) in self.signing_key_secret_refs.iter().enumerate() {
            references.secret(secret, &format!("{path}.signingKeySecretRefs[{index}]"));
        }
        for (index, secret) in self.hmac_secret_refs.iter().enumerate() {
            references.secret(secret, &format!("{path}.hmacSecretRefs[{index}]"));
        }
        for (index, provider) in self.upstream_providers.iter().enumerate() {
            let oidc = provider.oidc_config.as_ref().and_then(|oidc| oidc.client_secret_ref.as_ref());
            let oauth2 = provider.oauth2_config.as_ref();
            let secret = oauth2.and_then(|oauth2| oauth2.client_secret_ref.as_ref());
            let registration = oauth2.and_then(|oauth2| oauth2.dcr_config.as_ref());
            let token = registration.and_then(|registration| registration.initial_access_token_ref.as_ref());
            for (field, secret) in [
                ("oidcConfig.clientSecretRef", oidc),
                ("oauth2Config.clientSecretRef", secret),
                ("oauth2Config.dcrConfig.initialAccessTokenRef", token),
            ] {
                if let Some(secret) = secret {
                    references.secret(secret, &format!("{path}.upstreamProviders[{index}].{field}"));
                }
            }
        }
        if let Some(redis) = self.storage.as_ref().and_then(|storage| storage.redis.as_ref()) {
            let tls = |tls: Option<&RedisTls>| tls.and_then(|tls| tls.ca_cert_secret_ref.clone());
            for (field, secret) in [
                ("aclUserConfig.usernameSecretRef", redis.acl_user_config.username_secret_ref.clone()),
                ("aclUserConfig.passwordSecretRef", Some(redis.acl_user_config.password_secret_ref.clone())),
                ("tls.caCertSecretRef", tls(redis.tls.as_ref())),
                ("sentinelTls.caCertSecretRef", tls(redis.sentinel_tls.as_ref())),
            ] {
                if let Some(secret) = secret {
                    references.secret(&secret, &format!("{path}.storage.redis.{field}"));
                }
            }
        }
        for (index, client) in self.delegate_clients.iter().enumerate() {
            references.secret(&client.client_secret_ref, &format!("{path}.delegateClients[{index}].clientSecretRef"));
        }
    }
}
