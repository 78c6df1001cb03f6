//! The providers behind the embedded authorization server: where users really sign in.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;
use crate::schema::{Rule, atomic, is_false, rules};

const UPSTREAM_PROVIDER_RULES: &[Rule] = &[Rule {
    cel: "(self.type == 'oidc' && has(self.oidcConfig) && !has(self.oauth2Config)) || (self.type == 'oauth2' && has(self.oauth2Config) && !has(self.oidcConfig))",
    message: "upstreamProviders[]: type oidc takes oidcConfig, type oauth2 takes oauth2Config, and neither takes the other's",
}];

const UPSTREAM_OAUTH2_RULES: &[Rule] = &[
    Rule {
        cel: "(has(self.clientId) && self.clientId != '') != has(self.dcrConfig)",
        message: "oauth2Config needs exactly one of clientId and dcrConfig: set one and remove the other",
    },
    Rule {
        cel: "!(has(self.dcrConfig) && has(self.clientSecretRef))",
        message: "clientSecretRef cannot stand beside dcrConfig: a client that registers itself is given its secret",
    },
];

const DYNAMIC_REGISTRATION_RULES: &[Rule] = &[Rule {
    cel: "has(self.discoveryUrl) != has(self.registrationEndpoint)",
    message: "dcrConfig needs exactly one of discoveryUrl and registrationEndpoint: set one and remove the other",
}];

/// A provider that users sign in to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(UPSTREAM_PROVIDER_RULES))]
pub struct UpstreamProvider {
    /// Its name; other settings name it by this.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// What it speaks.
    #[serde(rename = "type")]
    pub protocol: UpstreamProviderType,
    /// Its OpenID Connect settings; for type `oidc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config: Option<UpstreamOidc>,
    /// Its OAuth 2.0 settings; for type `oauth2`.
    #[serde(rename = "oauth2Config", skip_serializing_if = "Option::is_none")]
    pub oauth2_config: Option<UpstreamOAuth2>,
}

/// What an upstream provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProviderType {
    /// OpenID Connect.
    Oidc,
    /// Plain OAuth 2.0.
    OAuth2,
}

/// An OpenID Connect provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamOidc {
    /// Its issuer URL.
    #[schemars(regex(pattern = r"^https://.*$"))]
    pub issuer_url: String,
    /// The client that it knows this server as.
    pub client_id: String,
    /// The Secret key with that client's secret. Left out, the client is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// Where it sends people back to. Left out, this server's own callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// Scopes to ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// Another user-info endpoint, or other names for its fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_info_override: Option<UserInfo>,
    /// Further parameters of the authorization request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_authorization_params: BTreeMap<String, String>,
    /// The ID token claim that says who the person is. Left out, `sub`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^([a-zA-Z_][a-zA-Z0-9_]*)?$"))]
    pub subject_claim: Option<String>,
}

/// A plain OAuth 2.0 provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(UPSTREAM_OAUTH2_RULES))]
pub struct UpstreamOAuth2 {
    /// Its authorization endpoint.
    #[schemars(regex(pattern = r"^https?://.*$"))]
    pub authorization_endpoint: String,
    /// Its token endpoint.
    #[schemars(regex(pattern = r"^https?://.*$"))]
    pub token_endpoint: String,
    /// The user info endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_info: Option<UserInfo>,
    /// The client that it knows this server as. Excludes `dcrConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The Secret key with that client's secret. Left out, the client is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// Where it sends people back to. Left out, this server's own callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// Scopes to ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// Where a token response keeps its parts, if not where the standard says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_response_mapping: Option<TokenResponseMapping>,
    /// Where a token response says who the person is, instead of a user-info endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_from_token: Option<IdentityFromToken>,
    /// Further parameters of the authorization request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_authorization_params: BTreeMap<String, String>,
    /// Lets this server register itself as a client. Excludes `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcr_config: Option<DynamicRegistration>,
    /// Whether its endpoints may be at private addresses.
    #[serde(default, rename = "allowPrivateIPs", skip_serializing_if = "is_false")]
    pub allow_private_ips: bool,
    /// Whether its endpoints may be reached without TLS. For development only.
    #[serde(default, rename = "insecureAllowHTTP", skip_serializing_if = "is_false")]
    pub insecure_allow_http: bool,
}

/// A user-info endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserInfo {
    /// Its URL.
    #[schemars(regex(pattern = r"^https?://.*$"))]
    pub endpoint_url: String,
    /// The HTTP method of the request. Left out, `GET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_method: Option<UserInfoMethod>,
    /// Further headers of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_headers: BTreeMap<String, String>,
    /// The names of the fields in its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_mapping: Option<UserInfoFields>,
}

/// The method of a request to a user-info endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum UserInfoMethod {
    /// With GET.
    #[default]
    Get,
    /// With POST.
    Post,
}

/// The names of the fields in a user-info response; the first one that is present counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserInfoFields {
    /// Fields that may hold who the person is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub subject_fields: Vec<String>,
    /// Fields that may hold the person's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub name_fields: Vec<String>,
    /// Fields that may hold the person's mail address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub email_fields: Vec<String>,
}

/// Where a token response keeps its parts: paths into its JSON, with dots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenResponseMapping {
    /// The access token.
    #[schemars(length(min = 1))]
    pub access_token_path: String,
    /// The scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_path: Option<String>,
    /// The refresh token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token_path: Option<String>,
    /// The lifetime in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_path: Option<String>,
}

/// Where a token response says who the person is: paths into its JSON, with dots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityFromToken {
    /// The person's subject.
    #[schemars(length(min = 1, max = 256))]
    pub subject_path: String,
    /// The person's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub name_path: Option<String>,
    /// The person's mail address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub email_path: Option<String>,
}

/// How this server registers itself as a client of a provider (RFC 7591).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(DYNAMIC_REGISTRATION_RULES))]
pub struct DynamicRegistration {
    /// Where the provider's metadata is, which names the registration endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https://[^\s?#]+[^/\s?#]$"))]
    pub discovery_url: Option<String>,
    /// The registration endpoint itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https://[^\s?#]+[^/\s?#]$"))]
    pub registration_endpoint: Option<String>,
    /// The Secret key with a token that the registration endpoint asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_access_token_ref: Option<SecretKeyRef>,
    /// The software's identifier in the registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub software_id: Option<String>,
    /// A signed statement about the software in the registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub software_statement: Option<String>,
}
