//! A proxy from its first to its last moment: the port opens first, then the server is started; nothing ends because the server
//! failed once, and an end that is asked for breaks no call.

mod diagnostics;
mod health_check;
mod machine;
mod place;
mod reaper;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_net::budget::Purpose;
use skep_net::drain::{Drained, Grace};
use skep_net::{Addresses, Budget, Client, Drain, Listener, serve};
use skep_upstream::Upstream as _;
use skep_upstream::stdio::{Connect, ConnectionEvent, Limits, StdioUpstream, Supervision};
use skep_workload::cluster::{Cluster, State};
use skep_workload::process::Process;
use skep_workload::server::Server;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{Instrument as _, Span};

use self::diagnostics::Diagnostics;
use self::health_check::check_health;
pub use self::machine::Ports;
use self::machine::supervise;
pub use self::place::Place;
use self::reaper::{close_ended, reap};
use self::report::keep;
use crate::chain::{self, Chain};
use crate::downstream::{Sse, Streamable};
use crate::health::{Health, Known};
use crate::hosts::Hosts;
use crate::metrics::LimitCounters;
use crate::observe::Observer;
use crate::proxy::{Front, Guards, Proxy};
use crate::router::HEALTH;
use crate::secrets::resolve;
use crate::sessions::Sessions;
use crate::settings::{self, Backend, Mode, Settings};
use crate::transparent::{Options, Pods, Target, Transparent};

