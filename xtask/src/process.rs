//! A process of our own beside us: what it uses, and that it ends with us.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Linux counts processor time in hundredths of a second, on every machine that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running process.
pub(crate) struct Process(Child);

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Memory now, in MiB.
    pub(crate) resident: f64,
    /// What of that is its own, and not pages of files, which processes share. In MiB.
    pub(crate) own: f64,
    /// Memory at its highest, in MiB.
    pub(crate) peak: f64,
    /// Processor time, in seconds.
    pub(crate) cpu: f64,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().display().to_string();
        Ok(Self(command.spawn().with_context(|| format!("cannot start `{name}`"))?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// What it writes to its standard output, where that is a pipe. It is there once.
    pub(crate) fn output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.id())
    }

    /// Whether it is still there.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end, and waits a while for it.
    pub(crate) fn ask_to_end(&mut self, limit: Duration) {
        if let Some(id) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _gone = kill_process(id, Signal::TERM);
        }
        let deadline = Instant::now() + limit;
        while self.runs() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Usage {
    /// What a process of this machine has used so far.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("the process is gone")?;
        let mebibytes = |field: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.and_then(|line| line.split_whitespace().next())
                .and_then(|number| number.parse::<f64>().ok())
                .unwrap_or_default()
                / 1024.0
        };
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("the process is gone")?;
        // The name may hold blanks; everything after it does not.
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let ticks: f64 = after.split(' ').skip(11).take(2).filter_map(|number| number.parse::<f64>().ok()).sum();
        Ok(Self {
            resident: mebibytes("VmRSS:"),
            own: mebibytes("RssAnon:"),
            peak: mebibytes("VmHWM:"),
            cpu: ticks / TICKS_PER_SECOND,
        })
    }
}

/// The memory that the kernel counts for the container of a process, in MiB: what Kubernetes shows, and limits. Nothing for a
/// process that is in no pod.
pub(crate) fn counted(id: u32) -> Option<f64> {
    let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).ok()?;
    let usage = groups.lines().filter(|line| line.contains("/kubepods")).find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let file = match (parts.next()?, parts.next()?) {
            ("memory", path) => format!("/sys/fs/cgroup/memory{path}/memory.usage_in_bytes"),
            ("", path) => format!("/sys/fs/cgroup{path}/memory.current"),
            _ => return None,
        };
        fs::read_to_string(file).ok()?.trim().parse::<f64>().ok()
    });
    usage.map(|bytes| bytes / 1024.0 / 1024.0)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Fetches a page from loopback.
pub(crate) fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP response")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{path} responded {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// A free port.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until a process listens on a port.
pub(crate) fn wait_for_port(port: u16, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > deadline {
            bail!("no process listens on port {port} after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until a page responds.
pub(crate) fn wait_for(port: u16, path: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while get(port, path).is_err() {
        if Instant::now() > deadline {
            bail!("{path} on port {port} does not respond within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
