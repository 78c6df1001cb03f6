//! An answer that takes its time, as a stream of events.
//!
//! ```text
//!   interim, answer ─▶ room in the memory budget ─▶ Outbox ─▶ reader: the body of the POST, and later that of each GET that comes
//!                                                             back to it
//! ```
//!
//! What the budget cannot hold waits for it, and only this stream waits with it. An answer waits for nothing else: what came before it
//! and still waits is dropped.
//!
//! A reader that leaves ends the call, unless it can come back: then the call goes on for a while.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Id, Message, answer, sse};
use skep_net::budget::{OverBudgetError, Purpose, Reservation};
use skep_net::{BodySender, Budget};
use skep_upstream::{CallError, PendingResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::reply::{INTERIM, KEEP_ALIVE, last_moment};
use super::resume::{AWAY, Outbox, Resume, Ticket};
use crate::chain::reply::{Evaluation, ReplyChain};
use crate::http::over_budget_message;

/// A call whose answer is streamed.
#[derive(Debug)]
pub(super) struct Stream {
    /// The call. Nothing once it was answered or given up.
    call: Option<PendingResponse>,
    interim: mpsc::Receiver<Bytes>,
    id: Option<Id>,
    replies: ReplyChain,
    /// The reply that middleware evaluates. Nothing before and after.
    evaluated: Option<Evaluation>,
    outbox: Outbox,
    /// The client's connection. Nothing while it is disconnected.
    reader: Option<BodySender>,
    /// Readers that come back. Nothing if they cannot.
    resumed: Option<mpsc::Receiver<Resume>>,
    /// Where its events are counted, with all else that is buffered.
    budget: Budget,
    /// What waits for room there, and for what the first one of them waits.
    queue: VecDeque<Queued>,
    room: Option<Room>,
}

/// A message on its way into the outbox.
#[derive(Debug)]
struct Queued {
    data: Bytes,
    is_answer: bool,
}

/// The wait for room in the budget.
struct Room(Pin<Box<dyn Future<Output = Result<Reservation, OverBudgetError>> + Send>>);

// === impl Stream ===

impl Stream {
    pub(super) fn new(
        call: PendingResponse,
        interim: mpsc::Receiver<Bytes>,
        id: Option<Id>,
        replies: ReplyChain,
        reader: BodySender,
        kept: Option<(Ticket, mpsc::Receiver<Resume>)>,
    ) -> Self {
        let (ticket, resumed) = kept.unzip();
        let (outbox, reader) = (Outbox::new(ticket), Some(reader));
        let (budget, queue) = (Budget::default(), VecDeque::new());
        let (call, evaluated, room) = (Some(call), None, None);
        Self { call, interim, id, replies, evaluated, outbox, reader, resumed, budget, queue, room }
    }

    /// The same, whose events are counted in a budget.
    pub(super) fn within(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Writes whatever comes of the call until its answer was read. Without a timeout, it stays open for as long as it is read.
    pub(super) async fn run(
        mut self,
        first: Option<Bytes>,
        timeout: Option<Duration>,
        stopping: impl Future<Output = Instant>,
    ) {
        if let Some(first) = first {
            self.enqueue(first, false);
        }
        let mut stopping = std::pin::pin!(stopping);
        let mut is_stopping = false;
        let mut deadline = std::pin::pin!(tokio::time::sleep(timeout.unwrap_or(Duration::MAX)));
        let mut last = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut given_up = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        loop {
            if self.is_written() && self.reader.take().is_some() {
                // All is written, which does not mean that all is read.
                given_up.as_mut().reset(Instant::now() + AWAY);
            }
            if self.reader.is_none() && (self.resumed.is_none() || is_stopping) {
                return;
            }
            tokio::select! {
                response = response(&mut self.call) => self.respond(response),
                Some(message) = self.interim.recv(), if self.takes_more() => {
                    // A server that reports is at work.
                    if let Some(timeout) = timeout {
                        deadline.as_mut().reset(Instant::now() + timeout);
                    }
                    self.enqueue(message, false);
                }
                room = found_room(&mut self.room) => self.place_next(room),
                is_written = write(self.reader.as_ref(), self.outbox.next()) => {
                    self.wrote(is_written);
                    if !is_written {
                        given_up.as_mut().reset(Instant::now() + AWAY);
                    }
                }
                resume = next_reader(&mut self.resumed) => self.resume(resume),
                body = evaluated(&mut self.evaluated) => self.put_evaluated(body),
                () = &mut deadline, if self.call.is_some() => match self.more_time(timeout) {
                    Some(until) => deadline.as_mut().reset(until),
                    None => self.settle(Err(CallError::Timeout)),
                },
                () = &mut last, if self.is_waiting() || self.room.is_some() => self.cut_short(),
                () = &mut given_up, if self.reader.is_none() => return,
                () = tokio::time::sleep(KEEP_ALIVE), if self.reader.is_some() => self.keep_alive(),
                until = &mut stopping, if !is_stopping => {
                    is_stopping = true;
                    // A subscription would never end by itself; a call gets the time that is left.
                    if timeout.is_none() {
                        return;
                    }
                    last.as_mut().reset(last_moment(until));
                }
            }
        }
    }

    /// The server responded, or never will. What came before the response goes before it.
    fn respond(&mut self, response: Result<Message, CallError>) {
        while let Ok(message) = self.interim.try_recv() {
            self.enqueue(message, false);
        }
        self.settle(response);
    }

    /// Middleware has evaluated the reply.
    fn put_evaluated(&mut self, reply: Bytes) {
        self.evaluated = None;
        self.enqueue(reply, true);
    }

    /// The proxy ends: there is no time left to wait for a response, nor for room.
    fn cut_short(&mut self) {
        if self.is_waiting() {
            self.settle(Err(CallError::Timeout));
        }
        if self.room.is_some() {
            let bytes = self.queue.front().map_or(0, |next| next.data.len());
            self.place_next(Err(OverBudgetError::NoRoom { bytes, limit: self.budget.limit() }));
        }
    }

    fn keep_alive(&self) {
        // One that is behind has enough to read.
        let _behind = self.reader.as_ref().map(|reader| reader.try_send(sse::comment("keep-alive")));
    }

    /// Whether all was written, and nothing more will come.
    fn is_written(&self) -> bool {
        !self.is_waiting() && self.queue.is_empty() && self.outbox.next().is_none()
    }

    /// Whether the reply is still to come.
    fn is_waiting(&self) -> bool {
        self.call.is_some() || self.evaluated.is_some()
    }

    /// Until when the server may still be silent, now that its time is over.
    fn more_time(&self, timeout: Option<Duration>) -> Option<Instant> {
        self.call.as_ref()?.extended_deadline(timeout?)
    }

    /// Whether what comes before the answer is taken now. A reader that is behind gets no more; for one that is away, it is
    /// kept as long as there is room.
    fn takes_more(&self) -> bool {
        self.call.is_some() && self.queue.is_empty() && (self.reader.is_none() || self.outbox.waiting() < INTERIM)
    }

    /// The call has an answer, or will never have one.
    fn settle(&mut self, response: Result<Message, CallError>) {
        // A call without a response is cancelled by this.
        (self.call, self.evaluated) = (None, None);
        self.drop_waiting();
        match response {
            Ok(message) => match self.replies.evaluate(message) {
                Evaluation::Done(reply) => self.enqueue(reply, true),
                pending @ Evaluation::Pending(_) => self.evaluated = Some(pending),
            },
            Err(error) => self.enqueue(error.answer(self.id.as_ref()), true),
        }
    }

    /// Drops what came before the answer and still waits for room: behind it, the answer would be in memory and counted nowhere.
    fn drop_waiting(&mut self) {
        if self.room.take().is_some() {
            tracing::warn!(messages = self.queue.len(), "dropping messages before an answer: over the memory budget");
            self.queue.clear();
        }
    }

    /// Takes a message in, behind those that wait for room.
    fn enqueue(&mut self, data: Bytes, is_answer: bool) {
        self.queue.push_back(Queued { data, is_answer });
        self.place();
    }

    /// Puts into the outbox what there is room for, and waits for that of the next one.
    fn place(&mut self) {
        while self.room.is_none()
            && let Some(next) = self.queue.front()
        {
            let bytes = next.data.len();
            match self.budget.try_reserve(bytes, Purpose::Response) {
                Some(room) => self.put_next(Ok(room)),
                None => self.room = Some(Room::wait(self.budget.clone(), bytes)),
            }
        }
    }

    /// Puts the next message into the outbox, now that there is room for it or will be none in time.
    fn place_next(&mut self, room: Result<Reservation, OverBudgetError>) {
        self.room = None;
        self.put_next(room);
        self.place();
    }

    /// Without room, a message before the answer is dropped, and an error takes the place of the answer.
    fn put_next(&mut self, room: Result<Reservation, OverBudgetError>) {
        let Some(Queued { data, is_answer }) = self.queue.pop_front() else { return };
        let is_away = self.reader.is_none();
        match (is_answer, room) {
            (true, Ok(room)) => self.outbox.answer(&data, Some(room), is_away),
            (true, Err(over)) => {
                self.outbox.answer(&over_budget_message(&over, self.id.as_ref()), None, is_away);
            }
            (false, Ok(room)) => self.outbox.message(&data, Some(room), is_away),
            (false, Err(error)) => {
                tracing::warn!(%error, "dropping a message before an answer: over the memory budget");
            }
        }
    }

    /// The next event was written, or the reader left.
    fn wrote(&mut self, is_written: bool) {
        if is_written {
            return self.outbox.wrote();
        }
        self.reader = None;
        self.outbox.left();
    }

    /// The reader came back, on another connection. Nothing if the session ended.
    fn resume(&mut self, resume: Option<Resume>) {
        let Some(resume) = resume else {
            self.resumed = None;
            return;
        };
        let id = self.id.as_ref();
        self.outbox.rewind(resume.after, || {
            let text = "the answer was too long to be kept while its reader was away; send the request again";
            answer::error(id, answer::INTERNAL_ERROR, text, None)
        });
        self.reader = Some(resume.reader);
    }
}

// === impl Room ===

impl Room {
    fn wait(budget: Budget, bytes: usize) -> Self {
        Self(Box::pin(async move { budget.reserve_or_wait(bytes, Purpose::Response).await }))
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Room")
    }
}

/// Waits for the answer to a call that has none yet.
async fn response(call: &mut Option<PendingResponse>) -> Result<Message, CallError> {
    match call {
        Some(call) => call.response().await,
        None => std::future::pending().await,
    }
}

/// Waits for a reply that is on its way through the middleware.
async fn evaluated(reply: &mut Option<Evaluation>) -> Bytes {
    match reply {
        Some(reply) => reply.await.unwrap_or_else(|refusal| refusal),
        None => std::future::pending().await,
    }
}

/// Writes what is next, and says whether the client is connected. Waits until it disconnects, if there is nothing to write.
async fn write(reader: Option<&BodySender>, next: Option<&Bytes>) -> bool {
    match (reader, next) {
        (Some(reader), Some(next)) => reader.send(next.clone()).await.is_ok(),
        (Some(reader), None) => {
            reader.closed().await;
            false
        }
        (None, _) => std::future::pending().await,
    }
}

/// Waits for room, if something needs it.
async fn found_room(room: &mut Option<Room>) -> Result<Reservation, OverBudgetError> {
    match room {
        Some(Room(wait)) => wait.await,
        None => std::future::pending().await,
    }
}

/// Waits for a reader to come back, if it can. Nothing if it cannot any more.
async fn next_reader(resumed: &mut Option<mpsc::Receiver<Resume>>) -> Option<Resume> {
    match resumed {
        Some(resumed) => resumed.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
