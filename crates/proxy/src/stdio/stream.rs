//! An answer that takes its time, as a stream of events.
//!
//! ```text
//!   interim, answer ─▶ Outbox ─▶ reader: the body of the POST, and later that of each GET that comes back to it
//! ```
//!
//! A reader that leaves ends the call, unless it can come back: then the call goes on for a while.

use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Id, Message, answer, sse};
use skep_net::{BodySender, Budget};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::call::{Call, Failed};
use super::replay::{AWAY, Outbox, Resume, Ticket};
use super::reply::{INTERIM, KEEP_ALIVE, last_moment, seen};
use crate::exchange::Watchers;
use crate::http::over_budget_message;

/// A call whose answer is streamed.
#[derive(Debug)]
pub(super) struct Stream {
    /// The call. Nothing once it was answered or given up.
    call: Option<Call>,
    interim: mpsc::Receiver<Bytes>,
    id: Option<Id>,
    watchers: Watchers,
    outbox: Outbox,
    /// Who reads. Nothing while nobody does.
    reader: Option<BodySender>,
    /// Readers that come back. Nothing if they cannot.
    resumed: Option<mpsc::Receiver<Resume>>,
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(
        call: Call,
        interim: mpsc::Receiver<Bytes>,
        id: Option<Id>,
        watchers: Watchers,
        reader: BodySender,
        kept: Option<(Ticket, mpsc::Receiver<Resume>)>,
    ) -> Self {
        let (ticket, resumed) = kept.unzip();
        Self { call: Some(call), interim, id, watchers, outbox: Outbox::new(ticket), reader: Some(reader), resumed }
    }

    /// The same, whose events are counted in a budget.
    pub(super) fn within(mut self, budget: Budget) -> Self {
        self.outbox.count_in(budget);
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
            self.outbox.message(&first, false);
        }
        let mut stopping = std::pin::pin!(stopping);
        let mut is_stopping = false;
        let mut deadline = std::pin::pin!(tokio::time::sleep(timeout.unwrap_or(Duration::MAX)));
        let mut last = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut given_up = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        loop {
            if self.call.is_none() && self.outbox.next().is_none() && self.reader.take().is_some() {
                // All is written, which does not mean that all is read.
                given_up.as_mut().reset(Instant::now() + AWAY);
            }
            let may_come_back = self.resumed.is_some() && !is_stopping;
            if self.reader.is_none() && !may_come_back {
                return;
            }
            tokio::select! {
                outcome = outcome(&mut self.call) => {
                    while let Ok(message) = self.interim.try_recv() {
                        self.outbox.message(&message, self.reader.is_none());
                    }
                    self.settle(outcome);
                }
                Some(message) = self.interim.recv(), if self.takes_more() => {
                    // A server that reports is at work.
                    if let Some(timeout) = timeout {
                        deadline.as_mut().reset(Instant::now() + timeout);
                    }
                    self.outbox.message(&message, self.reader.is_none());
                }
                is_written = write(self.reader.as_ref(), self.outbox.next()) => {
                    if is_written {
                        self.outbox.wrote();
                    } else {
                        self.leave();
                        given_up.as_mut().reset(Instant::now() + AWAY);
                    }
                }
                resume = next_reader(&mut self.resumed) => match resume {
                    Some(resume) => self.resume(resume),
                    // The session ended.
                    None => self.resumed = None,
                },
                () = &mut deadline, if self.call.is_some() => match self.more_time(timeout) {
                    Some(until) => deadline.as_mut().reset(until),
                    None => self.settle(Err(Failed::Timeout)),
                },
                () = &mut last, if self.call.is_some() => self.settle(Err(Failed::Timeout)),
                () = &mut given_up, if self.reader.is_none() => return,
                () = tokio::time::sleep(KEEP_ALIVE), if self.reader.is_some() => {
                    // One that is behind has enough to read.
                    let _behind = self.reader.as_ref().map(|reader| reader.try_send(sse::comment("keep-alive")));
                }
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

    /// Until when the server may still be silent, now that its time is over.
    fn more_time(&self, timeout: Option<Duration>) -> Option<Instant> {
        self.call.as_ref()?.more_time(timeout?)
    }

    /// Whether what comes before the answer is taken now. A reader that is behind gets no more; for one that is away, it is
    /// kept as long as there is room.
    fn takes_more(&self) -> bool {
        self.call.is_some() && (self.reader.is_none() || self.outbox.waiting() < INTERIM)
    }

    /// The call has an answer, or will never have one.
    fn settle(&mut self, outcome: Result<Message, Failed>) {
        // A call without an answer is taken back by this.
        self.call = None;
        let body = match outcome {
            Ok(message) => seen(&self.watchers, message),
            Err(failed) => failed.body(self.id.as_ref()),
        };
        let body = if self.outbox.has_room(&body) { body } else { over_budget_message(self.id.as_ref()) };
        self.outbox.answer(&body, self.reader.is_none());
    }

    /// The reader left.
    fn leave(&mut self) {
        self.reader = None;
        self.outbox.left();
    }

    /// The reader came back, on another connection.
    fn resume(&mut self, resume: Resume) {
        let id = self.id.as_ref();
        self.outbox.rewind(resume.after, || {
            let text = "the answer was too long to be kept while its reader was away; send the request again";
            answer::error(id, answer::INTERNAL_ERROR, text, None)
        });
        self.reader = Some(resume.reader);
    }
}

/// Waits for the answer to a call that has none yet.
async fn outcome(call: &mut Option<Call>) -> Result<Message, Failed> {
    match call {
        Some(call) => call.outcome().await.answer(),
        None => std::future::pending().await,
    }
}

/// Writes what is next, and says whether somebody reads. Waits until nobody does, if there is nothing to write.
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

/// Waits for a reader to come back, if it can. Nothing if it cannot any more.
async fn next_reader(resumed: &mut Option<mpsc::Receiver<Resume>>) -> Option<Resume> {
    match resumed {
        Some(resumed) => resumed.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
