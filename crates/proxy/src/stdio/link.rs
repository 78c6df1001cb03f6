//! The way to the server: connected for ever, again and again, and what is read and written on it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use skep_mcp::{Edit, Id, Message, Raw, lines, splice};
use skep_workload::pipe::Pipe;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::bridge::{Bridge, Line};
use super::levels::level_name;

/// How much is written at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// The pause before a first further try to connect; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A connection that lived this long was a good one: the next try comes soon.
const GOOD: Duration = Duration::from_secs(30);
/// How many answers of our own may wait to be written to the server. What comes beyond that is dropped, with a warning.
const REPLIES: usize = 100;
/// How long a server that was restarted may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How much of a line of the server's log is passed on, in bytes.
const LOG_LINE: usize = 2048;

/// How to reach the server: each call is a new connection.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> + Send + Sync + 'static>;

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
        let (bridge, queued) = Self::new();
        let task = keep(bridge.clone(), connect, limits, queued);
        (bridge, task)
    }
}

/// Connects, talks until the connection ends, and begins anew. Never ends.
async fn keep(bridge: Arc<Bridge>, connect: Connect, limits: Limits, mut queued: mpsc::Receiver<Line>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect().await {
            Ok(pipe) => {
                let since = Instant::now();
                let why = talk(&bridge, pipe, limits, &mut queued).await;
                bridge.disconnected(&mut queued);
                tracing::warn!(why, "the server went away; it is connected to again");
                if since.elapsed() >= GOOD {
                    pause = FIRST_PAUSE;
                }
            }
            Err(why) => tracing::info!(why, "the server is not there yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Talks to the server until the connection ends, and says why it did.
async fn talk(bridge: &Bridge, pipe: Pipe, limits: Limits, queued: &mut mpsc::Receiver<Line>) -> &'static str {
    let Pipe { mut stdin, mut stdout, stderr, held } = pipe;
    let log = tokio::spawn(pass_log_on(stderr));
    let mut reader = lines::Reader::new(limits.message);
    let why = match greet_again(bridge, &mut stdin, &mut stdout, &mut reader).await {
        Ok(()) => {
            bridge.connected();
            let (replies, mut to_send) = mpsc::channel(REPLIES);
            tokio::select! {
                why = read(bridge, &mut stdout, &mut reader, &replies) => why,
                why = write(bridge, &mut stdin, queued, &mut to_send) => why,
            }
        }
        Err(why) => why,
    };
    log.abort();
    drop(held);
    why
}

/// A server that was restarted hears the handshake again, and what callers had asked it to report.
async fn greet_again(
    bridge: &Bridge,
    stdin: &mut (impl tokio::io::AsyncWrite + Unpin),
    stdout: &mut (impl AsyncRead + Unpin),
    reader: &mut lines::Reader,
) -> Result<(), &'static str> {
    let Some(request) = bridge.handshake.request() else { return Ok(()) };
    // No caller's id is 0.
    let ours = Id::number(0);
    let Ok(request) = splice::apply(&request, &[Edit::set(&["id"], &ours)]) else { return Ok(()) };
    let talk = async {
        send(stdin, &lines::frame(&request)).await?;
        loop {
            let message = next(stdout, reader).await?;
            if message.id().is_some_and(|id| id.raw() == "0") && message.method().is_none() {
                break;
            }
        }
        let mut words = BytesMut::new();
        words.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        for uri in bridge.subscribed() {
            let uri = Raw::string(&uri);
            let ask = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"resources/subscribe\",\"params\":{{\"uri\":{}}}}}\n",
                uri.as_str()
            );
            words.extend_from_slice(ask.as_bytes());
        }
        if let Some(level) = bridge.level() {
            let ask = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"logging/setLevel\",\"params\":{{\"level\":\"{}\"}}}}\n",
                level_name(level)
            );
            words.extend_from_slice(ask.as_bytes());
        }
        send(stdin, &words).await
    };
    tokio::time::timeout(HANDSHAKE, talk).await.unwrap_or(Err("it did not answer the handshake"))
}

async fn read(
    bridge: &Bridge,
    stdout: &mut (impl AsyncRead + Unpin),
    reader: &mut lines::Reader,
    replies: &mpsc::Sender<Bytes>,
) -> &'static str {
    loop {
        match next(stdout, reader).await {
            Ok(message) => {
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

/// The next message. Lines that are none are left out.
async fn next(stdout: &mut (impl AsyncRead + Unpin), reader: &mut lines::Reader) -> Result<Message, &'static str> {
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
                    Ok(message) => return Ok(message),
                    Err(why) => {
                        tracing::warn!(%why, bytes = line.len(), "a line of the server that is no message is left out");
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
                Some(_) => continue,
                None => return "nobody needs it any more",
            },
        };
        // One write for as much as waits; a single message is written as it is.
        buffer.clear();
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
        let sent = send(stdin, if buffer.is_empty() { &first } else { &buffer }).await;
        if let Err(why) = sent {
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

/// What a server says to people becomes our log.
pub(crate) async fn log(stream: Option<impl AsyncRead + Unpin>) {
    if let Some(stream) = stream {
        pass_log_on(stream).await;
    }
}

/// What the server says to people becomes our log, line by line.
async fn pass_log_on(stderr: impl AsyncRead + Unpin) {
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
                }
            }
        }
    }
}
