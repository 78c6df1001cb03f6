//! The three streams of an attachment. They share a WebSocket: a message starts with the number of its stream.
//!
//! ```text
//!   stdin ──▶ buffer ──▶ task ──▶ ┐
//!                                 │ WebSocket
//!   stdout ◀───────────────────── ┤
//!   stderr ◀── buffer ◀────────── ┘
//! ```
//!
//! Reading stdout reads the socket. That never waits for a write to it: a server that writes and does not read would
//! deadlock with us.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{Sink, SinkExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream, ReadBuf, ReadHalf};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::frames::Frames;
use crate::pipe::{Held, Pipe};

/// How much of stdin and of stderr is buffered, in bytes. Beyond that the writer gets backpressure.
const BUFFER: usize = 64 * 1024;
/// How much of stdin is sent in one message, in bytes: as much as `kubectl` does.
const CHUNK: usize = 32 * 1024;
/// The read size for everything but stdout, in bytes.
const PIECE: usize = 4 * 1024;
/// How many pongs may be queued. Pings beyond that are not answered.
const PONGS: usize = 4;
/// The interval of pings. Load balancers cut connections that are idle for minutes.
const PING: Duration = Duration::from_mins(1);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// Sent once, when the server or the attachment has ended.
const STATUS: u8 = 3;

/// The output of the server, until the attachment ends.
struct Output<Io> {
    frames: Frames<ReadHalf<Io>>,
    part: Part,
    /// The stream of the current message, once its first byte has arrived.
    stream: Option<u8>,
    /// Received bytes of stderr that were not forwarded yet; or of a control frame; or of the status.
    aside: BytesMut,
    stderr: DuplexStream,
    pongs: mpsc::Sender<Bytes>,
    is_over: bool,
}

/// The position between frames.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Before a frame.
    Between,
    /// In one that holds a message or a part of one.
    Message,
    /// In a control frame.
    Control(Control),
}

/// A task that is aborted when this is dropped.
pub(super) struct Task(pub(super) tokio::task::JoinHandle<()>);

/// The streams of an attachment over a connection that has become a WebSocket.
pub(super) async fn open<Io>(connection: Io) -> Pipe
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (read, write) = tokio::io::split(connection);
    // It only ever writes.
    let sink = WebSocketStream::from_raw_socket(tokio::io::join(tokio::io::empty(), write), Role::Client, None).await;
    let (stdin, queued) = tokio::io::duplex(BUFFER);
    let (log, stderr) = tokio::io::duplex(BUFFER);
    let (pongs, asked) = mpsc::channel(PONGS);
    let stdout = Output {
        frames: Frames::new(read),
        part: Part::Between,
        stream: None,
        aside: BytesMut::new(),
        stderr: log,
        pongs,
        is_over: false,
    };
    let task = Task(tokio::spawn(send(queued, asked, sink)));
    Pipe { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr: Box::new(stderr), held: Box::new(task) }
}

/// Sends the bytes written to stdin, until it is closed or the connection ends. Pings are answered, and sent every
/// minute, whether the connection is idle or not: that costs less than tracking it.
async fn send(
    mut stdin: DuplexStream,
    mut asked: mpsc::Receiver<Bytes>,
    mut sink: impl Sink<Message, Error = Error> + Unpin,
) {
    let mut pings = pings();
    let mut buffer = BytesMut::new();
    loop {
        buffer.clear();
        buffer.reserve(CHUNK + 1);
        buffer.put_u8(STDIN);
        let mut room = (&mut buffer).limit(CHUNK);
        let message = tokio::select! {
            read = stdin.read_buf(&mut room) => match read {
                Ok(1..) => Message::Binary(buffer.split().freeze()),
                Ok(0) | Err(_) => return,
            },
            Some(ping) = asked.recv() => Message::Pong(ping),
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if let Err(why) = sink.send(message).await {
            tracing::debug!(%why, "attachment closed for writing");
            return;
        }
    }
}

fn pings() -> Interval {
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    pings
}

// === impl Output ===

impl<Io: AsyncRead + AsyncWrite + Unpin> Output<Io> {
    /// Advances to the next frame.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.part = match ready!(self.frames.poll_next(context))? {
            OpCode::Data(Data::Continue) => Part::Message,
            OpCode::Data(_) => {
                self.stream = None;
                Part::Message
            }
            OpCode::Control(Control::Close) => {
                self.is_over = true;
                Part::Between
            }
            OpCode::Control(control) => Part::Control(control),
        };
        Poll::Ready(Ok(()))
    }

    /// Buffers a part of the current frame.
    fn poll_aside(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut piece = [0; PIECE];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(self.frames.poll_read(context, &mut piece))?;
        self.aside.extend_from_slice(piece.filled());
        Poll::Ready(Ok(()))
    }

    /// A frame has ended.
    fn end_frame(&mut self) {
        match (self.part, self.stream) {
            (Part::Control(Control::Ping), _) => {
                let _too_many = self.pongs.try_send(self.aside.split().freeze());
            }
            (Part::Message, Some(STATUS)) => {
                tracing::debug!(status = %String::from_utf8_lossy(&self.aside), "attachment ended");
                self.is_over = true;
            }
            _ => {}
        }
        self.aside.clear();
        self.part = Part::Between;
    }

    /// Forwards the received bytes of stderr.
    fn poll_log(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.aside.is_empty() {
            match ready!(Pin::new(&mut self.stderr).poll_write(context, &self.aside)) {
                Ok(written @ 1..) => self.aside.advance(written),
                // It has no reader.
                Ok(0) | Err(_) => self.aside.clear(),
            }
        }
        Poll::Ready(())
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Output<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        while !this.is_over && buffer.remaining() > 0 {
            if matches!((this.part, this.stream), (Part::Message, Some(STDERR))) {
                ready!(this.poll_log(context));
            }
            match (this.part, this.stream) {
                (Part::Between, _) => ready!(this.poll_frame(context))?,
                _ if this.frames.left() == 0 => this.end_frame(),
                (Part::Control(_), _) | (Part::Message, Some(STDERR)) => ready!(this.poll_aside(context))?,
                (Part::Message, None) => {
                    let mut stream = [0];
                    ready!(this.frames.poll_read(context, &mut ReadBuf::new(&mut stream)))?;
                    this.stream = stream.first().copied();
                }
                (Part::Message, Some(STDOUT)) => return this.frames.poll_read(context, buffer),
                (Part::Message, Some(_)) => {
                    // The status is short. An unknown stream may not be, and only its start is kept.
                    ready!(this.poll_aside(context))?;
                    this.aside.truncate(PIECE);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

// === impl Task ===

impl Held for Task {
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        Box::pin(std::future::ready(None))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
