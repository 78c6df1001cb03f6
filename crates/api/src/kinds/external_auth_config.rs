//! `MCPExternalAuthConfig`: how Skep authenticates to an MCP server on behalf of its clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth_server::EmbeddedAuthServer;
use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::SecretKeyRef;
use crate::reference::{Reference, References};
use crate::schema::{Rule, atomic, is_false, rules};
use crate::status::ConfigStatus;

macro_rules! goes_with_type {
    ($member:literal) => {
        Rule {
            cel: concat!("(self.type == '", $member, "') == has(self.", $member, ")"),
            message: concat!(
                $member,
                " goes with type ",
                $member,
                ", and only with it: set ",
                $member,
                ", or change type"
            ),
        }
    };
}

const RULES: &[Rule] = &[
    goes_with_type!("tokenExchange"),
    goes_with_type!("headerInjection"),
    goes_with_type!("bearerToken"),
    goes_with_type!("embeddedAuthServer"),
    goes_with_type!("awsSts"),
    goes_with_type!("upstreamInject"),
    goes_with_type!("obo"),
    goes_with_type!("xaa"),
    Rule {
        cel: "self.type != 'unauthenticated' || !(has(self.tokenExchange) || has(self.headerInjection) || has(self.bearerToken) || has(self.embeddedAuthServer) || has(self.awsSts) || has(self.upstreamInject) || has(self.obo) || has(self.xaa))",
        message: "type unauthenticated takes no settings: remove the other members of spec, or change type",
    },
];

/// The object: metadata, spec and status.
pub type MCPExternalAuthConfig = Custom<MCPExternalAuthConfigSpec>;

impl Kind for MCPExternalAuthConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPExternalAuthConfig";
    const ABOUT: &'static str = "How Skep authenticates to an MCP server on behalf of its clients.";
    const PLURAL: &'static str = "mcpexternalauthconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["extauth", "mcpextauth"];
    const COLUMNS: &'static [Column] = &[
        column("Type", ".spec.type", "string"),
        column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        let secrets = [
            (
                "tokenExchange.clientSecretRef",
                self.token_exchange.as_ref().and_then(|one| one.client_secret_ref.as_ref()),
            ),
            ("headerInjection.valueSecretRef", self.header_injection.as_ref().map(|one| &one.value_secret_ref)),
            ("bearerToken.tokenSecretRef", self.bearer_token.as_ref().map(|one| &one.token_secret_ref)),
            ("obo.clientSecretRef", self.obo.as_ref().and_then(|one| one.client_secret_ref.as_ref())),
            ("xaa.idpClientSecretRef", self.xaa.as_ref().and_then(|one| one.idp_client_secret_ref.as_ref())),
            ("xaa.targetClientSecretRef", self.xaa.as_ref().and_then(|one| one.target_client_secret_ref.as_ref())),
        ];
        for (field, secret) in secrets {
            if let Some(secret) = secret {
                references.secret(secret, &format!("spec.{field}"));
            }
        }
        if let Some(server) = &self.embedded_auth_server {
            server.references("spec.embeddedAuthServer", &mut references);
        }
        references.list()
    }
}

/// One kind of outgoing authentication; `type` names it, and the member of that name holds its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct MCPExternalAuthConfigSpec {
    /// The kind of authentication.
    #[serde(rename = "type")]
    pub method: ExternalAuthMethod,
    /// The client's token is exchanged for one of the server's (RFC 8693).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchange>,
    /// A fixed header is put on each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_injection: Option<HeaderInjection>,
    /// A fixed bearer token is put on each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<BearerToken>,
    /// Skep itself is the authorization server that users sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded_auth_server: Option<EmbeddedAuthServer>,
    /// The client's token is exchanged for AWS credentials, and requests are signed with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts: Option<AwsSts>,
    /// The token that an upstream provider gave the client is put on each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_inject: Option<UpstreamInject>,
    /// The client's token is exchanged on behalf of the client, as Microsoft Entra ID does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obo: Option<OnBehalfOf>,
    /// The client's identity is carried to another domain's authorization server by an identity assertion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xaa: Option<CrossAppAccess>,
}

/// A kind of outgoing authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExternalAuthMethod {
    /// By exchanging the client's token.
    TokenExchange,
    /// By a fixed header.
    HeaderInjection,
    /// By a fixed bearer token.
    BearerToken,
    /// Not at all.
    Unauthenticated,
    /// By the embedded authorization server's own tokens.
    EmbeddedAuthServer,
    /// By AWS credentials.
    AwsSts,
    /// By the upstream provider's token.
    UpstreamInject,
    /// On behalf of the client.
    Obo,
    /// By an identity assertion.
    Xaa,
}

