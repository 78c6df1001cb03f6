//! Authentication in the virtual server's document: what the references in the spec come to, with secrets as variable names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{atomic, is_false, unsized_integer};

/// The authentication and authorization of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolvedIncomingAuth {
    /// Whether clients must authenticate: `anonymous`, `local` or `oidc`.
    #[serde(rename = "type")]
    pub method: String,
    /// The provider whose tokens are believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<IncomingOidc>,
    /// The policies that decide what a client may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz: Option<IncomingAuthz>,
}

/// An OpenID Connect provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncomingOidc {
    /// Issuer of the tokens.
    #[schemars(regex(pattern = r"^https?://"))]
    pub issuer: String,
    /// The client for the introspection of opaque tokens.
    pub client_id: String,
    /// The environment variable with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The audience that a token must carry.
    pub audience: String,
    /// The resource of the protected-resource metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Scopes that the protected-resource metadata advertises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Where the issuer's keys are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Where opaque tokens are introspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// A file with certificate authorities to trust for the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_path: Option<String>,
    /// Whether the protected-resource metadata may be fetched from private addresses.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protected_resource_allow_private_ip: bool,
    /// Whether the provider's URLs may lead to private addresses.
    #[serde(default, skip_serializing_if = "is_false")]
    pub jwks_allow_private_ip: bool,
    /// Whether the provider may be reached without TLS. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_allow_http: bool,
}

/// The policies that decide what a client may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncomingAuthz {
    /// The engine: `cedar` or `none`.
    #[serde(rename = "type")]
    pub engine: String,
    /// Cedar policies, one a string.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Cedar entities as a JSON array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entities_json: Option<String>,
    /// The upstream provider whose claims the policies see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_upstream_provider: Option<String>,
    /// The token claim that lists the client's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_claim_name: Option<String>,
    /// The token claim that lists the client's roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_claim_name: Option<String>,
    /// The Cedar entity type that stands for a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_entity_type: Option<String>,
}

/// The credentials for the backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolvedOutgoingAuth {
    /// Where the credentials come from: `discovered` or `inline`.
    pub source: String,
    /// For servers that have no entry of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<OutgoingStrategy>,
    /// By name of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, OutgoingStrategy>,
}

/// One kind of outgoing authentication; `type` names it, and the member of that name holds its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingStrategy {
    /// The kind of authentication, such as `token_exchange`.
    #[serde(rename = "type")]
    pub method: String,
    /// A fixed header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_injection: Option<HeaderInjectionStrategy>,
    /// Exchange of the client's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchangeStrategy>,
    /// The upstream provider's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_inject: Option<UpstreamInjectStrategy>,
    /// AWS credentials for the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts: Option<AwsStsStrategy>,
    /// Exchange on behalf of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obo: Option<OnBehalfOfStrategy>,
    /// Identity carried to another domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xaa: Option<CrossAppAccessStrategy>,
}

/// A fixed header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderInjectionStrategy {
    /// Name of the header.
    pub header_name: String,
    /// Its value, for what is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_value: Option<String>,
    /// The environment variable with its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_value_env: Option<String>,
}

/// Exchange of the client's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchangeStrategy {
    /// The token endpoint.
    pub token_url: String,
    /// The client that asks for the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// That client's secret. Use `clientSecretEnv` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The environment variable with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The audience of the new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Scopes of the new token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// What kind of token the client's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<String>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// The upstream provider's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamInjectStrategy {
    /// Name of the upstream provider.
    pub provider_name: String,
}

/// AWS credentials for the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsStsStrategy {
    /// The AWS region.
    pub region: String,
    /// The AWS service name for which requests are signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The role of clients that match no mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_role_arn: Option<String>,
    /// Which clients get which role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub role_mappings: Vec<AwsStsStrategyRole>,
    /// The token claim that mappings are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_claim: Option<String>,
    /// How long the credentials last, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_duration: Option<i32>,
    /// The token claim that names the session in AWS's logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name_claim: Option<String>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// Which clients get an AWS role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsStsStrategyRole {
    /// Clients whose role claim holds this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Clients for whose claims this expression is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matcher: Option<String>,
    /// The role.
    pub role_arn: String,
    /// Where several mappings fit, the lowest number wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub priority: Option<i64>,
}

/// Exchange on behalf of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnBehalfOfStrategy {
    /// The token endpoint.
    pub token_url: String,
    /// The client that asks for the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// That client's secret. Use `clientSecretEnv` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The environment variable with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The audience of the new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Scopes of the new token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// How many seconds before its end a cached token is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_skew_seconds: Option<i32>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_provider_name: Option<String>,
}

/// Identity carried to another domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossAppAccessStrategy {
    /// Token endpoint of the identity provider.
    pub idp_token_url: String,
    /// The client at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_id: Option<String>,
    /// That client's secret. Use `idpClientSecretEnv` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret: Option<String>,
    /// The environment variable with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret_env: Option<String>,
    /// Token endpoint of the target's authorization server.
    pub target_token_url: String,
    /// The audience of the assertion.
    pub target_audience: String,
    /// The resource of the assertion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_resource: Option<String>,
    /// The client at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_id: Option<String>,
    /// That client's secret. Use `targetClientSecretEnv` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret: Option<String>,
    /// The environment variable with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret_env: Option<String>,
    /// Whether the target's token endpoint may be reached without TLS. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_target_token_url: bool,
    /// Scopes of the target's token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// What kind of token the client's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<String>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}
