//! `MCPExternalAuthConfig`: one kind of outgoing authentication, with what it needs and nothing else.

use serde_json::Value;
use skep_api::kinds::{AwsSts, CrossAppAccess, MCPExternalAuthConfigSpec, TokenExchange};

use super::matcher::Matchers;
use super::{Problems, address, auth_server, matcher};
use crate::text::check_forwarded_header;

/// The members of the spec that hold the settings of the type of the same name.
const SETTINGS: &[&str] = &[
    "tokenExchange",
    "headerInjection",
    "bearerToken",
    "embeddedAuthServer",
    "awsSts",
    "upstreamInject",
    "obo",
    "xaa",
];
/// The bounds of an AWS session, in seconds.
const AWS_SESSION: std::ops::RangeInclusive<i32> = 900..=43200;

pub(super) fn problems(spec: &MCPExternalAuthConfigSpec) -> Problems {
    let mut problems = Problems::default();
    let mut matchers = Matchers::default();
    settings_go_with_type(spec, &mut problems);
    if let Some(exchange) = &spec.token_exchange {
        problems.under("spec.tokenExchange", of_exchange(exchange));
    }
    if let Some(header) = &spec.header_injection {
        problems.check("spec.headerInjection.headerName", check_forwarded_header(&header.header_name));
        problems.secret("spec.headerInjection.valueSecretRef", Some(&header.value_secret_ref));
    }
    if let Some(bearer) = &spec.bearer_token {
        problems.secret("spec.bearerToken.tokenSecretRef", Some(&bearer.token_secret_ref));
    }
    if let Some(server) = &spec.embedded_auth_server {
        problems.under("spec.embeddedAuthServer.", auth_server::problems(server, &mut matchers));
    }
    if let Some(aws) = &spec.aws_sts {
        problems.under("spec.awsSts", of_aws(aws, &mut matchers));
    }
    if let Some(inject) = &spec.upstream_inject {
        problems.filled("spec.upstreamInject.providerName", &inject.provider_name, "name the upstream provider");
    }
    if let Some(access) = &spec.xaa {
        problems.under("spec.xaa", of_cross_app_access(access));
    }
    problems
}

/// How many tokens of matchers the parser sees when a configuration is validated.
pub(crate) fn matcher_tokens(spec: &MCPExternalAuthConfigSpec) -> usize {
    let issuers = spec.embedded_auth_server.iter().flat_map(|server| &server.trusted_issuers);
    let mappings = spec.aws_sts.iter().flat_map(|aws| &aws.role_mappings);
    let matchers = issuers.map(|issuer| &issuer.actor_matcher).chain(mappings.map(|mapping| &mapping.matcher));
    matcher::tokens(matchers.filter_map(Option::as_deref))
}

fn settings_go_with_type(spec: &MCPExternalAuthConfigSpec, problems: &mut Problems) {
    let method = serde_json::to_value(spec.method).unwrap_or_default();
    let method = method.as_str().unwrap_or_default();
    let spec = serde_json::to_value(spec).unwrap_or_default();
    for &member in SETTINGS {
        let is_set = spec.get(member).is_some_and(|value| !matches!(value, Value::Null));
        match (member == method, is_set) {
            (true, false) => problems.add(format_args!("spec.{member}"), "it is missing; set it, or change type"),
            (false, true) => {
                problems.add(
                    format_args!("spec.{member}"),
                    format_args!("it goes with type `{member}`, not `{method}`; remove it, or change type"),
                );
            }
            (true, true) | (false, false) => {}
        }
    }
}

fn of_exchange(exchange: &TokenExchange) -> Problems {
    let mut problems = Problems::default();
    // The endpoint is often a Service next door, so plain HTTP is let through.
    address::endpoint(&mut problems, ".tokenUrl", Some(&exchange.token_url), true);
    problems.secret(".clientSecretRef", exchange.client_secret_ref.as_ref());
    if let Some(header) = exchange.external_token_header_name.as_deref().filter(|name| !name.is_empty()) {
        problems.check(".externalTokenHeaderName", check_forwarded_header(header));
    }
    problems
}

fn of_aws(aws: &AwsSts, matchers: &mut Matchers) -> Problems {
    let mut problems = Problems::default();
    problems.filled(".region", &aws.region, "name the region, such as `eu-central-1`");
    let fallback = aws.fallback_role_arn.as_deref().unwrap_or_default();
    let has_role = !fallback.is_empty() || !aws.role_mappings.is_empty();
    problems.unless(
        has_role,
        ".roleMappings",
        "no client gets a role; set fallbackRoleArn or at least one entry of roleMappings",
    );
    for (index, mapping) in aws.role_mappings.iter().enumerate() {
        let place = format!(".roleMappings[{index}]");
        let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let one = is_set(&mapping.claim) != is_set(&mapping.matcher);
        problems.unless(
            one,
            &place,
            "exactly one of claim and matcher decides which identities it applies to; set one and remove the other",
        );
        matchers.check(&mut problems, format_args!("{place}.matcher"), mapping.matcher.as_deref());
        problems.filled(format_args!("{place}.roleArn"), &mapping.role_arn, "name the role by its ARN");
    }
    let duration = aws.session_duration;
    let (shortest, longest) = (AWS_SESSION.start(), AWS_SESSION.end());
    let fits = AWS_SESSION.contains(&duration);
    problems.unless(
        fits,
        ".sessionDuration",
        format_args!("`{duration}` is out of bounds; choose from {shortest} to {longest} seconds"),
    );
    problems
}

fn of_cross_app_access(access: &CrossAppAccess) -> Problems {
    let mut problems = Problems::default();
    address::endpoint(&mut problems, ".idpTokenUrl", Some(&access.idp_token_url), false);
    let target = address::endpoint(&mut problems, ".targetTokenUrl", Some(&access.target_token_url), true);
    let secure = target
        .is_none_or(|url| url.scheme() == "https" || access.insecure_target_token_url || address::is_loopback(&url));
    let advice = "for development, insecureTargetTokenUrl lets plain HTTP through";
    problems.unless(
        secure,
        ".targetTokenUrl",
        format_args!("`{}` must begin with `https://`; {advice}", access.target_token_url),
    );
    problems.filled(
        ".targetAudience",
        &access.target_audience,
        "name the target's authorization server, as it calls itself",
    );
    for (side, id, secret) in [
        ("idpClient", &access.idp_client_id, &access.idp_client_secret_ref),
        ("targetClient", &access.target_client_id, &access.target_client_secret_ref),
    ] {
        problems.secret(format_args!(".{side}SecretRef"), secret.as_ref());
        let nameless = secret.is_some() && id.as_deref().unwrap_or_default().is_empty();
        problems.unless(
            !nameless,
            format_args!(".{side}Id"),
            "it is missing; a secret is shown together with the client's id",
        );
    }
    problems
}
