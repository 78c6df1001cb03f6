//! A server on this machine: a child process.
//!
//! An image may name a program instead: `exec://program`, or a package of a registry that its own tool runs,
//! `npx://package@version` and `uvx://package@version`. It gets the variables of its spec and a few of the system's
//! ([`environment`]), and ends with this process, even if that is killed ([`crate::watchdog`]).

mod environment;

use std::ffi::OsString;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};

use crate::launch;
use crate::pipe::{Held, Pipe};
use crate::server::{Server, Speaks};
use crate::watchdog::{self, Registration};

/// The size of the pipe that a server writes to, in bytes. A long message fits into the pipe, so that it is written and
/// read at once; the kernel's default of 64 KiB would make the two take turns. This is the maximum for an unprivileged
/// user.
#[cfg(target_os = "linux")]
const PIPE: usize = 1024 * 1024;

/// How long a stdio server may take to end after its input was closed, before SIGTERM.
const AFTER_INPUT: Duration = Duration::from_secs(1);
/// How long a server may take to end after SIGTERM.
const AFTER_SIGNAL: Duration = Duration::from_secs(3);
/// How often the processes that a server started are polled: their end is not signalled to us.
const LOOK: Duration = Duration::from_millis(10);

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program.
    pub program: String,
    /// Arguments before the server's own.
    pub args: Vec<String>,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The image cannot be run without a cluster.
    #[error(
        "`{0}` is a container image, which needs a cluster; on one machine use exec://program, npx://package or uvx://package"
    )]
    Image(String),
    /// The program failed to start.
    #[error("cannot start `{program}`: {error}{hint}")]
    Program {
        /// The program.
        program: String,
        /// The error.
        error: std::io::Error,
        /// What to do about it.
        hint: &'static str,
    },
}

// === impl Program ===

impl Program {
    /// Parses an image. `None` if it is a container image.
    pub fn of(image: &str) -> Option<Self> {
        let (scheme, rest) = image.split_once("://")?;
        let (program, args) = match scheme {
            "exec" => (rest.to_owned(), vec![]),
            "npx" => ("npx".to_owned(), vec!["-y".to_owned(), rest.to_owned()]),
            "uvx" => ("uvx".to_owned(), vec![rest.to_owned()]),
            _ => return None,
        };
        (!rest.is_empty()).then_some(Self { program, args })
    }
}

/// A process with everything that it started. Dropping it ends them.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The process group that it leads, while it may have members.
    group: Option<(Pid, Registration)>,
    /// How long it may take to end when its input is closed.
    patience: Duration,
}

// === impl Process ===

impl Process {
    /// Starts a server. For a stdio server its standard streams are pipes.
    pub fn start(server: &Server) -> Result<Self, StartError> {
        let program = Program::of(&server.image).ok_or_else(|| StartError::Image(server.image.clone()))?;
        let failed = |error| StartError::Program {
            hint: hint(&program.program, &error),
            program: program.program.clone(),
            error,
        };
        let variables = server.variables();
        let path = variables.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let launcher = watchdog::prepare();
        let mut command = match &launcher {
            Some(launcher) => launcher.command(&program.program, path.as_deref()).map_err(failed)?,
            None => Command::new(&program.program),
        };
        command
            .args(&program.args)
            .args(&server.args)
            // INVARIANT: nothing else of our environment, which holds the credentials of the proxy and of the user's
            // shell.
            .env_clear()
            .envs(environment::inherited(std::env::vars_os()))
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group of its own: what it starts is ended with it, and Ctrl-C at our terminal is ours alone.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = group.map(|group| (group, watchdog::register(group)));
        // INVARIANT: after the registration, so that a kill at any time leaves no server behind.
        if launcher.is_some() {
            launch::start(child.stdin.as_ref());
        }
        let patience = if server.speaks == Speaks::Stdio { AFTER_INPUT } else { Duration::ZERO };
        Ok(Self { child, group, patience })
    }

