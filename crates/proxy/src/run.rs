//! A proxy from its first to its last moment: the port opens first, then the server is started; nothing ends because the server
//! failed once, and an end that is asked for breaks no call.

mod backend;
mod diagnostics;
mod front;
mod health_check;
mod machine;
mod place;
mod reaper;
mod report;
mod telemetry;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_net::drain::{Drained, Grace};
use skep_net::{Drain, Listener, serve};
use skep_telemetry::audit::AuditLog;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument as _, Span};

use self::front::Wiring;
pub use self::machine::Ports;
pub use self::place::Place;
pub use self::telemetry::TelemetryError;
use self::telemetry::{Exports, Telemetry};
use crate::chain::{self, Chain};
use crate::health::{Health, ServerHealth};
use crate::hosts::Hosts;
use crate::in_flight::InFlight;
use crate::instruments::{Instruments, Recorders};
use crate::metrics::LimitCounters;
use crate::proxy::{Guards, Proxy};
use crate::router::{ENDPOINT, HEALTH, STREAM};
use crate::secrets::resolve;
use crate::settings::{self, Backend, Mode, Settings};

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its settings.
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    /// Its middleware.
    #[error(transparent)]
    Chain(#[from] chain::ChainError),
    /// Its server would be a process beside it, in its own container.
    #[error(
        "`{image}` is a program of the host, which is not run in a pod: it would have the account and the secrets of the proxy; \
         use a container image, or `skep run` on one machine"
    )]
    HostProcess {
        /// The image.
        image: String,
    },
    /// Its port.
    #[error("{error}: {}", cause(.error))]
    Bind {
        /// Why it does not open.
        error: skep_net::serve::BindError,
    },
    /// Its sessions.
    #[error("sessions: {0}")]
    Sessions(String),
    /// Its target.
    #[error(transparent)]
    Target(#[from] skep_upstream::http::TargetError),
    /// The names that it answers to.
    #[error(transparent)]
    Hosts(#[from] crate::hosts::AllowedHostError),
    /// Its traces and metrics.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The client for its target.
    #[error("cannot call the server: {0}")]
    Client(String),
}

fn cause(error: &skep_net::serve::BindError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// A proxy that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    diagnostics: Option<SocketAddr>,
    health: Arc<Health>,
    drain: Drain,
    tasks: Tasks,
    audit_log: Option<AuditLog>,
    exports: Exports,
}

/// What runs beside the port. Ends with this, and says in the log what the client's span says.
#[derive(Debug)]
struct Tasks {
    /// Those that supervise the server. They end by themselves on shutdown.
    supervisors: JoinSet<()>,
    ending: watch::Sender<bool>,
    others: JoinSet<()>,
    span: Span,
}

/// Starts a proxy. The port is open when this returns; the server may still be on its way. What it does is logged in the span
/// that this is called in.
pub async fn start(
    settings: &Settings,
    environment: &BTreeMap<String, String>,
    place: Place,
    grace: Grace,
) -> Result<Running, Error> {
    if let (Place::Pod { .. }, Backend::Stdio(server, _) | Backend::Http(server)) = (&place, &settings.backend) {
        return Err(Error::HostProcess { image: server.image.clone() });
    }
    let config = &settings.config;
    let secrets = resolve(config, environment)?;
    let drain = Drain::new(grace);
    let listener = bind(&place, settings.listen).await?;
    let address = listener.address();
    let (guards, instruments) = (guards(settings, address)?, instruments(settings));
    let mut tasks = Tasks::new();
    let telemetry = Telemetry::new(config, environment, place.addresses(), instruments, &mut tasks)?;
    let exports = telemetry.exports();
    let (port, headers, addresses) = (address.port(), secrets.headers.clone(), place.addresses());
    let context = chain::Context { port, headers, addresses, ..chain_context(settings, environment, &telemetry) };
    let chain = Chain::new(config, &context)?;
    let audit_log = chain.audit_log().cloned();
    if let Some(instruments) = instruments {
        instruments.connect(Recorders { audit: chain.audit_sink(), traces: exports.traces().cloned() });
    }
    let health = Arc::new(Health::new(client_transport(settings), drain.clone()));
    let store = crate::sessions::store(settings, environment).await.map_err(Error::Sessions)?;
    exports.watch(audit_log.as_ref());
    let mut limits = LimitCounters::new(guards.budget.clone(), audit_log.clone(), exports.traces().cloned());
    limits.refused_requests = guards.in_flight.refused();
    if let Some(metrics) = &telemetry.metrics {
        metrics.add_limits(limits.clone());
    }
    if let Some(log) = audit_log.clone().filter(AuditLog::is_file) {
        tasks.spawn(reopen_on_hangup(log));
    }
    let wiring = Wiring {
        settings,
        environment,
        secrets: &secrets,
        health: &health,
        drain: &drain,
        limits: &limits,
        signs_requests: chain.signs_requests(),
    };
    let (front, idle) = wiring.front(place, store, &mut tasks)?;
    let diagnostics = telemetry.diagnostics;
    let shown = match &diagnostics {
        Some(diagnostics) => diagnostics.serve(address.ip(), &guards.hosts, &drain, &mut tasks).await,
        None => None,
    };
    let metrics = diagnostics.filter(|diagnostics| diagnostics.on_this_port).map(|diagnostics| diagnostics.metrics);
    let options = serve_options(settings, idle, &guards, &limits);
    let proxy = Proxy::guarded(chain, front, health.clone(), metrics, guards);
    let handler = move |request, peer| proxy.clone().answer(request, peer);
    tasks.spawn(serve(listener, options, drain.clone(), handler));
    tracing::info!(%address, server = config.name, transport = config.transport, "listening");
    Ok(Running { address, diagnostics: shown, health, drain, tasks, audit_log, exports })
}

/// Opens the port.
async fn bind(place: &Place, address: SocketAddr) -> Result<Listener, Error> {
    let listener = match place {
        Place::Machine(ports) => ports.bind(address).await,
        Place::Cluster { .. } | Place::Pod { .. } => Listener::bind(address).await,
    };
    listener.map_err(|error| Error::Bind { error })
}

/// What a backend counts and records by itself.
fn instruments(settings: &Settings) -> Option<&dyn Instruments> {
    match &settings.backend {
        Backend::Upstream(backend) => Some(&*backend.instruments),
        Backend::Stdio(..) | Backend::Http(_) | Backend::Remote(_) => None,
    }
}

/// What holds for every request to a proxy that listens at an address.
fn guards(settings: &Settings, address: SocketAddr) -> Result<Guards, Error> {
    let pages = match &settings.backend {
        Backend::Upstream(backend) => Some(backend.pages.clone()),
        Backend::Stdio(..) | Backend::Http(_) | Backend::Remote(_) => None,
    };
    let hosts = Hosts::of(address, &settings.allowed_hosts)?;
    let in_flight = InFlight::new(settings.capacity.requests_of_client());
    Ok(Guards { hosts, budget: settings.capacity.new_budget(), in_flight, pages })
}

/// What the chain needs that is not in the RunConfig, but for what depends on the port, the secrets and the place.
fn chain_context(settings: &Settings, environment: &BTreeMap<String, String>, telemetry: &Telemetry) -> chain::Context {
    chain::Context {
        server: settings.config.name.clone(),
        environment: environment.clone(),
        files: settings.files.clone(),
        caches: settings.capacity.caches,
        rate_limits: telemetry.metrics.as_ref().map(|metrics| metrics.rate_limits().clone()).unwrap_or_default(),
        optimizer: telemetry.metrics.as_ref().map(|metrics| metrics.optimizer().clone()).unwrap_or_default(),
        audit_output: settings.audit_output.clone(),
        telemetry: telemetry.observers(),
        ..chain::Context::default()
    }
}

/// The transport of clients; but behind SSE, the original names that of the server.
fn client_transport(settings: &Settings) -> &str {
    match &settings.backend {
        Backend::Stdio(_, Mode::StreamableHttp) => "streamable-http",
        _ => settings.config.transport.as_str(),
    }
}

fn serve_options(
    settings: &Settings,
    idle_timeout: Duration,
    guards: &Guards,
    limits: &LimitCounters,
) -> skep_net::serve::Options {
    skep_net::serve::Options {
        idle_timeout,
        connections: settings.capacity.connections,
        budget: guards.budget.clone(),
        refused: limits.refused_connections.clone(),
        probe_path: Some(HEALTH),
        ..skep_net::serve::Options::default()
    }
}

/// Opens the file of an audit log again whenever SIGHUP says that it was rotated.
async fn reopen_on_hangup(log: AuditLog) {
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => {
            while hangup.recv().await.is_some() {
                log.reopen();
            }
        }
        Err(error) => tracing::warn!(%error, "audit log not reopened on SIGHUP: cannot listen for it"),
    }
}

