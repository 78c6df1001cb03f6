//! The stream of what a session hears outside of its calls: `GET /mcp`.

use http::Response;
use skep_mcp::sse;
use skep_net::{Body, Budget};
use skep_upstream::{SessionId, abbreviate};

use super::Streamable;
use crate::downstream::listener::Listener;
use crate::downstream::reply::{INTERIM, keep_alive};
use crate::http::events;

// === impl Streamable ===

impl Streamable {
    /// Streams what a session hears, until the client leaves, the session ends, or another stream of the session takes over.
    pub(super) fn listen(&self, session: SessionId, budget: Budget) -> Response<Body> {
        let mut listener = Listener::new(self.endpoint.upstream.events(&session, budget.clone()), budget);
        let (sender, body) = Body::channel(INTERIM);
        let stopping = self.endpoint.drain.stopping();
        let sessions = self.endpoint.sessions.clone();
        tokio::spawn(async move {
            let mut stopping = std::pin::pin!(stopping);
            // A session that is listened to lives; one that ended elsewhere is not listened to any more.
            let mut over = std::pin::pin!(sessions.keep_alive(&session));
            let mut alive = keep_alive();
            loop {
                let bytes = tokio::select! {
                    event = listener.next() => match event {
                        Some(event) => event,
                        None => return,
                    },
                    () = &mut over => {
                        tracing::debug!(session = abbreviate(&session), "session ended");
                        return;
                    }
                    _ = alive.tick() => sse::comment("keep-alive"),
                    () = sender.closed() => return,
                    _ = &mut stopping => return,
                };
                if sender.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        events(body)
    }
}
