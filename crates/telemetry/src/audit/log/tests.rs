use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::task::{Context, Waker};

use serde_json::Value;

use super::*;
use crate::audit::{EventType, Extra, Outcome, Source, Subjects};

fn event(name: &str) -> Event {
    Event {
        kind: EventType::McpPing,
        outcome: Outcome::Success,
        component: name.to_owned(),
        source: Source::default(),
        subjects: Subjects::default(),
        delegation: None,
        target: None,
        extra: Extra::default(),
        request: None,
        response: None,
    }
}

/// The components of the lines, or how many events were dropped.
fn read(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        match event["metadata"]["extra"]["dropped_events"].as_u64() {
            Some(dropped) => format!("{dropped} dropped"),
            None => event["component"].as_str().unwrap().to_owned(),
        }
    };
    text.lines().filter(|line| !line.is_empty()).map(name).collect()
}

fn read_file(path: &Path) -> Vec<String> {
    read(&std::fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn a_file_is_appended_to_and_belongs_to_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    for name in ["a", "b"] {
        let log = AuditLog::open(Output::File(path.clone()), "c").unwrap();
        log.write(&event(name));
        log.flush().await;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // As a file that was made by a process with another umask.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert_eq!(read_file(&path), ["a", "b"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
    let error = AuditLog::open(Output::File("/nonexistent/audit.log".into()), "c").unwrap_err().to_string();
    assert!(error.starts_with("cannot open `/nonexistent/audit.log` for appending: "), "{error}");
}

#[tokio::test]
async fn a_file_that_was_rotated_is_opened_again_and_no_event_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (path, rotated) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
    let log = AuditLog::open(Output::File(path.clone()), "c").unwrap();
    log.write(&event("a"));
    log.flush().await;
    std::fs::rename(&path, &rotated).unwrap();
    log.write(&event("b"));
    log.reopen();
    log.write(&event("c"));
    log.flush().await;
    assert_eq!((read_file(&rotated), read_file(&path)), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_finds_no_room_is_counted_and_reported_once_there_is_room() {
    let (log, receiver) = AuditLog::new(true);
    for _ in 0..EVENTS + 3 {
        log.write(&event("a"));
    }
    assert_eq!(log.dropped(), 3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let writer = Writer::new(Sink::open(path.clone()).unwrap(), log.counts.clone(), "c".to_owned());
    drop(log);
    writer.run(&receiver);
    let lines = read_file(&path);
    assert_eq!((lines[0].as_str(), lines.len()), ("3 dropped", EVENTS + 1));
    assert_eq!(lines.iter().filter(|line| *line == "a").count(), EVENTS);
}

/// As when a disk is slow while the proxy ends.
#[tokio::test]
async fn a_flush_waits_for_room_in_a_full_queue() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let (log, receiver) = AuditLog::new(true);
    for _ in 0..EVENTS {
        log.write(&event("a"));
    }
    let writer = Writer::new(Sink::open(path.clone()).unwrap(), log.counts.clone(), "c".to_owned());
    let mut flush = Box::pin(log.flush());
    let is_waiting = flush.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(is_waiting, "the queue is full");
    let thread = std::thread::spawn(move || writer.run(&receiver));
    flush.await;
    assert_eq!(read_file(&path).len(), EVENTS);
    drop(log);
    thread.join().unwrap();
}

#[test]
fn events_that_wait_have_a_size_in_bytes() {
    let (log, _receiver) = AuditLog::new(true);
    let large = event(&"x".repeat(BYTES / 4));
    for _ in 0..4 {
        log.write(&large);
    }
    assert_eq!(log.dropped(), 1, "three and their frames fit");
}

/// Fails as often as it is told, after half of what it is given.
#[derive(Clone, Default)]
struct Flaky(Arc<Mutex<(u32, Vec<u8>)>>);

impl Write for Flaky {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if state.0 > 0 {
            state.0 -= 1;
            let half = bytes.len() / 2;
            state.1.extend_from_slice(&bytes[..half]);
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_written_is_counted_and_reported_on_a_line_of_its_own() {
    let flaky = Flaky::default();
    flaky.0.lock().unwrap().0 = 2;
    let counts = Arc::<Counts>::default();
    let mut writer = Writer::new(Sink::Stream(Box::new(flaky.clone())), counts.clone(), "c".to_owned());
    for name in ["a", "b", "d"] {
        let line = event(name).line(Uuid::nil(), Timestamp::UNIX_EPOCH);
        counts.queued_bytes.fetch_add(line.len(), Ordering::Relaxed);
        let (queue, receiver) = sync_channel(1);
        queue.send(Command::Write(line)).unwrap();
        drop(queue);
        writer = writer.run_once(&receiver);
    }
    let text = String::from_utf8(flaky.0.lock().unwrap().1.clone()).unwrap();
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).collect::<Vec<_>>().join("\n");
    assert_eq!(read(&whole), ["2 dropped", "d"], "{text}");
    assert_eq!(counts.dropped.load(Ordering::Relaxed), 2);
    assert_eq!(counts.queued_bytes.load(Ordering::Relaxed), 0);
}
