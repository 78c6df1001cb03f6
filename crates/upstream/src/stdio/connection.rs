//! The way to the server: connected for ever, again and again, and what is read and written on it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_mcp::{Era, Raw, lines};
use skep_workload::backoff::Backoff;
use skep_workload::pipe::Pipe;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::line::Line;
use super::lines::{REPLIES, read, write};
use super::log_level::level_name;
use super::server_log::{LastLines, forward_log};
use super::upstream::StdioUpstream;
use crate::upstream::{Server, UpstreamState};

/// The delay before the first retry of a connection.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// How long a server that was restarted may take for what it is asked again.
const AGAIN: Duration = Duration::from_secs(30);

/// How long is waited for them: something may hold them open that is not the server.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How long clients wait for a server that is restarted although it failed to start meanwhile. After that, and if it never served,
/// they get the reason at once.
const RESTARTING: Duration = Duration::from_secs(10);

/// How to reach the server: each call is a new connection.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> + Send + Sync + 'static>;

/// What becomes of the way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It is there. The server need not have said anything.
    Connected,
    /// The server answered `initialize`, or `server/discover` where it has no `initialize`: it can take requests.
    Initialized,
    /// It is not there, and why. The last lines of the server's log, if there are any, begin on the second line.
    Lost(String),
}

/// How a connection to a server is supervised.
#[derive(Debug)]
pub struct Supervision {
    /// Receives the events of the connection, of which there are few.
    pub events: mpsc::Sender<ConnectionEvent>,
    /// Becomes true on shutdown.
    pub ending: watch::Receiver<bool>,
    /// For how long after it is connected the server may be connected to another proxy as well, which this one takes over from.
    pub shared: Option<Duration>,
    /// Why the server cannot be connected to, while that is known.
    pub outage: watch::Receiver<Option<String>>,
}

impl Supervision {
    async fn report(&self, event: ConnectionEvent) {
        let _no_supervisor = self.events.send(event).await;
    }
}

/// How much of the server's output is buffered at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest message, in bytes.
    pub message: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 64 * 1024 * 1024 }
    }
}

impl StdioUpstream {
    /// A upstream to a server, which is connected to for as long as the returned task runs.
    pub fn start(connect: Connect, limits: Limits) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (never, ending) = watch::channel(false);
        let supervision =
            Supervision { events: mpsc::channel(1).0, ending, shared: None, outage: watch::channel(None).1 };
        let (upstream, task) = Self::start_for(connect, limits, supervision);
        (upstream, async move {
            task.await;
            drop(never);
        })
    }

    /// The same with a supervisor that receives its events and ends it.
    pub fn start_for(
        connect: Connect,
        limits: Limits,
        supervision: Supervision,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (upstream, queued) = Self::new();
        let task = supervise(upstream.clone(), connect, limits, queued, supervision);
        (upstream, task)
    }
}

/// Connects, runs the connection until it ends, and reconnects. Ends on shutdown.
async fn supervise(
    upstream: Arc<StdioUpstream>,
    connect: Connect,
    limits: Limits,
    mut queued: mpsc::Receiver<Line>,
    mut supervision: Supervision,
) {
    let mut backoff = Backoff::new(FIRST_DELAY);
    let mut known = None;
    let mut served = None;
    loop {
        let connected = tokio::select! {
            connected = connect() => connected,
            () = follow_outage(&upstream, &mut supervision.outage) => return,
            () = shutdown(&mut supervision.ending) => return,
        };
        upstream.set_upstream_state(UpstreamState::Starting);
        let since = Instant::now();
        let why = match connected {
            Ok(pipe) => {
                let Ended { why, was_ready } =
                    run_connection(&upstream, pipe, limits, &mut queued, &mut supervision, &mut known).await;
                if *supervision.ending.borrow() {
                    return;
                }
                served = was_ready.then(Instant::now).or(served);
                if !was_ready && upstream.handshake.opening() == Era::Modern {
                    tracing::info!(
                        "the server refused `initialize` and ended; opening the next one with `server/discover`"
                    );
                    tokio::select! {
                        () = tokio::time::sleep(backoff.after(since.elapsed())) => continue,
                        () = shutdown(&mut supervision.ending) => return,
                    }
                }
                tracing::warn!(why = why.lines().next(), "connection to the server lost; reconnecting");
                why
            }
            Err(why) => {
                tracing::info!(why, "server not connected yet");
                why
            }
        };
        // Clients of a server that is only restarted wait for it.
        if served.is_none_or(|served| served.elapsed() >= RESTARTING) {
            upstream.set_upstream_state(UpstreamState::Failing(why.lines().next().unwrap_or_default().into()));
        }
        supervision.report(ConnectionEvent::Lost(why)).await;
        tokio::select! {
            () = tokio::time::sleep(backoff.after(since.elapsed())) => {}
            () = shutdown(&mut supervision.ending) => return,
        }
    }
}

