//! The way to the server: connected for ever, again and again, and what is read and written on it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use skep_mcp::{Era, Message, Raw, lines};
use skep_workload::pauses::Pauses;
use skep_workload::pipe::Pipe;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::bridge::{Bridge, Line};
use super::levels::level_name;
use super::readiness::Readiness;

/// How much is written at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// The pause before a first further try to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How many answers of our own may wait to be written to the server. What comes beyond that is dropped, with a warning.
const REPLIES: usize = 100;
/// How long a server that was restarted may take for what it is asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// How much of a line of the server's log is passed on, in bytes.
const LOG_LINE: usize = 2048;

/// How many of the server's last words to people are told when it went away.
const LAST_LINES: usize = 5;
/// How long they are at most together, in bytes.
const LAST_WORDS: usize = 2048;
/// How long is waited for them: something may hold them open that is not the server.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How long clients wait for a server that is restarted although it failed to start meanwhile. After that, and if it never served,
/// they are told at once why it does not.
const RESTARTING: Duration = Duration::from_secs(10);

/// How to reach the server: each call is a new connection.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> + Send + Sync + 'static>;

/// What becomes of the way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is there. The server need not have said anything.
    Connected,
    /// The server answered `initialize`, or `server/discover` where it has no `initialize`: it can take requests.
    Initialized,
    /// It is not there, and why. The server's own last words to people, if it had any, begin on the second line.
    Lost(String),
}

/// Whoever looks after the way to the server.
#[derive(Debug)]
pub struct Keeper {
    /// Hears what becomes of it. That is little: a word now and then.
    pub news: mpsc::Sender<News>,
    /// Becomes true when the server is not needed any more.
    pub ending: watch::Receiver<bool>,
    /// For how long after it is connected to the server may speak with another proxy as well, which this one takes over from.
    pub shared: Option<Duration>,
    /// Why the server cannot be connected to, while that is known.
    pub outage: watch::Receiver<Option<String>>,
}

impl Keeper {
    async fn tell(&self, news: News) {
        let _nobody_hears = self.news.send(news).await;
    }
}

/// How much of the server's words is held at once.
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

impl Bridge {
    /// A bridge to a server, which is connected to for as long as the returned task runs.
    pub fn start(connect: Connect, limits: Limits) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (never, ending) = watch::channel(false);
        let keeper = Keeper { news: mpsc::channel(1).0, ending, shared: None, outage: watch::channel(None).1 };
        let (bridge, task) = Self::start_for(connect, limits, keeper);
        (bridge, async move {
            task.await;
            drop(never);
        })
    }

    /// The same for somebody who hears of it, and who ends it.
    pub fn start_for(
        connect: Connect,
        limits: Limits,
        keeper: Keeper,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (bridge, queued) = Self::new();
        let task = keep(bridge.clone(), connect, limits, queued, keeper);
        (bridge, task)
    }
}

/// Connects, talks until the connection ends, and begins anew. Ends when it is told to.
async fn keep(
    bridge: Arc<Bridge>,
    connect: Connect,
    limits: Limits,
    mut queued: mpsc::Receiver<Line>,
    mut keeper: Keeper,
) {
    let mut pauses = Pauses::new(FIRST_PAUSE);
    let mut known = None;
    let mut served = None;
    loop {
        let connected = tokio::select! {
            connected = connect() => connected,
            () = follow_outage(&bridge, &mut keeper.outage) => return,
            () = ended(&mut keeper.ending) => return,
        };
        bridge.set_readiness(Readiness::Starting);
        let since = Instant::now();
        let why = match connected {
            Ok(pipe) => {
                let Ended { why, was_ready } = talk(&bridge, pipe, limits, &mut queued, &mut keeper, &mut known).await;
                if *keeper.ending.borrow() {
                    return;
                }
                served = was_ready.then(Instant::now).or(served);
                if !was_ready && bridge.handshake.opening() == Era::Modern {
                    tracing::info!(
                        "the server refused `initialize` and ended; opening the next one with `server/discover`"
                    );
                    tokio::select! {
                        () = tokio::time::sleep(pauses.after(since.elapsed())) => continue,
                        () = ended(&mut keeper.ending) => return,
                    }
                }
                tracing::warn!(why = why.lines().next(), "the server went away; it is connected to again");
                why
            }
            Err(why) => {
                tracing::info!(why, "the server is not there yet");
                why
            }
        };
        // Clients of a server that is only restarted wait for it.
        if served.is_none_or(|served| served.elapsed() >= RESTARTING) {
            bridge.set_readiness(Readiness::Failed(why.lines().next().unwrap_or_default().into()));
        }
        keeper.tell(News::Lost(why)).await;
        tokio::select! {
            () = tokio::time::sleep(pauses.after(since.elapsed())) => {}
            () = ended(&mut keeper.ending) => return,
        }
    }
}

