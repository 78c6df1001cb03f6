//! The way to the server: connected for ever, again and again, and what is read and written on it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use skep_mcp::{Edit, Id, Kind, Message, Raw, lines, splice};
use skep_workload::pauses::Pauses;
use skep_workload::pipe::Pipe;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::bridge::{Bridge, Line};
use super::levels::level_name;

/// How much is written at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// The pause before a first further try to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How many answers of our own may wait to be written to the server. What comes beyond that is dropped, with a warning.
const REPLIES: usize = 100;
/// How long a server that was restarted may take for its handshake. It may have to start first.
const HANDSHAKE: Duration = Duration::from_mins(2);
/// How long it may take for what it is asked after that.
const AGAIN: Duration = Duration::from_secs(30);
/// How much of a line of the server's log is passed on, in bytes.
const LOG_LINE: usize = 2048;

/// How many of the server's last words to people are told when it went away.
const LAST_LINES: usize = 5;
/// How long they are at most together, in bytes.
const LAST_WORDS: usize = 2048;
/// How long is waited for them: something may hold them open that is not the server.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How to reach the server: each call is a new connection.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> + Send + Sync + 'static>;

/// What becomes of the way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is there. The server need not have said anything.
    Connected,
    /// The server has said something.
    Spoke,
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
        let keeper = Keeper { news: mpsc::channel(1).0, ending, shared: None };
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
    loop {
        let connected = tokio::select! {
            connected = connect() => connected,
            () = ended(&mut keeper.ending) => return,
        };
        let since = Instant::now();
        match connected {
            Ok(pipe) => {
                let why = talk(&bridge, pipe, limits, &mut queued, &mut keeper, &mut known).await;
                if *keeper.ending.borrow() {
                    return;
                }
                tracing::warn!(why = why.lines().next(), "the server went away; it is connected to again");
                keeper.tell(News::Lost(format!("the server went away: {why}"))).await;
            }
            Err(why) => {
                tracing::info!(why, "the server is not there yet");
                keeper.tell(News::Lost(why)).await;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.after(since.elapsed())) => {}
            () = ended(&mut keeper.ending) => return,
        }
    }
}

/// Waits until the server is not needed any more.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    if ending.wait_for(|is_ending| *is_ending).await.is_err() {
        std::future::pending::<()>().await;
    }
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
) -> String {
    let Pipe { mut stdin, mut stdout, stderr, mut held } = pipe;
    let identity = held.identity();
    bridge.handshake.meet(held.notes());
    let last = Arc::new(Mutex::new(Last::default()));
    let mut log = tokio::spawn(pass_log_on(stderr, last.clone()).in_current_span());
    let mut reader = lines::Reader::new(limits.message);
    let Keeper { news, ending, shared } = keeper;
    let mut is_met = false;
    let talking = async {
        let is_new = bridge.handshake.request().is_none();
        let is_known = identity.is_some() && identity == *known;
        if let Err(why) = greet_again(bridge, &mut stdin, &mut stdout, &mut reader, is_known).await {
            return why;
        }
        is_met = true;
        bridge.connected(*shared);
        if !is_new {
            tokio::spawn(ask_again(bridge.clone()).in_current_span());
        }
        let _nobody_hears = news.send(if is_new { News::Connected } else { News::Spoke }).await;
        let (replies, mut to_send) = mpsc::channel(REPLIES);
        tokio::select! {
            why = read(bridge, &mut stdout, &mut reader, &replies, news) => why,
            why = write(bridge, &mut stdin, queued, &mut to_send) => why,
        }
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
    if is_met {
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
    match ended {
        // Why a connection broke says less than how the process behind it ended.
        Some(ended) if words.is_empty() => ended,
        Some(ended) => format!("{ended}\n{words}"),
        None => why.to_owned(),
    }
}

/// A server that was restarted hears the handshake again. Callers hear what it answers now. One that seems to be the same as before
/// hears it, too: its node may not have told of the restart yet. If it refuses, it is the same, and what it said before holds.
async fn greet_again(
    bridge: &Bridge,
    stdin: &mut (impl tokio::io::AsyncWrite + Unpin),
    stdout: &mut (impl AsyncRead + Unpin),
    reader: &mut lines::Reader,
    is_known: bool,
) -> Result<(), &'static str> {
    let Some(request) = bridge.handshake.request() else { return Ok(()) };
    let ours = Id::number(bridge.new_id());
    let Ok(request) = splice::apply(&request, &[Edit::set(&["id"], &ours)]) else { return Ok(()) };
    let talk = async {
        send(stdin, &lines::frame(&request)).await?;
        let answer = loop {
            match next(stdout, reader).await? {
                Heard::Message(message) if message.id().as_ref() == Some(&ours) && message.method().is_none() => {
                    break message;
                }
                Heard::Malformed(id) if Id::number(id) == ours => {
                    return Err("its answer to the handshake is no message");
                }
                _ => {}
            }
        };
        match answer.kind() {
            Kind::Response => {}
            _ if is_known => return Ok(()),
            // Another proxy may have been faster after a restart.
            _ => {
                let earlier = bridge.handshake.noted().await.ok_or("it refused the handshake that it took before")?;
                bridge.handshake.renew(earlier);
                return Ok(());
            }
        }
        bridge.handshake.note(&answer);
        bridge.handshake.renew(answer);
        send(stdin, b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await
    };
    tokio::time::timeout(HANDSHAKE, talk).await.unwrap_or(Err("it did not answer the handshake"))
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
    news: &mpsc::Sender<News>,
) -> &'static str {
    let mut has_spoken = false;
    loop {
        match next(stdout, reader).await {
            Ok(Heard::Malformed(id)) => bridge.settle_malformed(id),
            Ok(Heard::Message(message)) => {
                if !has_spoken {
                    has_spoken = true;
                    let _nobody_hears = news.send(News::Spoke).await;
                }
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
    loop {
        let first = tokio::select! {
            biased;
            Some(reply) = replied.recv() => reply,
            next = queued.recv() => match next {
                Some(line) if bridge.wants(&line) => line.bytes,
                Some(_) => Bytes::new(),
                None => return "nobody needs it any more",
            },
        };
        // One write for as much as waits; a single message is written as it is.
        buffer.clear();
        for line in bridge.overdue() {
            buffer.extend_from_slice(&line);
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
