//! The environment and the lifetime of the server processes of `skep run`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::run::{PATIENCE, Running, is_alive, post, request, server, way_out, write};

/// The content of a file that a server writes.
fn written(file: &Path) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return text;
        }
        assert!(Instant::now() < deadline, "the server does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Item 17-14: an HTTP server does not notice that its input ended, and must not be left behind.
#[test]
fn servers_over_http_end_when_run_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let ids = directory.path().join("ids");
    // Started by a shell, as npx does, and ignoring SIGTERM.
    let deaf = format!("trap '' TERM; sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", ids.display());
    let text = server("http", &format!("image: 'exec://sh', args: [-c, \"{deaf}\"], transport: streamable-http"));
    let mut run = Running::start(&["-f", &write(directory.path(), "http.yaml", &text)]);
    let ids: Vec<u32> = written(&ids).split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(|id| is_alive(*id)));
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    for id in ids {
        while is_alive(id) {
            assert!(Instant::now() < deadline, "process {id} was left behind");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Item 17-14: a kill before the server is registered with the watchdog starts no server, and the server's input is its
/// own.
#[test]
fn a_server_starts_only_when_it_is_registered() {
    let launch = |input: &[u8]| {
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_skep"))
            .args(["launch", "--", "sh", "-c", "echo \"$1\"; cat", "sh", "--"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        launcher.stdin.take().unwrap().write_all(input).unwrap();
        launcher.wait_with_output().unwrap()
    };
    let killed = launch(b"");
    assert_eq!((killed.status.code(), killed.stdout.as_slice()), (Some(1), b"".as_slice()));
    let started = launch(b"\nfirst line\n");
    assert!(started.status.success(), "{started:?}");
    assert_eq!(started.stdout, b"--\nfirst line\n");
}

/// Item 17-10: the user's shell holds credentials of other programs.
#[test]
fn servers_do_not_get_the_environment_of_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("variables");
    let script = format!("env > {0}.new; mv {0}.new {0}; sleep 1000", file.display());
    let spec = format!("image: 'exec://sh', args: [-c, \"{script}\"], env: [{{name: LEVEL, value: high}}]");
    let manifest = write(directory.path(), "s.yaml", &server("s", &spec));
    let variables = [("GITHUB_TOKEN", "of-another-program"), ("TOOLHIVE_SECRET_x", "of-the-proxy"), ("LC_ALL", "C")];
    let _run = Running::start_with(&["-f", &manifest], &variables);
    let text = written(&file);
    let has = |line: &str| text.lines().any(|one| one == line);
    assert!(has("LEVEL=high") && has("LC_ALL=C") && text.contains("PATH="), "{text}");
    assert!(!text.contains("of-another-program") && !text.contains("of-the-proxy"), "{text}");
}

/// Item 17-12: a remote server on this machine is the user's own; a metadata service is always denied.
#[test]
fn a_remote_server_may_be_on_this_machine() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = way_out(listener);
    let proxy = |name: &str, url: &str| {
        server(name, &format!("remoteUrl: '{url}'")).replace("kind: MCPServer", "kind: MCPRemoteProxy")
    };
    let text = proxy("near", &format!("http://localhost:{port}")) + &proxy("far", "http://169.254.169.254");
    let directory = tempfile::tempdir().unwrap();
    let run = Running::start(&["-o", "json", "-f", &write(directory.path(), "r.yaml", &text)]);
    let far = run.about("far");
    assert_eq!(far["state"], "refused");
    assert!(far["reason"].as_str().unwrap().contains("169.254.169.254"), "{far}");
    let near = run.about("near");
    let answer = post(near["url"].as_str().unwrap(), &request("tools/list"));
    assert_eq!(answer["result"], json!({ "tools": [] }));
    assert!(asked.join().unwrap().starts_with("POST /mcp "));
}
