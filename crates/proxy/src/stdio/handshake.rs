//! The first words with the server: said once, repeated to every caller, and said again to a server that was restarted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Kind, Message, answer, splice};

use super::bridge::{Bridge, NotSent};
use super::call::{Failed, Outcome};

/// What is known of the handshake.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    said: Mutex<Said>,
    /// One at a time: the second caller gets what the first one got.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Said {
    /// The request that was answered.
    request: Option<Message>,
    /// The answer.
    answer: Option<Message>,
    /// Whether the server was told that the handshake is over.
    told: bool,
}

// === impl Bridge ===

impl Bridge {
    /// The answer to a handshake, with the caller's own id. The server hears the first one only; its answer is everybody's, so it is
    /// asked for even if the caller goes. What to answer instead, if there is none.
    pub(crate) async fn greet(self: &Arc<Self>, message: &Message, timeout: Duration) -> Result<Message, Bytes> {
        let Some(id) = message.id() else { return Err(answer::internal(None)) };
        let greeting = if let Some(greeting) = self.handshake.answer() {
            greeting
        } else {
            let (bridge, message) = (self.clone(), message.clone());
            let asked = tokio::spawn(async move { bridge.first_greeting(&message, timeout).await });
            asked.await.unwrap_or_else(|_| Err(answer::internal(Some(&id))))?
        };
        splice::apply(&greeting, &[Edit::set(&["id"], &id)]).map_err(|_| answer::internal(Some(&id)))
    }

    /// Asks the server, unless somebody else just did.
    async fn first_greeting(self: &Arc<Self>, message: &Message, timeout: Duration) -> Result<Message, Bytes> {
        let id = message.id();
        let failed = |why: Failed| why.body(id.as_ref());
        // Whoever waits for the turn waits no longer for that than for the answer.
        let asked = async {
            let _one_at_a_time = self.handshake.asking.lock().await;
            if let Some(greeting) = self.handshake.answer() {
                return Ok(Outcome::Answer(Box::new(greeting)));
            }
            let outcome = self.call(message, None, None).await?.outcome().await;
            if let Outcome::Answer(greeting) = &outcome
                && greeting.kind() == Kind::Response
            {
                self.handshake.keep(message, greeting);
            }
            Ok::<_, NotSent>(outcome)
        };
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(Outcome::Answer(greeting))) if greeting.kind() == Kind::Response => Ok(*greeting),
            Ok(Ok(Outcome::Answer(refusal))) => Err(refusal.into_body()),
            Ok(Ok(Outcome::Gone)) => Err(failed(Failed::Gone)),
            Ok(Err(NotSent)) => Err(failed(Failed::NotSent)),
            Err(_) => Err(failed(Failed::Timeout)),
        }
    }
}

// === impl Handshake ===

impl Handshake {
    /// The request that a server which was restarted must hear, if one was answered.
    pub(super) fn request(&self) -> Option<Message> {
        self.with(|said| said.request.clone())
    }

    /// Whether the server has yet to be told that the handshake is over. Says so once.
    pub(super) fn must_tell_initialized(&self) -> bool {
        self.with(|said| !std::mem::replace(&mut said.told, true))
    }

    /// A server that was restarted has answered the request again: that is what callers hear from now on.
    pub(super) fn renew(&self, answer: Message) {
        self.with(|said| said.answer = Some(answer));
    }

    fn answer(&self) -> Option<Message> {
        self.with(|said| said.answer.clone())
    }

    fn keep(&self, request: &Message, answer: &Message) {
        self.with(|said| *said = Said { request: Some(request.clone()), answer: Some(answer.clone()), told: false });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Said) -> T) -> T {
        // Every change is one assignment: it is complete or not begun.
        act(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