/// How long an unused connection of a caller of a stdio server is kept.
const IDLE_STDIO: Duration = Duration::from_secs(30);
/// How much news of a stdio server may wait to be looked at. It is looked at at once.
const NEWS: usize = 16;
/// How long it may take to attach to a pod.
const ATTACHING: Duration = Duration::from_secs(45);
/// For how long the proxy before this one may still speak with the same server: as long as its pod may take to end.
const TAKING_OVER: Duration = Duration::from_secs(30);

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it is told.
    #[error(transparent)]
    Settings(#[from] settings::Wrong),
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
    Target(#[from] crate::transparent::NotATarget),
    /// The names that it answers to.
    #[error(transparent)]
    Hosts(#[from] crate::hosts::AllowedHostError),
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
}

/// What runs beside the port. Ends with this, and says in the log what the caller's span says.
#[derive(Debug)]
struct Tasks {
    /// Those that look after the server. They end by themselves when they are told to.
    keepers: JoinSet<()>,
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
    let secrets = resolve(&settings.config, environment)?;
    let drain = Drain::new(grace);
    let listener = match &place {
        Place::Machine(ports) => ports.bind(settings.listen).await,
        Place::Cluster { .. } | Place::Pod { .. } => Listener::bind(settings.listen).await,
    };
    let listener = listener.map_err(|error| Error::Bind { error })?;
    let address = listener.address();
    let hosts = Hosts::of(address, &settings.allowed_hosts)?;
    let guards = Guards { hosts, budget: settings.capacity.new_budget() };
    let diagnostics = Diagnostics::of(&settings.config);
    let telemetry = diagnostics.as_ref().map(|diagnostics| diagnostics.metrics.clone() as Arc<dyn Observer>);
    let context = chain::Context { port: address.port(), headers: secrets.headers.clone(), telemetry };
    let chain = Chain::new(&settings.config, &context)?;
    // What callers speak with; but behind SSE, the original names what the server speaks.
    let spoken = match &settings.backend {
        Backend::Stdio(_, Mode::StreamableHttp) => "streamable-http",
        _ => settings.config.transport.as_str(),
    };
    let health = Arc::new(Health::new(spoken, drain.clone()));
    let store = crate::sessions::store(settings, environment).await.map_err(Error::Sessions)?;
    let limits = LimitCounters::new(guards.budget.clone());
    if let Some(diagnostics) = &diagnostics {
        diagnostics.metrics.add_limits(limits.clone());
    }
    let mut tasks = Tasks::new();
    let config = &settings.config;
    let (front, idle) = match &settings.backend {
        Backend::Stdio(server, mode) => {
            let mut server = server.clone();
            server.env.extend(secrets.variables.clone());
            let (sender, news) = mpsc::channel(NEWS);
            let shared = matches!(place, Place::Cluster { .. }).then_some(TAKING_OVER);
            let (connect, outage) = connect(server, place, &health, &mut tasks);
            let supervision = Supervision { news: sender, ending: tasks.ending.subscribe(), shared, outage };
            let (upstream, talk) = StdioUpstream::start_for(connect, line_limit(&guards.budget), supervision);
            tasks.keep(talk);
            let (stopping, leaving) = (drain.stopping(), upstream.clone());
            tasks.spawn(async move {
                stopping.await;
                leaving.drain();
            });
            tasks.spawn(watch_link(news, health.clone()));
            let front = match mode {
                Mode::StreamableHttp => {
                    let sessions = Sessions::new(store, crate::sessions::Kind::Streamable);
                    let strict = config.strict_protocol_validation;
                    let timeout = settings.request_timeout;
                    let front = Streamable::new(upstream, sessions.clone(), timeout, strict, drain.clone());
                    limits.watch(&sessions);
                    tasks.spawn(reap(sessions, Some((front.clone(), settings.session_ttl))));
                    Front::Streamable(front)
                }
                Mode::Sse => {
                    let sessions = Sessions::new(store, crate::sessions::Kind::Sse);
                    let trust = config.trust_proxy_headers;
                    limits.watch(&sessions);
                    tasks.spawn(reap(sessions.clone(), None));
                    Front::Sse(Sse::new(upstream, sessions, settings.request_timeout, trust, drain.clone()))
                }
            };
            (front, IDLE_STDIO)
        }
        Backend::Http(server) => {
            let mut server = server.clone();
            server.env.extend(secrets.variables.clone());
            let url = match &place {
                Place::Cluster { .. } | Place::Pod { .. } => server.url().unwrap_or_default(),
                Place::Machine(ports) => machine::listen(&mut server, ports),
            };
            let target = Target::local(&url)?;
            let pods = match &place {
                Place::Cluster { .. } => server.speaks.port().map(|port| Pods::behind(server.headless_name(), port)),
                Place::Machine(_) | Place::Pod { .. } => None,
            };
            let addresses = place.addresses();
            let is_checked = settings.health.enabled && target.base().is_some();
            let state = run_server(server, place, is_checked, &health, &mut tasks);
            let backend = (target, addresses, pods, state);
            let front = transparent(settings, environment, backend, store, (&health, &drain, &limits), &mut tasks)?;
            (front, Duration::from_mins(2))
        }
        Backend::Remote(_) => {
            health.set(Known::Unwatched);
            let (url, addresses) = place.remote(config);
            let backend = (Target::remote(&url)?, addresses, None, None);
            let front = transparent(settings, environment, backend, store, (&health, &drain, &limits), &mut tasks)?;
            (front, Duration::from_mins(2))
        }
    };
    let shown = match &diagnostics {
        Some(diagnostics) => diagnostics.serve(address.ip(), &guards.hosts, &drain, &mut tasks).await,
        None => None,
    };
    let metrics = diagnostics.filter(|diagnostics| diagnostics.on_this_port).map(|diagnostics| diagnostics.metrics);
    let options = skep_net::serve::Options {
        idle_timeout: idle,
        connections: settings.capacity.connections,
        budget: guards.budget.clone(),
        refused: limits.refused_connections.clone(),
        probe_path: Some(HEALTH),
        ..skep_net::serve::Options::default()
    };
    let proxy = Proxy::guarded(chain, front, health.clone(), metrics, guards);
    let handler = move |request, peer| proxy.clone().answer(request, peer);
    tasks.spawn(serve(listener, options, drain.clone(), handler));
    tracing::info!(%address, server = config.name, transport = config.transport, "listening");
    Ok(Running { address, diagnostics: shown, health, drain, tasks })
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
    pub fn health(&self) -> Known {
        self.health.known()
    }

    /// How its server is, and when that was seen, from now on.
    pub fn changes(&self) -> watch::Receiver<(Known, jiff::Timestamp)> {
        self.health.changes()
    }

    /// The path that callers use.
    pub fn path(settings: &Settings) -> &'static str {
        match &settings.backend {
            Backend::Stdio(_, Mode::Sse) => "/sse",
            Backend::Http(_) | Backend::Remote(_) if settings.config.transport == "sse" => "/sse",
            _ => "/mcp",
        }
    }

    /// Ends it without breaking a call, within its grace. Then the server is told to end, and killed if it does not.
    pub async fn end(self) -> Drained {
        self.drain.start();
        let drained = self.drain.drained().await;
        self.tasks.end().await;
        drained
    }
}

// === impl Tasks ===

impl Tasks {
    fn new() -> Self {
        let ending = watch::Sender::new(false);
        Self { keepers: JoinSet::new(), ending, others: JoinSet::new(), span: Span::current() }
    }

    /// Something that ends by itself when it is told to.
    fn keep(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.keepers.spawn(task.instrument(self.span.clone()));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.others.spawn(task.instrument(self.span.clone()));
    }

    async fn end(mut self) {
        self.ending.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
        self.others.shutdown().await;
    }
}

fn transparent(
    settings: &Settings,
    environment: &BTreeMap<String, String>,
    (target, addresses, pods, state): (Target, Addresses, Option<Pods>, Option<watch::Receiver<State>>),
    store: crate::sessions::Store,
    (health, drain, limits): (&Arc<Health>, &Drain, &LimitCounters),
    tasks: &mut Tasks,
) -> Result<Front, Error> {
    let proxies =
        skep_net::proxies::Proxies::from_variables(environment).map_err(|error| Error::Client(error.to_string()))?;
    let options = skep_net::client::Options { proxies, addresses, ..skep_net::client::Options::default() };
    let client = Client::new(options);
    if settings.health.enabled
        && let Some(base) = target.base()
    {
        let (how, stateless) = (settings.health, settings.config.stateless);
        tasks.spawn(check_health(client.clone(), base, how, stateless, state, health.clone()));
    }
    let options = Options {
        sse: settings.config.transport == "sse",
        stateless: settings.config.stateless,
        trust_proxy_headers: settings.config.trust_proxy_headers,
        endpoint_prefix: settings.config.endpoint_prefix.clone(),
        health: Some(health.clone()),
    };
    let sessions = Sessions::new(store, crate::sessions::Kind::Mcp);
    limits.watch(&sessions);
    let drain = drain.clone();
    let front = Transparent::new(target, pods, client, sessions.clone(), options, drain);
    tasks.spawn(close_ended(sessions, front.clone()));
    Ok(Front::Transparent(front))
}

/// The longest message of a stdio server: one that no client could be sent is not read into memory as a whole.
fn line_limit(budget: &Budget) -> Limits {
    let client = budget.of_client(std::net::Ipv4Addr::LOCALHOST.into());
    Limits { message: Limits::default().message.min(client.largest(Purpose::Response)) }
}

/// How a stdio server is connected to, and why it cannot be at present.
fn connect(
    server: Server,
    place: Place,
    health: &Arc<Health>,
    tasks: &mut Tasks,
) -> (Connect, watch::Receiver<Option<String>>) {
    let (unavailable, outage) = watch::channel(None);
    let connect: Connect = match place {
        Place::Machine(_) => Box::new(move || {
            let started = Process::start(&server).map_err(|error| error.to_string());
            Box::pin(async move { started?.pipe().ok_or_else(|| "its streams are gone".to_owned()) })
        }),
        // INVARIANT: `start` refused it.
        Place::Pod { .. } => Box::new(|| Box::pin(std::future::ready(Err("a pod runs no host processes".to_owned())))),
        Place::Cluster { client, namespace, platform } => {
            let cluster = Arc::new(Cluster::new(client, namespace, platform, server));
            let (sender, state) = watch::channel(State::Missing);
            tasks.spawn(keep(cluster.clone(), sender, health.clone()));
            tasks.spawn(report_outage(state.clone(), unavailable));
            let health = health.clone();
            Box::new(move || {
                let (cluster, mut state, health) = (cluster.clone(), state.clone(), health.clone());
                Box::pin(async move {
                    loop {
                        let now = state.borrow_and_update().clone();
                        if now.serves() {
                            break;
                        }
                        if now != State::Missing {
                            health.set(known(&now));
                        }
                        let changed = state.changed().await;
                        changed.map_err(|_ended| "its StatefulSet is not looked after any more".to_owned())?;
                    }
                    // A kubelet that never answers must not keep the next pod from being found.
                    match tokio::time::timeout(ATTACHING, cluster.attach()).await {
                        Ok(attached) => attached.map_err(|error| error.to_string()),
                        Err(_elapsed) => Err("its pod takes too long to be attached to".to_owned()),
                    }
                })
            })
        }
    };
    (connect, outage)
}

/// Tells clients' calls why a server in a cluster cannot be connected to, as long as that is known.
async fn report_outage(mut state: watch::Receiver<State>, outage: watch::Sender<Option<String>>) {
    loop {
        let why = match known(&state.borrow_and_update()) {
            Known::Unavailable(why) => Some(why),
            _ => None,
        };
        outage.send_replace(why);
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// How a server in a cluster is, as its health has it.
fn known(state: &State) -> Known {
    match state {
        State::Missing => Known::Starting("the server is being made".to_owned()),
        State::Stopped => Known::Unavailable("the server is scaled to zero".to_owned()),
        State::Failing(why) => Known::Unavailable(why.clone()),
        State::Starting { ready: 0, wanted } => {
            Known::Starting(format!("none of {wanted} pods of the server is ready"))
        }
        State::Starting { .. } | State::Ready => Known::Available { milliseconds: None },
    }
}

/// Runs a server that speaks HTTP. Returns how it is, where its cluster knows. `is_checked` says that health checks follow.
fn run_server(
    server: Server,
    place: Place,
    is_checked: bool,
    health: &Arc<Health>,
    tasks: &mut Tasks,
) -> Option<watch::Receiver<State>> {
    match place {
        Place::Cluster { client, namespace, platform } => {
            let cluster = Arc::new(Cluster::new(client, namespace, platform, server));
            let (sender, state) = watch::channel(State::Missing);
            tasks.spawn(keep(cluster, sender, health.clone()));
            tasks.spawn(watch_pods(state.clone(), is_checked, health.clone()));
            Some(state)
        }
        Place::Machine(_) => {
            let ending = tasks.ending.subscribe();
            tasks.keep(supervise(server, health.clone(), ending));
            None
        }
        // INVARIANT: `start` refused it.
        Place::Pod { .. } => None,
    }
}

/// Keeps the health of a server that speaks HTTP, as far as its pods say. Pods that are ready say nothing about an answer: where
/// health checks are made, the server is starting until it passed one.
async fn watch_pods(mut state: watch::Receiver<State>, is_checked: bool, health: Arc<Health>) {
    let mut was_serving = false;
    while state.changed().await.is_ok() {
        let now = state.borrow_and_update().clone();
        let is_serving = now.serves();
        if !is_serving || !is_checked {
            health.set(known(&now));
        } else if !was_serving {
            health.set(Known::Starting("the server has not answered a health check yet".to_owned()));
        }
        was_serving = is_serving;
    }
}

/// Keeps the health of a server on stdio. It is available once it answered `initialize`, and nothing less: a process that runs may
/// be a package that is still being fetched, or that does not exist.
async fn watch_link(mut news: mpsc::Receiver<ConnectionEvent>, health: Arc<Health>) {
    while let Some(now) = news.recv().await {
        match now {
            // Why it failed before says more.
            ConnectionEvent::Connected if matches!(health.known(), Known::Unavailable(_)) => {}
            ConnectionEvent::Connected => {
                health.set(Known::Starting("the server has not answered `initialize` yet".to_owned()));
            }
            ConnectionEvent::Initialized => health.set(Known::Available { milliseconds: None }),
            ConnectionEvent::Lost(why) => health.set(Known::Unavailable(why)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
