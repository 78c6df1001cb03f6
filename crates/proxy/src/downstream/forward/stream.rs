//! A stream of events that middleware must see, or whose URLs the client cannot use as they are.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Body as _;
use skep_mcp::{answer, sse};
use skep_net::budget::{OverBudgetError, Purpose, Reservation};
use skep_net::{Body, BodyError, BodySender, Budget};
use skep_upstream::http::ServerSession;
use tokio::time::Instant;

use super::passing::{Ending, passing};
use super::public_url::PublicUrl;
use super::stream_endpoint::{Opened, StreamEndpoint};
use super::whole::{evaluated, is_not_a_reply};
use super::{Forward, RESPONSE};
use crate::chain::reply::ReplyChain;
use crate::exchange::Exchange;
use crate::http::json;

/// How many events may wait for a client. The server waits beyond that.
const EVENTS: usize = 16;
const LIMITS: sse::Limits = sse::Limits { line: RESPONSE, event: RESPONSE };

/// Who ended a stream.
enum By {
    Server,
    Us,
}

/// One stream on its way.
struct Stream {
    proxy: Arc<Forward>,
    replies: ReplyChain,
    endpoint: Option<PublicUrl>,
    opened: Option<Opened>,
    /// Where the messages for this stream go, as the server named it.
    named: Option<StreamEndpoint>,
    budget: Budget,
    /// What came of an event that has not ended.
    begun: Reservation,
}

// === impl Forward ===

impl Forward {
    /// A stream that no middleware sees, until its session or the proxy ends.
    pub(super) fn open_stream(
        &self,
        exchange: &Exchange,
        session: Option<&ServerSession>,
        response: Response<Body>,
    ) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let ending = self.ending_of(exchange, session);
        Response::from_parts(parts, passing(body, ending).passing())
    }

    /// What ends a stream beside the client and the server: one that stays open ends with its session and with the proxy.
    fn ending_of(&self, exchange: &Exchange, session: Option<&ServerSession>) -> Ending {
        if self.stays_open(exchange) {
            self.ending(session.map(|session| session.name().to_owned()))
        } else {
            Box::pin(std::future::pending())
        }
    }

    /// A stream of events, as its middleware lets them through, with the URLs in it that its client can use.
    pub(super) fn stream(
        self: Arc<Self>,
        exchange: &Exchange,
        session: Option<&ServerSession>,
        response: Response<Body>,
        replies: ReplyChain,
    ) -> Response<Body> {
        let is_packed = is_packed(response.headers());
        if is_packed && !replies.is_empty() {
            tracing::error!("stream withheld: compressed by the server despite `Accept-Encoding: identity`");
            return json(StatusCode::BAD_GATEWAY, answer::internal(None));
        }
        let (mut parts, body) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let ending = self.ending_of(exchange, session);
        let endpoint = (self.upstream.is_sse() && !is_packed).then(|| PublicUrl::of(&self.options, exchange));
        let (sender, passed) = Body::channel(EVENTS);
        let opened = self.opened(exchange);
        let budget = exchange.head.budget.clone();
        let begun = budget.reservation(Purpose::Response);
        let stream = Stream { proxy: self, replies, endpoint, opened, named: None, budget, begun };
        tokio::spawn(stream.run(body, sender, ending));
        Response::from_parts(parts, passed.passing())
    }
}

// === impl Stream ===

impl Stream {
    async fn run(mut self, body: Body, sender: BodySender, mut ending: Ending) {
        let mut body = std::pin::pin!(body);
        let mut reader = sse::Reader::new(LIMITS);
        let every = self.proxy.sessions.again();
        let mut again = tokio::time::interval_at(Instant::now() + every, every);
        let ended = loop {
            let frame = tokio::select! {
                frame = next(body.as_mut()) => frame,
                // The connection to the server is dropped with the body.
                () = sender.closed() => break Ok(By::Us),
                () = &mut ending => break Ok(By::Us),
                _ = again.tick(), if self.named.is_some() => {
                    self.keep().await;
                    continue;
                }
            };
            match frame {
                None => break Ok(By::Server),
                Some(Err(error)) => break Err(error),
                Some(Ok(bytes)) => {
                    match unless_over(self.count_begun(reader.pending(), bytes.len()), &sender, &mut ending).await {
                        Some(Ok(())) => reader.feed(&bytes),
                        Some(Err(over)) => break Err(over.into()),
                        None => break Ok(By::Us),
                    }
                }
            }
            match self.forward_events(&mut reader, &sender, &mut ending).await {
                Ok(true) => {}
                Ok(false) => break Ok(By::Us),
                Err(broken) => break Err(broken),
            }
        };
        if let Some(named) = &self.named {
            self.proxy.forget(named).await;
        }
        match ended {
            Ok(By::Server) => self.finish(reader, &sender, &mut ending).await,
            Ok(By::Us) => {}
            Err(error) => {
                tracing::warn!(%error, "closing a stream of events: the next event could not be forwarded");
                sender.abort(error).await;
            }
        }
    }

