//! Ends the processes that this program started when it is killed and cannot do that itself.
//!
//! ```text
//!   this program ──pipe──▶ watchdog     `+4711` a process group was started, `-4711` it has ended
//!        ✗ SIGKILL                      end of input: SIGTERM to the groups that are left, SIGKILL after 3 s
//! ```
//!
//! The watchdog is another process of the same program. Its input ends with this program, however that ends, so nothing
//! has to be polled. It is started before the first server process, and only where [`enable`] was called: it is state of
//! the whole process and not of one proxy, so it is kept in a static. A server is started by a launcher, which waits for
//! its registration ([`crate::launch`]).

use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::launch::Launcher;

/// How long processes may take to end after SIGTERM.
const AFTER_SIGNAL: Duration = Duration::from_secs(3);
/// How often they are polled.
const POLL: Duration = Duration::from_millis(10);

/// INVARIANT: no group up to this one is ever signalled. Signalling group 1 is `kill(-1)`, which means every process of
/// the machine, and 0 is the watchdog's own group.
const INIT: i32 = 1;

static WATCHDOG: Mutex<Watchdog> = Mutex::new(Watchdog { programs: None, child: None, groups: BTreeSet::new() });

/// The watchdog of this process.
struct Watchdog {
    /// `None` if no watchdog is wanted.
    programs: Option<Programs>,
    child: Option<Child>,
    /// The process groups that run.
    groups: BTreeSet<i32>,
}

/// A registered process group. Dropping it deregisters the group.
#[derive(Debug)]
pub(crate) struct Registration(i32);

/// What the watchdog and the launchers of servers are: subcommands of one executable.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The executable.
    pub executable: PathBuf,
    /// The subcommand that calls [`run`].
    pub watchdog: &'static str,
    /// The subcommand that calls [`exec`](crate::launch::exec).
    pub launcher: &'static str,
}

/// From now on, the processes that this one starts end with it.
pub fn enable(programs: Programs) {
    lock(|watchdog| watchdog.programs = Some(programs));
}

/// Starts the watchdog if none runs, so that a process started next is registered at once. Returns what must start
/// that process; `None` if no watchdog is wanted.
pub(crate) fn prepare() -> Option<Launcher> {
    lock(|watchdog| {
        watchdog.ensure_started();
        let programs = watchdog.programs.clone()?;
        Some(Launcher { executable: programs.executable, subcommand: programs.launcher })
    })
}

/// Has the watchdog end a process group if this process is killed.
pub(crate) fn register(group: Pid) -> Registration {
    let group = group.as_raw_nonzero().get();
    lock(|watchdog| watchdog.add(group));
    Registration(group)
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(|watchdog| watchdog.remove(self.0));
    }
}

/// The body of the watchdog process: it reads until the program that started it is gone, and ends the process groups
/// that it left.
pub fn run(input: impl BufRead) {
    end(left(input).into_iter().filter_map(Pid::from_raw).collect());
}

/// The process groups that were registered and had not ended when the input did.
fn left(input: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let (change, group) = line.split_at_checked(1).unwrap_or_default();
        match (change, group.parse::<i32>()) {
            ("+", Ok(group)) if group > INIT => groups.insert(group),
            ("-", Ok(group)) => groups.remove(&group),
            _ => continue,
        };
    }
    groups
}

fn end(mut groups: Vec<Pid>) {
    let deadline = Instant::now() + AFTER_SIGNAL;
    // The group may have ended meanwhile.
    groups.retain(|group| kill_process_group(*group, Signal::TERM).is_ok());
    while !groups.is_empty() && Instant::now() < deadline {
        std::thread::sleep(POLL);
        groups.retain(|group| test_kill_process_group(*group).is_ok());
    }
    for group in groups {
        let _ended = kill_process_group(group, Signal::KILL);
    }
}

fn lock<T>(change: impl FnOnce(&mut Watchdog) -> T) -> T {
    change(&mut WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner))
}

// === impl Watchdog ===

impl Watchdog {
    fn add(&mut self, group: i32) {
        self.groups.insert(group);
        if self.programs.is_none() || self.send(&format!("+{group}\n")) {
            return;
        }
        // There is none yet, or it was killed.
        self.restart();
    }

    fn ensure_started(&mut self) {
        let runs = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if self.programs.is_some() && !runs {
            self.restart();
        }
    }

    fn restart(&mut self) {
        if let Err(error) = self.start() {
            tracing::warn!(%error, "failed to start watchdog, server processes will survive if this process is killed");
        }
    }

    fn remove(&mut self, group: i32) {
        if self.groups.remove(&group) {
            // A restarted watchdog learns all running groups.
            let _sent = self.send(&format!("-{group}\n"));
        }
    }

    fn send(&mut self, line: &str) -> bool {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        // A line is shorter than PIPE_BUF, so it is written atomically.
        input.is_some_and(|input| input.write_all(line.as_bytes()).is_ok())
    }

    fn start(&mut self) -> std::io::Result<()> {
        if let Some(mut gone) = self.child.take() {
            let _reaped = gone.try_wait();
        }
        let Some(programs) = &self.programs else { return Ok(()) };
        let child = Command::new(&programs.executable)
            .arg0("skep")
            .arg(programs.watchdog)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A process group of its own: Ctrl-C at the terminal is not meant for it.
            .process_group(0)
            .spawn()?;
        self.child = Some(child);
        let knows_all = self.groups.clone().iter().all(|group| self.send(&format!("+{group}\n")));
        if knows_all { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).spawn().unwrap()
    }

    /// The test reads only: signalling these would end everything.
    #[test]
    fn groups_that_mean_every_process_are_never_signalled() {
        let input = "+1\n+0\n+-1\n+-4711\n+2147483648\n+4711\n+4712\n-4712\n";
        assert_eq!(left(input.as_bytes()), BTreeSet::from([4711]));
    }

    #[test]
    fn processes_that_are_left_end_and_others_stay() {
        let (mut left, mut ended) = (sleeper(), sleeper());
        let input = format!("+{left}\nnonsense\n+{ended}\n-{ended}\n+\n", left = left.id(), ended = ended.id());
        run(input.as_bytes());
        assert!(!left.wait().unwrap().success());
        assert!(ended.try_wait().unwrap().is_none(), "it was not registered any more");
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}
