//! The authentication of clients, and the credentials for the MCP server.

use std::collections::BTreeMap;

use crate::document::{DocumentError, Field, document};
use crate::duration::GoDuration;
use crate::json::{Json, Members};

document! {
    /// The issuer whose tokens are trusted. The keys are the Go names, and all are always written.
    pub struct OidcConfig {
        /// Issuer of the tokens.
        pub issuer: String = always "Issuer",
        /// The audience that a token must carry.
        pub audience: String = always "Audience",
        /// Where the issuer's keys are. Empty, they are discovered.
        pub jwks_url: String = always "JWKSURL",
        /// The client that introspects opaque tokens.
        pub client_id: String = always "ClientID",
        /// That client's secret. Stays empty here: it travels in the environment.
        pub client_secret: String = always "ClientSecret",
        /// A file with certificate authorities to trust for the issuer.
        pub ca_cert_path: String = always "CACertPath",
        /// A file with a token for the issuer's key endpoint.
        pub auth_token_file: String = always "AuthTokenFile",
        /// Whether the issuer's URLs may lead to private addresses.
        pub allow_private_ip: bool = always "AllowPrivateIP",
        /// Whether the issuer may be reached without TLS.
        pub insecure_allow_http: bool = always "InsecureAllowHTTP",
        /// The introspection endpoint for opaque tokens.
        pub introspection_url: String = always "IntrospectionURL",
        /// The resource of the protected-resource metadata.
        pub resource_url: String = always "ResourceURL",
        /// Scopes that the protected-resource metadata advertises; `null` for the default ones.
        pub scopes: Option<Vec<String>> = always "Scopes",
        /// The only subject that is let in, if there is only one. Ours: the original lets every subject in.
        pub required_subject: String = if_set "RequiredSubject",
        /// The namespace whose ServiceAccounts are let in, if not those of every namespace are. Ours: the original lets all of them in.
        pub required_namespace: String = if_set "RequiredNamespace",
    }
}

impl OidcConfig {
    /// The names of its members. Programs of the original read them in any letter case, and here alone.
    const NAMES: &'static [&'static str] = &[
        "Issuer",
        "Audience",
        "JWKSURL",
        "ClientID",
        "ClientSecret",
        "CACertPath",
        "AuthTokenFile",
        "AllowPrivateIP",
        "InsecureAllowHTTP",
        "IntrospectionURL",
        "ResourceURL",
        "Scopes",
        "RequiredSubject",
        "RequiredNamespace",
    ];

    /// The same with members that were written in another letter case.
    pub fn in_any_case(&self) -> Result<Self, DocumentError> {
        let mut members = Members::default();
        if let Json::Object(written) = self.write() {
            for (name, value) in written.iter() {
                let known = Self::NAMES.iter().find(|known| known.eq_ignore_ascii_case(name));
                members.insert(known.copied().unwrap_or(name), value.clone());
            }
        }
        Self::read(Json::Object(members))
    }
}

document! {
    /// How to authenticate to a remote server.
    pub struct RemoteAuthConfig {
        /// The OAuth client.
        pub client_id: String = if_set "client_id",
        /// Its secret, or a reference `<secret>,target=<use>`.
        pub client_secret: String = if_set "client_secret",
        /// A file with its secret.
        pub client_secret_file: String = if_set "client_secret_file",
        /// Scopes to request.
        pub scopes: Vec<String> = if_set "scopes",
        /// Whether no browser is opened.
        pub skip_browser: bool = if_set "skip_browser",
        /// How long authentication may take.
        pub timeout: GoDuration = if_set "timeout",
        /// The local port that the answer comes back to.
        pub callback_port: i64 = if_set "callback_port",
        /// Whether the code is bound to a secret of ours.
        pub use_pkce: bool = always "use_pkce",
        /// The resource to request a token for.
        pub resource: String = if_set "resource",
        /// The issuer.
        pub issuer: String = if_set "issuer",
        /// The authorization endpoint.
        pub authorize_url: String = if_set "authorize_url",
        /// The token endpoint.
        pub token_url: String = if_set "token_url",
        /// Headers that the registry requires; kept unchanged.
        pub headers: Json = if_set "headers",
        /// Environment that the registry requires; kept unchanged.
        pub env_vars: Json = if_set "env_vars",
        /// Further parameters of the authorization request.
        pub oauth_params: BTreeMap<String, String> = if_set "oauth_params",
        /// The parameter that scopes travel in, where it is not `scope`.
        pub scope_param_name: String = if_set "scope_param_name",
        /// A fixed token, or a reference `<secret>,target=<use>`.
        pub bearer_token: String = if_set "bearer_token",
        /// A file with a fixed token.
        pub bearer_token_file: String = if_set "bearer_token_file",
        /// Where the refresh token was put.
        pub cached_refresh_token_ref: String = if_set "cached_refresh_token_ref",
        /// When the cached token ends.
        pub cached_token_expiry: GoTime = always "cached_token_expiry",
        /// The client that was registered.
        pub cached_client_id: String = if_set "cached_client_id",
        /// Where its secret was put.
        pub cached_client_secret_ref: String = if_set "cached_client_secret_ref",
        /// When its secret ends.
        pub cached_secret_expiry: GoTime = always "cached_secret_expiry",
        /// Where the token that manages the registration was put.
        pub cached_reg_token_ref: String = if_set "cached_reg_token_ref",
        /// The client that is known by a document at its own URL.
        pub cached_cimd_client_id: String = if_set "cached_cimd_client_id",
        /// Where the registration is managed.
        pub cached_reg_client_uri: String = if_set "cached_reg_client_uri",
        /// How the registered client shows its secret.
        pub cached_token_auth_method: String = if_set "cached_token_auth_method",
        /// The callback port that was registered.
        pub cached_dcr_callback_port: i64 = if_set "cached_dcr_callback_port",
    }
}