/// Exchange of the client's token for one of the server's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchange {
    /// The token endpoint.
    pub token_url: String,
    /// The client that asks for the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The Secret key with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// The audience of the new token.
    pub audience: String,
    /// Scopes of the new token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// What kind of token the client's is: a short name or the full URN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = r"^(access_token|id_token|jwt|urn:ietf:params:oauth:token-type:(access_token|id_token|jwt))?$"
    ))]
    pub subject_token_type: Option<String>,
    /// The header that carries the new token. Left out, it replaces `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_token_header_name: Option<String>,
    /// The upstream provider whose token is exchanged, where the embedded authorization server knows several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// A fixed header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderInjection {
    /// Name of the header.
    #[schemars(length(min = 1))]
    pub header_name: String,
    /// The Secret key with its value.
    pub value_secret_ref: SecretKeyRef,
}

/// A fixed bearer token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BearerToken {
    /// The Secret key with the token.
    pub token_secret_ref: SecretKeyRef,
}

/// AWS credentials for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsSts {
    /// The AWS region.
    #[schemars(length(min = 1), regex(pattern = r"^[a-z]{2}(-[a-z]+)+-\d+$"))]
    pub region: String,
    /// The AWS service name for which requests are signed.
    #[serde(default = "default_aws_service")]
    pub service: String,
    /// The role of clients that match no mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$"))]
    pub fallback_role_arn: Option<String>,
    /// Which clients get which role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub role_mappings: Vec<AwsRoleMapping>,
    /// The token claim that `roleMappings[].claim` is compared with.
    #[serde(default = "default_role_claim")]
    pub role_claim: String,
    /// How long the credentials last, in seconds.
    #[serde(default = "default_session_duration")]
    #[schemars(range(min = 900, max = 43200))]
    pub session_duration: i32,
    /// The token claim that names the session in AWS's logs.
    #[serde(default = "default_session_name_claim")]
    pub session_name_claim: String,
    /// The upstream provider whose token is exchanged, where the embedded authorization server knows several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// Which clients get an AWS role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsRoleMapping {
    /// Clients whose role claim holds this value. Excludes `matcher`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub claim: Option<String>,
    /// Clients for whose claims this expression is true. Excludes `claim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub matcher: Option<String>,
    /// The role.
    #[schemars(regex(pattern = r"^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$"))]
    pub role_arn: String,
    /// Where several mappings fit, the lowest number wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub priority: Option<i32>,
}

/// The upstream provider's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamInject {
    /// Name of the upstream provider.
    #[schemars(length(min = 1))]
    pub provider_name: String,
}

/// Exchange on behalf of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnBehalfOf {
    /// The tenant: its id, or one of its domain names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(
            pattern = r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$"
        )
    )]
    pub tenant_id: Option<String>,
    /// Base URL of the identity platform, for clouds that have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https://[^\s?#@]+[^/\s?#@]$"))]
    pub authority: Option<String>,
    /// The client that asks for the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The Secret key with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// The audience of the new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Scopes of the new token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 256)), transform = atomic)]
    pub scopes: Vec<String>,
    /// How long before its end a cached token is renewed, such as `1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_skew: Option<String>,
    /// The upstream provider whose token is exchanged, where the embedded authorization server knows several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub subject_token_provider_name: Option<String>,
}

/// Identity carried to another domain: an assertion from the identity provider buys a token at the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossAppAccess {
    /// Token endpoint of the identity provider.
    #[schemars(regex(pattern = r"^https://.*$"))]
    pub idp_token_url: String,
    /// The client at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_id: Option<String>,
    /// The Secret key with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret_ref: Option<SecretKeyRef>,
    /// Token endpoint of the target's authorization server.
    pub target_token_url: String,
    /// The audience of the assertion: the target's authorization server.
    pub target_audience: String,
    /// The resource of the assertion: the target server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_resource: Option<String>,
    /// The client at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_id: Option<String>,
    /// The Secret key with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret_ref: Option<SecretKeyRef>,
    /// Whether the target's token endpoint may be reached without TLS. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_target_token_url: bool,
    /// Scopes of the target's token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// What kind of token the client's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<AssertionSubject>,
    /// The upstream provider whose token is exchanged, where the embedded authorization server knows several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// The kinds of token from which an identity assertion can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AssertionSubject {
    /// An OpenID Connect ID token.
    #[default]
    #[serde(rename = "urn:ietf:params:oauth:token-type:id_token")]
    IdToken,
}

fn default_aws_service() -> String {
    "aws-mcp".into()
}

fn default_role_claim() -> String {
    "groups".into()
}

fn default_session_duration() -> i32 {
    3600
}

fn default_session_name_claim() -> String {
    "sub".into()
}
