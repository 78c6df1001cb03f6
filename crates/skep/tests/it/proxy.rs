//! `skep proxy`: from its RunConfig to SIGTERM, as in a pod.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{line_count, wait_until};

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_mins(1);
/// The termination grace period of a pod.
const GRACE: Duration = Duration::from_secs(30);

/// A proxy in front of the demo server, in a directory with its RunConfig. Killed when dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: String,
    directory: tempfile::TempDir,
}

impl Proxy {
    /// Starts it and waits until its port is open.
    fn start() -> Self {
        Self::start_with(&[], &[], Stdio::null())
    }

    /// The same with clients that speak this transport.
    pub(crate) fn start_in(mode: &str) -> Self {
        Self::start_as(mode, &[], &[], Stdio::null())
    }

    /// The same, with flags before the command and variables, and its log going somewhere.
    fn start_with(flags: &[&str], variables: &[(&str, &str)], log: Stdio) -> Self {
        Self::start_as("", flags, variables, log)
    }

    fn start_as(mode: &str, flags: &[&str], variables: &[(&str, &str)], log: Stdio) -> Self {
        Self::start_configured(&json!({ "proxy_mode": mode }), flags, variables, (Stdio::null(), log))
    }

    /// The same with members of the RunConfig, and its standard output and its log going somewhere.
    fn start_configured(
        more: &Value,
        flags: &[&str],
        variables: &[(&str, &str)],
        (output, log): (Stdio, Stdio),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = json!({
            "schema_version": "v0.1.0", "name": "s", "container_name": "s", "transport": "stdio", "host": "127.0.0.1",
            "port": port, "cmd_args": ["demo-server"], "a_member_of_tomorrow": { "kept": true },
            "env_vars": { "TOKEN": "of-the-server" },
        });
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        std::fs::write(directory.path().join("runconfig.json"), config.to_string()).unwrap();
        let image = format!("exec://{}", env!("CARGO_BIN_EXE_skep"));
        let run = ["run", "--foreground=true", "--a-flag-of-tomorrow=x", &image];
        let arguments = [&["proxy"], flags, &run].concat();
        let mut command = command(&arguments, directory.path());
        let child = command.envs(variables.iter().copied()).stdout(output).stderr(log).spawn().unwrap();
        let proxy = Self { child, address: format!("127.0.0.1:{port}"), directory };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&proxy.address).is_err() {
            assert!(Instant::now() < deadline, "the port does not open");
            std::thread::sleep(Duration::from_millis(10));
        }
        proxy
    }

    fn list(&self) -> Value {
        let answer = self.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// The whole response to a message, head and body.
    fn post(&self, body: &str) -> String {
        let mut stream = self.send(&head(&self.address, body.len()));
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn send(&self, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        self.signal("-TERM");
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits until it has ended, within the grace period of a pod.
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + GRACE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn command(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
    command.args(arguments).current_dir(directory).env_remove("KUBERNETES_SERVICE_HOST").stdin(Stdio::null());
    command
}

fn head(host: &str, length: usize) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[test]
fn a_proxy_opens_its_port_serves_and_shuts_down_gracefully_on_sigterm() {
    let mut proxy = Proxy::start();
    assert!(proxy.list()["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    let children = crate::server_processes(proxy.child.id());
    assert_eq!(children.len(), 1, "{children:?}");
    // A client listens, and keeps listening.
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    let initialized = proxy.post(&initialize.to_string()).to_lowercase();
    let session = initialized.split_once("mcp-session-id: ").unwrap().1.split("\r\n").next().unwrap();
    let mut listening = proxy.send(&format!(
        "GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n",
        proxy.address
    ));
    let mut heard = [0; 12];
    listening.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"HTTP/1.1 200");
    proxy.terminate();
    assert_eq!(proxy.ended(), Some(0));
    let mut heard = String::new();
    listening.read_to_string(&mut heard).unwrap();
    assert!(heard.ends_with("0\r\n\r\n"), "the stream was cut: {heard:?}");
    assert!(TcpStream::connect(&proxy.address).is_err(), "the port is still open");
    for child in children {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "the server lives on: {stat}");
    }
}

/// The types of the events in a log.
fn event_types(text: &str) -> Vec<String> {
    let kind = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
    text.lines().map(kind).collect()
}

#[test]
fn audit_events_go_to_standard_output_and_nothing_else_does() {
    let audit = json!({ "audit_config": { "enabled": true } });
    let mut proxy = Proxy::start_configured(&audit, &[], &[], (Stdio::piped(), Stdio::null()));
    proxy.list();
    proxy.terminate();
    assert_eq!(proxy.ended(), Some(0));
    let mut text = String::new();
    proxy.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(event_types(&text), ["mcp_tools_list"], "{text}");
}

#[test]
fn an_audit_log_that_was_rotated_is_opened_again_on_sighup() {
    let audit = json!({ "audit_config": { "enabled": true, "logFile": "audit.log" } });
    let mut proxy = Proxy::start_configured(&audit, &[], &[], (Stdio::null(), Stdio::null()));
    let path = |name: &str| proxy.directory.path().join(name);
    let (log, rotated) = (path("audit.log"), path("audit.log.1"));
    proxy.list();
    wait_until("the first event", || line_count(&log) == 1);
    std::fs::rename(&log, &rotated).unwrap();
    proxy.list();
    wait_until("an event in the renamed file", || line_count(&rotated) == 2);
    proxy.signal("-HUP");
    wait_until("a new file", || log.exists());
    proxy.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    wait_until("an event in the new file", || line_count(&log) == 1);
    proxy.terminate();
    assert_eq!(proxy.ended(), Some(0), "a hangup does not end a proxy");
    let read = |path| event_types(&std::fs::read_to_string(path).unwrap());
    assert_eq!((read(&rotated), read(&log)), (vec!["mcp_tools_list".to_owned(); 2], vec!["mcp_ping".to_owned()]));
}

/// An API server that hangs, or is down, when a pod starts: the port opens, the health endpoint reports the problem,
/// and SIGTERM works.
#[test]
fn a_proxy_starts_and_ends_without_the_api_server() {
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (server, status) in [(hangs.local_addr().unwrap(), "starting"), (gone, "degraded")] {
        let directory = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = json!({
            "schema_version": "v0.1.0", "name": "s", "container_name": "s", "transport": "stdio", "host": "127.0.0.1",
            "port": port,
        });
        std::fs::write(directory.path().join("runconfig.json"), config.to_string()).unwrap();
        let kubeconfig = json!({
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{server}") } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }], "current-context": "c",
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let child = command(&["proxy", "run", "registry.example/server:1"], directory.path())
            .env("KUBECONFIG", directory.path().join("kubeconfig"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut proxy = Proxy { child, address: format!("127.0.0.1:{port}"), directory };
        let deadline = Instant::now() + PATIENCE;
        let page = loop {
            if let Ok(mut stream) = TcpStream::connect(&proxy.address) {
                let ask = format!("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", proxy.address);
                stream.write_all(ask.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
                if page["status"] == status {
                    break page;
                }
            }
            assert!(proxy.child.try_wait().unwrap().is_none(), "it ended");
            assert!(Instant::now() < deadline, "the page never says {status}");
            std::thread::sleep(Duration::from_millis(10));
        };
        if status == "degraded" {
            let error = page["mcp"]["error"].as_str().unwrap();
            assert!(error.starts_with("cannot read "), "{error}");
        }
        proxy.terminate();
        assert_eq!(proxy.ended(), Some(0));
    }
}

#[test]
fn the_log_respects_its_level_and_never_contains_messages() {
    let debug: &[(&str, &str)] = &[("TOOLHIVE_DEBUG", "true")];
    let plain: &[(&str, &str)] = &[("UNSTRUCTURED_LOGS", "true")];
    for (flags, variables) in [(&[][..], &[][..]), (&["--debug"], &[]), (&[], debug), (&[], plain)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut proxy = Proxy::start_with(flags, variables, file.reopen().unwrap().into());
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"of-the-caller"}}}"#;
        assert!(proxy.post(call).starts_with("HTTP/1.1 200"));
        // A client that does not speak HTTP is logged at debug level.
        let _refused = proxy.send("of-the-caller\r\n\r\n").read_to_string(&mut String::new());
        proxy.terminate();
        assert_eq!(proxy.ended(), Some(0));
        let log = std::fs::read_to_string(file.path()).unwrap();
        for secret in ["of-the-server", "of-the-caller"] {
            assert!(!log.contains(secret), "{secret} is in\n{log}");
        }
        if variables == plain {
            assert!(log.contains(" INFO ") && !log.contains('{'), "{log}");
            continue;
        }
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &lines {
            assert!(line["msg"].is_string() && line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        }
        let is_debug = !flags.is_empty() || !variables.is_empty();
        assert_eq!(lines.iter().any(|line| line["level"] == "DEBUG"), is_debug, "{flags:?} {variables:?}\n{log}");
        assert!(
            lines.iter().any(|line| line["level"] == "INFO" && line["msg"] == "listening" && line["server"] == "s")
        );
    }
}

/// Item 17-10: in a pod, a program would run in the proxy's own container, with its account and its secrets.
#[test]
fn a_proxy_in_a_pod_runs_no_host_process() {
    for (name, value) in [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("TOOLHIVE_RUNTIME", "kubernetes")] {
        for (transport, image) in
            [("stdio", "exec://touch"), ("streamable-http", "npx://touch"), ("sse", "uvx://touch")]
        {
            let directory = tempfile::tempdir().unwrap();
            let config = json!({
                "name": "s", "transport": transport, "host": "127.0.0.1", "port": 0, "target_port": 1, "cmd_args": ["started"],
            });
            std::fs::write(directory.path().join("runconfig.json"), config.to_string()).unwrap();
            let output = command(&["proxy", "run", image], directory.path()).env(name, value).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains(image) && errors.contains("use a container image"), "{errors}");
            assert!(!directory.path().join("started").exists());
        }
    }
}

#[test]
fn a_config_that_is_missing_or_broken_is_one_clear_error() {
    for (text, words) in [
        (None, &["runconfig.json"][..]),
        (Some("{\"name\": "), &["runconfig.json", "line 1"]),
        (Some("{\"transport\":\"pigeon\",\"name\":\"s\"}"), &["transport", "pigeon"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            std::fs::write(directory.path().join("runconfig.json"), text).unwrap();
        }
        let output = command(&["proxy", "run", "exec://true"], directory.path()).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert_eq!(errors.lines().count(), 1, "not one line: {errors}");
        for word in words {
            assert!(errors.contains(word), "`{word}` is not in: {errors}");
        }
    }
}

#[test]
fn a_slow_upload_is_cut_and_blocks_no_other_client() {
    let proxy = Proxy::start();
    let mut slow = TcpStream::connect(&proxy.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    slow.write_all(head(&proxy.address, 1000).as_bytes()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    // One byte now and then, until it is refused.
    while answer.is_empty() {
        assert!(Instant::now() < deadline, "it is waited for");
        let _closed = slow.write_all(b" ");
        let mut part = [0; 1024];
        if let Ok(length) = slow.read(&mut part) {
            answer.extend_from_slice(&part[..length]);
            assert!(length > 0, "cut without a response");
        }
        assert!(proxy.list()["result"]["tools"].is_array());
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn a_client_that_sends_too_much_before_it_reads_gets_413() {
    let proxy = Proxy::start();
    let body = vec![b' '; 8 * 1024 * 1024 + 1];
    for announced in [format!("Content-Length: {}", body.len()), "Transfer-Encoding: chunked".to_owned()] {
        let mut stream = TcpStream::connect(&proxy.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = head(&proxy.address, 0).replace("Content-Length: 0", &announced);
        stream.write_all(head.as_bytes()).unwrap();
        if announced.contains("chunked") {
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).unwrap();
        }
        stream.write_all(&body).unwrap();
        if announced.contains("chunked") {
            stream.write_all(b"\r\n0\r\n\r\n").unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{announced}: {answer}");
    }
    // A client that sends Expect gets the response before it sends anything.
    let mut stream = TcpStream::connect(&proxy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = head(&proxy.address, body.len()).replace("Connection:", "Expect: 100-continue\r\nConnection:");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}
