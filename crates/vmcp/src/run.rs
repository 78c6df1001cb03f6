//! A virtual server as a process: its backends and its upstream, behind the port, the chain and the endpoint that every proxy has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_net::Addresses;
use skep_net::drain::Grace;
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{Backend, Overrides, Settings, SettingsError, UpstreamBackend};
use tracing::Instrument as _;

use crate::backends::Backends;
use crate::composite::DefinitionError;
use crate::config::{BackendConfigError, Config, RunConfigError, Where};
use crate::instruments::{VirtualInstruments, count_backends};
use crate::metrics::VirtualMetrics;
use crate::optimizer::{self, EmbeddingConfigError, Optimizer};
use crate::pages::{Mode, StatusPages};
use crate::upstream::{Extras, ServerInfo, VirtualUpstream};
use crate::view::{Cursors, Views};

/// The variable with the key that cursors are sealed with, which replicas share.
const KEY: &str = "VMCP_SESSION_HMAC_SECRET";

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
}

/// Why a virtual server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its backends.
    #[error(transparent)]
    Backend(#[from] BackendConfigError),
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
    let specs = config.backends(Where { environment: &environment, addresses })?;
    let backends = Backends::new(Some(config.monitor()));
    for left_out in backends.apply(specs) {
        tracing::error!(backend = &*left_out.name, reason = left_out.reason, "backend left out");
    }
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
    let pages = StatusPages::new(backends.clone(), Mode::Static, config.group().to_owned(), env!("CARGO_PKG_VERSION"));
    let passthrough = config.passthrough();
    let backend = Backend::Upstream(UpstreamBackend { upstream, passthrough, pages: Arc::new(pages), instruments });
    let settings = Settings::with_backend(run_config, &Overrides::default(), &environment, |_| Ok(backend));
    let mut settings = settings?;
    settings.session_ttl = options.session_ttl.unwrap_or(settings.session_ttl);
    let place = if options.in_pod {
        Place::Pod { namespace: environment.get("VMCP_NAMESPACE").cloned() }
    } else {
        Place::Machine(Ports::default())
    };
    let running = start(&settings, &environment, place, options.grace).await?;
    Ok(Serving { running, backends })
}

// === impl Serving ===

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Ends it without breaking a call, within its grace.
    pub async fn end(self) -> skep_net::drain::Drained {
        self.running.end().await
    }
}
