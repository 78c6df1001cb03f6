//! Where events are written, and by whom.
//!
//! A request never waits for the log: events go into a bounded queue, and one thread writes them. What does not fit the queue, or cannot be
//! written, is dropped; the number of dropped events is counted, logged, and written as an event of its own before the next one.

mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;
use uuid::Uuid;

use self::writer::{Sink, Writer};
use super::event::Event;

/// How many events may wait to be written, and how many bytes they may have.
const EVENTS: usize = 4096;
const BYTES: usize = 8 * 1024 * 1024;
/// How long the end of a proxy waits for events to be written.
const FLUSH: Duration = Duration::from_secs(3);
/// The delay between retries to enqueue the flush at the end of a proxy while the queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// Where events are written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error, where standard output is the user's.
    Stderr,
    /// A file that is appended to and that only its owner can read. It is created if it does not exist.
    File(PathBuf),
}

/// The audit log of a proxy. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct AuditLog {
    queue: SyncSender<Command>,
    counts: Arc<Counts>,
    is_file: bool,
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditLogError {
    /// The file.
    #[error("cannot open `{}` for appending: {error}; name a file in a directory that the proxy may write to", .path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The thread that writes.
    #[error("cannot start the thread that writes the audit log: {0}")]
    Thread(std::io::Error),
}

#[derive(Debug)]
enum Command {
    Write(Vec<u8>),
    /// Opens the file again, which was rotated.
    Reopen,
    /// Says when everything before it was written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Default)]
struct Counts {
    queued_bytes: AtomicUsize,
    /// Dropped since the start.
    dropped: AtomicU64,
    /// Dropped and not yet reported in the log.
    unreported: AtomicU64,
}

// === impl AuditLog ===

impl AuditLog {
    /// Opens a log. `component` names it in events about itself.
    pub fn open(output: Output, component: &str) -> Result<Self, AuditLogError> {
        let is_file = matches!(output, Output::File(_));
        let sink = match output {
            Output::Stdout => Sink::Stream(Box::new(std::io::stdout())),
            Output::Stderr => Sink::Stream(Box::new(std::io::stderr())),
            Output::File(path) => Sink::open(path)?,
        };
        let (log, receiver) = Self::new(is_file);
        let writer = Writer::new(sink, log.counts.clone(), component.to_owned());
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.run(&receiver)).map_err(AuditLogError::Thread)?;
        Ok(log)
    }

    fn new(is_file: bool) -> (Self, Receiver<Command>) {
        let (queue, receiver) = sync_channel(EVENTS);
        (Self { queue, counts: Arc::default(), is_file }, receiver)
    }

    /// Writes an event, without waiting.
    pub fn write(&self, event: &Event) {
        let line = event.line(Uuid::new_v4(), Timestamp::now());
        let length = line.len();
        let queued = self.counts.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let is_queued = queued.saturating_add(length) <= BYTES && self.queue.try_send(Command::Write(line)).is_ok();
        if !is_queued {
            self.counts.queued_bytes.fetch_sub(length, Ordering::Relaxed);
            self.counts.drop_events(1);
        }
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Whether it is a file, which can be rotated.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Opens the file again, which was renamed. Events before this go to the old one.
    pub fn reopen(&self) {
        match self.queue.try_send(Command::Reopen) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                tracing::warn!("audit log not reopened: its queue is full; send the signal again");
            }
        }
    }

    /// Waits until all events were written, for a bounded time.
    pub async fn flush(&self) {
        let is_written = tokio::time::timeout(FLUSH, self.written()).await;
        if !matches!(is_written, Ok(true)) {
            tracing::error!("audit log not flushed: events that were not written yet are lost");
        }
    }

    /// Waits until all events were written. False if the writer has ended. A queue that is full has room again as soon as the writer has
    /// taken an event from it.
    async fn written(&self) -> bool {
        let (sender, written) = oneshot::channel();
        let mut flush = Command::Flush(sender);
        loop {
            flush = match self.queue.try_send(flush) {
                Ok(()) => return written.await.is_ok(),
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(flush)) => flush,
            };
            tokio::time::sleep(RETRY).await;
        }
    }
}

// === impl Counts ===

impl Counts {
    fn drop_events(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        self.unreported.fetch_add(count, Ordering::Relaxed);
    }

    fn take_unreported(&self) -> u64 {
        self.unreported.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
