//! Child processes that cannot outlive the test.
//!
//! A destructor is not enough: statics are never dropped, and a test process may abort or be killed. So the children are
//! put into a process group of their own, and a reaper, a shell that waits for the end of a pipe which only the test
//! process holds, kills that group and removes its directory. Signals from the terminal do not reach the group; the
//! reaper does.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// `$1` is the process group, `$2` the directory. A member whose parent has not collected it yet still counts as one,
/// hence the bound on the wait.
const REAPER: &str = r#"
cat >/dev/null
kill -s KILL -- "-$1" 2>/dev/null
tries=0
while kill -s 0 -- "-$1" 2>/dev/null && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
rm -rf -- "$2"
"#;

/// How many lines of a log an error quotes.
const QUOTED_LINES: usize = 15;

/// How long stopping all threads of a process may take.
const FREEZE: Duration = Duration::from_secs(10);

/// A process group with a directory, both gone when this value or this process is.
#[derive(Debug)]
pub(crate) struct Group {
    directory: PathBuf,
    /// `cat`, idle: it leads the group, so that the group exists before and between the others.
    anchor: Child,
    reaper: Child,
    members: BTreeMap<&'static str, Child>,
}

impl Group {
    /// A group without members yet, in a fresh temporary directory.
    pub(crate) fn start() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("skep-test-")
            .tempdir()
            .context("cannot make a temporary directory; is TMPDIR writable?")?;
        let anchor = helper("cat", &[])?;
        let group = anchor.id();
        let arguments = ["-c", REAPER, "skep-reaper", &group.to_string(), &directory.path().to_string_lossy()];
        let reaper = helper("sh", &arguments)?;
        Ok(Self { directory: directory.keep(), anchor, reaper, members: BTreeMap::new() })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts a member in the group's directory. Its output is appended to `NAME.log` there.
    pub(crate) fn spawn(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(name))
            .with_context(|| format!("cannot open the log of `{name}`"))?;
        let group = i32::try_from(self.anchor.id()).context("process id out of range")?;
        let child = command
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().with_context(|| format!("cannot open the log of `{name}` twice"))?)
            .stderr(log)
            .process_group(group)
            .spawn()
            .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
        self.members.insert(name, child);
        Ok(())
    }

    /// Ends a member at once, as a crash would, and collects it.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        if let Some(mut child) = self.members.remove(name) {
            child.kill().with_context(|| format!("cannot kill `{name}`"))?;
            child.wait().with_context(|| format!("cannot collect `{name}`"))?;
        }
        Ok(())
    }

    /// Sends a signal, such as `STOP`, to a running member.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<()> {
        let Some(child) = self.members.get(name) else { bail!("`{name}` is not running, so it cannot be signalled") };
        let status = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()
            .context("cannot run `kill`; it comes with every Unix")?;
        if !status.success() {
            bail!("`kill -s {signal}` of `{name}` ended with {status}");
        }
        Ok(())
    }

    /// Stops a member, and returns when all of its threads are stopped: the signal is delivered to a busy process after `kill` has ended.
    pub(crate) fn freeze(&self, name: &str) -> Result<()> {
        self.signal(name, "STOP")?;
        let Some(child) = self.members.get(name) else { return Ok(()) };
        let tasks = format!("/proc/{}/task", child.id());
        let is_stopped = |task: &Path| {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        let deadline = Instant::now() + FREEZE;
        loop {
            // Without `/proc`, the signal must do.
            let Ok(all) = fs::read_dir(&tasks) else { return Ok(()) };
            if all.filter_map(Result::ok).all(|task| is_stopped(&task.path())) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("`{name}` was not stopped within {FREEZE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How a member ended, if it did.
    pub(crate) fn exited(&mut self, name: &str) -> Result<Option<ExitStatus>> {
        match self.members.get_mut(name) {
            Some(child) => child.try_wait().with_context(|| format!("lost track of `{name}`")),
            None => Ok(None),
        }
    }

    /// Every process of the group and the reaper.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let members = self.members.values().map(Child::id);
        [self.anchor.id(), self.reaper.id()].into_iter().chain(members).collect()
    }

    /// The last lines that a member wrote.
    pub(crate) fn last_output(&self, name: &str) -> String {
        let log = fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default().join("\n")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }
}

impl Drop for Group {
    /// The quiet end: collects the members, so that the reaper finds an empty group and has only files to remove.
    fn drop(&mut self) {
        for child in self.members.values_mut() {
            // They may be gone already, which is what we want.
            let _gone = child.kill();
            let _collected = child.wait();
        }
        for child in [&mut self.anchor, &mut self.reaper] {
            drop(child.stdin.take());
            let _collected = child.wait();
        }
    }
}

/// Whether a process runs. One that has ended but was not collected by its parent does not.
pub fn is_alive(pid: u32) -> bool {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    let state = if Path::new("/proc/self/stat").exists() {
        // The state follows the name, which is in parentheses and may contain anything.
        fs::read_to_string(stat).ok().and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()))
    } else {
        let listed = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
        listed.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    state.is_some_and(|state| !state.trim().is_empty() && !state.trim_start().starts_with(['Z', 'X']))
}

/// A child that leads a process group and lives until the pipe into it is closed.
fn helper(program: &str, arguments: &[&str]) -> Result<Child> {
    Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{program}`; it comes with every Unix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_group_ends_its_members_and_removes_its_directory() {
        let mut group = Group::start().unwrap();
        let mut sleeper = Command::new("sleep");
        sleeper.arg("1000");
        group.spawn("sleeper", sleeper).unwrap();
        let (pids, directory) = (group.pids(), group.directory().to_owned());
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        drop(group);
        assert!(!pids.iter().any(|pid| is_alive(*pid)));
        assert!(!directory.exists());
    }

    #[test]
    fn a_stopped_member_is_ended_too() {
        let mut group = Group::start().unwrap();
        let mut sleeper = Command::new("sleep");
        sleeper.arg("1000");
        group.spawn("sleeper", sleeper).unwrap();
        group.signal("sleeper", "STOP").unwrap();
        let pids = group.pids();
        drop(group);
        assert!(!pids.iter().any(|pid| is_alive(*pid)));
    }

    #[test]
    fn last_output_is_the_end_of_the_log() {
        let mut group = Group::start().unwrap();
        let mut talker = Command::new("sh");
        talker.args(["-c", "seq 1 40; exit 7"]);
        group.spawn("talker", talker).unwrap();
        while group.exited("talker").unwrap().is_none() {
            std::thread::yield_now();
        }
        assert!(group.last_output("talker").starts_with("26\n"));
        assert!(group.last_output("talker").ends_with("\n40"));
    }
}
