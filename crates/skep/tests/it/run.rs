//! `skep run`: servers on this machine, from their manifests to their last call.

mod failures;
mod files;
mod guarded;
pub(crate) mod loopback;
mod memory;
mod virtual_servers;
pub(crate) mod webhooks;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{skep, skep_with_input};

/// The timeout of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A stdio server in a few lines: it answers every request with a variable of its own, `slow` ones after a while, and
/// `never` ones not at all.
const FIXTURE: &str = r#"
echo "fixture talks to people" >&2
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *notifications/*|*never*) continue ;;
    *slow*) sleep 1 ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":{"greeting":"%s","level":"%s"}}\n' "$id" "$GREETING" "$LEVEL"
done
"#;

/// A running `skep run`. Killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_skep"))
            .arg("run")
            .args(arguments)
            .env_remove("SKEP_LOG")
            .env_remove("RUST_LOG")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    /// The next line of JSON about an object of this name.
    pub(crate) fn about(&self, name: &str) -> Value {
        loop {
            let line: Value = serde_json::from_str(&self.line()).unwrap();
            if line["name"] == name {
                return line;
            }
        }
    }

    /// The next line of JSON about an object of this name that is in any state but `starting`.
    fn settled(&self, name: &str) -> Value {
        loop {
            let line = self.about(name);
            if line["state"] != "starting" {
                return line;
            }
        }
    }

    /// The server processes that it started.
    fn children(&self) -> Vec<u32> {
        crate::server_processes(self.child.id())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end. Returns the exit code and standard error. No process that it started survives.
    fn ended(mut self, children: &[u32]) -> (i32, String) {
        let deadline = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().expect("an exit code");
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        // They were ended before; the kernel decides when they are gone.
        for child in children {
            while is_alive(*child) {
                assert!(Instant::now() < deadline, "{child} lives on");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (code, errors)
    }

    fn stop(self) -> String {
        let children = self.children();
        self.signal("-INT");
        let (code, errors) = self.ended(&children);
        assert_eq!(code, 0, "{errors}");
        errors
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn lines(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Whether a process runs. A zombie does not.
pub(crate) fn is_alive(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn post(url: &str, body: &str) -> Value {
    let (status, message) = exchange(url, body);
    assert_eq!(status, 200, "{message}");
    message
}

/// Sends a message; returns the status and the response message.
fn exchange(url: &str, body: &str) -> (u16, Value) {
    exchange_as(url, "", body)
}

/// The same with header lines of a client.
fn exchange_as(url: &str, headers: &str, body: &str) -> (u16, Value) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         {headers}Mcp-Method: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        serde_json::from_str::<Value>(body).unwrap()["method"].as_str().unwrap_or_default(),
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap())
}

/// The response to a GET request, head and body.
fn get(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn request(method: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": "mine", "method": method }).to_string()
}

fn call(url: &str) -> Value {
    let params = json!({ "name": "calculate", "arguments": { "expression": "2 ^ 10" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    post(url, &body.to_string())["result"]["structuredContent"]["result"].clone()
}

pub(crate) fn server(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPServer\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

fn demo_server(name: &str, more: &str) -> String {
    server(name, &format!("image: 'exec://{}', args: [demo-server]{more}", env!("CARGO_BIN_EXE_skep")))
}

pub(crate) fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A manifest directory with the fixture and further files.
fn with_fixture(directory: &Path, more: &str) -> String {
    let script = write(directory, "fixture.sh", FIXTURE);
    let manifest = server(
        "fixture",
        &format!(
            "image: 'exec://sh', args: ['{script}'], env: [{{name: LEVEL, value: high}}], \
             secrets: [{{name: words, key: greeting, targetEnvName: GREETING}}]"
        ),
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: words}\nstringData: {greeting: hush-hush}\n";
    write(directory, "servers.yaml", &format!("{secret}{manifest}{more}"));
    directory.to_str().unwrap().to_owned()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn the_demo_prints_a_call_that_works_and_leaves_nothing_behind() {
    let run = Running::start(&["--demo"]);
    let address = run.line();
    let url = address.strip_prefix("demo ").unwrap();
    let shown = run.line();
    assert!(shown.starts_with(&format!("curl -s {url} ")), "{shown}");
    let body = shown.split_once("-d '").unwrap().1.strip_suffix('\'').unwrap();
    assert_eq!(post(url, body)["result"]["structuredContent"], json!({ "result": 42 }));
    // Verbatim, if there is a curl.
    let curled = Command::new("sh").args(["-c", &shown]).output().unwrap();
    if curled.status.code() != Some(127) {
        assert!(curled.status.success(), "{curled:?}");
        let answer: Value = serde_json::from_slice(&curled.stdout).unwrap();
        assert_eq!(answer["result"]["structuredContent"], json!({ "result": 42 }));
    }
    assert_eq!(run.children().len(), 1);
    assert_eq!(run.stop(), "");
}

#[test]
fn the_demo_hides_a_tool_by_a_policy_and_says_so() {
    let run = Running::start(&["--demo"]);
    let address = run.line();
    let url = address.strip_prefix("demo ").unwrap();
    let _call = run.line();
    let said = run.line();
    assert!(said.starts_with("# ") && said.contains("policy") && said.contains("`uuid`"), "{said}");
    let denied = run.line();
    let body = denied.split_once("-d '").unwrap().1.strip_suffix('\'').unwrap();
    let (status, answer) = exchange(url, body);
    assert_eq!((status, &answer["error"]["message"]), (403, &json!("Unauthorized")));
    let tools = post(url, &request("tools/list"))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["calculate", "json_query", "text_statistics", "time"]);
    run.stop();
}

#[test]
fn the_demo_is_served_to_clients_of_both_eras() {
    let run = Running::start(&["--demo", "-o", "json"]);
    let url = run.about("demo")["url"].as_str().unwrap().to_owned();
    let legacy = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let modern = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} } } });
    // Each client is served in its own era, whichever comes first.
    for _ in 0..2 {
        let (status, discovered) = exchange(&url, &modern.to_string());
        assert_eq!(
            (status, &discovered["result"]["supportedVersions"][0]),
            (200, &json!("2026-07-28")),
            "{discovered}"
        );
        assert_eq!(post(&url, &legacy.to_string())["result"]["protocolVersion"], "2025-06-18");
    }
    run.stop();
}

#[test]
fn a_requested_port_is_bound_or_refused() {
    let port = free_port();
    let run = Running::start(&["--demo", "--port", &port.to_string()]);
    assert_eq!(run.line(), format!("demo http://127.0.0.1:{port}/mcp"));
    let second = skep(&["run", "--demo", "--port", &port.to_string()]);
    assert_eq!((second.code, second.out.as_str()), (1, ""));
    assert!(second.err.contains(&port.to_string()) && second.err.contains("in use"), "{}", second.err);
    run.stop();
}

#[test]
fn a_directory_is_served_with_its_secrets_and_they_are_seen_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_fixture(directory.path(), &demo_server("demo", ""));
    let run = Running::start(&["-f", &path, "--verbose"]);
    let urls = [run.line(), run.line()];
    let url = |name: &str| urls.iter().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    assert_eq!(
        post(url("fixture"), &request("tools/list"))["result"],
        json!({ "greeting": "hush-hush", "level": "high" })
    );
    assert_eq!(call(url("demo")), 1024);
    for child in run.children() {
        let arguments = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap();
        assert!(!arguments.contains("hush"), "{arguments}");
    }
    let log = run.stop();
    assert!(log.contains("fixture talks to people") && !log.contains("hush"), "{log}");
}

#[test]
fn an_http_server_gets_the_address_to_listen_on() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("exec '{}' run --demo --port $MCP_PORT", env!("CARGO_BIN_EXE_skep"));
    let text = server("http", &format!("image: 'exec://sh', args: [-c, \"{script}\"], transport: streamable-http"));
    let run = Running::start(&["-f", &write(directory.path(), "http.yaml", &text), "-o", "json"]);
    let mut line = run.about("http");
    while line["state"] != "ready" {
        assert_eq!(line["state"], "starting", "{line}");
        line = run.about("http");
    }
    assert_eq!(line["transport"], "streamable-http");
    assert_eq!(call(line["url"].as_str().unwrap()), 1024);
    run.stop();
}

#[test]
fn servers_with_the_same_port_get_ports_of_their_own_and_none_that_a_proxy_wants() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let http = |name: &str| {
        let told = directory.path().join(name).display().to_string();
        let script =
            format!("echo $MCP_PORT > '{told}'; exec '{}' run --demo --port $MCP_PORT", env!("CARGO_BIN_EXE_skep"));
        let spec = format!("image: 'exec://sh', args: [-c, \"{script}\"], transport: streamable-http, mcpPort: {port}");
        server(name, &format!("{spec}, proxyPort: {}", free_port()))
    };
    let text = http("one") + &http("two") + &demo_server("three", &format!(", proxyPort: {port}"));
    let run = Running::start(&["-f", &write(directory.path(), "three.yaml", &text), "-o", "json"]);
    let mut ready = std::collections::BTreeMap::new();
    while ready.len() < 3 {
        let line: Value = serde_json::from_str(&run.line()).unwrap();
        if line["state"] == "ready" {
            ready.insert(line["name"].as_str().unwrap().to_owned(), line["url"].as_str().unwrap().to_owned());
        }
    }
    assert!(ready["three"].contains(&format!(":{port}/")), "{ready:?}");
    assert!(ready.values().all(|url| call(url) == 1024), "{ready:?}");
    let told =
        |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap().trim().parse::<u16>().unwrap();
    assert!(told("one") != told("two") && told("one") != port && told("two") != port);
    run.stop();
}

#[test]
fn a_server_that_cannot_run_is_reported_and_the_others_run() {
    let directory = tempfile::tempdir().unwrap();
    let text = server("image", "image: 'ghcr.io/a/b:1'")
        + &server("reference", "image: 'exec://true', toolConfigRef: {name: nope}")
        + &server("wrong", "imag: x")
        + &server("missing", "image: 'exec://no-such-program-here'")
        + "---\n{apiVersion: toolhive.stacklok.dev/v1beta1, kind: EmbeddingServer, metadata: {name: vectors}}\n"
        + &demo_server("demo", "");
    let file = write(directory.path(), "all.yaml", &text);
    let run = Running::start(&["-f", &file, "-o", "json"]);
    for (name, state, words) in [
        ("wrong", "refused", "did you mean `image`"),
        ("image", "refused", "npx://package"),
        ("reference", "refused", "MCPToolConfig `nope` not found"),
        ("vectors", "skipped", "only in a cluster"),
        ("missing", "failing", "cannot start `no-such-program-here`"),
    ] {
        let line = run.about(name);
        assert_eq!(line["state"], state, "{line}");
        assert!(line["reason"].as_str().unwrap().contains(words), "{line}");
    }
    let line = run.settled("demo");
    assert_eq!((&line["kind"], &line["namespace"]), (&json!("MCPServer"), &json!("default")));
    assert_eq!((&line["transport"], &line["state"]), (&json!("stdio"), &json!("ready")));
    assert_eq!(call(line["url"].as_str().unwrap()), 1024);
    let children = run.children();
    run.signal("-TERM");
    assert_eq!(run.about("demo")["state"], "ended");
    assert_eq!(run.ended(&children), (0, String::new()));

    // For people: what cannot run is on standard error, and only what runs on standard output.
    let run = Running::start(&["-f", &file]);
    assert!(run.line().starts_with("missing http://127.0.0.1:"));
    assert!(run.line().starts_with("demo http://127.0.0.1:"));
    let errors = run.stop();
    assert_eq!(errors.lines().count(), 5, "{errors}");
    assert!(errors.contains("MCPServer/missing: failing: cannot start `no-such-program-here`"), "{errors}");
    assert!(errors.contains("MCPServer/image: refused: `ghcr.io/a/b:1` is a container image"), "{errors}");
    assert!(errors.contains("EmbeddingServer/vectors: skipped: "), "{errors}");
}

#[test]
fn a_change_of_state_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_fixture(directory.path(), "");
    let run = Running::start(&["-f", &path, "-o", "json"]);
    assert_eq!(run.settled("fixture")["state"], "ready");
    let [child] = run.children()[..] else { panic!("one child") };
    assert!(Command::new("kill").args(["-KILL", &child.to_string()]).status().unwrap().success());
    let gone = run.about("fixture");
    assert_eq!(gone["state"], "failing");
    assert!(gone["reason"].as_str().unwrap().contains("the server ended"), "{gone}");
    let back = run.about("fixture");
    assert_eq!((&back["state"], back.get("reason")), (&json!("ready"), None));
    run.stop();
}

/// A server is asked to end before it is killed, and all are at the same time.
#[test]
fn servers_may_clean_up_before_they_end() {
    let directory = tempfile::tempdir().unwrap();
    let left = |name: &str| directory.path().join(name);
    let put_away = |name: &str| format!("sleep 0.3; echo away > {}; exit 0", left(name).display());
    let stdio = |name: &str| {
        let script = format!("while read -r line; do :; done; {}", put_away(name));
        server(name, &format!("image: 'exec://sh', args: [-c, '{script}']"))
    };
    let script = format!(
        "trap \\\"{}\\\" TERM; echo > {}; while :; do sleep 0.05; done",
        put_away("http"),
        left("up").display()
    );
    let http = server("http", &format!("image: 'exec://sh', args: [-c, \"{script}\"], transport: streamable-http"));
    let file = write(directory.path(), "three.yaml", &(stdio("one") + &stdio("two") + &http));
    let run = Running::start(&["-f", &file, "-o", "json"]);
    run.about("http");
    let deadline = Instant::now() + PATIENCE;
    while !left("up").exists() {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.stop();
    for name in ["one", "two", "http"] {
        assert_eq!(std::fs::read_to_string(left(name)).unwrap_or_default(), "away\n", "{name}");
    }
}

#[test]
fn the_log_says_which_server_speaks() {
    let directory = tempfile::tempdir().unwrap();
    let script = |words: &str| format!("args: [-c, 'echo {words} >&2; while read -r line; do :; done']");
    let text = server("one", &format!("image: 'exec://sh', {}", script("first words")))
        + &server("two", &format!("image: 'exec://sh', transport: streamable-http, {}", script("second words")));
    let mut run = Running::start(&["-f", &write(directory.path(), "two.yaml", &text), "--verbose"]);
    let log = lines(run.child.stderr.take().unwrap());
    for words in ["first words", "second words"] {
        let line = loop {
            let line = log.recv_timeout(PATIENCE).expect("another line");
            // A failure report contains the last log lines of the server, too, and is no log.
            if line.contains(words) && !line.starts_with("MCPServer/") {
                break line;
            }
        };
        let name = if words == "first words" { "one" } else { "two" };
        assert!(line.contains(&format!("name=\"{name}\"")), "{line}");
    }
}

/// A user's variable that is not UTF-8 must not cause a crash. The server has it all the same.
#[test]
fn a_variable_that_is_not_text_is_left_alone() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_skep"))
        .args(["run", "--demo"])
        .env("LC_ODD", odd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(child.stdout.take().unwrap());
    let run = Running { child, lines };
    assert!(run.line().starts_with("demo http://127.0.0.1:"));
    let [server] = run.children()[..] else { panic!("one child") };
    let environment = std::fs::read(format!("/proc/{server}/environ")).unwrap();
    assert!(environment.split(|byte| *byte == 0).any(|one| one == b"LC_ODD=\xff\xfe"));
    run.stop();
}

/// Responds to one request as an HTTP proxy, and returns the request.
pub(crate) fn way_out(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while !asked.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut asked).unwrap() > 0, "{asked}");
        }
        let length = asked.to_lowercase().split_once("content-length: ").unwrap().1.lines().next().unwrap().parse();
        reader.read_exact(&mut vec![0; length.unwrap()]).unwrap();
        let body = r#"{"jsonrpc":"2.0","id":"mine","result":{"tools":[]}}"#;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        asked
    })
}

#[test]
fn a_remote_server_is_fronted_with_a_header_from_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let remote = "---\napiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPRemoteProxy\nmetadata: {name: remote}\nspec:\n  \
                  remoteUrl: http://mcp.example/mcp\n  headerForward:\n    addHeadersFromSecret:\n    \
                  - {headerName: x-words, valueSecretRef: {name: words, key: greeting}}\n";
    let path = with_fixture(directory.path(), remote);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = format!("http://{}", listener.local_addr().unwrap());
    let asked = way_out(listener);
    let run = Running::start_with(&["-f", &path, "-o", "json"], &[("http_proxy", &way), ("no_proxy", "")]);
    let line = run.about("remote");
    assert_eq!((&line["kind"], &line["state"]), (&json!("MCPRemoteProxy"), &json!("listening")), "{line}");
    assert_eq!(post(line["url"].as_str().unwrap(), &request("tools/list"))["result"], json!({ "tools": [] }));
    let asked = asked.join().unwrap().to_lowercase();
    assert!(asked.starts_with("post http://mcp.example/mcp ") && asked.contains("x-words: hush-hush"), "{asked}");
    run.stop();
}

#[test]
fn a_call_in_flight_is_finished_and_a_second_signal_cuts_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_fixture(directory.path(), "");
    let run = Running::start(&["-f", &path]);
    let url = run.line().split_once(' ').unwrap().1.to_owned();
    let in_flight = std::thread::spawn(move || post(&url, &request("slow")));
    std::thread::sleep(Duration::from_millis(300));
    run.stop();
    assert_eq!(in_flight.join().unwrap()["result"]["greeting"], "hush-hush");

    let run = Running::start(&["-f", &path]);
    let host = run.line().split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    let mut stream = TcpStream::connect(&host).unwrap();
    let body = request("never");
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let children = run.children();
    run.signal("-INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(run.child.id()), "it waits for the call");
    let started = Instant::now();
    run.signal("-INT");
    let (code, errors) = run.ended(&children);
    assert!(code == 1 && errors.contains("requests in flight were cut"), "{code} {errors}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn nothing_to_run_is_an_error() {
    skep(&["run"]).refused(2, &["--file", "--demo"]);
    skep(&["run", "-f", "x", "--demo"]).refused(2, &["--demo"]);
    skep(&["run", "-f", "x", "--port", "1"]).refused(2, &["--port"]);
    skep(&["run", "-f", "no-such-file.yaml"]).refused(1, &["no-such-file.yaml"]);
    skep_with_input(&["run", "-f", "-"], "").refused(1, &["nothing to run"]);
    let run = skep_with_input(&["run", "-f", "-"], &server("image", "image: 'ghcr.io/a/b:1'"));
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    let [refusal, error] = run.err.lines().collect::<Vec<_>>()[..] else { panic!("{}", run.err) };
    assert!(refusal.contains("exec://program") && error.starts_with("error: nothing runs here"), "{}", run.err);
}

#[test]
fn the_demo_server_serves_lines_until_its_input_ends() {
    let input = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nnonsense\n\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}";
    let run = skep_with_input(&["demo-server"], input);
    let answers: Vec<Value> = run.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 3);
    assert_eq!((&answers[0]["id"], &answers[2]["id"]), (&json!(1), &json!(2)));
    assert_eq!(answers[1]["error"]["code"], -32700);
    let too_long = format!("{}\n{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}}\n", "x".repeat(9 * 1024 * 1024));
    let run = skep_with_input(&["demo-server"], &too_long);
    let answers: Vec<Value> = run.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&answers[0]["error"]["code"], &answers[1]["id"]), (&json!(-32600), &json!(3)));
}
