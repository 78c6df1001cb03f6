//! What the server responded when it was initialized: once to the proxy, repeated to every client, and kept for the next proxy in front
//! of the same server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_mcp::{Era, Kind, Message};

use skep_workload::pipe::Notes;

use super::upstream::StdioUpstream;
use crate::era;

/// How often the note of another proxy about the server is read, and the delay between: that proxy may be about to write it.
const READS: u32 = 3;
const DELAY: Duration = Duration::from_millis(500);

/// What is known of the handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    answered: Mutex<Answered>,
    /// Where the answer is kept for the next proxy in front of the same server, while there is a server.
    notes: Mutex<Option<Arc<dyn Notes>>>,
}

#[derive(Debug)]
struct Answered {
    /// The era that the server was last opened in, if it ever was.
    era: Option<Era>,
    /// Its answer to `initialize`. Nothing for a server of 2026-07-28.
    answer: Option<Message>,
    /// What the next server is opened with.
    opening: Era,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// The server's answer to `initialize`, for the client that sent this one. Nothing if the server has not answered it.
    pub(super) fn initialized(&self, initialize: &Message) -> Option<Message> {
        era::answer_to(initialize, &self.handshake.answer()?)
    }
}

// === impl Handshake ===

impl Default for Handshake {
    fn default() -> Self {
        let answered = Answered { era: None, answer: None, opening: Era::Legacy };
        Self { answered: Mutex::new(answered), notes: Mutex::default() }
    }
}

impl Handshake {
    /// The era that the server was last opened in, if it ever was.
    pub(super) fn era(&self) -> Option<Era> {
        self.with(|answered| answered.era)
    }

    /// The version that the server agreed to in its answer to `initialize`.
    pub(super) fn version(&self) -> Option<String> {
        self.answer().as_ref().and_then(era::protocol_version)
    }

    /// The server answered `initialize`: that is the response to every client from now on.
    pub(super) fn accept(&self, answer: Message) {
        let legacy = Era::Legacy;
        self.with(|answered| *answered = Answered { era: Some(legacy), answer: Some(answer), opening: legacy });
    }

    /// The server answered `server/discover`, and is opened by that from now on.
    pub(super) fn accept_modern(&self) {
        self.with(|answered| *answered = Answered { era: Some(Era::Modern), answer: None, opening: Era::Modern });
    }

    /// What a server is opened with that is connected to now. The next one is opened by `initialize` again, unless this one answers.
    pub(super) fn take_opening(&self) -> Era {
        self.with(|answered| std::mem::replace(&mut answered.opening, Era::Legacy))
    }

    /// What the next server is opened with.
    pub(super) fn opening(&self) -> Era {
        self.with(|answered| answered.opening)
    }

    /// Changes what the next server is opened with.
    pub(super) fn open_with(&self, era: Era) {
        self.with(|answered| answered.opening = era);
    }

    fn answer(&self) -> Option<Message> {
        self.with(|answered| answered.answer.clone())
    }

    /// Where the answer of the server is kept from now on, if anywhere.
    pub(super) fn set_notes(&self, notes: Option<Arc<dyn Notes>>) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = notes;
    }

    /// Writes down what the server said, for the next proxy in front of it, without waiting for that.
    pub(super) fn note(&self, answer: &Message) {
        let Some(notes) = self.notes() else { return };
        if let Ok(text) = String::from_utf8(answer.body().to_vec()) {
            tokio::spawn(notes.keep(text));
        }
    }

    /// What the server said to another proxy.
    pub(super) async fn noted(&self) -> Option<Message> {
        let notes = self.notes()?;
        for read in 0..READS {
            if read > 0 {
                tokio::time::sleep(DELAY).await;
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

    fn with<T>(&self, act: impl FnOnce(&mut Answered) -> T) -> T {
        // Every change is one assignment: it is complete or not begun.
        act(&mut self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
