//! What may pass, how often, and how it looks: webhooks, limits, tools, headers.

use std::collections::BTreeMap;

use crate::document::document;
use crate::duration::GoDuration;

/// How long a webhook may take that does not say so.
const DEFAULT_WEBHOOK_TIMEOUT: GoDuration = GoDuration::from_seconds(10);

document! {
    /// A service that is called for every request.
    pub struct Webhook {
        /// Its name.
        pub name: String = always "name",
        /// Its URL.
        pub url: String = always "url",
        /// How long it may take; see [`Webhook::timeout_in_effect`].
        pub timeout: GoDuration = always "timeout",
        /// What happens to a request when the webhook fails: `fail` or `ignore`.
        pub failure_policy: String = always "failure_policy",
        /// How it is reached.
        pub tls_config: Option<WebhookTls> = if_set "tls_config",
        /// The secret that signs requests: an absolute path, otherwise the name of a secret.
        pub hmac_secret_ref: String = if_set "hmac_secret_ref",
    }
}

document! {
    /// How a webhook is reached over TLS.
    pub struct WebhookTls {
        /// A file with certificate authorities to trust.
        pub ca_bundle_path: String = if_set "ca_bundle_path",
        /// A file with our certificate.
        pub client_cert_path: String = if_set "client_cert_path",
        /// A file with its key.
        pub client_key_path: String = if_set "client_key_path",
        /// Whether any certificate is taken. For development only.
        pub insecure_skip_verify: bool = if_set "insecure_skip_verify",
    }
}

document! {
    /// How often a server may be called.
    pub struct RateLimitConfig {
        /// One bucket for all callers together.
        pub shared: Option<RateLimitBucket> = if_set "shared",
        /// One bucket for each caller.
        pub per_user: Option<RateLimitBucket> = if_set "perUser",
        /// Further limits for single tools.
        pub tools: Vec<ToolRateLimit> = if_set "tools",
        /// Limits for prompts, which only Skep has.
        pub prompts: Vec<ToolRateLimit> = if_set "prompts",
        /// Limits for resources, which only Skep has.
        pub resources: Vec<ToolRateLimit> = if_set "resources",
        /// What happens when calls cannot be counted, which only Skep has: `fail` or `ignore`.
        pub failure_policy: String = if_set "failurePolicy",
    }
}

document! {
    /// How often one tool may be called, or another thing of a name.
    pub struct ToolRateLimit {
        /// Its name.
        pub name: String = always "name",
        /// One bucket for all callers together.
        pub shared: Option<RateLimitBucket> = if_set "shared",
        /// One bucket for each caller.
        pub per_user: Option<RateLimitBucket> = if_set "perUser",
    }
}

document! {
    /// A token bucket.
    pub struct RateLimitBucket {
        /// How many tokens fit.
        pub max_tokens: i32 = always "maxTokens",
        /// How long an empty bucket takes to fill, as Go writes it: `1m0s`.
        pub refill_period: String = always "refillPeriod",
    }
}

document! {
    /// Name and description of a tool that replace the server's.
    pub struct ToolOverride {
        /// Its name.
        pub name: String = if_set "name",
        /// Its description.
        pub description: String = if_set "description",
    }
}

document! {
    /// Headers on every request to a remote server.
    pub struct HeaderForward {
        /// Header names and their values.
        pub add_plaintext_headers: BTreeMap<String, String> = if_set "add_plaintext_headers",
        /// Header names and the identifiers of secrets.
        pub add_headers_from_secret: BTreeMap<String, String> = if_set "add_headers_from_secret",
    }
}

// === impl Webhook ===

impl Webhook {
    /// How long it may take. A document without a timeout, or with the 0 that stands for none, means 10 s.
    pub fn timeout_in_effect(&self) -> GoDuration {
        if self.timeout == GoDuration::default() { DEFAULT_WEBHOOK_TIMEOUT } else { self.timeout }
    }
}
