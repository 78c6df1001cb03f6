//! Other issuers whose tokens an embedded authorization server accepts: for which delegates, of which issuers, and for what.

use std::collections::BTreeSet;

use skep_api::auth_server::{EmbeddedAuthServer, JwtBearerGrant, TrustedIssuer};

use super::matcher::Matchers;
use super::{Problems, address};

/// Claims that have a meaning of their own and cannot say who acts.
const RESERVED_CLAIMS: &[&str] =
    &["sub", "iss", "aud", "exp", "iat", "nbf", "jti", "name", "email", "scope", "scp", "may_act"];
/// Stands for any client.
const ANY: &str = "*";

pub(super) fn problems(config: &EmbeddedAuthServer, matchers: &mut Matchers) -> Problems {
    let mut problems = Problems::default();
    let mut seen = BTreeSet::new();
    for (index, issuer) in config.trusted_issuers.iter().enumerate() {
        let place = format!("trustedIssuers[{index}]");
        let url = &issuer.issuer_url;
        let fresh = seen.insert(url.as_str());
        problems.unless(
            fresh,
            format_args!("{place}.issuerUrl"),
            format_args!("`{url}` is trusted above; put both into one entry"),
        );
        problems.under(place, of_issuer(issuer, matchers));
    }
    problems
}

fn of_issuer(issuer: &TrustedIssuer, matchers: &mut Matchers) -> Problems {
    let mut problems = Problems::default();
    let plain = issuer.insecure_allow_http;
    address::endpoint(&mut problems, ".issuerUrl", Some(&issuer.issuer_url), plain);
    let keys = issuer.jwks_url.as_deref().filter(|url| !url.is_empty());
    address::endpoint(&mut problems, ".jwksUrl", keys, plain);
    let blind = issuer.allow_private_ips && keys.is_none();
    problems.unless(!blind, ".allowPrivateIPs", "it needs jwksUrl: discovery never goes to private addresses");
    let any = issuer.allowed_delegate_clients.iter().any(|client| client == ANY);
    let alone = !any || issuer.allowed_delegate_clients.len() == 1;
    problems.unless(
        alone,
        ".allowedDelegateClients",
        "the wildcard `*` stands alone; remove the other entries, or the wildcard",
    );
    let open = any && issuer.allow_may_act;
    problems.unless(
        !open,
        ".allowMayAct",
        "with the wildcard `*` any client could act for any user; name the clients, or turn it off",
    );
    let claim = issuer.actor_claim.as_deref().unwrap_or_default();
    let reserved = RESERVED_CLAIMS.contains(&claim);
    problems.unless(
        !reserved,
        ".actorClaim",
        format_args!("`{claim}` has a meaning of its own; choose a claim that only says who acts, such as `azp`"),
    );

    matchers.check(&mut problems, ".actorMatcher", issuer.actor_matcher.as_deref());

    // Whether its tokens are exchanged on behalf of another subject, or only as they are.
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let actors = is_set(&issuer.actor_claim) || is_set(&issuer.actor_matcher) || issuer.allow_may_act;
    let audience = is_set(&issuer.expected_audience);
    let needs_audience = issuer.jwt_bearer_grant.is_none() || actors || !issuer.allowed_actors.is_empty();
    problems.unless(
        audience || !needs_audience,
        ".expectedAudience",
        "it is missing; only an issuer with jwtBearerGrant and no actor settings can do without",
    );
    let needs_clients = (audience || actors) && issuer.allowed_delegate_clients.is_empty();
    problems.unless(
        !needs_clients,
        ".allowedDelegateClients",
        "it is missing; name the clients that may exchange this issuer's tokens",
    );
    if let Some(grant) = &issuer.jwt_bearer_grant {
        problems.under(".jwtBearerGrant", of_grant(grant));
    }
    problems
}

fn of_grant(grant: &JwtBearerGrant) -> Problems {
    let mut problems = Problems::default();
    problems.some_time(".maxAssertionAge", Some(&grant.max_assertion_age));
    problems.unless(
        !grant.subject_bindings.is_empty(),
        ".subjectBindings",
        "it is empty; say which subjects get tokens for what",
    );
    let mut seen = BTreeSet::new();
    for (index, binding) in grant.subject_bindings.iter().enumerate() {
        let place = format!(".subjectBindings[{index}]");
        let subject = &binding.subject;
        problems.filled(format_args!("{place}.subject"), subject, "name the subject exactly");
        let exact = !subject.contains(ANY);
        problems.unless(
            exact,
            format_args!("{place}.subject"),
            format_args!("`{subject}` has a wildcard, and there are none; name each subject exactly"),
        );
        let fresh = seen.insert(subject.as_str());
        problems.unless(
            fresh,
            format_args!("{place}.subject"),
            format_args!("`{subject}` stands above; put its resources into one entry"),
        );
        problems.unless(
            !binding.allowed_resources.is_empty(),
            format_args!("{place}.allowedResources"),
            "it is empty; name what the subject may get a token for",
        );
        urls(&mut problems, &format!("{place}.allowedResources"), &binding.allowed_resources);
    }
    urls(&mut problems, ".acceptedAudiences", &grant.accepted_audiences);
    problems
}

/// They are only compared, so plain HTTP is as good as any.
fn urls(problems: &mut Problems, place: &str, urls: &[String]) {
    for (index, url) in urls.iter().enumerate() {
        address::endpoint(problems, format_args!("{place}[{index}]"), Some(url), true);
    }
}
