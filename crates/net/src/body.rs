//! The one body type for sending: responses to clients and requests to backends.
//!
//! A body that is only forwarded passes through frame by frame; a complete body is one frame; a generated body comes
//! through a bounded channel, so a slow reader applies backpressure to its writer.
//!
//! ```text
//!   backend ─▶ read buffer, or HTTP/2 window ─▶ body ─▶ write buffer ─▶ kernel
//!              └──────────── at most PASSING bytes, which a budget counts ──┘
//! ```

mod collect;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

pub use collect::{Intake, Limit, collect, collect_within, discard};
pub use watched::BodyWatch;

use crate::BoxError;
use crate::budget::{Budget, OverBudgetError, Purpose, Reservation, TINY};
use crate::client::Leased;

/// How many bytes are buffered of a body that is read from a backend while it is sent: two reads on HTTP/1, or the
/// window of a stream on HTTP/2. See `client/dial.rs`.
pub const PASSING: usize = 64 * 1024;
/// Up to which length such a body is not counted: the connection's buffers hold it, and connections are limited.
const UNCOUNTED: u64 = 16 * 1024;

/// A body to send.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    /// The same, already counted in a budget.
    Counted(Bytes),
    /// In reverse order. None is empty.
    Parts(Vec<Bytes>),
    Incoming(Incoming),
    /// Of a response to our client: its connection, or its stream of one, is free again when the body has ended.
    Leased(Leased),
    Channel(mpsc::Receiver<Result<Frame<Bytes>, BodyError>>),
    Boxed(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
    /// The same, read from a backend while it is sent. Not counted in a budget so far.
    Passing(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
}

/// A body that is read from a backend while it is sent, with a reservation for what is buffered of it.
struct BudgetedBody {
    body: Body,
    /// Released when the body has ended. Each part of it holds it as well, until the kernel has taken that.
    room: Option<Arc<Reservation>>,
}

/// A part of such a body.
struct Part {
    bytes: Bytes,
    _room: Arc<Reservation>,
}

/// A body, and a value that is dropped at its end.
struct Holding<T> {
    body: Body,
    held: Option<T>,
}

/// Writes a body while it is sent. The body ends when this is dropped; if the writer panicked, the body is aborted, so
/// that its reader does not take it for complete.
#[derive(Debug)]
pub struct BodySender(mpsc::Sender<Result<Frame<Bytes>, BodyError>>);

/// The body has no reader any more: the client disconnected, or the connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body has no reader any more")]
pub struct BodyClosedError;

/// A body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It exceeds the limit.
    #[error("the body is longer than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Its sender stalled.
    #[error("no part of the body arrived for {} s", .idle.as_secs_f32())]
    Stalled {
        /// How long the next part was waited for.
        idle: Duration,
    },
    /// Its sender is below the minimum rate over the whole body.
    #[error("the body arrives at less than {rate} bytes a second; send it faster")]
    TooSlow {
        /// The minimum rate, in bytes per second.
        rate: usize,
    },
    /// The budget has no room for it now.
    #[error(transparent)]
    OverBudget(#[from] OverBudgetError),
    /// It ended prematurely.
    #[error("the body ended prematurely")]
    Broken(#[source] BoxError),
}

impl BodyError {
    /// A constant name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Stalled { .. } => "stalled",
            Self::TooSlow { .. } => "too_slow",
            Self::OverBudget(_) => "over_budget",
            Self::Broken(_) => "broken",
        }
    }
}

