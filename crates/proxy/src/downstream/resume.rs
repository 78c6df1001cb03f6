//! Answers that a client can come back to: which streams of a session there are, and what of them is kept.
//!
//! The id of an event is the name of its stream and its number on it. It is looked up among the streams of the client's own
//! session, so no client resumes a stream of another. All that is kept is counted, for each session and for all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::sse;
use skep_net::budget::{Purpose, Reservation};
use skep_net::{BodySender, Budget};
use skep_upstream::SessionId;
use tokio::sync::mpsc;

/// How long a client may be away, before what is kept for it goes and its call is cancelled.
pub(super) const AWAY: Duration = Duration::from_mins(1);
/// After how long a client should come back, in milliseconds.
const RETRY: u32 = 1000;
/// How many streams of a session can be come back to.
const STREAMS: usize = 32;
/// How many events of a stream are kept.
const EVENTS: usize = 64;
/// What a stream itself counts for, in bytes: more than it takes.
const STREAM: usize = 8 * 1024;
/// How much is kept of the streams of a session, in bytes.
const SESSION: usize = 1024 * 1024;
/// How much is kept of all streams, in bytes.
const TOTAL: usize = 64 * 1024 * 1024;
/// Which part of the memory budget all that is kept may have. One client may have half of that. It stays for as long as clients may be
/// away, so it must leave room for responses.
const PART: usize = 8;

/// The streams that clients can resume.
#[derive(Debug, Default)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// The part of the memory budget for what is kept.
    part: OnceLock<Budget>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionId, Kept>,
    /// How much is kept of all of them, in bytes.
    held: usize,
}

/// The streams of a session, the oldest first.
#[derive(Debug, Default)]
struct Kept {
    streams: Vec<Entry>,
    held: usize,
}

#[derive(Debug)]
struct Entry {
    name: u64,
    resume: mpsc::Sender<Resume>,
    is_answered: bool,
}

/// A client that comes back.
#[derive(Debug)]
pub(super) struct Resume {
    /// The number of the last event that it has.
    pub(super) after: u64,
    /// Where it reads now.
    pub(super) reader: BodySender,
}

/// The right of one stream to be come back to.
#[derive(Debug)]
pub(super) struct Ticket {
    streams: Arc<Streams>,
    session: SessionId,
    name: u64,
    held: usize,
    /// What is kept, in the part of the budget for that.
    part: Reservation,
    /// The stream itself, in the client's share.
    _share: Reservation,
}

/// What was written to a client and is kept, and what is yet to be written.
#[derive(Debug)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    /// How many of them were written.
    written: usize,
    /// The number of the next one.
    number: u64,
    /// The number of the answer.
    answer: Option<u64>,
    ticket: Option<Ticket>,
}

#[derive(Debug)]
struct Event {
    number: u64,
    bytes: Bytes,
    /// Whether it is counted, and so may be kept.
    is_counted: bool,
}

// === impl Streams ===

impl Streams {
    /// Begins a stream that can be resumed by the client whose share this is. Nothing if there are too many of them.
    pub(super) fn open(
        self: &Arc<Self>,
        session: &SessionId,
        share: &Budget,
    ) -> Option<(Ticket, mpsc::Receiver<Resume>)> {
        let part = self.part.get_or_init(|| Budget::new(share.limit() / PART));
        let part = share.client().map_or_else(|| part.clone(), |client| part.of_client(client));
        let part = part.reserve(STREAM, Purpose::Response).ok()?;
        let of_share = share.reserve(STREAM, Purpose::Response).ok()?;
        let (resume, resumed) = mpsc::channel(1);
        let (name, _) = uuid::Uuid::new_v4().as_u64_pair();
        self.with(|state| {
            if state.held + STREAM > TOTAL {
                return None;
            }
            let kept = state.sessions.entry(session.clone()).or_default();
            if kept.streams.len() >= STREAMS {
                let place = kept.streams.iter().position(|stream| stream.is_answered)?;
                kept.streams.remove(place);
            }
            kept.streams.push(Entry { name, resume, is_answered: false });
            kept.held += STREAM;
            state.held += STREAM;
            Some(())
        })?;
        let (streams, session) = (self.clone(), session.clone());
        Some((Ticket { streams, session, name, held: STREAM, part, _share: of_share }, resumed))
    }

    /// The stream that an event is of, and the number of the event.
    pub(super) fn find(&self, session: &str, event: &str) -> Option<(mpsc::Sender<Resume>, u64)> {
        let (name, number) = event.split_once('-')?;
        let (name, number) = (u64::from_str_radix(name, 16).ok()?, number.parse().ok()?);
        self.with(|state| {
            let stream = state.sessions.get(session)?.streams.iter().find(|stream| stream.name == name)?;
            Some((stream.resume.clone(), number))
        })
    }

