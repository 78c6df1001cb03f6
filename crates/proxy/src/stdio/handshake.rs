//! The first words with the server: said once, repeated to every caller, and said again to a server that was restarted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Kind, Message, answer, splice};

use skep_store::Session;
use skep_workload::pipe::Notes;

use super::bridge::{Abilities, Bridge, NotSent, SessionId};
use super::call::Failed;
use crate::sessions::GREETING;

/// How long the server may take for its answer. Callers wait less, but a server that is slow to start must not hear a second
/// handshake: it may refuse that one, and every later one.
const SLOWEST: Duration = Duration::from_mins(10);

/// How often is looked for what a server said to another proxy, and the pause between: that one may be about to write it down.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// What a server is told when the handshake is over.
const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What is known of the handshake.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    said: Mutex<Said>,
    /// One at a time: the second caller gets what the first one got.
    asking: Arc<tokio::sync::Mutex<()>>,
    /// Where the answer is kept for the next proxy in front of the same server, while there is a server.
    notes: Mutex<Option<Arc<dyn Notes>>>,
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
    /// waited for even if the caller goes, or has waited for too long. What to answer instead, if there is none.
    pub(crate) async fn greet(self: &Arc<Self>, message: &Message, timeout: Duration) -> Result<Message, Bytes> {
        let Some(id) = message.id() else { return Err(answer::internal(None)) };
        let greeting = if let Some(greeting) = self.handshake.answer() {
            greeting
        } else {
            let asked = tokio::time::timeout(timeout, self.first_greeting(message)).await;
            asked.unwrap_or(Err(Failed::Timeout)).map_err(|failed| failed.body(Some(&id)))?
        };
        let greeting = splice::apply(&greeting, &[Edit::set(&["id"], &id)]).map_err(|_| answer::internal(Some(&id)))?;
        if greeting.kind() == Kind::Response { Ok(greeting) } else { Err(greeting.into_body()) }
    }

    /// The handshake of a session that another proxy opened, if the server has yet to hear one from this proxy. Who is not known here
    /// yet is known by it from now on.
    pub(crate) fn foreign_greeting(&self, session: &SessionId, found: &Session) -> Option<Message> {
        let greeting = found.metadata.get(GREETING)?;
        let is_known = self.with(|state| state.sessions.contains_key(session));
        let is_greeted = self.handshake.request().is_some();
        if is_known && is_greeted {
            return None;
        }
        let greeting = Message::parse(Bytes::copy_from_slice(greeting.as_bytes())).ok()?;
        if !is_known {
            self.introduce(session, Abilities::of(&greeting));
        }
        (!is_greeted).then_some(greeting)
    }

    /// Greets the server for a session that another proxy opened: the server may be a new one, too. One that refuses was greeted by
    /// that proxy, and goes on.
    pub(crate) async fn greet_for(self: &Arc<Self>, greeting: &Message, timeout: Duration) -> Result<(), Failed> {
        let asked = tokio::time::timeout(timeout, self.first_greeting(greeting)).await;
        if asked.unwrap_or(Err(Failed::Timeout))?.kind() == Kind::Response {
            let over = Message::parse(Bytes::from_static(INITIALIZED)).map_err(|_| Failed::NotSent)?;
            self.told(&over, None, timeout).await.map_err(|NotSent| Failed::NotSent)?;
        }
        Ok(())
    }

    /// Asks the server, unless somebody else does or just did: then this waits for that answer. It comes, and is kept, also when
    /// nobody waits for it any more.
    async fn first_greeting(self: &Arc<Self>, message: &Message) -> Result<Message, Failed> {
        let turn = self.handshake.asking.clone().lock_owned().await;
        if let Some(greeting) = self.handshake.answer() {
            return Ok(greeting);
        }
        let (bridge, message) = (self.clone(), message.clone());
        let asking = tokio::spawn(async move {
            let _one_at_a_time = turn;
            let asked = async { Ok(bridge.call(&message, None, None).await?.outcome().await) };
            match tokio::time::timeout(SLOWEST, asked).await {
                Ok(Ok(outcome)) => {
                    let greeting = outcome.answer()?;
                    if greeting.kind() == Kind::Response {
                        bridge.handshake.keep(&message, &greeting, false);
                        bridge.handshake.note(&greeting);
                        return Ok(greeting);
                    }
                    // It may have been greeted by the proxy before this one, and take one handshake only.
                    let Some(earlier) = bridge.handshake.noted().await else { return Ok(greeting) };
                    tracing::info!("the server refuses a second handshake; it goes on with what it said to the first");
                    bridge.handshake.keep(&message, &earlier, true);
                    Ok(earlier)
                }
                Ok(Err(NotSent)) => Err(Failed::NotSent),
                Err(_) => Err(Failed::Timeout),
            }
        });
        asking.await.unwrap_or(Err(Failed::NotSent))
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

    /// Whether it was told.
    pub(super) fn is_told(&self) -> bool {
        self.with(|said| said.told)
    }

    /// A server that was restarted has answered the request again: that is what callers hear from now on.
    pub(super) fn renew(&self, answer: Message) {
        self.with(|said| said.answer = Some(answer));
    }

    fn answer(&self) -> Option<Message> {
        self.with(|said| said.answer.clone())
    }

    /// Whom the handshake is with from now on.
    pub(super) fn meet(&self, notes: Option<Arc<dyn Notes>>) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = notes;
    }

    /// Writes down what the server said, for the next proxy in front of it. Nobody waits for that.
    pub(super) fn note(&self, answer: &Message) {
        let Some(notes) = self.notes() else { return };
        if let Ok(text) = String::from_utf8(answer.body().to_vec()) {
            tokio::spawn(notes.keep(text));
        }
    }

    /// What the server said to another proxy.
    pub(super) async fn noted(&self) -> Option<Message> {
        let notes = self.notes()?;
        for look in 0..LOOKS {
            if look > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(text) = notes.kept().await {
                return Message::parse(text.into()).ok().filter(|answer| answer.kind() == Kind::Response);
            }
        }
        None
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, request: &Message, answer: &Message, told: bool) {
        self.with(|said| *said = Said { request: Some(request.clone()), answer: Some(answer.clone()), told });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Said) -> T) -> T {
        // Every change is one assignment: it is complete or not begun.
        act(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
