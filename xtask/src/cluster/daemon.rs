//! Processes that outlive this command, and are found again by the next one.
//!
//! `NAME.pid` holds the process id and the time at which that process started: together they identify one process,
//! while an id alone may be reused.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::layout::Layout;
use crate::program::{capture, wait_until};

/// How many lines of a log an error quotes.
const QUOTED_LINES: usize = 15;

/// One process for good.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    pid: u32,
    started: u64,
}

/// A daemon that this command started, and may still see fail.
pub(super) struct Daemon {
    name: &'static str,
    process: Child,
}

/// Starts a daemon in the cluster's network and directory, unless it runs.
pub(super) fn start(layout: &Layout, name: &'static str, command: &[String]) -> Result<Option<Daemon>> {
    if is_running(layout, name) {
        return Ok(None);
    }
    let path = log(layout, name);
    let log = File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
    // A session of its own, so that closing the terminal does not end it. Both programs become the next one in place:
    // the id stays the same.
    let process = Command::new("setsid")
        .arg("nsenter")
        .arg(Layout::network_argument())
        .args(command)
        .current_dir(layout.directory())
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share a log file")?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let pid = process.id();
    let started = start_time(pid).with_context(|| format!("`{name}` was gone at once"))?;
    fs::write(record_file(layout, name), format!("{pid} {started}\n"))
        .with_context(|| format!("cannot record the process of `{name}`"))?;
    Ok(Some(Daemon { name, process }))
}

impl Daemon {
    /// Fails when the daemon has ended.
    pub(super) fn check(&mut self, layout: &Layout) -> Result<()> {
        if let Some(status) = self.process.try_wait().with_context(|| format!("lost track of `{}`", self.name))? {
            bail!("`{}` ended with {status}; {}", self.name, last_words(layout, self.name));
        }
        Ok(())
    }
}

/// Whether a daemon runs.
pub(super) fn is_running(layout: &Layout, name: &str) -> bool {
    recorded(layout, name).is_some_and(|record| record.is_running())
}

/// Every daemon that was recorded, running or not.
pub(super) fn names(layout: &Layout) -> Vec<String> {
    let entries = fs::read_dir(layout.directory()).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".pid").map(str::to_owned)).collect()
}

/// Ends daemons at once. Nothing of theirs is kept, so they get no time to put it in order.
pub(super) fn stop(layout: &Layout, names: &[String]) -> Result<()> {
    let running = || names.iter().filter_map(|name| recorded(layout, name)).filter(Record::is_running);
    for record in running() {
        // It may end between the check and the signal.
        let _gone = capture(Command::new("kill").args(["-s", "KILL", &record.pid.to_string()]));
    }
    wait_until("daemons to end", Duration::from_secs(10), || match running().next() {
        None => Ok(()),
        Some(record) => bail!("process {} still runs", record.pid),
    })
}

/// The end of a daemon's log, for an error.
pub(super) fn last_words(layout: &Layout, name: &str) -> String {
    let path = log(layout, name);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.get(lines.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default();
    format!("the end of `{}`:\n{}", path.display(), end.join("\n"))
}

impl Record {
    fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

fn recorded(layout: &Layout, name: &str) -> Option<Record> {
    let text = fs::read_to_string(record_file(layout, name)).ok()?;
    let (pid, started) = text.trim().split_once(' ')?;
    Some(Record { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

fn record_file(layout: &Layout, name: &str) -> std::path::PathBuf {
    layout.file(&format!("{name}.pid"))
}

fn log(layout: &Layout, name: &str) -> std::path::PathBuf {
    layout.file("logs").join(format!("{name}.log"))
}

/// When a process started, in ticks since the machine did; none if it does not run.
fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads the start time, the 22nd field. The second is the program's name in parentheses and may contain anything.
fn start_time_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let (state, threads, started) = (fields.next()?, fields.nth(16)?, fields.nth(1)?);
    // Ended, but not collected by its parent yet. With threads that have not ended, it still holds its ports.
    let is_over = matches!(state, "Z" | "X") && matches!(threads, "0" | "1");
    if is_over { None } else { started.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_id_and_start_time() {
        let stat = "4242 (odd ) name) S 1 4242 4242 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1000 50";
        assert_eq!(start_time_in(stat), Some(123_456));
        let ended = stat.replace(" S ", " Z ");
        assert_eq!(start_time_in(&ended), None);
        let ends = ended.replace(" 20 0 1 0 ", " 20 0 7 0 ");
        assert_eq!(start_time_in(&ends), Some(123_456), "one of its threads has ended, and not all");
        let me = std::process::id();
        let started = start_time(me).unwrap();
        assert!(Record { pid: me, started }.is_running());
        assert!(!Record { pid: me, started: started + 1 }.is_running());
    }
}
