//! A virtual server as a process: its backends and its upstream, behind the port, the chain and the endpoint that every proxy has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_net::Addresses;
use skep_net::drain::Grace;
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{AuditOutput, Backend, MemoryFiles, Overrides, Settings, SettingsError, UpstreamBackend};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::backend::BackendSpec;
use crate::backends::Backends;
use crate::composite::DefinitionError;
use crate::config::{BackendConfigError, Config, RunConfigError, Where};
use crate::discover::{Cluster, Discovery};
use crate::instruments::{VirtualInstruments, count_backends};
use crate::metrics::VirtualMetrics;
use crate::optimizer::{self, EmbeddingConfigError, Optimizer};
use crate::pages::{Mode, StatusPages};
use crate::report;
use crate::upstream::{Extras, ServerInfo, VirtualUpstream};
use crate::view::{Cursors, Views};

/// The variable with the key that cursors are sealed with, which replicas share.
const KEY: &str = "VMCP_SESSION_HMAC_SECRET";
/// How long the error of a backend that took too long is waited for.
const LATE: Duration = Duration::from_secs(1);

/// How a virtual server is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The host to listen on.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How long an idle session lives; the default of every proxy if there is none.
    pub session_ttl: Option<Duration>,
    /// Whether this is a pod, whose loopback addresses are not dialled.
    pub in_pod: bool,
    /// How long requests in flight may take when it ends.
    pub grace: Grace,
    /// The cluster that it runs in, where it finds its backends and reports to. Nothing outside of one.
    pub cluster: Option<Cluster>,
    /// Backends that were found already, beside those of the configuration.
    pub found: Option<Vec<BackendSpec>>,
    /// More origins and hosts that are accepted.
    pub allowed: Allowed,
    /// Where the audit log goes, if not where the configuration says.
    pub audit_output: Option<AuditOutput>,
    /// Files of webhooks that are on no disk.
    pub files: MemoryFiles,
}

/// Origins that pages may call from, and names that a listener on loopback answers to.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The origins.
    pub origins: Vec<String>,
    /// The hosts.
    pub hosts: Vec<String>,
}

/// Why a virtual server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its backends.
    #[error(transparent)]
    Backend(#[from] BackendConfigError),
    /// There is nowhere to find backends.
    #[error(
        "backends: there are none, and they are only found in a cluster: VMCP_NAMESPACE environment variable not set; list them, or set it"
    )]
    NoBackends,
    /// Its composite tools.
    #[error(transparent)]
    Composite(#[from] DefinitionError),
    /// The document of its chain.
    #[error(transparent)]
    RunConfig(#[from] RunConfigError),
    /// The embedding service of its optimizer.
    #[error(transparent)]
    Embedding(#[from] EmbeddingConfigError),
    /// Its settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its proxy.
    #[error(transparent)]
    Proxy(#[from] skep_proxy::run::Error),
}

/// A virtual server that runs.
#[derive(Debug)]
pub struct Serving {
    running: Running,
    /// What follows its group and reports about its backends. It ends with this.
    _discovery: Option<Discovery>,
    _reporter: JoinSet<()>,
    /// Its backends.
    pub backends: Arc<Backends>,
}

/// Starts a virtual server. The port is open when this returns; no backend is waited for.
pub async fn serve(
    config: &Config,
    environment: &BTreeMap<String, String>,
    options: &ServeOptions,
) -> Result<Serving, ServeError> {
    let addresses = if options.in_pod { Addresses::Cluster } else { Addresses::Machine };
    let mut environment = environment.clone();
    let run_config = config.run_config(&options.host, options.port, &mut environment)?;
    let backends = Backends::new(Some(config.monitor()));
    let discovery = if config.document().backends.is_empty() && options.found.is_none() {
        let cluster = options.cluster.as_ref().ok_or(ServeError::NoBackends)?;
        Some(Discovery::start(cluster, config.clone(), environment.clone(), addresses, backends.clone()))
    } else {
        apply(config, Where { environment: &environment, own: None, addresses }, options, &backends)?;
        None
    };
    let mode = discovery.as_ref().map_or(Mode::Static, |discovery| Mode::Dynamic(discovery.is_synced.clone()));
    let info = ServerInfo { name: config.name().to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let key = environment.get(KEY).filter(|key| !key.is_empty()).cloned();
    // Without a key, cursors hold in this process.
    let key = key.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let views = Views::new(config.rules(), config.composite_tools()?);
    let metrics = VirtualMetrics::default();
    let optimizer = config.document().optimizer.as_ref();
    let optimizer = optimizer.map(|settings| Optimizer::new(settings, &environment, addresses, metrics.clone()));
    let optimizer = optimizer.transpose()?;
    let instruments = VirtualInstruments::new(metrics.clone(), optimizer.is_some());
    let extras = Extras { instruments: instruments.clone(), optimizer: optimizer.clone() };
    let upstream = VirtualUpstream::with(info, backends.clone(), views, Cursors::new(key.as_bytes()), extras);
    tokio::spawn(count_backends(Arc::downgrade(&backends), metrics).in_current_span());
    if let Some(optimizer) = optimizer {
        optimizer.start();
        tokio::spawn(optimizer::follow(Arc::downgrade(&upstream)).in_current_span());
    }
    let pages = StatusPages::new(backends.clone(), mode, config.group().to_owned(), env!("CARGO_PKG_VERSION"));
    let passthrough = config.passthrough();
    let backend = Backend::Upstream(UpstreamBackend { upstream, passthrough, pages: Arc::new(pages), instruments });
    let settings = Settings::with_backend(run_config, &Overrides::default(), &environment, |_| Ok(backend));
    let mut settings = settings?;
    settings.files = options.files.clone();
    settings.session_ttl = options.session_ttl.unwrap_or(settings.session_ttl);
    // A backend may take as long as the configuration says, and no call is cut before.
    settings.request_timeout = settings.request_timeout.max(config.longest_timeout() + LATE);
    settings.allow(&options.allowed.origins, &options.allowed.hosts)?;
    if let Some(output) = &options.audit_output {
        settings.audit_output = output.clone();
    }
    let place = if options.in_pod {
        Place::Pod { namespace: environment.get("VMCP_NAMESPACE").cloned() }
    } else {
        Place::Machine(Ports::default())
    };
    let running = start(&settings, &environment, place, options.grace).await?;
    let mut reporter = JoinSet::new();
    report::spawn(&mut reporter, options.cluster.as_ref(), backends.clone(), config.reporting_interval());
    Ok(Serving { running, _discovery: discovery, _reporter: reporter, backends })
}

/// Makes the backends that stand in the configuration those of the virtual server. A pod leaves out one that cannot be called: it must not take
/// the others with it, and restarting does not help. A person at a terminal is told at once.
fn apply(
    config: &Config,
    place: Where<'_>,
    options: &ServeOptions,
    backends: &Arc<Backends>,
) -> Result<(), ServeError> {
    let (mut specs, failed) = config.backends(place);
    specs.extend(options.found.iter().flatten().cloned());
    for error in failed {
        if !options.in_pod {
            return Err(error.into());
        }
        tracing::error!(backend = error.backend, reason = error.problem, "backend left out");
    }
    for left_out in backends.apply(specs) {
        tracing::error!(backend = &*left_out.name, reason = left_out.reason, "backend left out");
    }
    Ok(())
}

// === impl Serving ===

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Its port, its chain and its endpoint.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Ends it without breaking a call, within its grace.
    pub async fn end(self) -> skep_net::drain::Drained {
        self.running.end().await
    }
}
