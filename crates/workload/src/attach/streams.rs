//! The three streams of an attachment. They share a WebSocket: a message begins with the number of its stream.
//!
//! ```text
//!   stdin ──▶ buffer ──▶ task ──▶ ┐
//!                                 │ WebSocket
//!   stdout ◀───────────────────── ┤
//!   stderr ◀── buffer ◀────────── ┘
//! ```
//!
//! Whoever reads stdout reads the socket. That never waits for a write to it: a server that writes and does not read would wait
//! for us then, and we for it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, Stream as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::pipe::Pipe;

/// How much of stdin and of stderr may wait, in bytes. Whoever writes waits beyond that.
const BUFFER: usize = 64 * 1024;
/// How much of stdin is sent in one message, in bytes: as much as `kubectl` does.
const CHUNK: usize = 32 * 1024;
/// How much is read from the socket at once, in bytes. It is the most that one record of TLS holds, and all of it is zeroed
/// before each read.
const READ: usize = 16 * 1024;
/// Connections on which nothing is said for minutes are cut by balancers on the way.
const QUIET: Duration = Duration::from_mins(1);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// Comes once, when the server or the attachment has ended.
const STATUS: u8 = 3;

/// What the server writes, until the attachment ends.
struct Output<Io> {
    socket: SplitStream<WebSocketStream<Io>>,
    stderr: DuplexStream,
    /// What was received and is not read yet, of stdout.
    said: Bytes,
    /// The same of stderr.
    logged: Bytes,
    is_over: bool,
}

/// A task that ends with this value.
struct Task(tokio::task::JoinHandle<()>);

/// The streams of an attachment over a connection that has become a WebSocket.
pub(super) async fn open<Io>(connection: Io) -> Pipe
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = WebSocketConfig::default().read_buffer_size(READ);
    let (sink, socket) = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await.split();
    let (stdin, words) = tokio::io::duplex(BUFFER);
    let (log, stderr) = tokio::io::duplex(BUFFER);
    let stdout = Output { socket, stderr: log, said: Bytes::new(), logged: Bytes::new(), is_over: false };
    let task = Task(tokio::spawn(send(words, sink)));
    Pipe { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr: Box::new(stderr), held: Box::new(task) }
}

/// Sends what is written to stdin, until it is closed or the connection ends.
async fn send<Io>(mut stdin: DuplexStream, mut sink: SplitSink<WebSocketStream<Io>, Message>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let mut quiet = quiet();
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK + 1);
        buffer.put_u8(STDIN);
        let mut room = (&mut buffer).limit(CHUNK);
        let message = tokio::select! {
            read = stdin.read_buf(&mut room) => match read {
                Ok(1..) => Message::Binary(buffer.split().freeze()),
                Ok(0) | Err(_) => return,
            },
            _ = quiet.tick() => {
                buffer.clear();
                Message::Ping(Bytes::new())
            }
        };
        if let Err(why) = sink.send(message).await {
            tracing::debug!(%why, "the attachment takes nothing more");
            return;
        }
    }
}

fn quiet() -> Interval {
    let mut quiet = tokio::time::interval(QUIET);
    quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
    quiet.reset();
    quiet
}

// === impl Output ===

impl<Io: AsyncRead + AsyncWrite + Unpin> Output<Io> {
    /// Takes the next message.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut message = match ready!(Pin::new(&mut self.socket).poll_next(context)) {
            Some(Ok(Message::Binary(message))) => message,
            Some(Ok(Message::Close(_))) | None => {
                self.is_over = true;
                return Poll::Ready(Ok(()));
            }
            Some(Ok(_)) => return Poll::Ready(Ok(())),
            Some(Err(Error::Io(error))) => return Poll::Ready(Err(error)),
            Some(Err(error)) => return Poll::Ready(Err(std::io::Error::other(error))),
        };
        match message.try_get_u8() {
            Ok(STDOUT) => self.said = message,
            Ok(STDERR) => self.logged = message,
            Ok(STATUS) => {
                tracing::debug!(status = %String::from_utf8_lossy(&message), "the attachment ended");
                self.is_over = true;
            }
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Output<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.said.is_empty() {
                let read = this.said.split_to(this.said.len().min(buffer.remaining()));
                buffer.put_slice(&read);
                return Poll::Ready(Ok(()));
            }
            while !this.logged.is_empty() {
                match ready!(Pin::new(&mut this.stderr).poll_write(context, &this.logged)) {
                    Ok(written @ 1..) => this.logged.advance(written),
                    // Nobody reads it.
                    Ok(0) | Err(_) => this.logged.clear(),
                }
            }
            if this.is_over {
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_message(context))?;
        }
    }
}

// === impl Task ===

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
