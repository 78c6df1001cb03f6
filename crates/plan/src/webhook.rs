//! Webhooks of a server: what the RunConfig of a proxy and the document of a virtual server say about them, and the Secret files that they
//! read.
//!
//! ```text
//!   MCPWebhookConfig ─▶ Webhooks ─▶ RunConfig of a proxy
//!                          └─ resolved ─▶ config.yaml ─ documents ─▶ RunConfig of the virtual server's chain
//! ```

use std::collections::BTreeMap;

use skep_api::kinds::{FailurePolicy, MCPWebhookConfigSpec, Webhook};
use skep_api::reference::SecretKeyRef;
use skep_api::virtual_config::{ResolvedWebhook, ResolvedWebhookTls, ResolvedWebhooks};
use skep_runconfig::GoDuration;
use skep_runconfig::run_config::{Webhook as Document, WebhookTls};

use crate::canonical::text_hash;
use crate::pod::{FileSource, Mount};
use crate::text::sanitise;

/// What a server's webhooks come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Webhooks {
    /// Asked first; they may change a call.
    pub(crate) mutating: Vec<Document>,
    /// Asked then; they may refuse it.
    pub(crate) validating: Vec<Document>,
    /// The Secret files that they read, in an order that does not change.
    pub(crate) files: Vec<Mount>,
}

/// A Secret key as a file: name of the file by what it is for.
const FILES: [(&str, &str); 4] =
    [("hmac", "hmac"), ("tls_ca", "ca.crt"), ("tls_client_cert", "tls.crt"), ("tls_client_key", "tls.key")];

/// Reads a valid configuration.
pub(crate) fn webhooks(config: &MCPWebhookConfigSpec) -> Webhooks {
    let mut files = BTreeMap::new();
    let mut documents = |list: &str, webhooks: &[Webhook]| -> Vec<Document> {
        webhooks.iter().map(|webhook| document(list, webhook, &mut files)).collect()
    };
    let mutating = documents("mutating", &config.mutating);
    let validating = documents("validating", &config.validating);
    let mut all = Webhooks { mutating, validating, ..Webhooks::default() };
    // Sorted by identifier: two plans of the same input are equal to the byte.
    for (identifier, (secret, file)) in &files {
        let volume = format!("whsec-{}", text_hash(identifier).chars().take(12).collect::<String>());
        let (name, key) = (secret.name.clone(), secret.key.clone());
        let source = FileSource::Secret { name, key, file: (*file).to_owned(), mode: None };
        // A directory: a file that is mounted by its `subPath` never changes, and secrets rotate.
        let path = directory(identifier);
        all.files.push(Mount { volume, source, path, file: None, is_in_run_config: false });
    }
    all
}

fn document(list: &str, webhook: &Webhook, files: &mut BTreeMap<String, (SecretKeyRef, &'static str)>) -> Document {
    let tls = webhook.tls_config.as_ref();
    let mut file = |purpose: &str, secret: Option<&SecretKeyRef>| -> String {
        let Some(secret) = secret else { return String::new() };
        let hash = text_hash(&format!("{}/{}", secret.name, secret.key));
        let identifier = sanitise(&format!("WEBHOOK_{list}_{}_{purpose}_{hash}", webhook.name));
        let name = FILES.iter().find(|(known, _)| *known == purpose).map_or("value", |(_, name)| name);
        let path = format!("{}/{name}", directory(&identifier));
        files.insert(identifier, (secret.clone(), name));
        path
    };
    let certificate = tls.and_then(|tls| tls.client_cert_secret_ref.as_ref().zip(tls.client_key_secret_ref.as_ref()));
    let tls_config = tls.map(|tls| WebhookTls {
        ca_bundle_path: file("tls_ca", tls.ca_secret_ref.as_ref()),
        client_cert_path: file("tls_client_cert", certificate.map(|(certificate, _)| certificate)),
        client_key_path: file("tls_client_key", certificate.map(|(_, key)| key)),
        insecure_skip_verify: tls.insecure_skip_verify,
        ..WebhookTls::default()
    });
    Document {
        name: webhook.name.clone(),
        url: webhook.url.clone(),
        timeout: webhook.timeout.as_deref().and_then(|text| text.parse::<GoDuration>().ok()).unwrap_or_default(),
        failure_policy: policy(webhook.failure_policy).to_owned(),
        tls_config,
        hmac_secret_ref: file("hmac", webhook.hmac_secret_ref.as_ref()),
        ..Document::default()
    }
}

const fn policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Fail => "fail",
        FailurePolicy::Ignore => "ignore",
    }
}

// === impl Webhooks ===

