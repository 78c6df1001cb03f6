//! The thread that writes.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use jiff::Timestamp;
use uuid::Uuid;

use super::{AuditLogError, Command, Counts};
use crate::audit::event::Event;

/// How many bytes are written at once, if so many wait.
const BATCH: usize = 64 * 1024;
/// Who may read and write the file: its owner.
const MODE: u32 = 0o600;

/// Where lines go.
pub(super) enum Sink {
    Stream(Box<dyn Write + Send>),
    File(PathBuf, File),
}

/// Writes what is in the queue.
#[derive(Debug)]
pub(super) struct Writer {
    sink: Sink,
    counts: Arc<Counts>,
    component: String,
    /// Lines that are written next, and how many they are.
    batch: Vec<u8>,
    lines: u64,
    /// Whether the last write failed, possibly within a line.
    is_broken: bool,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(sink: Sink, counts: Arc<Counts>, component: String) -> Self {
        Self { sink, counts, component, batch: Vec::new(), lines: 0, is_broken: false }
    }

    /// Runs until the log has no users any more, and all is written.
    pub(super) fn run(mut self, queue: &Receiver<Command>) {
        self.drain(queue);
    }

    /// The same, for a writer that goes on with another queue.
    #[cfg(test)]
    pub(super) fn run_once(mut self, queue: &Receiver<Command>) -> Self {
        self.drain(queue);
        self
    }

    fn drain(&mut self, queue: &Receiver<Command>) {
        while let Ok(first) = queue.recv() {
            let mut next = Some(first);
            while let Some(command) = next {
                self.handle(command);
                next = if self.batch.len() < BATCH { queue.try_recv().ok() } else { None };
            }
            self.write();
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Write(line) => {
                self.counts.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                self.batch.extend_from_slice(&line);
                self.lines += 1;
            }
            Command::Reopen => {
                self.write();
                self.reopen();
            }
            Command::Flush(written) => {
                self.write();
                // The caller may not wait any more.
                let _gone = written.send(());
            }
        }
    }

    /// Writes the batch, behind a report of what was dropped before.
    fn write(&mut self) {
        let dropped = self.counts.take_unreported();
        if self.batch.is_empty() && dropped == 0 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.batch.len());
        if self.is_broken {
            bytes.push(b'\n');
        }
        if dropped > 0 {
            let event = Event::dropped(dropped, &self.component);
            bytes.extend_from_slice(&event.line(Uuid::new_v4(), Timestamp::now()));
        }
        bytes.append(&mut self.batch);
        let lines = std::mem::take(&mut self.lines);
        match self.sink.write(&bytes) {
            Ok(()) => {
                self.is_broken = false;
                if dropped > 0 {
                    tracing::error!(dropped, "audit events dropped: the log was full or could not be written");
                }
            }
            Err(error) => {
                if !self.is_broken {
                    tracing::error!(%error, "audit events not written: dropping them until this succeeds again");
                }
                self.is_broken = true;
                self.counts.drop_events(lines);
                // They were counted when they were dropped, and are not reported yet.
                self.counts.unreported.fetch_add(dropped, Ordering::Relaxed);
            }
        }
    }

    fn reopen(&mut self) {
        let Sink::File(path, file) = &mut self.sink else { return };
        match open(path) {
            Ok(opened) => {
                *file = opened;
                tracing::info!(path = %path.display(), "audit log reopened");
            }
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "audit log not reopened: writing to the old file");
            }
        }
    }
}

// === impl Sink ===

impl Sink {
    pub(super) fn open(path: PathBuf) -> Result<Self, AuditLogError> {
        match open(&path) {
            Ok(file) => Ok(Self::File(path, file)),
            Err(error) => Err(AuditLogError::File { path, error }),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Self::File(_, file) => file.write_all(bytes),
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(_) => formatter.write_str("Stream"),
            Self::File(path, _) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Opens a file for appending. One that others could read is closed to them: events name users and what they did.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
    let about = file.metadata()?;
    if about.is_file() && about.permissions().mode() & 0o077 != 0 {
        let mut permissions = about.permissions();
        permissions.set_mode(MODE);
        if let Err(error) = file.set_permissions(permissions) {
            tracing::warn!(%error, path = %path.display(), "audit log readable by other users");
        }
    }
    Ok(file)
}