impl Body {
    /// An empty body.
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// A body of these bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(if bytes.is_empty() { Kind::Empty } else { Kind::Full(bytes) })
    }

    /// A body of these bytes, already counted in a budget: see [`Self::within`].
    pub fn counted(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { Kind::Empty } else { Kind::Counted(bytes) })
    }

    /// A body of these bytes in order. They are sent together without being copied together.
    pub fn parts(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let mut parts: Vec<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.len() < 2 {
            return Self::full(parts.pop().unwrap_or_default());
        }
        parts.reverse();
        Self(Kind::Parts(parts))
    }

    /// A body that is written while it is sent, at most `capacity` frames ahead of the connection.
    pub fn channel(capacity: usize) -> (BodySender, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (BodySender(sender), Self(Kind::Channel(receiver)))
    }

    /// Any other body. It is boxed: on hot paths, use one of the others.
    pub fn boxed<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        use http_body_util::BodyExt as _;
        Self(Kind::Boxed(Box::pin(body.map_err(|error| BodyError::Broken(error.into())))))
    }

    /// The same, with a value that is dropped when the body has ended or has no reader any more.
    #[must_use]
    pub fn holding(self, held: impl Send + 'static) -> Self {
        match self.0 {
            // The body is complete: its end is now.
            Kind::Empty | Kind::Full(_) | Kind::Counted(_) | Kind::Parts(_) => self,
            Kind::Incoming(_) | Kind::Channel(_) | Kind::Boxed(_) => {
                Self(Kind::Boxed(Box::pin(Holding { body: self, held: Some(held) })))
            }
            Kind::Leased(_) | Kind::Passing(_) => {
                Self(Kind::Passing(Box::pin(Holding { body: self, held: Some(held) })))
            }
        }
    }

    /// Marks the body as one that is read from a backend while it is sent: see [`PASSING`]. Bodies of responses of
    /// [`crate::Client`] are marked, and a wrapper around one must be marked again.
    #[must_use]
    pub fn passing(self) -> Self {
        Self(match self.0 {
            Kind::Boxed(body) => Kind::Passing(body),
            kind @ (Kind::Incoming(_) | Kind::Channel(_)) => Kind::Passing(Box::pin(Self(kind))),
            kind => kind,
        })
    }

    /// The same, counted in a budget until it is sent; waits until there is room. Of a body that is read from a backend
    /// meanwhile, the most that is buffered counts; a generated body is counted where it is generated.
    pub async fn within(self, budget: &Budget) -> Result<Self, OverBudgetError> {
        let room = budget.reserve_or_wait(self.buffered(), Purpose::Response).await?;
        Ok(self.over(room))
    }

    /// The same, if there is room now; otherwise returns it unchanged.
    pub fn try_within(self, budget: &Budget) -> Result<Self, Self> {
        match budget.try_reserve(self.buffered(), Purpose::Response) {
            Some(room) => Ok(self.over(room)),
            None => Err(self),
        }
    }

    /// How much of it is in memory and not counted yet.
    fn buffered(&self) -> usize {
        match &self.0 {
            Kind::Full(bytes) => bytes.len(),
            Kind::Parts(parts) => parts.iter().map(Bytes::len).sum(),
            Kind::Leased(_) | Kind::Passing(_) => match self.size_hint().upper() {
                Some(upper) if upper <= UNCOUNTED => 0,
                Some(upper) => usize::try_from(upper).unwrap_or(PASSING).min(PASSING),
                None => PASSING,
            },
            _ => 0,
        }
    }

    fn over(self, room: Reservation) -> Self {
        Self(match self.0 {
            Kind::Full(bytes) => Kind::Counted(room.over(bytes)),
            Kind::Parts(mut parts) => {
                // The longest part carries the reservation: the others only frame it.
                if let Some(longest) = parts.iter_mut().max_by_key(|part| part.len()) {
                    *longest = room.over(std::mem::take(longest));
                }
                Kind::Parts(parts)
            }
            kind @ (Kind::Leased(_) | Kind::Passing(_)) if room.bytes() > 0 => {
                Kind::Boxed(Box::pin(BudgetedBody { body: Self(kind), room: Some(Arc::new(room)) }))
            }
            kind => kind,
        })
    }

    pub(crate) fn leased(body: Leased) -> Self {
        Self(Kind::Leased(body))
    }
}

