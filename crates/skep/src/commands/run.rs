//! `skep run`: the same manifests as in a cluster, on this machine.
//!
//! ```text
//!   files ─▶ manifests ─▶ plan (as the operator's) ─▶ RunConfig, variables ─▶ proxy in this process ─▶ server
//!                                                     └─ what cannot run here is reported, and the rest runs
//! ```
//!
//! Nothing is written to disk but the audit log, if it is asked for: a plan's RunConfig goes straight to the proxy, and Secrets go into its memory only.

mod demo;
mod failures;
mod holder;
mod local_proxy;
mod local_virtual_server;
mod port;
mod report;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use skep_net::drain::Grace;
use skep_proxy::health::ServerHealth;
use skep_proxy::run::{Ports, Running};
use skep_proxy::settings::AuditOutput;
use skep_vmcp::run::{Allowed, Serving};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use self::failures::Failures;
use self::local_proxy::LocalProxy;
use self::local_virtual_server::{Flags, LocalVirtualServer};
use self::report::{Entry, Report, State};
use crate::cli::Run;
use crate::logs;
use crate::manifests::Manifests;

/// The time limits of a shutdown. There is no load balancer in front, so ports close at once.
const GRACE: Grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(10) };
/// How long servers may take to start before the table is shown without them.
const SETTLE: Duration = Duration::from_secs(1);
/// Signals within this time of the first count as one.
const ONE_SIGNAL: Duration = Duration::from_millis(100);
/// How long a server must be ready before that is reported: one that fails at once should not be reported as ready in
/// between.
const STEADY: Duration = Duration::from_millis(500);

/// A running proxy or virtual server, and its entry in the report.
struct Served {
    entry: Entry,
    server: Server,
}

/// What runs.
enum Server {
    Proxy(Box<Running>),
    Virtual(Box<Serving>),
}

/// The virtual servers to start, once their members run.
struct VirtualServers {
    servers: Vec<LocalVirtualServer>,
    flags: Flags,
    manifests: Manifests,
}

/// The signals that stop everything.
struct Signals {
    stopping: [Signal; 3],
    hangup: Signal,
    /// SIGHUP means that the audit log was rotated: the proxies open it again.
    reopens_on_hangup: bool,
}

pub(super) fn run_until_stopped(arguments: &Run) -> Result<ExitCode> {
    logs::start_at(false, if arguments.verbose { "info" } else { "error" })?;
    super::enable_watchdog();
    let report = Report::new(arguments.output);
    let manifests = if arguments.demo { demo::manifests(arguments.port)? } else { Manifests::load(&arguments.files)? };
    if manifests.objects.is_empty() && manifests.unreadable.is_empty() {
        return Err(anyhow!("there is nothing to run: no file holds a manifest"));
    }
    manifests.unreadable.iter().try_for_each(|one| report.unreadable(one))?;
    let (mut proxies, reported) = local_proxy::all(&manifests);
    let (virtual_servers, refused) = local_virtual_server::all(&manifests);
    // Standard output is for the report.
    let audit_output = arguments.audit_log.clone().map_or(AuditOutput::Stderr, AuditOutput::File);
    for proxy in &mut proxies {
        proxy.settings.allow(&arguments.allow_origin, &arguments.allow_host)?;
        proxy.settings.audit_output = audit_output.clone();
    }
    reported.iter().chain(&refused).try_for_each(|entry| report.failure(entry))?;
    if manifests.objects.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let allowed = Allowed { origins: arguments.allow_origin.clone(), hosts: arguments.allow_host.clone() };
    let virtual_servers =
        VirtualServers { servers: virtual_servers, flags: Flags { allowed, audit_output }, manifests };
    serve(proxies, &virtual_servers, arguments, report)
}

// One thread has the lowest cost per call: see `cargo xtask bench proxy`.
#[tokio::main(flavor = "current_thread")]
async fn serve(
    proxies: Vec<LocalProxy>,
    virtual_servers: &VirtualServers,
    arguments: &Run,
    report: Report,
) -> Result<ExitCode> {
    // At a terminal, SIGHUP says that it was closed.
    let is_service = !std::io::stdin().is_terminal();
    let mut signals = Signals::listen(arguments.audit_log.is_some() && is_service)?;
    let (mut served, is_empty) = (Vec::new(), proxies.is_empty() && virtual_servers.servers.is_empty());
    let ports = Ports::default();
    // Before any server is assigned a port: it may want the same one.
    for proxy in &proxies {
        ports.promise(proxy.settings.listen.port());
    }
    let given = port::given(&proxies);
    for proxy in proxies {
        // The logs of several servers share one stream.
        let span = tracing::info_span!("server", name = proxy.entry.label());
        match port::open(&proxy, &ports, &given).instrument(span).await {
            Ok(running) => served.push(Served::new(&proxy, running)),
            Err(problem) => report.failure(&proxy.entry.in_state(State::Refused(problem)))?,
        }
    }
    virtual_servers.start(&mut served, report).await?;
    if served.is_empty() && is_empty {
        return Err(anyhow!("nothing runs here: no manifest describes a server that this machine can run"));
    }
    if served.is_empty() {
        return Err(anyhow!("nothing runs here: no server could be started, for the reasons above"));
    }
    settle(&mut served).await;
    let entries: Vec<&Entry> = served.iter().map(|one| &one.entry).collect();
    report.listening(&entries)?;
    if arguments.demo {
        report.demo(&entries)?;
    }
    let mut changes = watch(&served);
    loop {
        tokio::select! {
            () = signals.next() => break,
            Some((index, state)) = changes.recv() => {
                if let Some(one) = served.get_mut(index) {
                    let before = std::mem::replace(&mut one.entry.state, state);
                    report.changed(&one.entry, &before)?;
                }
            }
        }
    }
    report.ending()?;
    tokio::select! {
        () = end(served, report) => Ok(ExitCode::SUCCESS),
        () = second(&mut signals) => Err(anyhow!("stopped at once by a second signal: requests in flight were cut")),
    }
}

