//! `MCPOIDCConfig`: the identity provider that says who is calling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{CaBundleRef, Reference, References, SecretKeyRef};
use crate::schema::{Rule, rules};
use crate::status::ConfigStatus;

const RULES: &[Rule] = &[
    Rule {
        cel: "(self.type == 'kubernetesServiceAccount') == has(self.kubernetesServiceAccount)",
        message: "kubernetesServiceAccount goes with type kubernetesServiceAccount, and only with it: set it, or change type",
    },
    Rule {
        cel: "(self.type == 'inline') == has(self.inline)",
        message: "inline goes with type inline, and only with it: set it, or change type",
    },
];

/// The object: metadata, spec and status.
pub type MCPOIDCConfig = Custom<MCPOIDCConfigSpec>;

impl Kind for MCPOIDCConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPOIDCConfig";
    const ABOUT: &'static str = "The identity provider that says who is calling.";
    const PLURAL: &'static str = "mcpoidcconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["mcpoidc"];
    const COLUMNS: &'static [Column] = &[
        column("Source", ".spec.type", "string"),
        column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        if let Some(inline) = &self.inline {
            if let Some(secret) = &inline.client_secret_ref {
                references.secret(secret, "spec.inline.clientSecretRef");
            }
            references.ca_bundle(inline.ca_bundle_ref.as_ref(), "spec.inline.caBundleRef");
        }
        references.list()
    }
}

/// Which tokens are believed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct MCPOIDCConfigSpec {
    /// What kind of provider issues the tokens.
    #[serde(rename = "type")]
    pub source: OidcSource,
    /// Tokens of the cluster's own ServiceAccounts; for type `kubernetesServiceAccount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_service_account: Option<KubernetesServiceAccountOidc>,
    /// An OpenID Connect provider; for type `inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineOidc>,
}

/// What kind of provider issues the tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OidcSource {
    /// The cluster itself, for its ServiceAccounts.
    #[default]
    KubernetesServiceAccount,
    /// Any OpenID Connect provider.
    Inline,
}

/// Tokens of the cluster's own ServiceAccounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesServiceAccountOidc {
    /// The only ServiceAccount that may call. Left out, any may that has a token for the right audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Namespace of that ServiceAccount, by default that of this object. Without a ServiceAccount, any of this namespace may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Issuer of the tokens.
    #[serde(default = "cluster_issuer")]
    pub issuer: String,
    /// Where the issuer's keys are. Left out, they are found by discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Where opaque tokens are introspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// Whether the proxy shows its own ServiceAccount token to the API server when it fetches the keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_cluster_auth: Option<bool>,
}

/// An OpenID Connect provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineOidc {
    /// Issuer of the tokens.
    pub issuer: String,
    /// Where the issuer's keys are. Left out, they are found by discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Where opaque tokens are introspected (RFC 7662).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// The client for token introspection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The Secret key with that client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// Certificate authorities to trust for the provider, instead of the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// A file in the proxy's container with a bearer token to show when the keys are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_auth_token_path: Option<String>,
    /// Whether the provider's URLs may lead to private addresses.
    #[serde(default, rename = "jwksAllowPrivateIP")]
    pub jwks_allow_private_ip: bool,
    /// The same as `jwksAllowPrivateIP`. The proxy fetches no metadata of protected resources.
    #[serde(default, rename = "protectedResourceAllowPrivateIP")]
    pub protected_resource_allow_private_ip: bool,
    /// Whether the provider may be reached without TLS. For development only.
    #[serde(default, rename = "insecureAllowHTTP")]
    pub insecure_allow_http: bool,
}

fn cluster_issuer() -> String {
    "https://kubernetes.default.svc".into()
}