impl From<Incoming> for Body {
    /// Forwards a body as it arrives.
    fn from(incoming: Incoming) -> Self {
        Self(Kind::Incoming(incoming))
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let kind = &mut self.get_mut().0;
        match kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) | Kind::Counted(bytes) => {
                let bytes = std::mem::take(bytes);
                *kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Parts(parts) => Poll::Ready(parts.pop().map(|part| Ok(Frame::data(part)))),
            Kind::Incoming(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(|error| BodyError::Broken(error.into()))))
            }
            Kind::Leased(leased) => {
                let frame = ready!(leased.poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(|error| BodyError::Broken(error.into()))))
            }
            Kind::Channel(receiver) => receiver.poll_recv(context),
            Kind::Boxed(body) | Kind::Passing(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(_) | Kind::Counted(_) => false,
            Kind::Parts(parts) => parts.is_empty(),
            Kind::Incoming(incoming) => incoming.is_end_stream(),
            Kind::Leased(leased) => leased.incoming().is_end_stream(),
            Kind::Channel(receiver) => receiver.is_closed() && receiver.is_empty(),
            Kind::Boxed(body) | Kind::Passing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) | Kind::Counted(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Parts(parts) => SizeHint::with_exact(parts.iter().map(|part| part.len() as u64).sum()),
            Kind::Incoming(incoming) => incoming.size_hint(),
            Kind::Leased(leased) => leased.incoming().size_hint(),
            Kind::Channel(_) => SizeHint::default(),
            Kind::Boxed(body) | Kind::Passing(body) => body.size_hint(),
        }
    }
}

impl HttpBody for BudgetedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match (frame, &self.room) {
            (Some(Ok(frame)), Some(room)) => Some(Ok(frame.map_data(|bytes| Part::of(bytes, room)))),
            (end, _) => {
                self.room = None;
                end
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Part {
    fn of(bytes: Bytes, room: &Arc<Reservation>) -> Bytes {
        if bytes.len() < TINY { bytes } else { Bytes::from_owner(Self { bytes, _room: Arc::clone(room) }) }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// Nothing in it is ever pinned.
impl<T> Unpin for Holding<T> {}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Empty => "empty",
            Kind::Full(_) | Kind::Counted(_) => "full",
            Kind::Parts(_) => "parts",
            Kind::Incoming(_) => "incoming",
            Kind::Leased(_) => "leased",
            Kind::Channel(_) => "channel",
            Kind::Boxed(_) => "boxed",
            Kind::Passing(_) => "passing",
        };
        formatter.debug_tuple("Body").field(&kind).finish()
    }
}

impl BodySender {
    /// Sends bytes, waiting while the reader is behind.
    pub async fn send(&self, bytes: Bytes) -> Result<(), BodyClosedError> {
        self.0.send(Ok(Frame::data(bytes))).await.map_err(|_| BodyClosedError)
    }

    /// Sends bytes if there is room for them now; returns them if the reader is behind.
    pub fn try_send(&self, bytes: Bytes) -> Result<Option<Bytes>, BodyClosedError> {
        match self.0.try_reserve() {
            Ok(permit) => {
                permit.send(Ok(Frame::data(bytes)));
                Ok(None)
            }
            Err(mpsc::error::TrySendError::Full(())) => Ok(Some(bytes)),
            Err(mpsc::error::TrySendError::Closed(())) => Err(BodyClosedError),
        }
    }

    /// Aborts the body, so that the reader does not take it for complete.
    pub async fn abort(self, error: BodyError) {
        // A reader that has left needs no notification.
        let _unread = self.0.send(Err(error)).await;
    }

    /// Waits until the body has no reader any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let broken = Err(BodyError::Broken("its writer failed".into()));
        let Err(mpsc::error::TrySendError::Full(broken)) = self.0.try_send(broken) else { return };
        // The reader is behind, and a panic cannot wait for it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let sender = self.0.clone();
            runtime.spawn(async move { sender.send(broken).await });
        }
    }
}