/// Lets requests wait for a server that is being connected to, and fail while it is known that it cannot be. Never ends.
async fn follow_outage(upstream: &StdioUpstream, outage: &mut watch::Receiver<Option<String>>) {
    loop {
        let why = outage.borrow_and_update().clone();
        upstream.set_upstream_state(why.map_or(UpstreamState::Starting, |why| UpstreamState::Failing(why.into())));
        if outage.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Waits for the shutdown.
pub async fn shutdown(ending: &mut watch::Receiver<bool>) {
    if ending.wait_for(|is_ending| *is_ending).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How a connection to the server ended.
struct Ended {
    /// Why. The last lines of the server's log begin on the second line.
    why: String,
    /// Whether the server could take requests.
    was_ready: bool,
}

/// Runs a connection until it ends, and says why it did. What is behind the connection has ended then. `known` is the server of
/// the connection before, where it can be recognized.
async fn run_connection(
    upstream: &Arc<StdioUpstream>,
    pipe: Pipe,
    limits: Limits,
    queued: &mut mpsc::Receiver<Line>,
    supervision: &mut Supervision,
    known: &mut Option<String>,
) -> Ended {
    let Pipe { mut stdin, mut stdout, stderr, mut held } = pipe;
    let identity = held.identity();
    upstream.handshake.set_notes(held.notes());
    let last = Arc::new(Mutex::new(LastLines::default()));
    let mut log = tokio::spawn(forward_log(stderr, last.clone()).in_current_span());
    let mut reader = lines::Reader::new(limits.message);
    let Supervision { events, ending, shared, .. } = supervision;
    upstream.connected(*shared);
    let is_known = identity.is_some() && identity == *known;
    let (mut was_ready, mut unusable) = (false, None);
    let running = async {
        let _no_supervisor = events.send(ConnectionEvent::Connected).await;
        let (replies, mut to_send) = mpsc::channel(REPLIES);
        let mut opening = std::pin::pin!(open(upstream, is_known, events, &mut was_ready));
        let why = tokio::select! {
            why = read(upstream, &mut stdout, &mut reader, &replies) => why,
            why = write(upstream, &mut stdin, queued, &mut to_send) => why,
            why = &mut opening => {
                unusable = Some(why);
                return "it cannot be used";
            }
        };
        // Its last word may have been the answer to the handshake: some servers refuse it and end.
        tokio::select! {
            biased;
            why = &mut opening => unusable = Some(why),
            () = tokio::task::yield_now() => {}
        }
        why
    };
    let why = {
        let mut running = std::pin::pin!(running);
        tokio::select! {
            why = &mut running => why,
            // What it said last is still on its way, and whatever it left behind may hold the streams open for ever.
            () = held.ended() => tokio::time::timeout(LAST_WAIT, running).await.unwrap_or("its process ended"),
            () = shutdown(ending) => "the proxy is shutting down",
        }
    };
    // Only by now it may have turned out which one it was.
    if was_ready {
        *known = held.identity();
    }
    upstream.handshake.set_notes(None);
    upstream.disconnected(queued);
    drop((stdin, stdout));
    let ended = held.end().await;
    if tokio::time::timeout(LAST_WAIT, &mut log).await.is_err() {
        log.abort();
    }
    Ended { why: why_ended(why, unusable, ended, &last), was_ready }
}

/// Why a connection ended: why it broke says less than how the process behind it ended, and that less than why it was ended.
fn why_ended(broken: &str, unusable: Option<String>, ended: Option<String>, last: &Mutex<LastLines>) -> String {
    let lines = last.lock().unwrap_or_else(PoisonError::into_inner).text();
    let lines = if lines.is_empty() { lines } else { format!("\n{lines}") };
    match (unusable, ended) {
        (Some(unusable), Some(_)) => format!("{unusable}{lines}"),
        (Some(unusable), None) => unusable,
        (None, Some(ended)) => format!("the server ended: {ended}{lines}"),
        (None, None) => format!("the connection to the server was lost: {broken}"),
    }
}

/// Initializes the server, and lets requests through. Returns only if the server cannot be used, and says why.
async fn open(
    upstream: &Arc<StdioUpstream>,
    is_known: bool,
    events: &mpsc::Sender<ConnectionEvent>,
    is_ready: &mut bool,
) -> String {
    let is_new = upstream.handshake.era().is_none();
    match upstream.negotiate(is_known).await {
        Err(why) => why,
        Ok(era) => {
            *is_ready = true;
            upstream.set_upstream_state(UpstreamState::Ready(Server {
                eras: era.into(),
                version: upstream.handshake.version().map(Into::into),
            }));
            if !is_new && era == Era::Legacy {
                tokio::spawn(restore_subscriptions(upstream.clone()).in_current_span());
            }
            let _no_supervisor = events.send(ConnectionEvent::Initialized).await;
            std::future::pending().await
        }
    }
}

/// Repeats to a server that was restarted which log level and which subscriptions clients had asked for. As calls among others: a server that answers while it is
/// asked would wait for us, and we for it.
async fn restore_subscriptions(upstream: Arc<StdioUpstream>) {
    if let Some(level) = upstream.level() {
        upstream
            .request_internally("logging/setLevel", &format!(r#"{{"level":"{}"}}"#, level_name(level)), AGAIN)
            .await;
    }
    for uri in upstream.subscribed() {
        upstream
            .request_internally("resources/subscribe", &format!(r#"{{"uri":{}}}"#, Raw::string(&uri).as_str()), AGAIN)
            .await;
    }
}

#[cfg(test)]
mod tests;
