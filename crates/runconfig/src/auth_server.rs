//! The settings of the authorization server inside a proxy or a virtual server.
//!
//! In a RunConfig they stand under `embedded_auth_server_config`; a virtual server gets them as `authserver-config.yaml`.
//! Secrets are named by file or environment variable, never written.

mod storage;
mod trust;
mod upstream;

pub use storage::{RedisAclUser, RedisConfig, RedisSentinel, RedisTls, Storage};
pub use trust::{DelegateClient, JwtBearerGrant, SubjectBinding, TrustedIssuer};
pub use upstream::{
    DynamicRegistration, IdentityFromToken, TokenResponseMapping, Upstream, UpstreamOAuth2, UpstreamOidc, UserInfo,
    UserInfoFields,
};

use crate::document::{DocumentError, Field, document};
use crate::json::Json;

document! {
    /// The settings of an embedded authorization server.
    pub struct EmbeddedAuthServerConfig {
        /// Version of the document, [`crate::run_config::SCHEMA_VERSION`].
        pub schema_version: String = always "schema_version",
        /// The issuer of its tokens: its public URL, without a trailing slash.
        pub issuer: String = always "issuer",
        /// Another base URL for the authorization endpoint.
        pub authorization_endpoint_base_url: String = if_set "authorization_endpoint_base_url",
        /// The keys that sign tokens.
        pub signing_key_config: Option<SigningKeys> = if_set "signing_key_config",
        /// Files with secrets that protect codes and refresh tokens: the first one writes, all read.
        pub hmac_secret_files: Vec<String> = if_set "hmac_secret_files",
        /// How long its tokens last.
        pub token_lifespans: Option<TokenLifespans> = if_set "token_lifespans",
        /// How long delegated tokens last.
        pub delegation_token_lifespan: String = if_set "delegation_token_lifespan",
        /// The providers that users really sign in to.
        pub upstreams: Vec<Upstream> = always "upstreams",
        /// The scopes that it knows. Empty means the default ones.
        pub scopes_supported: Vec<String> = if_set "scopes_supported",
        /// Scopes that every client gets.
        pub baseline_client_scopes: Vec<String> = if_set "baseline_client_scopes",
        /// The resources that tokens can be for.
        pub allowed_audiences: Vec<String> = always "allowed_audiences",
        /// Where its state is kept. Left out, in memory.
        pub storage: Option<Storage> = if_set "storage",
        /// Whether the upstream's token is kept away from the MCP server.
        pub disable_upstream_token_injection: bool = if_set "disable_upstream_token_injection",
        /// Clients that are known by a document at their own URL.
        pub cimd: Option<ClientIdMetadata> = if_set "cimd",
        /// Whether the issuer may be reached without TLS.
        pub insecure_allow_http: bool = if_set "insecure_allow_http",
        /// Other issuers whose tokens can be exchanged here.
        pub trusted_issuers: Vec<TrustedIssuer> = if_set "trusted_issuers",
        /// Whether clients may register with a secret.
        pub allow_confidential_client_registration: bool = if_set "allow_confidential_client_registration",
        /// Clients with one of these redirect URIs must have a secret.
        pub force_confidential_redirect_uris: Vec<String> = if_set "force_confidential_redirect_uris",
        /// Whether clients with a secret are let in over plain HTTP from this machine.
        pub insecure_allow_confidential_over_loopback_http: bool = if_set "insecure_allow_confidential_over_loopback_http",
        /// Clients that may exchange a user's token for one of their own.
        pub delegate_clients: Vec<DelegateClient> = if_set "delegate_clients",
    }
}

document! {
    /// The keys that sign tokens.
    pub struct SigningKeys {
        /// The directory that they are in.
        pub key_dir: String = if_set "key_dir",
        /// The one that signs.
        pub signing_key_file: String = if_set "signing_key_file",
        /// Those that only verify.
        pub fallback_key_files: Vec<String> = if_set "fallback_key_files",
    }
}

document! {
    /// How long tokens last, as Go durations.
    pub struct TokenLifespans {
        /// Access tokens.
        pub access_token_lifespan: String = if_set "access_token_lifespan",
        /// Refresh tokens.
        pub refresh_token_lifespan: String = if_set "refresh_token_lifespan",
        /// Authorization codes.
        pub auth_code_lifespan: String = if_set "auth_code_lifespan",
    }
}

document! {
    /// Clients that are known by a document at their own URL.
    pub struct ClientIdMetadata {
        /// Whether they are let in.
        pub enabled: bool = if_set "enabled",
        /// How many documents are remembered.
        pub cache_max_size: i64 = if_set "cache_max_size",
        /// How long a document is remembered that does not say so itself.
        pub cache_fallback_ttl: String = if_set "cache_fallback_ttl",
    }
}

// === impl EmbeddedAuthServerConfig ===

impl EmbeddedAuthServerConfig {
    /// Reads `authserver-config.yaml`.
    pub fn from_yaml(text: &str) -> Result<Self, DocumentError> {
        Self::read(Json::from_yaml(text)?)
    }

    /// The text of `authserver-config.yaml`.
    pub fn to_yaml(&self) -> String {
        self.write().to_yaml()
    }
}
