//! The messages of one HTTP response, whichever framing the server chose: one JSON body, or a stream of events.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body as _;
use skep_mcp::{Message, message, sse};
use skep_net::budget::{Purpose, Reservation};
use skep_net::{Body, BodyError, Budget};

use crate::error::CallError;

/// The longest message that is read, in bytes.
pub(super) const LONGEST: usize = 64 * 1024 * 1024;
const LIMITS: sse::Limits = sse::Limits { line: LONGEST, event: LONGEST };

/// The messages of one response. What came of one that is not complete counts in the memory budget; a complete one is the reader's.
#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    framing: Framing,
    begun: Reservation,
    /// The id of the last event, from which the stream can be resumed.
    pub(super) last_event: Option<HeaderValue>,
    /// After how long the server wants a client to reconnect.
    pub(super) retry: Option<Duration>,
}

#[derive(Debug)]
enum Framing {
    Json(BytesMut),
    Events(Box<sse::Reader>),
    /// There is nothing left.
    Ended,
}

/// Whether a response is a stream of events.
pub(super) fn is_events(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    media.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
}

// === impl Messages ===

impl Messages {
    pub(super) fn of(response: Response<Body>, budget: &Budget) -> Self {
        let framing = if is_events(response.headers()) {
            Framing::Events(Box::new(sse::Reader::new(LIMITS)))
        } else {
            Framing::Json(BytesMut::new())
        };
        let begun = budget.reservation(Purpose::Response);
        Self { body: response.into_body(), framing, begun, last_event: None, retry: None }
    }

    /// Whether it is a stream of events, which may have messages before the response.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.framing, Framing::Events(_))
    }

    /// The next message. Nothing at the end; half an event is none. After `Malformed`, a stream goes on.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, CallError> {
        loop {
            if !self.is_stream() {
                return self.whole().await;
            }
            let Some(event) = self.next_event().await? else { return Ok(None) };
            let data = event.data.clone().filter(|data| event.is_message() && !data.is_empty());
            if let Some(data) = data {
                return Message::parse(data).map(Some).map_err(|_malformed| CallError::Malformed);
            }
        }
    }

    /// The next event of a stream, whatever it is.
    pub(super) async fn next_event(&mut self) -> Result<Option<sse::Event>, CallError> {
        loop {
            let Framing::Events(reader) = &mut self.framing else { return Ok(None) };
            match reader.next_item() {
                Ok(Some(sse::Item::Event(event))) => {
                    self.note(&event);
                    return Ok(Some(event));
                }
                Ok(Some(sse::Item::Quiet(_))) => continue,
                Ok(None) => {}
                Err(_too_long) => return Err(CallError::TooLarge { limit: LONGEST }),
            }
            let pending = reader.pending();
            let Some(bytes) = self.next_bytes().await? else {
                self.framing = Framing::Ended;
                return Ok(None);
            };
            self.count(pending, bytes.len()).await?;
            if let Framing::Events(reader) = &mut self.framing {
                reader.feed(&bytes);
            }
        }
    }

    /// The one message of a body.
    async fn whole(&mut self) -> Result<Option<Message>, CallError> {
        while let Some(bytes) = self.next_bytes().await? {
            let Framing::Json(buffer) = &mut self.framing else { return Ok(None) };
            let pending = buffer.len();
            if bytes.len() > LONGEST - pending {
                return Err(CallError::TooLarge { limit: LONGEST });
            }
            self.count(pending, bytes.len()).await?;
            if let Framing::Json(buffer) = &mut self.framing {
                buffer.extend_from_slice(&bytes);
            }
        }
        let Framing::Json(buffer) = std::mem::replace(&mut self.framing, Framing::Ended) else { return Ok(None) };
        self.begun.shrink_to(0);
        let body = message::without_byte_order_mark(buffer.freeze());
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        Message::parse(body).map(Some).map_err(|_malformed| CallError::Malformed)
    }

    /// Counts what is kept of a message that is not complete. The server waits for as long as there is no room.
    async fn count(&mut self, pending: usize, more: usize) -> Result<(), CallError> {
        self.begun.shrink_to(pending);
        if pending == 0 {
            // Small ones are not worth it.
            return Ok(());
        }
        let missing = (pending + more).saturating_sub(self.begun.bytes());
        self.begun.grow_or_wait(missing, 0).await.map_err(|_over| CallError::TooLarge { limit: pending })
    }

    fn note(&mut self, event: &sse::Event) {
        let id = event.id.as_ref().filter(|id| !id.is_empty());
        if let Some(id) = id.and_then(|id| HeaderValue::from_bytes(id).ok()) {
            self.last_event = Some(id);
        }
        self.retry = event.retry.map(Duration::from_millis).or(self.retry);
    }

    async fn next_bytes(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            match frame.transpose().map_err(|error| broken(&error))? {
                None => return Ok(None),
                // Trailers carry no message.
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_trailers) => {}
                },
            }
        }
    }
}

fn broken(error: &BodyError) -> CallError {
    tracing::debug!(%error, "response of the server broke off");
    CallError::Disconnected
}
