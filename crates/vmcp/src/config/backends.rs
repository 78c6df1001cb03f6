//! The backends that stand in a configuration, with their credentials.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use skep_api::virtual_config::{AwsStsStrategy, BackendOrigin, OutgoingStrategy, StaticBackend, TokenExchangeStrategy};
use skep_api::workload::RemoteTransport;
use skep_auth::aws::sigv4::Scope;
use skep_auth::aws::sts::{Sts, StsOptions};
use skep_auth::aws::{RoleMapping, Roles};
use skep_auth::token_exchange::{ExchangeOptions, TokenExchange};
use skep_auth::{CacheSize, Secret, read_ca_bundle};
use skep_net::Addresses;
use skep_plan::virtual_server::{ALLOW_PRIVATE, DISCOVERED, UNRESOLVED};
use skep_proxy::capacity::Caches;
use skep_upstream::http::Transport;

use super::Config;
use crate::backend::BackendSpec;
use crate::credentials::Strategy;

/// The variable by which the SDKs of AWS are given another endpoint of STS.
const STS_ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";
/// The service that requests are signed for, unless the configuration names another.
const AWS_SERVICE: &str = "aws-mcp";

/// Where a virtual server runs: what its backends may be, and where secrets come from.
#[derive(Clone, Copy)]
pub struct Where<'a> {
    /// The variables of the process.
    pub environment: &'a BTreeMap<String, String>,
    /// The variables of one backend alone, which come first; the headers of an entry come from nowhere else then.
    pub own: Option<&'a BTreeMap<String, String>>,
    /// What may be dialled.
    pub addresses: Addresses,
}

/// What is wrong with the credentials of a backend. Without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backend `{backend}`: {problem}")]
pub struct BackendConfigError {
    /// The backend.
    pub backend: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// The headers of an entry, as the operator hands them over.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ForwardedHeaders {
    add_plaintext_headers: BTreeMap<String, String>,
    add_headers_from_secret: BTreeMap<String, String>,
}

// === impl Where ===

/// Without the variables, which hold secrets.
impl std::fmt::Debug for Where<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Where").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Where<'_> {
    /// A variable that must be there.
    fn variable(&self, name: &str) -> Result<String, String> {
        let own = self.own.and_then(|own| own.get(name));
        let value = own.or_else(|| self.environment.get(name)).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| format!("the environment variable `{name}` is not set"))
    }

    fn secret(&self, value: Option<&String>, variable: Option<&String>) -> Result<Option<Secret>, String> {
        match (value.filter(|value| !value.is_empty()), variable.filter(|name| !name.is_empty())) {
            (Some(value), _) => Ok(Some(Secret::new(value))),
            (None, Some(variable)) => self.variable(variable).map(|value| Some(Secret::new(&value))),
            (None, None) => Ok(None),
        }
    }
}

// === impl Config ===

impl Config {
    /// The backends that stand in the configuration, and what is wrong with those that cannot be called.
    pub fn backends(&self, place: Where<'_>) -> (Vec<BackendSpec>, Vec<BackendConfigError>) {
        let (mut specs, mut failed) = (Vec::new(), Vec::new());
        for backend in &self.document.backends {
            let ca_bundle = backend.ca_bundle_path.as_ref().map(|path| {
                let read = read_ca_bundle(path.as_ref());
                read.map(Arc::from).map_err(|error| format!("cannot read the CA bundle `{path}`: {error}"))
            });
            let spec = ca_bundle
                .transpose()
                .and_then(|ca_bundle| self.backend(backend, self.configured(&backend.name), ca_bundle, place));
            match spec {
                Ok(spec) => specs.push(spec),
                Err(problem) => failed.push(BackendConfigError { backend: backend.name.clone(), problem }),
            }
        }
        (specs, failed)
    }

    /// Whether a backend that says by itself how it is signed in to is called as it says: an entry of the configuration for it counts first.
    pub(crate) fn takes_own(&self, name: &str) -> bool {
        self.document.outgoing_auth.as_ref().is_some_and(|outgoing| {
            outgoing.source == DISCOVERED && outgoing.backends.get(name).is_none_or(|entry| entry.method == DISCOVERED)
        })
    }

