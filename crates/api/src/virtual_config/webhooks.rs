//! Webhooks in the virtual server's document: what an MCPWebhookConfig comes to, with secrets as files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::FailurePolicy;
use crate::schema::is_false;

/// The webhooks that see each call, in the order in which they are called: mutating, then validating.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedWebhooks {
    /// Webhooks that may change a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutating: Vec<ResolvedWebhook>,
    /// Webhooks that allow or refuse a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validating: Vec<ResolvedWebhook>,
}

/// One webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedWebhook {
    /// Its name in logs and error messages.
    pub name: String,
    /// Its URL, with `https`.
    pub url: String,
    /// How long to wait for its answer, such as `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// What happens to the request when the webhook cannot be reached.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// How the webhook's certificate is checked and which one is shown to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<ResolvedWebhookTls>,
    /// The key with which requests to the webhook are signed: an absolute path, otherwise the name of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac_secret_ref: Option<String>,
}

/// TLS between the virtual server and a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedWebhookTls {
    /// A file with certificate authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_path: Option<String>,
    /// A file with the certificate that the virtual server shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert_path: Option<String>,
    /// A file with that certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_path: Option<String>,
    /// Whether any certificate is believed. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_skip_verify: bool,
}