    /// The streams of a server, each of which can be taken once.
    pub fn pipe(mut self) -> Option<Pipe> {
        let (stdin, stdout, stderr) = (self.child.stdin.take()?, self.child.stdout.take()?, self.child.stderr.take()?);
        // A user with many pipes gets no longer ones; messages pass through short ones, too.
        #[cfg(target_os = "linux")]
        let _refused = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE);
        Some(Pipe { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr: Box::new(stderr), held: Box::new(self) })
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Ends the process and all that it started, as the protocol requires: close its input, SIGTERM, SIGKILL. Returns
    /// its exit status. Does not take longer than the process does.
    pub async fn end(mut self) -> std::io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        if !self.is_over_within(self.patience).await {
            self.signal(Signal::TERM);
            if !self.is_over_within(AFTER_SIGNAL).await {
                self.signal(Signal::KILL);
            }
        }
        self.child.wait().await
    }

    /// Waits for the process and all that it started.
    async fn is_over_within(&mut self, limit: Duration) -> bool {
        let over = async {
            let _status = self.child.wait().await;
            while self.group.as_ref().is_some_and(|(group, _)| test_kill_process_group(*group).is_ok()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let is_over = tokio::time::timeout(limit, over).await.is_ok();
        if is_over {
            self.group = None;
        }
        is_over
    }

    fn signal(&self, signal: Signal) {
        if let Some((group, _)) = &self.group {
            // It may have ended by itself.
            let _gone = kill_process_group(*group, signal);
        }
    }
}

impl Held for Process {
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        Box::pin(async move { (*self).end().await.ok().map(|status| status.to_string()) })
    }

    fn ended(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let _status = self.child.wait().await;
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Even when the first process has ended already, what it started may not have.
        self.signal(Signal::KILL);
    }
}

