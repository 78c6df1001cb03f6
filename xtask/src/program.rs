//! Running other programs: an error names the command and, where its output was captured, its last lines.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::ui;

/// The interval between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(100);

/// Cargo, the one that runs us, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

/// What cargo knows of the workspace and its packages.
pub(crate) fn metadata() -> Result<Value> {
    let text = capture(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cannot read the output of `cargo metadata`")
}

/// Runs a program that speaks to the user itself.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Builds something, a step that can take minutes. On a terminal, the compiler reports its own progress. In a pipe, the step has a
/// line at its start and one at its end, and the compiler's output is shown if it fails.
pub(crate) fn build(what: &str, command: &mut Command) -> Result<()> {
    ui::progress(&format!("{what}…"));
    if std::io::stderr().is_terminal() {
        return run(command);
    }
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let elapsed = started.elapsed().as_secs_f64();
    if !output.status.success() {
        for said in [&output.stdout, &output.stderr].into_iter().filter(|said| !said.is_empty()) {
            ui::progress(String::from_utf8_lossy(said).trim_end());
        }
        bail!("`{}` ended with {} after {elapsed:.1} s", shown(command), output.status);
    }
    ui::progress(&format!("{what}: {elapsed:.1} s"));
    Ok(())
}

/// Runs a program in silence and returns its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {}", shown(command), output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until `look` finds nothing to complain about. Its last complaint becomes the error.
pub(crate) fn wait_until(what: &str, limit: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("{what}: not within {limit:?}")));
            }
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
}

/// Whether a program is on the PATH, or where administrators keep theirs.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = [Path::new("/usr/sbin"), Path::new("/sbin")];
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
        || administrators.iter().any(|place| place.join(program).is_file())
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_last_words() {
        let error = capture(Command::new("sh").args(["-c", "echo broken >&2; exit 4"])).unwrap_err().to_string();
        assert_eq!(error, "`sh -c echo broken >&2; exit 4` ended with exit status: 4: broken");
    }

    #[test]
    fn waiting_ends_with_the_last_complaint() {
        let mut looks = 0;
        wait_until("counting", Duration::from_secs(5), || {
            looks += 1;
            if looks < 3 { Err(anyhow::anyhow!("only {looks}")) } else { Ok(()) }
        })
        .unwrap();
        let error = wait_until("never", Duration::ZERO, || bail!("still not")).unwrap_err();
        assert_eq!(format!("{error:#}"), "never: not within 0ns: still not");
    }
}
