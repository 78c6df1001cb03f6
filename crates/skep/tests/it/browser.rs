//! `skep run` from a browser: which Host headers its listeners accept, and which origins are allowed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::skep;

const PATIENCE: Duration = Duration::from_secs(30);

/// A `skep run` with one server. Killed when dropped.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_skep"))
            .args(["run", "-o", "json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["url"].as_str().unwrap().split('/').nth(2).unwrap().to_owned();
        Self { child, address }
    }

    /// The head of a response, in lower case.
    fn head(&self, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split("\r\n\r\n").next().unwrap().to_ascii_lowercase()
    }

    fn status(&self, path: &str, headers: &str) -> String {
        self.head(path, headers).split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _asked = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _reaped = self.child.wait();
    }
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn item_13_a_page_whose_name_leads_to_loopback_reads_nothing() {
    let serving = Serving::start(&["--demo", "--port", &free_port(), "--allow-host", "tools.test"]);
    for path in ["/health", "/metrics", "/mcp", "/sse"] {
        assert_eq!(serving.status(path, "Host: rebound.test\r\n"), "403", "{path}");
        assert_eq!(serving.status(path, ""), "400", "{path}");
        assert_eq!(serving.status(path, "Host: localhost\r\nHost: localhost\r\n"), "400", "{path}");
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]", "tools.test:99"] {
        assert_eq!(serving.status("/health", &format!("Host: {host}\r\n")), "200", "{host}");
    }
}

#[test]
fn item_24_an_origin_is_allowed_by_one_flag_or_one_variable_of_a_manifest() {
    let from = |origin: &str| format!("Host: localhost\r\nOrigin: {origin}\r\n");
    let page = "http://localhost:6274";
    let check = |serving: &Serving| {
        let head = serving.head("/mcp", &from(page));
        assert!(head.contains(" 400 ") && head.contains(&format!("access-control-allow-origin: {page}")), "{head}");
        let head = serving.head("/mcp", &from("http://evil.test"));
        assert!(head.contains(" 403 ") && !head.contains("access-control"), "{head}");
    };
    check(&Serving::start(&["--demo", "--port", &free_port(), "--allow-origin", page]));
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("server.yaml");
    let (program, port) = (env!("CARGO_BIN_EXE_skep"), free_port());
    let text = format!(
        "{{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {{name: a}}, spec: {{image: 'exec://{program}', \
         args: [demo-server], proxyPort: {port}, \
         resourceOverrides: {{proxyDeployment: {{env: [{{name: SKEP_ALLOWED_ORIGINS, value: '{page}'}}]}}}}}}}}"
    );
    std::fs::write(&manifest, text).unwrap();
    check(&Serving::start(&["-f", manifest.to_str().unwrap()]));
    for (flag, wrong) in [("--allow-origin", "localhost:6274"), ("--allow-host", "http://tools.test")] {
        skep(&["run", "--demo", flag, wrong]).refused(1, &[wrong]);
    }
}