    /// How the configuration says that a backend is signed in to: by its entry, else by default.
    pub(crate) fn configured(&self, name: &str) -> Option<&OutgoingStrategy> {
        let outgoing = self.document.outgoing_auth.as_ref()?;
        let chosen = outgoing.backends.get(name).or(outgoing.default.as_ref());
        chosen.filter(|strategy| strategy.method != DISCOVERED)
    }

    /// A backend that is called with this strategy and trusts these certificate authorities.
    pub(crate) fn backend(
        &self,
        backend: &StaticBackend,
        strategy: Option<&OutgoingStrategy>,
        ca_bundle: Option<Arc<[u8]>>,
        place: Where<'_>,
    ) -> Result<BackendSpec, String> {
        let headers = match backend.origin {
            Some(BackendOrigin::Entry) => forwarded(&backend.name, place)?,
            Some(BackendOrigin::Workload) | None => HeaderMap::new(),
        };
        Ok(BackendSpec {
            name: backend.name.as_str().into(),
            url: backend.url.clone(),
            transport: match backend.transport {
                RemoteTransport::Sse => Transport::Sse,
                RemoteTransport::StreamableHttp => Transport::StreamableHttp,
            },
            auth_type: strategy.map_or_else(|| "unauthenticated".to_owned(), |strategy| strategy.method.clone()),
            auth_config_ref: None,
            strategy: strategy.map_or(Ok(Strategy::None), |strategy| credentials(strategy, place))?,
            digest: digest(backend, strategy, (&headers, place.own), ca_bundle.as_deref()),
            headers,
            addresses: addresses(backend, place.addresses),
            ca_bundle,
            timeout: self.timeout(&backend.name),
            metadata: backend.metadata.clone(),
        })
    }
}

/// What may be dialled for a backend. In a pod, an entry must lead out of the cluster unless its owner says otherwise: a name that leads to a
/// private address would open the network of the pod to who may write entries.
fn addresses(backend: &StaticBackend, place: Addresses) -> Addresses {
    let is_entry = backend.origin == Some(BackendOrigin::Entry);
    let is_private = backend.metadata.get(ALLOW_PRIVATE).is_some_and(|allowed| allowed == "true");
    if is_entry && !is_private && place == Addresses::Cluster { Addresses::PublicOnly } else { place }
}

/// The headers of an entry, from the variables that the operator sets.
fn forwarded(backend: &str, place: Where<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let variable = format!("TOOLHIVE_HEADER_FORWARD_{}", normal(backend));
    let Some(text) = place.own.unwrap_or(place.environment).get(&variable) else { return Ok(headers) };
    let given: ForwardedHeaders =
        serde_json::from_str(text).map_err(|_| format!("the environment variable `{variable}` is not valid JSON"))?;
    let secrets = given
        .add_headers_from_secret
        .into_iter()
        .map(|(name, identifier)| Ok((name, place.variable(&format!("TOOLHIVE_SECRET_{identifier}"))?)));
    let secrets: Vec<(String, String)> = secrets.collect::<Result<_, String>>()?;
    for (name, value) in given.add_plaintext_headers.into_iter().chain(secrets) {
        headers.insert(header(&name)?, sensitive(&name, &value)?);
    }
    Ok(headers)
}

fn credentials(strategy: &OutgoingStrategy, place: Where<'_>) -> Result<Strategy, String> {
    let missing = |member: &str| format!("`{member}` is missing for type `{}`", strategy.method);
    match strategy.method.as_str() {
        "unauthenticated" => Ok(Strategy::None),
        "header_injection" => {
            let given = strategy.header_injection.as_ref().ok_or_else(|| missing("headerInjection"))?;
            let value = place.secret(given.header_value.as_ref(), given.header_value_env.as_ref())?;
            let value = value.ok_or_else(|| missing("headerInjection.headerValueEnv"))?;
            Ok(Strategy::Header(header(&given.header_name)?, sensitive(&given.header_name, value.expose())?))
        }
        "token_exchange" => {
            let given = strategy.token_exchange.as_ref().ok_or_else(|| missing("tokenExchange"))?;
            Ok(Strategy::TokenExchange(Arc::new(TokenExchange::new(exchange(given, place)?))))
        }
        "aws_sts" => aws(strategy.aws_sts.as_ref().ok_or_else(|| missing("awsSts"))?, place),
        UNRESOLVED => {
            Err("its credentials cannot be resolved; the conditions of the VirtualMCPServer say why".to_owned())
        }
        "obo" | "xaa" | "upstream_inject" => {
            Err(format!("credentials of type `{}` are not supported by this version", strategy.method))
        }
        other => Err(format!(
            "credentials of type `{other}` do not exist; use unauthenticated, header_injection, token_exchange or aws_sts"
        )),
    }
}