/// Lets requests wait for a server that is being connected to, and fail while it is known that it cannot be. Never ends.
async fn follow_outage(bridge: &Bridge, outage: &mut watch::Receiver<Option<String>>) {
    loop {
        let why = outage.borrow_and_update().clone();
        bridge.set_readiness(why.map_or(Readiness::Starting, |why| Readiness::Failed(why.into())));
        if outage.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Waits until the server is not needed any more.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    if ending.wait_for(|is_ending| *is_ending).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How a connection to the server ended.
struct Ended {
    /// Why. The server's own last words to people begin on the second line.
    why: String,
    /// Whether the server could take requests.
    was_ready: bool,
}

/// Talks to the server until the connection ends, and says why it did. What is behind the connection has ended then. `known` is
/// the server that was talked to last, where it can be met again.
async fn talk(
    bridge: &Arc<Bridge>,
    pipe: Pipe,
    limits: Limits,
    queued: &mut mpsc::Receiver<Line>,
    keeper: &mut Keeper,
    known: &mut Option<String>,
) -> Ended {
    let Pipe { mut stdin, mut stdout, stderr, mut held } = pipe;
    let identity = held.identity();
    bridge.handshake.meet(held.notes());
    let last = Arc::new(Mutex::new(Last::default()));
    let mut log = tokio::spawn(pass_log_on(stderr, last.clone()).in_current_span());
    let mut reader = lines::Reader::new(limits.message);
    let Keeper { news, ending, shared, .. } = keeper;
    bridge.connected(*shared);
    let is_known = identity.is_some() && identity == *known;
    let (mut was_ready, mut unusable) = (false, None);
    let talking = async {
        let _nobody_hears = news.send(News::Connected).await;
        let (replies, mut to_send) = mpsc::channel(REPLIES);
        let mut opening = std::pin::pin!(open(bridge, is_known, news, &mut was_ready));
        let why = tokio::select! {
            why = read(bridge, &mut stdout, &mut reader, &replies) => why,
            why = write(bridge, &mut stdin, queued, &mut to_send) => why,
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
        let mut talking = std::pin::pin!(talking);
        tokio::select! {
            why = &mut talking => why,
            // What it said last is still on its way, and whatever it left behind may hold the streams open for ever.
            () = held.ended() => tokio::time::timeout(LAST_WAIT, talking).await.unwrap_or("its process ended"),
            () = ended(ending) => "it is not needed any more",
        }
    };
    // Only by now it may have turned out which one it was.
    if was_ready {
        *known = held.identity();
    }
    bridge.handshake.meet(None);
    // Nobody waits for what takes its time to end.
    bridge.disconnected(queued);
    drop((stdin, stdout));
    let ended = held.end().await;
    if tokio::time::timeout(LAST_WAIT, &mut log).await.is_err() {
        log.abort();
    }
    let words = last.lock().unwrap_or_else(PoisonError::into_inner).text();
    // Why a connection broke says less than how the process behind it ended, and that less than why it was ended.
    let words = if words.is_empty() { words } else { format!("\n{words}") };
    let why = match (unusable, ended) {
        (Some(unusable), Some(_)) => format!("{unusable}{words}"),
        (Some(unusable), None) => unusable,
        (None, Some(ended)) => format!("the server went away: {ended}{words}"),
        (None, None) => format!("the server went away: {why}"),
    };
    Ended { why, was_ready }
}

/// Initializes the server, and lets requests through. Returns only if the server cannot be used, and says why.
async fn open(bridge: &Arc<Bridge>, is_known: bool, news: &mpsc::Sender<News>, is_ready: &mut bool) -> String {
    let is_new = bridge.handshake.era().is_none();
    match bridge.negotiate(is_known).await {
        Err(why) => why,
        Ok(era) => {
            *is_ready = true;
            bridge.set_readiness(Readiness::Ready(era));
            if !is_new && era == Era::Legacy {
                tokio::spawn(ask_again(bridge.clone()).in_current_span());
            }
            let _nobody_hears = news.send(News::Initialized).await;
            std::future::pending().await
        }
    }
}

/// A server that was restarted hears what callers had asked it to report. As calls among others: a server that answers while it is
/// asked would wait for us, and we for it.
async fn ask_again(bridge: Arc<Bridge>) {
    if let Some(level) = bridge.level() {
        bridge.order("logging/setLevel", &format!(r#"{{"level":"{}"}}"#, level_name(level)), AGAIN).await;
    }
    for uri in bridge.subscribed() {
        bridge.order("resources/subscribe", &format!(r#"{{"uri":{}}}"#, Raw::string(&uri).as_str()), AGAIN).await;
    }
}

async fn read(
    bridge: &Arc<Bridge>,
    stdout: &mut (impl AsyncRead + Unpin),
    reader: &mut lines::Reader,
    replies: &mpsc::Sender<Bytes>,
) -> &'static str {
    loop {
        match next(stdout, reader).await {
            Ok(Heard::Malformed(id)) => bridge.settle_malformed(id),
            Ok(Heard::Message(message)) => {
                // The reader never waits for the writer: a server that writes and does not read would then wait for us, and we
                // for it.
                if let Some(reply) = bridge.dispatch(&message)
                    && replies.try_send(reply).is_err()
                {
                    tracing::warn!("an answer to the server is dropped: it does not read what it asked for");
                }
            }
            Err(why) => return why,
        }
    }
}

/// What a line of the server is.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and the small one is rare")]
enum Heard {
    Message(Message),
    /// No message, but all that will ever come as the answer to a request.
    Malformed(u64),
}

/// The next message. Lines that are none are left out, unless somebody waits for them.
async fn next(stdout: &mut (impl AsyncRead + Unpin), reader: &mut lines::Reader) -> Result<Heard, &'static str> {
    loop {
        match reader.next_line() {
            Ok(Some(line)) => {
                let Some(found) = lines::message(&line) else {
                    if !line.iter().all(u8::is_ascii_whitespace) {
                        tracing::debug!(bytes = line.len(), "a line of the server that is no message is left out");
                    }
                    continue;
                };
                match Message::parse(line.slice_ref(found)) {
                    Ok(message) => return Ok(Heard::Message(message)),
                    Err(why) => {
                        tracing::warn!(%why, bytes = line.len(), "a line of the server that is no message is left out");
                        if let Some(id) = lines::answered(found) {
                            return Ok(Heard::Malformed(id));
                        }
                    }
                }
            }
            Ok(None) => match stdout.read_buf(reader.space()).await {
                Ok(0) => return Err("its output ended"),
                Ok(_) => {}
                Err(_) => return Err("its output broke"),
            },
            Err(too_long) => tracing::warn!(%too_long, "a message of the server is left out"),
        }
    }
}

async fn write(
    bridge: &Bridge,
    stdin: &mut (impl tokio::io::AsyncWrite + Unpin),
    queued: &mut mpsc::Receiver<Line>,
    replied: &mut mpsc::Receiver<Bytes>,
) -> &'static str {
    let mut buffer = BytesMut::new();
    // What the lines that are written now are made of, which is counted until they are.
    let mut sources = Vec::new();
    loop {
        sources.clear();
        let first = tokio::select! {
            biased;
            Some(reply) = replied.recv() => reply,
            next = queued.recv() => match next {
                Some(line) if bridge.wants(&line) => {
                    sources.push(line.source);
                    line.bytes
                }
                Some(_) => Bytes::new(),
                None => return "nobody needs it any more",
            },
        };
        // One write for as much as waits; a single message is written as it is.
        buffer.clear();
        if buffer.capacity() > 2 * CHUNK {
            // One long message is no reason to keep as much memory for good.
            buffer = BytesMut::new();
        }
        for line in bridge.overdue() {
            buffer.extend_from_slice(&line.bytes);
            sources.push(line.source);
        }
        if !buffer.is_empty() {
            buffer.extend_from_slice(&first);
        }
        while first.len() + buffer.len() < CHUNK
            && let Ok(more) = queued.try_recv()
        {
            if !bridge.wants(&more) {
                continue;
            }
            if buffer.is_empty() {
                buffer.extend_from_slice(&first);
            }
            buffer.extend_from_slice(&more.bytes);
            sources.push(more.source);
        }
        let bytes = if buffer.is_empty() { first.as_ref() } else { buffer.as_ref() };
        if !bytes.is_empty()
            && let Err(why) = send(stdin, bytes).await
        {
            return why;
        }
    }
}

async fn send(stdin: &mut (impl tokio::io::AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), &'static str> {
    let written = async {
        stdin.write_all(bytes).await?;
        stdin.flush().await
    };
    written.await.map_err(|_| "its input broke")
}

/// The last that a server said to people.
#[derive(Debug, Default)]
pub(crate) struct Last(VecDeque<String>);

impl Last {
    fn push(&mut self, line: &str) {
        self.0.push_back(line.chars().filter(|character| !character.is_control()).collect());
        let length = |lines: &VecDeque<String>| lines.iter().map(String::len).sum::<usize>();
        while self.0.len() > LAST_LINES || (self.0.len() > 1 && length(&self.0) > LAST_WORDS) {
            self.0.pop_front();
        }
    }

    /// All of it, in lines.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// What the server says to people becomes our log, line by line, and its last words are kept.
pub(crate) async fn pass_log_on(stderr: impl AsyncRead + Unpin, last: Arc<Mutex<Last>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(LOG_LINE as u64);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end();
                if !text.is_empty() {
                    tracing::info!(target: "server", "{text}");
                    last.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