document! {
    /// Exchange of the caller's token (RFC 8693).
    pub struct TokenExchangeConfig {
        /// The token endpoint.
        pub token_url: String = always "token_url",
        /// The client that requests the exchange.
        pub client_id: String = always "client_id",
        /// That client's secret. Stays empty here: it travels in the environment.
        pub client_secret: String = always "client_secret",
        /// The audience of the new token.
        pub audience: String = always "audience",
        /// Scopes of the new token.
        pub scopes: Vec<String> = if_set "scopes",
        /// What kind of token the caller's is.
        pub subject_token_type: String = if_set "subject_token_type",
        /// Where the new token goes: `replace` (the Authorization header) or `custom`.
        pub header_strategy: String = if_set "header_strategy",
        /// The header for `custom`.
        pub external_token_header_name: String = if_set "external_token_header_name",
    }
}

document! {
    /// The upstream provider's token instead of the caller's.
    pub struct UpstreamSwapConfig {
        /// Where the token goes: `replace` (the Authorization header) or `custom`.
        pub header_strategy: String = if_set "header_strategy",
        /// The header for `custom`.
        pub custom_header_name: String = if_set "custom_header_name",
        /// Name of the upstream provider.
        pub provider_name: String = always "provider_name",
    }
}

document! {
    /// AWS credentials for the caller.
    pub struct AwsStsConfig {
        /// The AWS region.
        pub region: String = always "region",
        /// The AWS service name for which requests are signed.
        pub service: String = always "service",
        /// The role of callers that no mapping fits.
        pub fallback_role_arn: String = if_set "fallback_role_arn",
        /// Which callers get which role.
        pub role_mappings: Vec<AwsRoleMapping> = if_set "role_mappings",
        /// The token claim that mappings are compared with.
        pub role_claim: String = if_set "role_claim",
        /// How long the credentials last, in seconds.
        pub session_duration: i32 = if_set "session_duration",
        /// The token claim that names the session in AWS's logs.
        pub session_name_claim: String = if_set "session_name_claim",
        /// The upstream provider whose token is exchanged.
        pub subject_provider_name: String = if_set "subject_provider_name",
    }
}

document! {
    /// Which callers get an AWS role.
    pub struct AwsRoleMapping {
        /// Callers whose role claim holds this value.
        pub claim: String = if_set "claim",
        /// Callers for whose claims this expression is true.
        pub matcher: String = if_set "matcher",
        /// The role.
        pub role_arn: String = always "role_arn",
        /// Where several mappings fit, the lowest number wins.
        pub priority: Option<i64> = if_set "priority",
    }
}

/// A moment as Go writes it (RFC 3339). Go's first moment means "none".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoTime(pub String);

// === impl GoTime ===

impl Default for GoTime {
    fn default() -> Self {
        Self("0001-01-01T00:00:00Z".into())
    }
}

impl Field for GoTime {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::Null => Ok(Self::default()),
            json => String::read(json).map(Self),
        }
    }

    fn write(&self) -> Json {
        self.0.write()
    }

    fn is_empty(&self) -> bool {
        false
    }
}

// === the older form of RemoteAuthConfig ===

/// What the members of `remote_auth_config` were called before.
const OLDER_NAMES: &[(&str, &str)] = &[
    ("ClientID", "client_id"),
    ("ClientSecret", "client_secret"),
    ("ClientSecretFile", "client_secret_file"),
    ("Scopes", "scopes"),
    ("SkipBrowser", "skip_browser"),
    ("Timeout", "timeout"),
    ("CallbackPort", "callback_port"),
    ("UsePKCE", "use_pkce"),
    ("Resource", "resource"),
    ("Issuer", "issuer"),
    ("AuthorizeURL", "authorize_url"),
    ("TokenURL", "token_url"),
    ("Headers", "headers"),
    ("EnvVars", "env_vars"),
    ("OAuthParams", "oauth_params"),
    ("BearerToken", "bearer_token"),
    ("BearerTokenFile", "bearer_token_file"),
];

/// Gives the members of an older `remote_auth_config`, known by its `ClientID`, the names of today.
pub(super) fn modernise(config: &mut Json) {
    let Json::Object(config) = config else { return };
    let Some(Json::Object(auth)) = config.get_mut("remote_auth_config") else { return };
    if auth.get("ClientID").is_some() {
        let rename =
            |name: String| OLDER_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).into());
        *auth = std::mem::take(auth).into_iter().map(|(name, value)| (rename(name), value)).collect::<Members>();
    }
}

#[cfg(test)]
impl crate::document::tests::Sample for GoTime {
    fn sample(source: &mut crate::document::tests::Source) -> Self {
        Self(format!("20{:02}-01-31T12:00:00Z", source.below(100)))
    }
}
