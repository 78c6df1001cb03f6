//! Starts a server process only once its process group is registered with the watchdog.
//!
//! ```text
//!   this program ──spawn──▶ launcher, in a process group of its own
//!        │ registers the group with the watchdog
//!        └────one byte────▶ launcher execs the server, which reads what follows
//!        ✗ SIGKILL          end of input: the launcher exits, and no server was started
//! ```
//!
//! Without it, a program that is killed between the start of a server and its registration leaves the server behind.
//! The launcher is another process of the same program ([`exec`]) and becomes the server, so it costs no process.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the launcher waits for.
const START: &[u8] = b"\n";

/// The launcher: how to start it.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) executable: PathBuf,
    /// The subcommand that calls [`exec`].
    pub(crate) subcommand: &'static str,
}

// === impl Launcher ===

impl Launcher {
    /// The launcher of a program. It cannot be asked whether the program exists, so that is looked up here, in the `PATH`
    /// of the program.
    pub(crate) fn command(&self, program: &str, path: Option<&OsStr>) -> std::io::Result<tokio::process::Command> {
        find(program, path)?;
        let mut command = tokio::process::Command::new(&self.executable);
        command.arg0("skep").args([self.subcommand, "--", program]);
        Ok(command)
    }
}

/// Lets a launcher start its server. A launcher that is gone is noticed as the end of the process.
pub(crate) fn start(stdin: Option<&impl AsFd>) {
    if let Some(stdin) = stdin {
        // The pipe is empty, so the byte fits.
        let _gone = rustix::io::write(stdin, START);
    }
}

/// The body of the launcher process: waits for its byte, and becomes the program. Returns only if that failed, or if
/// the process that started it is gone.
pub fn exec(program: &OsStr, args: &[OsString]) -> std::io::Error {
    // Unbuffered: the rest of the input is the server's.
    match rustix::io::read(std::io::stdin(), &mut [0; 1]) {
        Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
        Ok(_) => Command::new(program).args(args).exec(),
        Err(error) => error.into(),
    }
}

/// Whether a program exists: at its path, or in one of the directories of `PATH`.
fn find(program: &str, path: Option<&OsStr>) -> std::io::Result<()> {
    if program.contains('/') {
        return std::fs::metadata(program).map(|_| ());
    }
    // An absent `PATH` is the C library's default; then the launcher reports what is missing.
    let Some(path) = path else { return Ok(()) };
    let mut directories = path.as_bytes().split(|byte| *byte == b':');
    let is_there = |directory: &[u8]| Path::new(OsStr::from_bytes(directory)).join(program).exists();
    if directories.any(is_there) { Ok(()) } else { Err(std::io::Error::from_raw_os_error(NOT_FOUND)) }
}

/// `ENOENT`, with which a missing program fails.
const NOT_FOUND: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_path_or_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("server");
        std::fs::write(&program, "").unwrap();
        let path = std::env::join_paths([Path::new("/nonexistent"), directory.path()]).unwrap();
        assert!(find(program.to_str().unwrap(), None).is_ok());
        assert!(find("server", Some(&path)).is_ok());
        for (name, path) in [("server", "/nonexistent"), ("/nonexistent/server", "/"), ("other", "")] {
            let error = find(name, Some(OsStr::new(path))).unwrap_err();
            assert_eq!(error.to_string(), "No such file or directory (os error 2)", "{name}");
        }
        assert!(find("server", None).is_ok(), "the default of the C library is not known here");
    }
}