// === impl Running ===

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its metrics are, if they have a port of their own.
    pub fn diagnostics(&self) -> Option<SocketAddr> {
        self.diagnostics
    }

    /// How its server is.
    pub fn health(&self) -> ServerHealth {
        self.health.known()
    }

    /// How its server is, and when that was seen, from now on.
    pub fn changes(&self) -> watch::Receiver<(ServerHealth, jiff::Timestamp)> {
        self.health.changes()
    }

    /// The path that clients use.
    pub fn path(settings: &Settings) -> &'static str {
        match &settings.backend {
            Backend::Stdio(_, Mode::Sse) => STREAM,
            Backend::Http(_) | Backend::Remote(_) if settings.config.transport == "sse" => STREAM,
            _ => ENDPOINT,
        }
    }

    /// Ends it without breaking a call, within its grace. Then the server is asked to end, and killed if it does not.
    pub async fn end(self) -> Drained {
        self.drain.start();
        let drained = self.drain.drained().await;
        self.exports.flush().await;
        self.tasks.end().await;
        if let Some(log) = &self.audit_log {
            log.flush().await;
        }
        drained
    }
}

// === impl Tasks ===

impl Tasks {
    fn new() -> Self {
        let ending = watch::Sender::new(false);
        Self { supervisors: JoinSet::new(), ending, others: JoinSet::new(), span: Span::current() }
    }

    /// A task that ends by itself on shutdown.
    fn keep(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.supervisors.spawn(task.instrument(self.span.clone()));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.others.spawn(task.instrument(self.span.clone()));
    }

    async fn end(mut self) {
        self.ending.send_replace(true);
        while self.supervisors.join_next().await.is_some() {}
        self.others.shutdown().await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
