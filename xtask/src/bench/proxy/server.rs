//! The MCP server of every proxy that is measured: on the official Go SDK, built from the module proxy.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::{Process, wait_for_port};
use crate::program;
use crate::target_dir;

const SOURCE: &str = include_str!("server.go");
const MODULE: &str = "module bench\n\ngo 1.25\n\nrequire github.com/modelcontextprotocol/go-sdk v1.8.0\n";

/// Builds the server and returns the program.
pub(super) fn build() -> Result<PathBuf> {
    let directory = target_dir()?.join("bench/server");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("go.mod"), MODULE)?;
    fs::write(directory.join("main.go"), SOURCE)?;
    let mut go = Command::new("go");
    go.args(["build", "-mod=mod", "-o", "server", "."]).current_dir(&directory).env("CGO_ENABLED", "0");
    program::build("building the MCP server of the proxies", &mut go).context("is Go installed?")?;
    Ok(directory.join("server"))
}

/// Starts the server on a port.
pub(super) fn start(program: &PathBuf, port: u16) -> Result<Process> {
    let server = Process::start(Command::new(program).env("MCP_PORT", port.to_string()).stdin(Stdio::null()))?;
    wait_for_port(port, Duration::from_secs(10))?;
    Ok(server)
}
