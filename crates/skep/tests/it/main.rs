//! The binary from the outside: its output and exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may state what it expects and stop"
)]

mod architecture;
mod authz;
mod bounds;
mod browser;
mod check;
mod command_line;
mod confined;
mod crds;
mod documents;
mod guides;
mod mcp_client;
mod native;
mod proxy;
mod run;
mod uninstall;
mod vmcp;
mod vmcp_optimizer;
mod vmcp_webhooks;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The result of a run.
struct Run {
    code: i32,
    out: String,
    err: String,
}

/// Runs `skep` with a clean environment.
fn skep(arguments: &[&str]) -> Run {
    skep_with_input(arguments, "")
}

fn skep_with_input(arguments: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_skep"))
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// The server processes that a process started: its children but the watchdog.
fn server_processes(id: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let children = text.split_whitespace().map(|one| one.parse().unwrap());
    children.filter(|child| !is_watchdog(*child)).collect()
}

fn is_watchdog(id: u32) -> bool {
    std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.ends_with(b"skep\0watchdog\0"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Run {
    /// Asserts a failure with one line that contains all these words, and no result.
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "not one line: {}", self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
    }

    /// Asserts success without any output on standard error.
    fn succeeded(&self) -> &str {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        &self.out
    }
}

/// Waits until something holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + run::PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many lines a file has; none if it does not exist.
fn line_count(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}