impl Webhooks {
    /// The same in the document of a virtual server. Nothing if there is no webhook.
    pub(crate) fn resolved(&self) -> Option<ResolvedWebhooks> {
        let of = |list: &[Document]| list.iter().map(resolved).collect::<Vec<_>>();
        let all = ResolvedWebhooks { mutating: of(&self.mutating), validating: of(&self.validating) };
        (all != ResolvedWebhooks::default()).then_some(all)
    }
}

fn resolved(webhook: &Document) -> ResolvedWebhook {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let timeout = Some(webhook.timeout).filter(|timeout| *timeout != GoDuration::default());
    ResolvedWebhook {
        name: webhook.name.clone(),
        url: webhook.url.clone(),
        timeout: timeout.map(|timeout| timeout.to_string()),
        failure_policy: if webhook.failure_policy == policy(FailurePolicy::Ignore) {
            FailurePolicy::Ignore
        } else {
            FailurePolicy::Fail
        },
        tls_config: webhook.tls_config.as_ref().map(|tls| ResolvedWebhookTls {
            ca_bundle_path: some(&tls.ca_bundle_path),
            client_cert_path: some(&tls.client_cert_path),
            client_key_path: some(&tls.client_key_path),
            insecure_skip_verify: tls.insecure_skip_verify,
        }),
        hmac_secret_ref: some(&webhook.hmac_secret_ref),
    }
}

/// The webhooks of a virtual server's document as a RunConfig has them: those that mutate, and those that validate.
pub fn documents(webhooks: &ResolvedWebhooks) -> (Vec<Document>, Vec<Document>) {
    let of = |list: &[ResolvedWebhook]| list.iter().map(of_resolved).collect();
    (of(&webhooks.mutating), of(&webhooks.validating))
}

fn of_resolved(webhook: &ResolvedWebhook) -> Document {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Document {
        name: webhook.name.clone(),
        url: webhook.url.clone(),
        timeout: webhook.timeout.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default(),
        failure_policy: policy(webhook.failure_policy).to_owned(),
        tls_config: webhook.tls_config.as_ref().map(|tls| WebhookTls {
            ca_bundle_path: text(&tls.ca_bundle_path),
            client_cert_path: text(&tls.client_cert_path),
            client_key_path: text(&tls.client_key_path),
            insecure_skip_verify: tls.insecure_skip_verify,
            ..WebhookTls::default()
        }),
        hmac_secret_ref: text(&webhook.hmac_secret_ref),
        ..Document::default()
    }
}

/// Where the files of webhooks are.
pub(crate) const DIRECTORY: &str = "/etc/toolhive/webhooks/";

fn directory(identifier: &str) -> String {
    format!("{DIRECTORY}{}", identifier.to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> MCPWebhookConfigSpec {
        let secret = |key: &str| json!({ "name": "sec.ret", "key": key });
        let tls = json!({
            "caSecretRef": secret("ca.crt"), "clientCertSecretRef": secret("tls.crt"), "clientKeySecretRef": secret("tls.key"),
        });
        let webhook = |name: &str| json!({ "name": name, "url": "https://a", "hmacSecretRef": secret("hm-ac"), "tlsConfig": tls });
        let spec = json!({ "validating": [webhook("z.check-1"), webhook("a")], "mutating": [webhook("z.check-1")] });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_document_of_a_virtual_server_says_all_that_a_run_config_does() {
        let mut config = config();
        config.validating[0].timeout = Some("2500ms".to_owned());
        config.validating[1].failure_policy = FailurePolicy::Ignore;
        config.mutating[0].tls_config = None;
        let webhooks = webhooks(&config);
        let resolved = webhooks.resolved().unwrap();
        assert_eq!(resolved.validating[0].timeout.as_deref(), Some("2.5s"));
        assert_eq!(documents(&resolved), (webhooks.mutating, webhooks.validating));
        assert_eq!(Webhooks::default().resolved(), None);
    }

    #[test]
    fn secrets_become_files_under_names_that_any_shell_takes() {
        let webhooks = webhooks(&config());
        assert_eq!(webhooks.files.len(), 12);
        for mount in &webhooks.files {
            let name = mount.path.strip_prefix("/etc/toolhive/webhooks/").unwrap().split('/').next().unwrap();
            assert!(name.starts_with("webhook_"), "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}"
            );
        }
    }

    #[test]
    fn secrets_have_an_order_that_does_not_come_from_the_lists() {
        let webhooks = webhooks(&config());
        let paths: Vec<&str> = webhooks.files.iter().map(|mount| mount.path.as_str()).collect();
        let mut sorted = paths.clone();
        sorted.sort_unstable();
        assert_eq!(paths, sorted);
    }
}
