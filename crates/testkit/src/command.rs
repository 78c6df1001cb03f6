//! Running a program to its end and keeping its output.

use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What a program left behind.
#[derive(Debug)]
pub struct Output {
    /// The program and its arguments, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// The standard output of a program that succeeded; an error that quotes its standard error otherwise.
    pub fn success(self) -> Result<String> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        bail!("`{}` ended with {}: {}", self.command, self.status, self.stderr.trim())
    }
}

/// Runs a program to its end without blocking the runtime. Dropping the future kills it.
pub(crate) async fn run(mut command: Command, input: &[u8]) -> Result<Output> {
    let shown = shown(&command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input closes the pipe; that is its choice, not an error.
            let _closed_early = stdin.write_all(input).await;
        }
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), feed);
    let output = output.with_context(|| format!("lost track of `{shown}`"))?;
    Ok(Output {
        command: shown,
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The command as one would type it, without the directory of the program.
fn shown(command: &Command) -> String {
    let command = command.as_std();
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut shown = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_names_the_command_and_its_last_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 3"]);
        let error = run(command, b"ignored").await.unwrap().success().unwrap_err().to_string();
        assert!(error.starts_with("`sh -c echo no such thing"), "{error}");
        assert!(error.ends_with("exit status: 3: no such thing"), "{error}");
    }

    #[tokio::test]
    async fn input_larger_than_a_pipe_reaches_the_program() {
        let text = "x".repeat(300_000);
        let output = run(Command::new("cat"), text.as_bytes()).await.unwrap();
        assert_eq!(output.success().unwrap(), text);
    }
}
