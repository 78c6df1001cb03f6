//! `MCPWebhookConfig`: webhooks that can be asked, each over TLS and within bounds.

use skep_api::kinds::{MCPWebhookConfigSpec, Webhook};

use super::Problems;
use crate::text::{GoDuration, provider_url};

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

fn of_webhook(webhook: &Webhook) -> Problems {
    let mut problems = Problems::default();
    problems.filled("name", &webhook.name, "name the webhook; logs and errors speak of it by this");
    let length = webhook.name.chars().count();
    problems.unless(
        length <= LONGEST_NAME,
        "name",
        format_args!("it has {length} characters; use at most {LONGEST_NAME}"),
    );
    let tls = webhook.tls_config.as_ref();
    // Plain HTTP is allowed only where certificates are not verified either.
    let plain = tls.is_some_and(|tls| tls.insecure_skip_verify);
    match provider_url(&webhook.url, true) {
        Err(problem) => problems.add("url", problem),
        Ok(url) if url.scheme() != "https" && !plain => {
            let advice = "for development, tlsConfig.insecureSkipVerify lets plain HTTP through";
            problems.add("url", format_args!("`{}` must begin with `https://`; {advice}", webhook.url));
        }
        Ok(_) => {}
    }
    // Zero stands for the usual timeout.
    let timeout = webhook.timeout.as_deref().filter(|text| text.parse() != Ok(GoDuration::default()));
    problems.duration("timeout", timeout, TIMEOUT.0, TIMEOUT.1);
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
