//! A process under measurement: what it uses, and that it ends with us.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Linux counts processor time in hundredths of a second, on every machine that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running process.
pub(crate) struct Process(Child);

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Memory now, in MiB.
    pub(crate) resident: f64,
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

    pub(crate) fn usage(&self) -> Result<Usage> {
        let id = self.0.id();
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
        Ok(Usage { resident: mebibytes("VmRSS:"), peak: mebibytes("VmHWM:"), cpu: ticks / TICKS_PER_SECOND })
    }
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
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{path} answered {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Waits until a page answers.
pub(crate) fn wait_for(port: u16, path: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while get(port, path).is_err() {
        if Instant::now() > deadline {
            bail!("{path} on port {port} does not answer within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
