//! The embedded authorization server: what it calls itself, how long its tokens last, and over what its secrets travel.

use std::collections::BTreeSet;

use skep_api::auth_server::{EmbeddedAuthServer, UpstreamProviderType};

use super::matcher::Matchers;
use super::{Problems, address, storage, trust, upstream};
use crate::error::PlanError;

/// The most keys that tokens are signed with.
const MOST_SIGNING_KEYS: usize = 5;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Validates an embedded authorization server, wherever it is written. Places are relative to it.
pub fn embedded_auth_server(config: &EmbeddedAuthServer) -> Result<(), PlanError> {
    problems(config, &mut Matchers::default()).result()
}

/// Whether some upstream provider has no user info endpoint, so that an identity is synthesized from each token.
pub fn synthesizes_identity(config: &EmbeddedAuthServer) -> bool {
    let nameless =
        config.upstream_providers.iter().filter(|provider| provider.protocol == UpstreamProviderType::OAuth2);
    let mut settings = nameless.filter_map(|provider| provider.oauth2_config.as_ref());
    settings.any(|oauth2| oauth2.user_info.is_none() && oauth2.identity_from_token.is_none())
}

pub(super) fn problems(config: &EmbeddedAuthServer, matchers: &mut Matchers) -> Problems {
    let mut problems = Problems::default();
    let plain = config.insecure_allow_http;
    address::base(&mut problems, "issuer", Some(&config.issuer), plain);
    let browsers = config.authorization_endpoint_base_url.as_deref();
    address::base(&mut problems, "authorizationEndpointBaseUrl", browsers, plain);
    keys(config, &mut problems);
    if let Some(lifespans) = &config.token_lifespans {
        let bounds = [
            ("accessTokenLifespan", &lifespans.access_token_lifespan, MINUTE, DAY),
            ("refreshTokenLifespan", &lifespans.refresh_token_lifespan, HOUR, 30 * DAY),
            ("authCodeLifespan", &lifespans.auth_code_lifespan, MINUTE / 2, 10 * MINUTE),
        ];
        for (field, text, shortest, longest) in bounds {
            problems.duration(format_args!("tokenLifespans.{field}"), text.as_deref(), shortest, longest);
        }
    }
    problems.under("", upstream::problems(config));
    if let Some(storage) = &config.storage {
        problems.under("storage", storage::problems(storage));
    }
    confidential_clients(config, &mut problems);
    problems.under("", trust::problems(config, matchers));
    if let Some(documents) = &config.cimd {
        let size = documents.cache_max_size.unwrap_or(1);
        problems.unless(
            size >= 1,
            "cimd.cacheMaxSize",
            format_args!("`{size}` documents are too few; remember at least 1"),
        );
        problems.some_time("cimd.cacheFallbackTtl", documents.cache_fallback_ttl.as_deref());
    }
    problems
}

fn keys(config: &EmbeddedAuthServer, problems: &mut Problems) {
    let count = config.signing_key_secret_refs.len();
    let few = count <= MOST_SIGNING_KEYS;
    problems.unless(
        few,
        "signingKeySecretRefs",
        format_args!("there are {count} keys; keep at most {MOST_SIGNING_KEYS}"),
    );
    let lists =
        [("signingKeySecretRefs", &config.signing_key_secret_refs), ("hmacSecretRefs", &config.hmac_secret_refs)];
    for (list, secrets) in lists {
        for (index, secret) in secrets.iter().enumerate() {
            problems.secret(format_args!("{list}[{index}]"), Some(secret));
        }
    }
}

/// Clients with a secret show it to the issuer, so the issuer must be reached over TLS.
fn confidential_clients(config: &EmbeddedAuthServer, problems: &mut Problems) {
    let registers = config.allow_confidential_client_registration;
    let forced = &config.force_confidential_redirect_uris;
    if registers && config.insecure_allow_http {
        let problem = "with insecureAllowHTTP, client secrets would travel in the clear; turn one of them off";
        problems.add("allowConfidentialClientRegistration", problem);
    } else if registers || !config.delegate_clients.is_empty() {
        let issuer = url::Url::parse(&config.issuer).ok();
        let on_this_machine = config.insecure_allow_confidential_over_loopback_http;
        let safe = |url: &url::Url| url.scheme() == "https" || (on_this_machine && address::is_loopback(url));
        let problem = "clients with a secret show it there; give it an https:// URL, or, on this machine, set \
                       insecureAllowConfidentialOverLoopbackHTTP";
        problems.unless(issuer.is_none_or(|url| safe(&url)), "issuer", problem);
    }
    if !forced.is_empty() && !registers {
        let problem = "these clients must have a secret; set allowConfidentialClientRegistration to true, or remove it";
        problems.add("forceConfidentialRedirectUris", problem);
    }
    for (index, uri) in forced.iter().enumerate() {
        address::base(problems, format_args!("forceConfidentialRedirectUris[{index}]"), Some(uri), false);
    }
    let mut seen = BTreeSet::new();
    for (index, client) in config.delegate_clients.iter().enumerate() {
        let place = format!("delegateClients[{index}]");
        let id = &client.client_id;
        problems.filled(format_args!("{place}.clientId"), id, "name the client");
        let fresh = seen.insert(id.as_str());
        problems.unless(
            fresh,
            format_args!("{place}.clientId"),
            format_args!("`{id}` is an earlier client's too; give each its own"),
        );
        problems.secret(format_args!("{place}.clientSecretRef"), Some(&client.client_secret_ref));
        for (list, entries) in [("scopes", &client.scopes), ("audiences", &client.audiences)] {
            problems.unless(
                !entries.is_empty(),
                format_args!("{place}.{list}"),
                "it is empty; say what the client may ask for",
            );
        }
    }
}

#[cfg(test)]
mod tests;