/// Refuses a token of an upstream provider, which only an embedded authorization server has.
fn no_provider(place: &str, name: Option<&String>) -> Result<(), String> {
    if name.is_none_or(String::is_empty) {
        return Ok(());
    }
    let problem = "needs the embedded authorization server, which this version does not have; remove it";
    Err(format!("{place}.subjectProviderName {problem}"))
}

fn exchange(given: &TokenExchangeStrategy, place: Where<'_>) -> Result<ExchangeOptions, String> {
    no_provider("tokenExchange", given.subject_provider_name.as_ref())?;
    Ok(ExchangeOptions {
        token_url: given.token_url.clone(),
        client_id: given.client_id.clone().unwrap_or_default(),
        client_secret: place.secret(given.client_secret.as_ref(), given.client_secret_env.as_ref())?,
        audience: given.audience.clone().unwrap_or_default(),
        scopes: given.scopes.clone(),
        subject_token_type: given.subject_token_type.clone().unwrap_or_default(),
        addresses: place.addresses,
        cache: CacheSize(Caches::of_process().credentials),
    })
}

fn aws(given: &AwsStsStrategy, place: Where<'_>) -> Result<Strategy, String> {
    no_provider("awsSts", given.subject_provider_name.as_ref())?;
    if given.region.is_empty() || !given.region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("awsSts.region: `{}` is not a region; write it like eu-central-1", given.region));
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mappings = given.role_mappings.iter().map(|mapping| RoleMapping {
        claim: text(&mapping.claim),
        matcher: text(&mapping.matcher),
        role_arn: mapping.role_arn.clone(),
        priority: mapping.priority,
    });
    let mappings: Vec<RoleMapping> = mappings.collect();
    let roles = Roles::new(&mappings, &text(&given.fallback_role_arn), &text(&given.role_claim));
    let options = StsOptions {
        roles: roles.map_err(|error| error.to_string())?,
        region: given.region.clone(),
        endpoint: place.environment.get(STS_ENDPOINT).cloned().unwrap_or_default(),
        duration: given.session_duration.unwrap_or_default(),
        session_name_claim: text(&given.session_name_claim),
        addresses: place.addresses,
        cache: CacheSize(Caches::of_process().credentials),
    };
    let service = given.service.clone().filter(|service| !service.is_empty());
    let scope = Scope { region: given.region.clone(), service: service.unwrap_or_else(|| AWS_SERVICE.to_owned()) };
    Ok(Strategy::AwsSts(Arc::new(Sts::new(options)), scope))
}

/// What tells one configuration of a backend from another.
fn digest(
    backend: &StaticBackend,
    strategy: Option<&OutgoingStrategy>,
    (headers, own): (&HeaderMap, Option<&BTreeMap<String, String>>),
    ca_bundle: Option<&[u8]>,
) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    };
    add(&serde_json::to_vec(backend).unwrap_or_default());
    add(&serde_json::to_vec(&strategy).unwrap_or_default());
    for (name, value) in headers {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    for (name, value) in own.into_iter().flatten() {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    add(ca_bundle.unwrap_or_default());
    digest.finalize().into()
}

fn header(name: &str) -> Result<HeaderName, String> {
    name.parse().map_err(|_| format!("`{name}` is not the name of a header"))
}

/// The value of a header, which may be a secret: it is in no error and in no log.
fn sensitive(name: &str, value: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(value).map_err(|_| format!("the value of `{name}` cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A name as it is part of a variable.
fn normal(name: &str) -> String {
    let one = |letter: char| {
        let letter = letter.to_ascii_uppercase();
        if letter.is_ascii_uppercase() || letter.is_ascii_digit() { letter } else { '_' }
    };
    name.chars().map(one).collect()
}
