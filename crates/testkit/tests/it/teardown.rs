//! Nothing is left behind, however the test process ends. A second copy of this test binary is the one that dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use skep_testkit::{ControlPlane, Seen, eventually, is_alive};

/// Set in the copy: the file to write the process ids and the directory to.
const REPORT: &str = "SKEP_TESTKIT_VICTIM_REPORT";
/// Set in the copy: whether to end by itself.
const ABORTS: &str = "SKEP_TESTKIT_VICTIM_ABORTS";

struct Victim {
    process: Child,
    report: tempfile::TempDir,
}

struct Report {
    pids: Vec<u32>,
    directory: PathBuf,
}

impl Victim {
    fn start(aborts: bool) -> Result<Self> {
        let report = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "teardown::victim"]).env(REPORT, report.path().join("report"));
        if aborts {
            command.env(ABORTS, "yes");
        }
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { process, report })
    }

    async fn report(&mut self) -> Result<Report> {
        let path = self.report.path().join("report");
        let text = eventually("the victim to report", Duration::from_secs(150), || {
            // In this order: what the victim wrote before its end is seen after it.
            let ended = self.process.try_wait();
            let text = fs::read_to_string(&path).unwrap_or_default();
            async move {
                match (text.ends_with("end\n"), ended?) {
                    (true, _) => Ok(Seen::Yes(text)),
                    (false, None) => Ok(Seen::NotYet("no report".to_owned())),
                    (false, Some(status)) => bail!("it ended before it could report: {status}"),
                }
            }
        })
        .await?;
        let mut lines = text.lines();
        let directory = PathBuf::from(lines.next().context("an empty report")?);
        Ok(Report { directory, pids: lines.filter_map(|line| line.parse().ok()).collect() })
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _collected = self.process.wait();
    }
}

async fn assert_all_is_gone(report: &Report) -> Result<()> {
    eventually("the control plane to be gone", Duration::from_secs(20), || async {
        let left: Vec<u32> = report.pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
        let gone = left.is_empty() && !report.directory.exists();
        Ok(if gone { Seen::Yes(()) } else { Seen::NotYet(format!("{left:?}, {}", report.directory.display())) })
    })
    .await
}

#[tokio::test]
async fn an_aborted_process_leaves_nothing_behind() -> Result<()> {
    let mut victim = Victim::start(true)?;
    let report = victim.report().await?;
    assert_eq!(report.pids.len(), 4, "anchor, reaper, etcd, kube-apiserver");
    assert_all_is_gone(&report).await
}

#[tokio::test]
async fn a_killed_process_leaves_nothing_behind() -> Result<()> {
    let mut victim = Victim::start(false)?;
    let report = victim.report().await?;
    assert!(report.pids.iter().all(|pid| is_alive(*pid)));
    drop(victim);
    assert_all_is_gone(&report).await
}

#[tokio::test]
async fn a_stopped_control_plane_is_gone_at_once() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let report = Report { pids: plane.pids(), directory: plane.directory().to_owned() };
    plane.stop();
    assert!(!report.pids.iter().any(|pid| is_alive(*pid)));
    assert!(!report.directory.exists());
    Ok(())
}

/// The copy's part: a shared control plane, which no destructor will ever end. In an ordinary run it does nothing.
#[tokio::test]
async fn victim() -> Result<()> {
    let Some(path) = std::env::var_os(REPORT) else { return Ok(()) };
    let plane = ControlPlane::shared().await?;
    let pids: Vec<String> = plane.pids().iter().map(ToString::to_string).collect();
    fs::write(Path::new(&path), format!("{}\n{}\nend\n", plane.directory().display(), pids.join("\n")))?;
    if std::env::var_os(ABORTS).is_some() {
        std::process::abort();
    }
    std::future::pending().await
}
