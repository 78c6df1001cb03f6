//! `MCPOIDCConfig`: one provider, reached over TLS.

use skep_api::kinds::{InlineOidc, KubernetesServiceAccountOidc, MCPOIDCConfigSpec, OidcSource};

use super::Problems;
use crate::text::provider_url;

pub(super) fn problems(spec: &MCPOIDCConfigSpec) -> Problems {
    let mut problems = Problems::default();
    let cluster = spec.kubernetes_service_account.as_ref();
    match (spec.source, cluster, &spec.inline) {
        (OidcSource::KubernetesServiceAccount, Some(cluster), None) => {
            problems.under("spec.kubernetesServiceAccount", of_cluster(cluster));
        }
        (OidcSource::Inline, None, Some(inline)) => problems.under("spec.inline", of_provider(inline)),
        (OidcSource::KubernetesServiceAccount, None, _) => {
            problems.add("spec.kubernetesServiceAccount", "it is missing; set it, or change type");
        }
        (OidcSource::Inline, _, None) => problems.add("spec.inline", "it is missing; set it, or change type"),
        (OidcSource::KubernetesServiceAccount, Some(_), Some(_)) => {
            problems.add("spec.inline", "it goes with type `inline` only; remove it, or change type");
        }
        (OidcSource::Inline, Some(_), Some(_)) => {
            let problem = "it goes with type `kubernetesServiceAccount` only; remove it, or change type";
            problems.add("spec.kubernetesServiceAccount", problem);
        }
    }
    problems
}

fn of_cluster(cluster: &KubernetesServiceAccountOidc) -> Problems {
    let mut problems = Problems::default();
    // The issuer of an old cluster is not a URL; it is only compared, if the keys are found without it.
    let is_name = cluster.jwks_url.is_some() && !cluster.issuer.contains("://");
    if is_name {
        problems.filled(".issuer", &cluster.issuer, "write the issuer of the cluster's tokens");
    } else {
        problems.check(".issuer", provider_url(&cluster.issuer, false).map(drop));
    }
    urls(&mut problems, cluster.jwks_url.as_deref(), cluster.introspection_url.as_deref(), false);
    problems
}

fn of_provider(inline: &InlineOidc) -> Problems {
    let mut problems = Problems::default();
    let plain = inline.insecure_allow_http;
    problems.check(".issuer", provider_url(&inline.issuer, plain).map(drop));
    urls(&mut problems, inline.jwks_url.as_deref(), inline.introspection_url.as_deref(), plain);
    problems.secret(".clientSecretRef", inline.client_secret_ref.as_ref());
    problems.ca_bundle(".caBundleRef", inline.ca_bundle_ref.as_ref());
    problems
}

fn urls(problems: &mut Problems, keys: Option<&str>, introspection: Option<&str>, plain: bool) {
    for (place, url) in [(".jwksUrl", keys), (".introspectionUrl", introspection)] {
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            problems.check(place, provider_url(url, plain).map(drop));
        }
    }
}