    /// Forgets the streams of a session. Those that are being read are read to their end.
    pub(super) fn forget(&self, session: &str) {
        self.with(|state| state.sessions.remove(session));
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // What is counted is counted before it is kept, and after it is gone.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Ticket ===

impl Ticket {
    /// Counts bytes, if they may be kept.
    fn hold(&mut self, bytes: usize) -> bool {
        if self.part.grow(bytes).is_err() {
            return false;
        }
        let held = self.streams.with(|state| {
            let Some(kept) = state.sessions.get_mut(&self.session) else { return false };
            let fits = kept.held + bytes <= SESSION && state.held + bytes <= TOTAL;
            if fits {
                kept.held += bytes;
                state.held += bytes;
            }
            fits
        });
        if held {
            self.held += bytes;
        } else {
            self.part.shrink_to(self.held);
        }
        held
    }

    fn release(&mut self, bytes: usize) {
        self.held -= bytes;
        self.part.shrink_to(self.held);
        self.streams.with(|state| state.release(&self.session, bytes));
    }

    fn answered(&self) {
        self.streams.with(|state| {
            let mut streams = state.sessions.get_mut(&self.session).into_iter().flat_map(|kept| &mut kept.streams);
            if let Some(stream) = streams.find(|stream| stream.name == self.name) {
                stream.is_answered = true;
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.streams.with(|state| {
            state.release(&self.session, self.held);
            let Some(kept) = state.sessions.get_mut(&self.session) else { return };
            kept.streams.retain(|stream| stream.name != self.name);
            if kept.streams.is_empty() {
                state.sessions.remove(&self.session);
            }
        });
    }
}

// === impl State ===

impl State {
    fn release(&mut self, session: &SessionId, bytes: usize) {
        self.held -= bytes;
        if let Some(kept) = self.sessions.get_mut(session) {
            // A stream can be older than what is kept of its session, which was forgotten meanwhile and then begun anew.
            kept.held = kept.held.saturating_sub(bytes);
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// An empty one; with a ticket, one that says at once how to resume it.
    pub(super) fn new(ticket: Option<Ticket>) -> Self {
        let mut outbox = Self { events: VecDeque::new(), written: 0, number: 0, answer: None, ticket };
        if let Some(id) = outbox.id() {
            let bytes = format!("id: {id}\nretry: {RETRY}\ndata: \n\n").into();
            outbox.put(bytes, &mut None, false);
        }
        outbox
    }

    /// What is to be written next.
    pub(super) fn next(&self) -> Option<&Bytes> {
        self.events.get(self.written).map(|event| &event.bytes)
    }

    /// How much is to be written, in events.
    pub(super) fn waiting(&self) -> usize {
        self.events.len() - self.written
    }

    /// A message that comes before the answer, with its room in the memory budget. A reader that is away gets as much of them as is kept.
    pub(super) fn message(&mut self, data: &[u8], mut room: Option<Reservation>, is_away: bool) {
        let bytes = sse::event(Some("message"), self.id().as_deref(), data);
        if !self.put(bytes, &mut room, is_away) {
            tracing::debug!("dropping a message before an answer: its reader is away");
        }
    }

    /// The answer, which is the last message. It may take the place of others that the client has not read.
    pub(super) fn answer(&mut self, data: &[u8], mut room: Option<Reservation>, is_away: bool) {
        let bytes = sse::event(Some("message"), self.id().as_deref(), data);
        self.answer = Some(self.number);
        if let Some(ticket) = &self.ticket {
            ticket.answered();
        }
        while !self.put(bytes.clone(), &mut room, is_away) {
            if self.events.is_empty() {
                self.number += 1;
                tracing::warn!(bytes = bytes.len(), "dropping a response that is too long to be kept for its reader");
                return;
            }
            self.drop_first();
        }
    }

    /// The next event was written. It is kept if it may be.
    pub(super) fn wrote(&mut self) {
        let is_kept = self.events.get(self.written).is_some_and(|event| event.is_counted);
        self.written += 1;
        while !is_kept && self.written > 0 {
            self.drop_first();
        }
    }

    /// The reader left: what is not counted goes.
    pub(super) fn left(&mut self) {
        self.events.retain(|event| event.is_counted);
        self.written = self.written.min(self.events.len());
    }

    /// The reader came back, and has what was written up to an event. `lost` is said instead of an answer that is not there any
    /// more.
    pub(super) fn rewind(&mut self, after: u64, lost: impl FnOnce() -> Bytes) {
        self.written = self.events.iter().take_while(|event| event.number <= after).count();
        let is_lost = |answer: u64| answer > after && self.events.back().is_none_or(|last| last.number < answer);
        if self.answer.is_some_and(is_lost) {
            self.answer(&lost(), None, false);
        }
    }

    /// The id of the next event.
    fn id(&self) -> Option<String> {
        self.ticket.as_ref().map(|ticket| format!("{:016x}-{}", ticket.name, self.number))
    }

    /// Takes an event in, and says whether it did. One that cannot be kept is taken for a reader who is there.
    fn put(&mut self, bytes: Bytes, room: &mut Option<Reservation>, is_away: bool) -> bool {
        let is_counted = self.make_room(bytes.len());
        if is_away && !is_counted {
            return false;
        }
        let bytes = match room.take() {
            Some(room) => room.over(bytes),
            None => bytes,
        };
        self.events.push_back(Event { number: self.number, bytes, is_counted });
        self.number += 1;
        true
    }

    /// Counts bytes; if need be, in place of events that were read.
    fn make_room(&mut self, bytes: usize) -> bool {
        loop {
            let Some(ticket) = &mut self.ticket else { return false };
            if self.events.len() < EVENTS && ticket.hold(bytes) {
                return true;
            }
            if self.written == 0 || bytes > SESSION {
                return false;
            }
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(event) = self.events.pop_front() else { return };
        self.written = self.written.saturating_sub(1);
        if let Some(ticket) = self.ticket.as_mut().filter(|_| event.is_counted) {
            ticket.release(event.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests;