fn hint(program: &str, error: &std::io::Error) -> &'static str {
    match (program, error.kind()) {
        ("npx", std::io::ErrorKind::NotFound) => "; install Node.js, which includes it",
        ("uvx", std::io::ErrorKind::NotFound) => "; install uv, which includes it",
        (_, std::io::ErrorKind::NotFound) => "; give its path, or put it on PATH",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn server(image: &str, args: &[&str]) -> Server {
        Server {
            name: "s".to_owned(),
            image: image.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
            ..Server::default()
        }
    }

    #[test]
    fn an_image_may_be_a_program_or_a_package() {
        let program = |program: &str, args: &[&str]| {
            Some(Program { program: program.to_owned(), args: args.iter().map(|&arg| arg.to_owned()).collect() })
        };
        assert_eq!(Program::of("exec://./server"), program("./server", &[]));
        assert_eq!(Program::of("npx://@a/b@1"), program("npx", &["-y", "@a/b@1"]));
        assert_eq!(Program::of("uvx://time@1"), program("uvx", &["time@1"]));
        for image in ["registry.example/a:1", "exec://", "docker://a"] {
            assert_eq!(Program::of(image), None, "{image}");
        }
    }

    #[tokio::test]
    async fn a_process_has_its_variables_and_three_streams() {
        let script = "read line; echo \"$GREETING $MCP_TRANSPORT $line\"; echo aside >&2";
        let mut pipe = Process::start(&server("exec://sh", &["-c", script])).unwrap().pipe().unwrap();
        pipe.stdin.write_all(b"you\n").await.unwrap();
        let (mut out, mut aside) = (String::new(), String::new());
        pipe.stdout.read_to_string(&mut out).await.unwrap();
        pipe.stderr.read_to_string(&mut aside).await.unwrap();
        assert_eq!((out.as_str(), aside.as_str()), ("hello stdio you\n", "aside\n"));
    }

    /// Item 17-10: a child process gets its own variables and a short list of the system's.
    #[tokio::test]
    async fn a_process_does_not_inherit_the_environment_of_its_parent() {
        // Set by cargo for every test, and on no list.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let mut pipe = Process::start(&server("exec://env", &[])).unwrap().pipe().unwrap();
        let mut out = String::new();
        pipe.stdout.read_to_string(&mut out).await.unwrap();
        let names: BTreeMap<&str, &str> = out.lines().filter_map(|line| line.split_once('=')).collect();
        assert_eq!(names.get("PATH").copied(), std::env::var("PATH").ok().as_deref());
        assert_eq!(names.get("GREETING"), Some(&"hello"));
        assert!(!names.keys().any(|name| name.starts_with("CARGO")), "{out}");
        let ours = ["GREETING", "MCP_TRANSPORT"];
        let inherited = environment::inherited(std::env::vars_os());
        let inherited: Vec<String> = inherited.filter_map(|(name, _)| name.into_string().ok()).collect();
        for name in names.keys() {
            assert!(ours.contains(name) || inherited.iter().any(|one| one == name), "{name}");
        }
    }

    #[tokio::test]
    async fn child_processes_end_with_their_process() {
        let process = Process::start(&server("exec://sh", &["-c", "sleep 1000 & echo $!; wait"])).unwrap();
        let mut pipe = process.pipe().unwrap();
        let grandchild = line(&mut pipe).await;
        assert!(runs(&grandchild));
        drop(pipe);
        until_ended(&grandchild).await;
    }

    /// Whether a process runs. One that has ended is a zombie until its parent waits for it.
    fn runs(id: &str) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    }

    async fn until_ended(id: &str) {
        skep_testkit::eventually("the process ends", Duration::from_secs(10), || async {
            Ok(if runs(id) { skep_testkit::Seen::NotYet("it runs".to_owned()) } else { skep_testkit::Seen::Yes(()) })
        })
        .await
        .unwrap();
    }

    /// Reads a line that a server writes.
    async fn line(pipe: &mut crate::pipe::Pipe) -> String {
        let mut line = Vec::new();
        loop {
            match pipe.stdout.read_u8().await.unwrap() {
                b'\n' => return String::from_utf8(line).unwrap(),
                byte => line.push(byte),
            }
        }
    }

    #[tokio::test]
    async fn a_process_may_end_by_itself_then_gets_sigterm_and_then_sigkill() {
        let directory = std::env::temp_dir().join(format!("skep-ends-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (number, (script, ended, left)) in [
            // Ends with its input.
            ("echo; while read l; do :; done; echo input > F; exit 3", "exit status: 3", "input"),
            // Does not read its input.
            ("trap 'echo SIGTERM > F; exit 0' TERM; echo; while :; do sleep 0.05; done", "exit status: 0", "SIGTERM"),
            // Is only a shell around the actual server, which ends slowly.
            ("sh -c 'trap \"sleep 0.3; echo late > F; exit 0\" TERM; echo; while :; do sleep 0.05; done' & trap - TERM; wait", "signal: 15 (SIGTERM)", "late"),
            // Ignores everything.
            ("trap '' TERM; echo > F; echo; while :; do sleep 0.05; done", "signal: 9 (SIGKILL)", ""),
        ]
        .into_iter()
        .enumerate()
        {
            let file = directory.join(number.to_string());
            let script = script.replace(" F", &format!(" {}", file.display()));
            let mut pipe = Process::start(&server("exec://sh", &["-c", &script])).unwrap().pipe().unwrap();
            line(&mut pipe).await;
            let Pipe { stdin, held, .. } = pipe;
            drop(stdin);
            assert_eq!(held.end().await.as_deref(), Some(ended), "{script}");
            assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), left, "{script}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[tokio::test]
    async fn a_process_ends_while_what_it_started_holds_its_streams() {
        let process = Process::start(&server("exec://sh", &["-c", "sleep 1000 & echo $!; exit 3"])).unwrap();
        let mut pipe = process.pipe().unwrap();
        let left = line(&mut pipe).await;
        tokio::time::timeout(Duration::from_secs(10), pipe.held.ended()).await.unwrap();
        assert!(runs(&left));
        assert_eq!(pipe.held.end().await.as_deref(), Some("exit status: 3"));
        until_ended(&left).await;
    }

    #[tokio::test]
    async fn an_error_of_a_start_says_what_to_do() {
        let message = |image: &str| Process::start(&server(image, &[])).unwrap_err().to_string();
        assert!(message("registry.example/a:1").contains("exec://"));
        assert!(message("exec://no-such-program-here").contains("PATH"));
    }
}
