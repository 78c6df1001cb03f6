//! One backend: where it is, how it is called, and what is known of what it offers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use sha2::{Digest as _, Sha256};
use skep_net::client::Options;
use skep_net::tls::{Roots, Trust};
use skep_net::{Addresses, Client};
use skep_upstream::http::{HttpOptions, HttpUpstream, Target, TargetError, Transport};
use skep_upstream::{BridgedUpstream, Upstream};

use crate::aggregate::BackendName;
use crate::credentials::Strategy;
use crate::health::HealthState;
use crate::offer::Offers;

/// How long a backend may take for a response, unless the configuration says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// What a backend is made of. Two that are equal are the same backend.
#[derive(Clone, Debug)]
pub struct BackendSpec {
    /// Its name.
    pub name: BackendName,
    /// Its URL.
    pub url: String,
    /// How it speaks MCP.
    pub transport: Transport,
    /// The type of its credentials, as the status has it.
    pub auth_type: String,
    /// The resource that says which credentials it is called with, where one does.
    pub auth_config_ref: Option<String>,
    /// Its credentials.
    pub strategy: Strategy,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// What may be dialled for it.
    pub addresses: Addresses,
    /// Certificate authorities to trust beside those of the system, as PEM.
    pub ca_bundle: Option<Arc<[u8]>>,
    /// How long it may take for a response.
    pub timeout: Duration,
    /// Facts about it.
    pub metadata: BTreeMap<String, String>,
    /// What tells this configuration from any other of the same backend: a digest of all of it, secrets among it.
    pub digest: [u8; 32],
}

/// A backend that is called.
#[derive(Debug)]
pub struct Backend {
    /// What it is made of.
    pub spec: BackendSpec,
    /// How it is called, in either era.
    pub upstream: Arc<dyn Upstream>,
    /// How it is checked. One that is called in the name of clients is checked without their credentials.
    pub(crate) checked: Arc<dyn Upstream>,
    /// What it offers.
    pub offers: Offers,
    /// How it is.
    pub health: HealthState,
}

/// Why a backend cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Its URL.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Its certificate authorities.
    #[error("the CA bundle cannot be used: {0}")]
    CaBundle(String),
}

// === impl BackendSpec ===

impl BackendSpec {
    /// Notes the resource that says which credentials it is called with. With another one, it is another backend.
    pub(crate) fn refer_to(&mut self, auth_config: Option<String>) {
        if let Some(name) = &auth_config {
            let mut digest = Sha256::new();
            digest.update(self.digest);
            digest.update(name.as_bytes());
            self.digest = digest.finalize().into();
        }
        self.auth_config_ref = auth_config;
    }

    /// Whether another configuration is of the same server, however that is called.
    pub(crate) fn is_of_same_server(&self, other: &Self) -> bool {
        (&self.name, &self.url, self.transport) == (&other.name, &other.url, other.transport)
    }
}

// === impl Backend ===

impl Backend {
    /// A backend. No request is sent before it is used.
    pub fn new(spec: BackendSpec) -> Result<Arc<Self>, BackendError> {
        let target = Target::remote(&spec.url)?;
        let trust = match &spec.ca_bundle {
            None => Trust::System,
            Some(pem) => {
                let roots = Roots::system_and_pem(pem);
                Trust::Roots(roots.map_err(|error| BackendError::CaBundle(error.to_string()))?)
            }
        };
        let client = Client::new(Options { addresses: spec.addresses, trust, ..Options::default() });
        let called_with = |credentials| {
            let (transport, headers) = (Some(spec.transport), spec.headers.clone());
            let options = HttpOptions { transport, headers, credentials, ..HttpOptions::default() };
            BridgedUpstream::new(HttpUpstream::new(target.clone(), client.clone(), options))
        };
        let upstream = called_with(spec.strategy.credentials());
        let checked = if spec.strategy.is_of_client() { called_with(None) } else { upstream.clone() };
        Ok(Self::checked_by(spec, upstream, checked))
    }

    /// A backend that is called in another way.
    pub fn over(spec: BackendSpec, upstream: Arc<dyn Upstream>) -> Arc<Self> {
        Self::checked_by(spec, upstream.clone(), upstream)
    }

    fn checked_by(spec: BackendSpec, upstream: Arc<dyn Upstream>, checked: Arc<dyn Upstream>) -> Arc<Self> {
        let offers = Offers::new(upstream.clone(), spec.timeout);
        Arc::new(Self { spec, upstream, checked, offers, health: HealthState::default() })
    }

    /// What is known of its offer is not fresh any more.
    pub fn expire(self: &Arc<Self>) {
        self.offers.expire_and_refresh(self);
    }

    /// Its name.
    pub fn name(&self) -> &BackendName {
        &self.spec.name
    }
}
