//! `skep vmcp`: many servers as one, with real servers and clients of both eras.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::run::write;
use crate::skep;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_mins(1);

/// A virtual server. Killed when dropped.
pub(crate) struct Virtual {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

/// The response to a request.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Virtual {
    /// Starts a virtual server over these backends, and waits until its port is open.
    fn start(backends: &[(&str, &str)], more: &str) -> Self {
        Self::start_with(&config(backends, more))
    }

    /// The same with a whole configuration.
    pub(crate) fn start_with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = write(directory.path(), "config.yaml", text);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(env!("CARGO_BIN_EXE_skep"))
            .args(["vmcp", "serve", "--config", &path, "--port", &port.to_string()])
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let served = Self { child, address: format!("127.0.0.1:{port}"), _directory: directory };
        until("the port opens", || TcpStream::connect(&served.address).is_ok());
        served
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The page at a path.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    /// Sends a message of a legacy client.
    pub(crate) fn post(&self, session: Option<&str>, message: &Value) -> Response {
        let body = message.to_string();
        let session = session.map(|session| format!("Mcp-Session-Id: {session}\r\n")).unwrap_or_default();
        self.send(&format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json\r\n{session}\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        ))
    }

    fn send(&self, request: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a whole response");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let session = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.to_owned())
        });
        Response { status, session, body: serde_json::from_str(body).unwrap_or_default(), text: body.to_owned() }
    }

    /// The names of the tools that a client of 2026-07-28 sees.
    pub(crate) fn tools(&self) -> Vec<String> {
        let listed = skep(&["tools", &self.url(), "-o", "json"]);
        let tools: Value = serde_json::from_str(listed.succeeded()).unwrap();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Virtual {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(crate) fn config(backends: &[(&str, &str)], more: &str) -> String {
    let backends: Vec<String> = backends
        .iter()
        .map(|(name, address)| {
            format!("  - {{name: {name}, url: 'http://{address}/mcp', transport: streamable-http}}\n")
        })
        .collect();
    format!(
        "name: everything\ngroupRef: tools\nincomingAuth: {{type: anonymous}}\n\
         outgoingAuth: {{source: inline, default: {{type: unauthenticated}}}}\nbackends:\n{}{more}",
        backends.concat()
    )
}

pub(crate) const AGGREGATION: &str =
    "aggregation:\n  conflictResolution: prefix\n  conflictResolutionConfig: {prefixFormat: '{workload}_'}\n";
const CHECKS: &str =
    "operational:\n  failureHandling: {healthCheckInterval: 1s, healthCheckTimeout: 900ms, unhealthyThreshold: 1}\n";

pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[test]
fn clients_of_both_eras_use_several_servers_as_one() {
    let (one, two) = (Proxy::start_in("streamable-http"), Proxy::start_in("streamable-http"));
    let served = Virtual::start(&[("one", &one.address), ("two", &two.address)], AGGREGATION);
    let tools = served.tools();
    assert!(tools.contains(&"one_calculate".to_owned()) && tools.contains(&"two_calculate".to_owned()), "{tools:?}");
    let mut sorted = tools.clone();
    sorted.sort();
    assert_eq!(tools, sorted);
    let called = skep(&["call", &served.url(), "two_calculate", "--arg", "expression=2 ^ 10"]);
    assert!(called.succeeded().contains("1024"), "{}", called.out);
    skep(&["call", &served.url(), "calculate"]).refused(1, &["unknown tool"]);

    let initialize =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let opened = served.post(None, &request(0, "initialize", &initialize));
    assert_eq!(opened.body["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(opened.body["result"]["serverInfo"]["name"], "everything");
    let session = opened.session.expect("a session");
    let ask = |id: u32, method: &str, params: &Value| served.post(Some(&session), &request(id, method, params));
    let listed = ask(1, "tools/list", &json!({}));
    assert_eq!(listed.body["result"]["tools"].as_array().unwrap().len(), tools.len());
    assert!(listed.body["result"].get("resultType").is_none(), "a legacy client gets a legacy result");
    let call = json!({ "name": "one_calculate", "arguments": { "expression": "6*7" } });
    let called = ask(2, "tools/call", &call);
    assert_eq!(called.body["result"]["structuredContent"]["result"], 42, "{}", called.body);
    assert_eq!(called.body["id"], 2);
    let unknown = ask(3, "tools/call", &json!({ "name": "three_calculate" }));
    assert_eq!(unknown.body["error"]["code"], -32602);

    let prompts = ask(4, "prompts/list", &json!({})).body;
    let prompt = prompts["result"]["prompts"][0]["name"].as_str().unwrap().to_owned();
    assert!(prompt.starts_with("one_"), "{prompt}");
    let got = ask(5, "prompts/get", &json!({ "name": prompt, "arguments": { "task": "x" } }));
    assert!(got.body["result"]["messages"].is_array(), "{}", got.body);
    let resources = ask(6, "resources/list", &json!({})).body;
    // Both servers have the same resource, and each can be read.
    let uris: Vec<&str> =
        resources["result"]["resources"].as_array().unwrap().iter().filter_map(|one| one["uri"].as_str()).collect();
    assert!(uris.iter().any(|uri| uri.starts_with("two+")), "{uris:?}");
    for uri in uris {
        let read = ask(7, "resources/read", &json!({ "uri": uri }));
        assert!(read.body["result"]["contents"].is_array(), "{uri}: {}", read.body);
    }
    assert_eq!(ask(8, "resources/read", &json!({ "uri": "none:x" })).body["error"]["code"], -32002);
    let foreign = served.post(Some("not-a-session"), &request(9, "tools/list", &json!({})));
    assert_eq!(foreign.status, 404);
}

#[test]
fn a_backend_that_is_away_is_a_clear_error_and_nothing_for_the_others() {
    let (one, two) = (Proxy::start_in("streamable-http"), Proxy::start_in("streamable-http"));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let backends = [("one", one.address.as_str()), ("two", &two.address), ("silent", &silent)];
    let served = Virtual::start(&backends, &format!("{AGGREGATION}{CHECKS}"));
    assert!(served.tools().contains(&"two_calculate".to_owned()));
    drop(two);
    let called = skep(&["call", &served.url(), "one_calculate", "--arg", "expression=1+1"]);
    assert!(called.succeeded().contains('2'), "{}", called.out);
    until("the backend that ended is unhealthy", || {
        let status = served.get("/status").body;
        let health = |name: &str| {
            let backends = status["backends"].as_array().unwrap().iter();
            backends.clone().find(|one| one["name"] == name).unwrap()["health"].clone()
        };
        health("two") == "unhealthy" && health("one") == "healthy" && health("silent") == "unhealthy"
    });
    until("its tools are gone", || !served.tools().iter().any(|tool| tool.starts_with("two_")));
    assert!(served.tools().contains(&"one_calculate".to_owned()));
    let health = served.get("/api/backends/health").body;
    assert_eq!(health["summary"]["Total"], 3);
    assert_eq!(health["backends"]["two"]["LastErrorCategory"], "connection_failed", "{health}");
    for (path, expected) in
        [("/health", json!({ "status": "ok" })), ("/readyz", json!({ "mode": "static", "status": "ready" }))]
    {
        assert_eq!(served.get(path).body, expected);
    }
    assert_eq!(served.get("/status").body["group_ref"], "tools");
}

#[test]
fn policies_apply_to_the_names_that_clients_see() {
    let one = Proxy::start_in("streamable-http");
    let policies = "incomingAuth: {type: anonymous, authz: {type: cedar, policies: ['permit(principal, action == \
                    Action::\"call_tool\", resource == Tool::\"one_calculate\");']}}";
    let text = config(&[("one", &one.address)], AGGREGATION).replace("incomingAuth: {type: anonymous}", policies);
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "config.yaml", &text);
    skep(&["vmcp", "validate", "--config", &path]).succeeded();
    let served = Virtual::start_with(&text);
    assert_eq!(served.tools(), ["one_calculate"]);
    let call = |name: &str| served.post(None, &request(1, "tools/call", &json!({ "name": name, "arguments": {} })));
    assert_eq!(call("one_uuid").status, 403);
    assert_ne!(call("one_calculate").status, 403);
}

#[test]
fn a_configuration_is_validated_and_refused_in_one_go() {
    let directory = tempfile::tempdir().unwrap();
    let good = write(directory.path(), "good.yaml", &config(&[("a", "127.0.0.1:1")], AGGREGATION));
    let validated = skep(&["vmcp", "validate", "--config", &good]);
    for line in ["Name: everything", "Group: tools", "Incoming Auth: anonymous", "Conflict Resolution: prefix"] {
        assert!(validated.succeeded().contains(line), "{}", validated.out);
    }
    let bad = write(directory.path(), "bad.yaml", &config(&[("a", "127.0.0.1:1")], "nonsense: 1\n"));
    skep(&["vmcp", "validate", "--config", &bad]).refused(1, &["unknown field `nonsense`"]);
    let none = directory.path().join("none.yaml");
    skep(&["vmcp", "validate", "--config", none.to_str().unwrap()]).refused(1, &["none.yaml"]);
    for command in ["serve", "validate"] {
        skep(&["vmcp", command]).refused(1, &["no configuration file specified, use --config flag"]);
    }
    let negative = ["vmcp", "serve", "--config", &good, "--session-ttl=-1s"];
    skep(&negative).refused(1, &["session-ttl must be non-negative, got -1s"]);
}
