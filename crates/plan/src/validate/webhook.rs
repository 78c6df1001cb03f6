//! `MCPWebhookConfig`, and what a virtual server's document has of it: webhooks that can be asked, each over TLS and within bounds.

use skep_api::kinds::{MCPWebhookConfigSpec, Webhook};
use skep_api::virtual_config::{ResolvedWebhook, ResolvedWebhooks};

use super::Problems;
use crate::text::{GoDuration, is_absolute, provider_url};

/// The longest name of a webhook.
const LONGEST_NAME: usize = 63;
/// The bounds of its timeout, in seconds.
const TIMEOUT: (i64, i64) = (1, 30);

pub(super) fn problems(spec: &MCPWebhookConfigSpec) -> Problems {
    let mut problems = Problems::default();
    let empty = spec.validating.is_empty() && spec.mutating.is_empty();
    problems.unless(!empty, "spec", "there is no webhook; put at least one into validating or mutating");
    for (list, webhooks) in [("validating", &spec.validating), ("mutating", &spec.mutating)] {
        for (index, webhook) in webhooks.iter().enumerate() {
            let place = format!("{list} webhook[{index}] \"{}\": ", webhook.name);
            problems.under(place, of_webhook(webhook));
        }
    }
    problems
}

/// What is wrong with the webhooks of a virtual server's document.
pub(crate) fn resolved_problems(webhooks: &ResolvedWebhooks) -> Problems {
    let mut problems = Problems::default();
    let empty = webhooks.validating.is_empty() && webhooks.mutating.is_empty();
    problems.unless(!empty, "webhooks", "there is no webhook; put at least one into validating or mutating");
    for (list, webhooks) in [("validating", &webhooks.validating), ("mutating", &webhooks.mutating)] {
        for (index, webhook) in webhooks.iter().enumerate() {
            problems.under(format_args!("webhooks.{list}[{index}]."), of_resolved(webhook));
        }
    }
    problems
}

fn of_webhook(webhook: &Webhook) -> Problems {
    let tls = webhook.tls_config.as_ref();
    let skips_verification = tls.is_some_and(|tls| tls.insecure_skip_verify);
    let mut problems = of_call(&webhook.name, &webhook.url, webhook.timeout.as_deref(), skips_verification);
    problems.secret("hmacSecretRef", webhook.hmac_secret_ref.as_ref());
    if let Some(tls) = tls {
        let (certificate, key) = (tls.client_cert_secret_ref.as_ref(), tls.client_key_secret_ref.as_ref());
        problems.secret("tlsConfig.caSecretRef", tls.ca_secret_ref.as_ref());
        problems.secret("tlsConfig.clientCertSecretRef", certificate);
        problems.secret("tlsConfig.clientKeySecretRef", key);
        let pair = certificate.is_some() == key.is_some();
        problems.unless(
            pair,
            "tlsConfig",
            "a certificate and its key go together; set both clientCertSecretRef and clientKeySecretRef, or none",
        );
    }
    problems
}

fn of_resolved(webhook: &ResolvedWebhook) -> Problems {
    let tls = webhook.tls_config.as_ref();
    let skips_verification = tls.is_some_and(|tls| tls.insecure_skip_verify);
    let mut problems = of_call(&webhook.name, &webhook.url, webhook.timeout.as_deref(), skips_verification);
    if let Some(reference) = &webhook.hmac_secret_ref {
        problems.filled("hmacSecretRef", reference, "write the path of a file or the name of a secret");
    }
    let Some(tls) = tls else { return problems };
    let files = [
        ("caBundlePath", &tls.ca_bundle_path),
        ("clientCertPath", &tls.client_cert_path),
        ("clientKeyPath", &tls.client_key_path),
    ];
    for (field, path) in files {
        let is_path = path.as_ref().is_none_or(|path| is_absolute(path));
        problems.unless(is_path, format_args!("tlsConfig.{field}"), "it must be an absolute path");
    }
    let pair = tls.client_cert_path.is_some() == tls.client_key_path.is_some();
    let problem = "a certificate and its key go together; set both clientCertPath and clientKeyPath, or none";
    problems.unless(pair, "tlsConfig", problem);
    problems
}

/// What is wrong with how a webhook is called, wherever it is written.
fn of_call(name: &str, url: &str, timeout: Option<&str>, skips_verification: bool) -> Problems {
    let mut problems = Problems::default();
    problems.filled("name", name, "name the webhook; logs and errors speak of it by this");
    let length = name.chars().count();
    problems.unless(
        length <= LONGEST_NAME,
        "name",
        format_args!("it has {length} characters; use at most {LONGEST_NAME}"),
    );
    match provider_url(url, true) {
        Err(problem) => problems.add("url", problem),
        // Plain HTTP is allowed only where certificates are not verified either.
        Ok(parsed) if parsed.scheme() != "https" && !skips_verification => {
            let advice = "for development, tlsConfig.insecureSkipVerify lets plain HTTP through";
            problems.add("url", format_args!("`{url}` must begin with `https://`; {advice}"));
        }
        Ok(_) => {}
    }
    // Zero stands for the usual timeout.
    let timeout = timeout.filter(|text| text.parse() != Ok(GoDuration::default()));
    problems.duration("timeout", timeout, TIMEOUT.0, TIMEOUT.1);
    problems
}