    /// Forwards complete events. Says whether to go on: the client is connected, and the stream should not end.
    async fn forward_events(
        &mut self,
        reader: &mut sse::Reader,
        sender: &BodySender,
        ending: &mut Ending,
    ) -> Result<bool, BodyError> {
        while let Some(item) = reader.next_item().map_err(|too_long| BodyError::Broken(too_long.into()))? {
            let bytes = match item {
                sse::Item::Quiet(bytes) => bytes,
                sse::Item::Event(event) if event.name.as_deref() == Some(b"endpoint") => {
                    self.send_endpoint(event).await
                }
                sse::Item::Event(event) => self.event(event).await,
            };
            let Some(held) = unless_over(self.hold(bytes), sender, ending).await else { return Ok(false) };
            let bytes = held?;
            let goes_on = tokio::select! {
                biased;
                sent = sender.send(bytes) => sent.is_ok(),
                // A reader that is behind is not waited for.
                () = &mut *ending => false,
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts what is kept of an event that has not ended, now that more of it came. The server waits for as long as there is no room.
    async fn count_begun(&mut self, pending: usize, more: usize) -> Result<(), OverBudgetError> {
        self.begun.shrink_to(pending);
        if pending == 0 {
            // Small ones are not worth it.
            return Ok(());
        }
        self.begun.grow_or_wait((pending + more).saturating_sub(self.begun.bytes()), 0).await
    }

    /// Counts an event until it is sent, in place of what was counted while it came.
    async fn hold(&mut self, event: Bytes) -> Result<Bytes, OverBudgetError> {
        self.begun.shrink_to(event.len());
        let rest = event.len() - self.begun.bytes();
        if rest == event.len() {
            return self.budget.hold_or_wait(event, Purpose::Response).await;
        }
        self.begun.grow_or_wait(rest, rest).await?;
        let begun = std::mem::replace(&mut self.begun, self.budget.reservation(Purpose::Response));
        Ok(begun.over(event))
    }

    /// What is left when a stream ends is half an event, which some clients take for a whole one.
    async fn finish(&mut self, mut reader: sse::Reader, sender: &BodySender, ending: &mut Ending) {
        if self.replies.is_empty() {
            let rest = reader.into_rest();
            if !rest.is_empty() {
                let _gone = sender.send(rest).await;
            }
            return;
        }
        reader.feed(b"\n\n");
        if let Err(error) = self.forward_events(&mut reader, sender, ending).await {
            tracing::error!(%error, "end of a stream withheld");
        }
    }

    async fn event(&self, event: sse::Event) -> Bytes {
        // One without data says no more than how to come back.
        let data = event.data.clone().filter(|data| !data.is_empty() && !self.replies.is_empty());
        // Some clients read messages in events of any name. What is certainly none in events of other names is not evaluated.
        let is_evaluated = |data: &Bytes| event.is_message() || !is_not_a_reply(data);
        let Some(data) = data.filter(is_evaluated) else { return event.raw };
        // Every response is evaluated. Which request it belongs to says nothing: that may have come by another proxy, and the server may
        // write its id in another way than its client did.
        let seen = evaluated(&self.replies, data.clone()).await.unwrap_or_else(|refusal| refusal);
        if seen == data {
            return event.raw;
        }
        let text = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        sse::event(text(&event.name).as_deref(), text(&event.id).as_deref(), &seen)
    }

    /// Sends the client the endpoint for its messages, once every replica knows it. A stream names it once.
    async fn send_endpoint(&mut self, event: sse::Event) -> Bytes {
        let (Some(endpoint), Some(data)) = (&self.endpoint, &event.data) else { return event.raw };
        let url = String::from_utf8_lossy(data);
        if let Some(opened) = self.opened.take() {
            self.named = opened.endpoint(&url, endpoint.is_prefixed());
            if let Some(named) = &self.named {
                self.proxy.begin(named);
            }
            self.keep().await;
        }
        sse::event(Some("endpoint"), None, endpoint.rewrite(&url).as_bytes())
    }

    async fn keep(&self) {
        if let Some(named) = &self.named {
            self.proxy.keep(named).await;
        }
    }
}

/// Waits for room, unless the client closes the stream or it should end.
async fn unless_over<T>(room: impl Future<Output = T>, sender: &BodySender, ending: &mut Ending) -> Option<T> {
    tokio::select! {
        biased;
        room = room => Some(room),
        () = sender.closed() => None,
        () = ending => None,
    }
}

/// Whether a body must be unpacked to be read.
pub(super) fn is_packed(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).into_iter().any(|how| how != "identity")
}

async fn next(mut body: Pin<&mut Body>) -> Option<Result<Bytes, BodyError>> {
    loop {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await?;
        match frame {
            Ok(frame) => {
                // Trailers say nothing that a client would use.
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}