/// Waits for a second signal. `timeout` and shells signal a process and its process group at once, which counts as one signal.
async fn second(signals: &mut Signals) {
    let since = Instant::now();
    loop {
        signals.next().await;
        if since.elapsed() >= ONE_SIGNAL {
            return;
        }
    }
}

/// Waits a moment for servers to start, so that their first reported state is not `starting`.
async fn settle(served: &mut [Served]) {
    let until = Instant::now() + SETTLE;
    for one in served {
        let mut changes = one.server.running().changes();
        let is_settled = |(known, _): &(ServerHealth, _)| !matches!(known, ServerHealth::Starting(_));
        // Whether they started or the time is over, the state is what it is.
        let _whichever = tokio::time::timeout_at(until, changes.wait_for(is_settled)).await;
        one.entry.state = State::of(&one.server.running().health());
    }
}

/// Reports every change of a server's state.
fn watch(served: &[Served]) -> mpsc::Receiver<(usize, State)> {
    let (sender, receiver) = mpsc::channel(16);
    for (index, one) in served.iter().enumerate() {
        let (mut changes, mut reported) = (one.server.running().changes(), one.entry.state.clone());
        let sender = sender.clone();
        tokio::spawn(async move {
            let mut failures = Failures::default();
            failures.is_news(&reported);
            // A change before this was reported already, or is seen here.
            changes.mark_changed();
            while changes.changed().await.is_ok() {
                if matches!(changes.borrow_and_update().0, ServerHealth::Available { .. }) && reported != State::Ready {
                    tokio::time::sleep(STEADY).await;
                }
                let now = State::of(&changes.borrow_and_update().0);
                if now != reported && failures.is_news(&now) {
                    reported = now.clone();
                    if sender.send((index, now)).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
    receiver
}

/// Stops every proxy, all at the same time. Their servers end with them.
async fn end(served: Vec<Served>, report: Report) {
    let mut ending = JoinSet::new();
    for Served { mut entry, server } in served {
        ending.spawn(async move {
            server.end().await;
            entry.state = State::Ended;
            entry
        });
    }
    while let Some(ended) = ending.join_next().await {
        if let Ok(entry) = ended {
            // A failure to report cannot be reported.
            let _closed = report.ended(&entry);
        }
    }
}

// === impl Served ===

impl Served {
    fn new(proxy: &LocalProxy, running: Running) -> Self {
        let mut entry = proxy.entry.clone();
        entry.url = Some(format!("http://{}{}", running.address(), Running::path(&proxy.settings)));
        entry.state = State::of(&running.health());
        Self { entry, server: Server::Proxy(Box::new(running)) }
    }
}

// === impl Server ===

impl Server {
    fn running(&self) -> &Running {
        match self {
            Self::Proxy(running) => running,
            Self::Virtual(serving) => serving.running(),
        }
    }

    async fn end(self) {
        match self {
            Self::Proxy(running) => drop(running.end().await),
            Self::Virtual(serving) => drop(serving.end().await),
        }
    }
}

// === impl VirtualServers ===

impl VirtualServers {
    /// Starts each over its members that run.
    async fn start(&self, served: &mut Vec<Served>, report: Report) -> Result<()> {
        let is_server = |one: &&Served| matches!(one.server, Server::Proxy(_));
        let url = |one: &Served| Some(((one.entry.namespace.clone(), one.entry.name.clone()), one.entry.url.clone()?));
        let running: BTreeMap<(String, String), String> = served.iter().filter(is_server).filter_map(url).collect();
        for server in &self.servers {
            let span = tracing::info_span!("server", name = server.entry.label());
            match server.open(&running, &self.manifests, &self.flags).instrument(span).await {
                Ok((serving, left_out)) => {
                    for problem in left_out {
                        report.failure(&server.entry.in_state(State::Failing(problem)))?;
                    }
                    let mut entry = server.entry.clone();
                    entry.transport = Some("streamable-http");
                    entry.url = Some(format!("http://{}/mcp", serving.address()));
                    entry.state = State::of(&serving.running().health());
                    served.push(Served { entry, server: Server::Virtual(Box::new(serving)) });
                }
                Err(problem) => report.failure(&server.entry.in_state(State::Refused(problem)))?,
            }
        }
        Ok(())
    }
}

// === impl Signals ===

impl Signals {
    fn listen(reopens_on_hangup: bool) -> Result<Self> {
        let listen = |kind, name| signal(kind).with_context(|| format!("cannot listen for {name}"));
        let stopping = [
            listen(SignalKind::interrupt(), "SIGINT")?,
            listen(SignalKind::terminate(), "SIGTERM")?,
            listen(SignalKind::quit(), "SIGQUIT")?,
        ];
        Ok(Self { stopping, hangup: listen(SignalKind::hangup(), "SIGHUP")?, reopens_on_hangup })
    }

    async fn next(&mut self) {
        let [interrupt, terminate, quit] = &mut self.stopping;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = quit.recv() => {}
            _ = self.hangup.recv(), if !self.reopens_on_hangup => {}
        }
    }
}
