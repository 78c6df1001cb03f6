//! The providers behind an embedded authorization server: distinct names, and for each the settings of its type.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::auth_server::{
    DynamicRegistration, EmbeddedAuthServer, UpstreamOAuth2, UpstreamOidc, UpstreamProvider, UpstreamProviderType,
    UserInfo,
};

use super::{Problems, address};
use crate::text::{check_header_name, is_dns_label};

/// Parameters of an authorization request that are ours to set.
const RESERVED_PARAMETERS: &[&str] = &[
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "nonce",
];
/// The name of a provider that has none; where there are several, each has one.
const UNNAMED: &str = "default";
/// How long the URLs of a registration may be.
const LONGEST_URL: usize = 2048;

pub(super) fn problems(config: &EmbeddedAuthServer) -> Problems {
    let mut problems = Problems::default();
    let providers = &config.upstream_providers;
    problems.unless(
        !providers.is_empty(),
        "upstreamProviders",
        "there is no provider; name at least one that users sign in to",
    );
    let mut names = BTreeSet::new();
    for (index, provider) in providers.iter().enumerate() {
        let place = format!("upstreamProviders[{index}]");
        let name = &provider.name;
        let fresh = names.insert(name.as_str());
        problems.unless(
            fresh,
            format_args!("{place}.name"),
            format_args!("`{name}` is an earlier provider's too; give each its own"),
        );
        let reserved = name == UNNAMED && providers.len() > 1;
        problems.unless(
            !reserved,
            format_args!("{place}.name"),
            format_args!("`{UNNAMED}` is kept for a provider that stands alone; choose another name"),
        );
        problems.under(place, of_provider(provider));
    }
    if let Some(primary) = &config.primary_upstream_provider {
        let problem = format_args!("there is no provider `{primary}`; name one of upstreamProviders");
        problems.unless(names.contains(primary.as_str()), "primaryUpstreamProvider", problem);
    }
    problems
}

fn of_provider(provider: &UpstreamProvider) -> Problems {
    let mut problems = Problems::default();
    let name = &provider.name;
    let advice = "use at most 63 lower-case letters, digits and `-`, and begin and end with a letter or digit";
    problems.unless(is_dns_label(name), ".name", format_args!("`{name}` is not a valid provider name; {advice}"));
    match (provider.protocol, &provider.oidc_config, &provider.oauth2_config) {
        (UpstreamProviderType::Oidc, Some(oidc), None) => problems.under(".oidcConfig", of_oidc(oidc)),
        (UpstreamProviderType::OAuth2, None, Some(oauth2)) => problems.under(".oauth2Config", of_oauth2(oauth2)),
        (UpstreamProviderType::Oidc, ..) => {
            problems.add("", "type `oidc` takes oidcConfig and nothing else; set it, and remove oauth2Config");
        }
        (UpstreamProviderType::OAuth2, ..) => {
            problems.add("", "type `oauth2` takes oauth2Config and nothing else; set it, and remove oidcConfig");
        }
    }
    problems
}

fn of_oidc(oidc: &UpstreamOidc) -> Problems {
    let mut problems = Problems::default();
    address::endpoint(&mut problems, ".issuerUrl", Some(&oidc.issuer_url), false);
    problems.filled(".clientId", &oidc.client_id, "name the client that the provider knows this server as");
    problems.secret(".clientSecretRef", oidc.client_secret_ref.as_ref());
    address::endpoint(&mut problems, ".redirectUri", oidc.redirect_uri.as_deref(), true);
    if let Some(user_info) = &oidc.user_info_override {
        problems.under(".userInfoOverride", of_user_info(user_info, false));
    }
    parameters(&mut problems, &oidc.additional_authorization_params);
    let claim = oidc.subject_claim.as_deref().unwrap_or_default();
    let advice = "use letters, digits and `_`, and no digit first";
    problems.unless(is_claim(claim), ".subjectClaim", format_args!("`{claim}` is not a valid claim name; {advice}"));
    problems
}

fn of_oauth2(oauth2: &UpstreamOAuth2) -> Problems {
    let mut problems = Problems::default();
    let plain = oauth2.insecure_allow_http;
    address::endpoint(&mut problems, ".authorizationEndpoint", Some(&oauth2.authorization_endpoint), plain);
    address::endpoint(&mut problems, ".tokenEndpoint", Some(&oauth2.token_endpoint), plain);
    if let Some(user_info) = &oauth2.user_info {
        problems.under(".userInfo", of_user_info(user_info, plain));
    }
    let has_id = oauth2.client_id.as_deref().is_some_and(|id| !id.is_empty());
    let one = has_id != oauth2.dcr_config.is_some();
    problems.unless(
        one,
        "",
        "exactly one of clientId and dcrConfig says which client this is; set one and remove the other",
    );
    problems.secret(".clientSecretRef", oauth2.client_secret_ref.as_ref());
    let given = oauth2.dcr_config.is_some() && oauth2.client_secret_ref.is_some();
    problems.unless(
        !given,
        ".clientSecretRef",
        "a client that registers itself is given its secret; remove it, or dcrConfig",
    );
    address::endpoint(&mut problems, ".redirectUri", oauth2.redirect_uri.as_deref(), true);
    if let Some(mapping) = &oauth2.token_response_mapping {
        problems.filled(
            ".tokenResponseMapping.accessTokenPath",
            &mapping.access_token_path,
            "say where the access token is",
        );
    }
    if let Some(identity) = &oauth2.identity_from_token {
        problems.filled(
            ".identityFromToken.subjectPath",
            &identity.subject_path,
            "say where the person's identifier is",
        );
    }
    parameters(&mut problems, &oauth2.additional_authorization_params);
    if let Some(registration) = &oauth2.dcr_config {
        problems.under(".dcrConfig", of_registration(registration));
    }
    problems
}

fn of_user_info(user_info: &UserInfo, plain: bool) -> Problems {
    let mut problems = Problems::default();
    address::endpoint(&mut problems, ".endpointUrl", Some(&user_info.endpoint_url), plain);
    for name in user_info.additional_headers.keys() {
        problems.check(".additionalHeaders", check_header_name(name));
    }
    problems
}

fn of_registration(registration: &DynamicRegistration) -> Problems {
    let mut problems = Problems::default();
    let discovery = registration.discovery_url.as_deref().filter(|url| !url.is_empty());
    let endpoint = registration.registration_endpoint.as_deref().filter(|url| !url.is_empty());
    let one = discovery.is_some() != endpoint.is_some();
    problems.unless(
        one,
        "",
        "exactly one of discoveryUrl and registrationEndpoint says where to register; set one and remove the other",
    );
    for (place, url) in [(".discoveryUrl", discovery), (".registrationEndpoint", endpoint)] {
        address::base(&mut problems, place, url, false);
        let length = url.map_or(0, str::len);
        problems.unless(
            length <= LONGEST_URL,
            place,
            format_args!("it has {length} characters; use at most {LONGEST_URL}"),
        );
    }
    problems.secret(".initialAccessTokenRef", registration.initial_access_token_ref.as_ref());
    problems
}

fn parameters(problems: &mut Problems, parameters: &BTreeMap<String, String>) {
    for name in parameters.keys().filter(|name| RESERVED_PARAMETERS.contains(&name.as_str())) {
        problems.add(".additionalAuthorizationParams", format_args!("`{name}` is set by Skep itself; remove it"));
    }
}

/// Whether a claim can have this name; none is named by the empty one.
fn is_claim(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().all(allowed) && !name.starts_with(|first: char| first.is_ascii_digit())
}
