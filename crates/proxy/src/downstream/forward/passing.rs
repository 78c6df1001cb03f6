//! Streams that stay open for as long as their client likes.
//!
//! While one is open, its session lives. It ends in good order, which is between two events, when this proxy ends or its session is
//! gone: then its client reconnects. One that no middleware has to see passes as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::{Body as HttpBody, Frame};
use skep_net::{Body, BodyError};

use super::Forward;
use crate::exchange::Exchange;

/// How long before the rest is cut a stream that answers may come on is ended in good order.
const LAST: Duration = Duration::from_secs(1);

/// The request of today's protocol whose answer stays open.
const LISTEN: &str = "subscriptions/listen";

/// When a stream should end.
pub(super) type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A stream that no middleware has to see.
struct Passing {
    body: Body,
    /// Gone when the stream was ended.
    ending: Option<Ending>,
    /// The last bytes that passed. At first, none did, and it is as if an event had ended.
    last: [u8; 3],
}

/// A stream that passes as it comes until it should end. An event that has begun is brought to its end before.
pub(super) fn passing(body: Body, ending: Ending) -> Body {
    Body::boxed(Passing { body, ending: Some(ending), last: *b"\n\n\n" })
}

// === impl Forward ===

impl Forward {
    /// Whether a stream that answers a call stays open, and is not the answer to something that the client waits for.
    pub(super) fn stays_open(&self, exchange: &Exchange) -> bool {
        let is_listening = exchange.message().is_some_and(|message| message.method() == Some(LISTEN));
        exchange.head.method == Method::GET || self.upstream.is_sse() || is_listening
    }

    /// When a stream that stays open should end: with this proxy, or with its session. Over SSE, answers come on it: they have as long
    /// as any call has.
    pub(super) fn ending(&self, session: Option<String>) -> Ending {
        let (stopping, sse, sessions) = (self.drain.stopping(), self.upstream.is_sse(), self.sessions.clone());
        Box::pin(async move {
            let proxy_ends = async {
                let cut = stopping.await;
                if sse {
                    tokio::time::sleep_until(cut.checked_sub(LAST).unwrap_or(cut)).await;
                }
            };
            let session_ends = async {
                match &session {
                    Some(session) => sessions.keep_alive(session).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = proxy_ends => {}
                () = session_ends => {}
            }
        })
    }
}

// === impl Passing ===

impl Passing {
    /// Takes note of what passes.
    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().skip(bytes.len().saturating_sub(self.last.len())) {
            let [_, second, third] = self.last;
            self.last = [second, third, *byte];
        }
    }

    /// Whether the last that passed was an empty line, however lines end.
    fn is_between_events(&self) -> bool {
        matches!(self.last, [_, b'\n', b'\n' | b'\r'] | [_, b'\r', b'\r'] | [b'\n' | b'\r', b'\r', b'\n'])
    }
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_between_events() {
            let is_over = self.ending.as_mut().is_none_or(|ending| ending.as_mut().poll(context).is_ready());
            if is_over {
                // The connection to the server is dropped with its body.
                (self.ending, self.body) = (None, Body::empty());
                return Poll::Ready(None);
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(bytes) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.note(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line_however_lines_end_and_wherever_the_stream_is_cut() {
        for (text, is_between) in [
            ("", true),
            ("data: a", false),
            ("data: a\n", false),
            ("data: a\n\n", true),
            ("data: a\r", false),
            ("data: a\r\r", true),
            ("data: a\r\n", false),
            ("data: a\r\n\r\n", true),
            ("data: a\n\r\n", true),
            ("data: a\r\r\n", true),
            ("data: a\n\ndata: b\n", false),
            ("\n\n", true),
        ] {
            for cut in 0..=text.len() {
                let mut stream = Passing { body: Body::empty(), ending: None, last: *b"\n\n\n" };
                let (before, after) = text.as_bytes().split_at(cut);
                stream.note(before);
                stream.note(after);
                assert_eq!(stream.is_between_events(), is_between, "{text:?} cut at {cut}");
            }
        }
    }
}
