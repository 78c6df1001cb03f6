//! One stream of an HTTP/2 connection, and whether its client reads its response.
//!
//! Many streams share the connection, so a socket that takes bytes does not mean that each stream is read: a client can
//! leave the flow-control window of one stream closed and use the others. A response records when hyper took its last
//! part, which it does once the client's window has room; one that does not advance can be reset, and the others
//! continue.
//!
//! ```text
//!   body ─▶ Pieces ──piece──▶ hyper ──window──▶ client
//!             └─ records when each piece was handed over ─▶ Stream ◀─ Registry: reset
//! ```

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;

use crate::budget::TINY;
use crate::{Body, BodyError};

/// How much of a response is handed over at once: a client that does not take as much for long enough does not read.
const PIECE: usize = 16 * 1024;

tokio::task_local! {
    /// The stream that a task serves.
    static CURRENT: Arc<Stream>;
}

/// One stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The network of its client, if a proxy in front forwards for it.
    client: OnceLock<IpAddr>,
    /// Whether a part of its response waits for the client, and since when, in ticks.
    is_blocked: AtomicBool,
    blocked_since: AtomicU32,
    reset: Notify,
}

/// Runs each stream of a connection as a task that can be aborted: dropping hyper's future for a stream resets it and
/// frees its buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor;

/// A response in pieces, so that progress of its client is visible.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
}

// === impl Stream ===

impl Stream {
    /// The stream that this task serves. `None` on HTTP/1.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Records the client of the response, unless it is the connection's peer.
    pub(super) fn is_for(&self, client: Option<IpAddr>) {
        if let Some(client) = client {
            // A stream has one response.
            let _first = self.client.set(client);
        }
    }

    /// The network of its client, if it is not the connection's peer.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.client.get().copied()
    }

    /// A part of the response was handed over, and waits for its client from now on.
    pub(super) fn has_sent(&self, now: u32) {
        self.blocked_since.store(now, Ordering::Relaxed);
        self.is_blocked.store(true, Ordering::Relaxed);
    }

    /// The client has taken all there was.
    pub(super) fn has_drained(&self) {
        self.is_blocked.store(false, Ordering::Relaxed);
    }

    /// Whether its client has taken nothing for so many ticks, though there is something for it.
    pub(super) fn has_stalled(&self, now: u32, limit: u32) -> bool {
        let since = self.blocked_since.load(Ordering::Relaxed);
        self.is_blocked.load(Ordering::Relaxed) && now.wrapping_sub(since).saturating_sub(1) >= limit
    }

    /// Resets the stream.
    pub(super) fn reset(&self) {
        self.reset.notify_one();
    }
}

// === impl StreamExecutor ===

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let stream = Arc::new(Stream::default());
        let served = CURRENT.scope(Arc::clone(&stream), future);
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                () = stream.reset.notified() => {}
            }
        });
    }
}

// === impl Pieces ===

impl Pieces {
    pub(super) fn new(body: Body) -> Self {
        Self { body, rest: Bytes::new() }
    }

    /// The next piece of the last frame. The last byte is a piece of its own, and not counted in a budget: hyper hands
    /// it over once everything before it is taken, so the stream exists, and can be reset, for as long as a counted
    /// byte does.
    fn next(&mut self) -> Bytes {
        match self.rest.len() {
            1 => Bytes::copy_from_slice(&std::mem::take(&mut self.rest)),
            left => self.rest.split_to(PIECE.min(left - 1)),
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.next()))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        Poll::Ready(match frame.map(|frame| frame.map(Frame::into_data)) {
            // An uncounted body needs no pieces.
            Some(Ok(Ok(data))) if data.len() >= TINY => {
                this.rest = data;
                Some(Ok(Frame::data(this.next())))
            }
            Some(Ok(Ok(data))) => Some(Ok(Frame::data(data))),
            Some(Ok(Err(trailers))) => Some(Ok(trailers)),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, left) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(left));
        }
        hint.set_lower(hint.lower().saturating_add(left));
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_response_is_the_same_in_pieces_and_its_last_byte_is_not_counted() {
        let budget = crate::Budget::new(1 << 20);
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).take(100_000).collect();
        let body = Body::full(bytes.clone()).within(&budget).await.unwrap();
        let mut pieces = Pieces::new(body);
        assert_eq!(pieces.size_hint().exact(), Some(100_000));
        let mut seen = Vec::new();
        while let Some(frame) = pieces.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            seen.extend_from_slice(&piece);
            assert!(piece.len() <= PIECE);
            assert_eq!(pieces.size_hint().exact(), Some(100_000 - seen.len() as u64));
            if pieces.is_end_stream() {
                assert_eq!((piece.len(), budget.held()), (1, 0));
            }
        }
        assert_eq!(seen, bytes);
    }
}
