//! `MCPWebhookConfig`: webhooks that see each call before the server does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, Older, column};
use crate::reference::SecretKeyRef;
use crate::reference::{Reference, References};
use crate::schema::{Rule, is_false, rules};
use crate::status::ConfigStatus;

const RULES: &[Rule] = &[Rule {
    cel: "(has(self.validating) && size(self.validating) > 0) || (has(self.mutating) && size(self.mutating) > 0)",
    message: "there is no webhook: put at least one into spec.validating or spec.mutating",
}];

/// The object: metadata, spec and status.
pub type MCPWebhookConfig = Custom<MCPWebhookConfigSpec>;

impl Kind for MCPWebhookConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPWebhookConfig";
    const ABOUT: &'static str = "Webhooks that see each call before the server does.";
    const PLURAL: &'static str = "mcpwebhookconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["mwc"];
    const COLUMNS: &'static [Column] =
        &[column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"), AGE];
    const OLDER_VERSION: Older = Older::Current;

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        for (list, webhooks) in [("mutating", &self.mutating), ("validating", &self.validating)] {
            for (index, webhook) in webhooks.iter().enumerate() {
                let field = format!("spec.{list}[{index}]");
                let tls = webhook.tls_config.as_ref();
                for (name, secret) in [
                    ("hmacSecretRef", webhook.hmac_secret_ref.as_ref()),
                    ("tlsConfig.caSecretRef", tls.and_then(|tls| tls.ca_secret_ref.as_ref())),
                    ("tlsConfig.clientCertSecretRef", tls.and_then(|tls| tls.client_cert_secret_ref.as_ref())),
                    ("tlsConfig.clientKeySecretRef", tls.and_then(|tls| tls.client_key_secret_ref.as_ref())),
                ] {
                    if let Some(secret) = secret {
                        references.secret(secret, &format!("{field}.{name}"));
                    }
                }
            }
        }
        references.list()
    }
}

/// The webhooks, in the order in which they are called: mutating, then validating.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct MCPWebhookConfigSpec {
    /// Webhooks that allow or refuse a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validating: Vec<Webhook>,
    /// Webhooks that may change a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutating: Vec<Webhook>,
}

/// One webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Its name in logs and error messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its URL, with `https`.
    #[schemars(extend("format" = "uri"))]
    pub url: String,
    /// How long to wait for its answer, such as `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "duration"))]
    pub timeout: Option<String>,
    /// What happens to the request when the webhook cannot be reached.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// How the webhook's certificate is checked and which one is shown to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<WebhookTls>,
    /// The Secret key that holds the key with which requests to the webhook are signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac_secret_ref: Option<SecretKeyRef>,
}

/// What happens to a request when a webhook cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// The call is refused.
    #[default]
    Fail,
    /// The call goes on as if the webhook were not there.
    Ignore,
}

/// TLS between the proxy and a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookTls {
    /// The Secret key with the certificate authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// The Secret key with the certificate that the proxy shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert_secret_ref: Option<SecretKeyRef>,
    /// The Secret key with that certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_secret_ref: Option<SecretKeyRef>,
    /// Whether any certificate is believed. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_skip_verify: bool,
}
