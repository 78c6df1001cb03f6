//! Lines to the server, and lines from it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use skep_mcp::lines::Responded;
use skep_mcp::{Message, lines};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::line::Line;
use super::upstream::StdioUpstream;
use crate::error::CallError;

/// How much is written at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// How many responses of our own may wait to be written to the server. What comes beyond that is dropped, with a warning.
pub(super) const REPLIES: usize = 100;

pub(super) async fn read(
    upstream: &Arc<StdioUpstream>,
    stdout: &mut (impl AsyncRead + Unpin),
    reader: &mut lines::Reader,
    replies: &mpsc::Sender<Bytes>,
) -> &'static str {
    loop {
        match next(stdout, reader).await {
            Ok(FromServer::Malformed(id)) => upstream.settle_failed(id, CallError::Malformed),
            Ok(FromServer::TooLong { request, limit }) => upstream.settle_too_long(request, limit),
            Ok(FromServer::Message(message)) => {
                // The reader never waits for the writer: a server that writes and does not read would then wait for us, and we
                // for it.
                if let Some(reply) = upstream.dispatch(&message)
                    && replies.try_send(reply).is_err()
                {
                    tracing::warn!("dropping a response to the server: it does not read");
                }
            }
            Err(why) => return why,
        }
    }
}

/// What a line of the server is.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and the small one is rare")]
enum FromServer {
    Message(Message),
    /// No message, but all that will ever come as the answer to a request.
    Malformed(u64),
    /// A response that is too long, and to which request if that is known.
    TooLong {
        request: Option<u64>,
        limit: usize,
    },
}

/// The next message. Malformed lines are skipped, unless they answer a call in flight.
async fn next(stdout: &mut (impl AsyncRead + Unpin), reader: &mut lines::Reader) -> Result<FromServer, &'static str> {
    loop {
        let read = match reader.next_line() {
            Ok(Some(line)) => of_line(&line),
            Err(too_long) => of_too_long(&too_long),
            Ok(None) => match stdout.read_buf(reader.space()).await {
                Ok(0) => return Err("its output ended"),
                Ok(_) => None,
                Err(_) => return Err("its output broke"),
            },
        };
        if let Some(read) = read {
            return Ok(read);
        }
    }
}

/// What a whole line is; nothing if it is skipped.
fn of_line(line: &Bytes) -> Option<FromServer> {
    let Some(found) = lines::message(line) else {
        if !line.iter().all(u8::is_ascii_whitespace) {
            tracing::debug!(bytes = line.len(), "skipping malformed line from server");
        }
        return None;
    };
    match Message::parse(line.slice_ref(found)) {
        Ok(message) => Some(FromServer::Message(message)),
        Err(why) => {
            tracing::warn!(%why, bytes = line.len(), "skipping malformed line from server");
            lines::answered(found).map(FromServer::Malformed)
        }
    }
}

/// What a line beyond the limit is; nothing if it is no response.
fn of_too_long(line: &lines::LineError) -> Option<FromServer> {
    tracing::warn!(%line, "skipping a message of the server that is too long");
    let request = match line.responded() {
        Responded::Request(id) => Some(id),
        Responded::Unknown => None,
        Responded::None => return None,
    };
    Some(FromServer::TooLong { request, limit: line.limit })
}

pub(super) async fn write(
    upstream: &StdioUpstream,
    stdin: &mut (impl tokio::io::AsyncWrite + Unpin),
    queued: &mut mpsc::Receiver<Line>,
    replied: &mut mpsc::Receiver<Bytes>,
) -> &'static str {
    let mut buffer = BytesMut::new();
    // The lines that are written now, which are counted until they are.
    let mut written = Vec::new();
    let mut next = None;
    loop {
        written.clear();
        let first = if let Some(line) = next.take() {
            render(upstream, line, &mut written)
        } else {
            tokio::select! {
                biased;
                Some(reply) = replied.recv() => reply,
                next = queued.recv() => {
                    let Some(line) = next else { return "its queue was closed" };
                    render(upstream, line, &mut written)
                }
            }
        };
        // One write for as much as waits; a single message is written as it is.
        buffer.clear();
        if buffer.capacity() > 2 * CHUNK {
            // One long message is no reason to keep as much memory for good.
            buffer = BytesMut::new();
        }
        for line in upstream.urgent() {
            buffer.extend_from_slice(&render(upstream, line, &mut written));
        }
        if !buffer.is_empty() {
            buffer.extend_from_slice(&first);
        }
        while first.len() + buffer.len() < CHUNK
            && let Ok(more) = queued.try_recv()
        {
            if more.len() > CHUNK {
                // It is not copied once more for this.
                next = Some(more);
                break;
            }
            let more = render(upstream, more, &mut written);
            if buffer.is_empty() {
                buffer.extend_from_slice(&first);
            }
            buffer.extend_from_slice(&more);
        }
        let bytes = if buffer.is_empty() { first.as_ref() } else { buffer.as_ref() };
        if !bytes.is_empty()
            && let Err(why) = send(stdin, bytes).await
        {
            return why;
        }
    }
}

/// The bytes of a line whose turn has come. None if it is not to be sent any more.
fn render(upstream: &StdioUpstream, line: Line, written: &mut Vec<Line>) -> Bytes {
    if !upstream.is_wanted(&line) {
        return Bytes::new();
    }
    let Some(bytes) = line.render() else {
        tracing::error!("dropping a message that cannot be written as a line");
        if let Some(wire) = line.request {
            upstream.settle_failed(wire, CallError::NotSent);
        }
        return Bytes::new();
    };
    written.push(line);
    bytes
}

async fn send(stdin: &mut (impl tokio::io::AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), &'static str> {
    let written = async {
        stdin.write_all(bytes).await?;
        stdin.flush().await
    };
    written.await.map_err(|_| "its input broke")
}
