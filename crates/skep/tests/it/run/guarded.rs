//! Everything that guards a server, on this machine: an issuer, policies, limits, credentials for the server, traces, and Secrets of the
//! files.

use std::time::Instant;

use serde_json::{Value, json};

use super::loopback::Loopback;
use super::{PATIENCE, Running, demo_server, exchange_as, request, write};

/// Keys of an issuer, and tokens that PyJWT signed with them.
const VECTORS: &str = include_str!("../../../../proxy/tests/it/tokens.json");
/// Values of Secrets.
const SECRETS: [&str; 2] = ["hush-of-the-exchange", "hush-of-the-collector"];

fn ours(kind: &str, name: &str, spec: &Value) -> String {
    let object = json!({ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    format!("---\n{object}\n")
}

fn secret(name: &str, value: &str) -> String {
    let object =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "k": value } });
    format!("---\n{object}\n")
}

/// The servers around `skep run`.
struct Surroundings {
    vectors: Value,
    issuer: Loopback,
    token_endpoint: Loopback,
    collector: Loopback,
    remote: Loopback,
}

impl Surroundings {
    fn start() -> Self {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let keys = json!({ "keys": vectors["keys"] }).to_string();
        let issued = json!({
            "access_token": "for-the-server", "token_type": "Bearer", "expires_in": 3600,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        let answer = |message: &[u8]| {
            let message: Value = serde_json::from_slice(message).unwrap_or_default();
            json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "content": [] } }).to_string()
        };
        Self {
            vectors,
            issuer: Loopback::start(move |_| keys.clone()),
            token_endpoint: Loopback::start(move |_| issued.to_string()),
            collector: Loopback::start(|_| String::new()),
            remote: Loopback::start(move |received| answer(&received.body)),
        }
    }

    fn manifests(&self) -> String {
        let named = |name: &str| json!({ "name": name });
        let key = |name: &str| json!({ "name": name, "key": "k" });
        let keys = format!("http://{}/keys", self.issuer.address);
        let idp = json!({ "type": "inline", "inline": {
            "issuer": "https://issuer.example", "jwksUrl": keys, "insecureAllowHTTP": true, "jwksAllowPrivateIP": true } });
        let otel = json!({ "openTelemetry": {
            "enabled": true, "endpoint": format!("http://{}", self.collector.address), "insecure": true,
            "tracing": { "enabled": true, "samplingRate": "1.0" },
            "sensitiveHeaders": [{ "name": "X-Key", "secretKeyRef": key("collector") }] } });
        let exchange = json!({ "type": "tokenExchange", "tokenExchange": {
            "tokenUrl": format!("http://{}/token", self.token_endpoint.address), "clientId": "skep",
            "clientSecretRef": key("exchange"), "audience": "tools" } });
        let policies = [
            "permit(principal, action, resource);",
            r#"forbid(principal == Client::\"bob\", action, resource == Tool::\"calculate\");"#,
        ];
        let guards = format!(
            r#", oidcConfigRef: {{name: idp, audience: mcp}}, telemetryConfigRef: {{name: otel}}, audit: {{enabled: true}},
               authzConfig: {{type: inline, inline: {{policies: ["{}", "{}"]}}}},
               rateLimiting: {{perUser: {{maxTokens: 2, refillPeriod: 1h}}}}"#,
            policies[0], policies[1]
        );
        let remote = json!({
            "remoteUrl": format!("http://{}/mcp", self.remote.address), "transport": "streamable-http",
            "oidcConfigRef": { "name": "idp", "audience": "mcp" }, "externalAuthConfigRef": named("exchange") });
        secret("exchange", SECRETS[0])
            + &secret("collector", SECRETS[1])
            + &ours("MCPOIDCConfig", "idp", &idp)
            + &ours("MCPTelemetryConfig", "otel", &otel)
            + &ours("MCPExternalAuthConfig", "exchange", &exchange)
            + &demo_server("demo", &guards)
            + &ours("MCPRemoteProxy", "remote", &remote)
    }

    fn token(&self, user: &str) -> String {
        self.vectors["tokens"][user].as_str().unwrap().to_owned()
    }

    /// Sends a message as a user.
    fn send(&self, url: &str, user: &str, body: &str) -> (u16, Value) {
        exchange_as(url, &format!("Authorization: Bearer {}\r\n", self.token(user)), body)
    }
}

fn calculate() -> String {
    let params = json!({ "name": "calculate", "arguments": { "expression": "2 ^ 10" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

#[test]
fn the_guards_of_a_server_in_a_cluster_hold_on_this_machine() {
    let around = Surroundings::start();
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "guarded.yaml", &around.manifests());
    let run = Running::start_with(&["-f", &file, "-o", "json"], &[("OTEL_BSP_SCHEDULE_DELAY", "20")]);
    let (mut demo, mut remote, mut output) = (String::new(), String::new(), String::new());
    while demo.is_empty() || remote.is_empty() {
        let line = run.line();
        output.push_str(&line);
        let line: Value = serde_json::from_str(&line).unwrap();
        let url = line["url"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        if line["name"] == "demo" { demo = url } else { remote = url }
    }

    // Authentication, a policy, and what a user may see.
    assert_eq!(exchange_as(&demo, "", &calculate()).0, 401);
    assert_eq!(around.send(&demo, "forged", &calculate()).0, 401);
    let (status, refused) = around.send(&demo, "bob", &calculate());
    assert_eq!((status, &refused["error"]["message"]), (403, &json!("Unauthorized")));
    let tools = |user: &str| around.send(&demo, user, &request("tools/list")).1["result"]["tools"].to_string();
    assert!(tools("ada").contains("calculate") && !tools("bob").contains("calculate"));

    // A limit for each user.
    for _ in 0..2 {
        let (status, answer) = around.send(&demo, "ada", &calculate());
        assert_eq!((status, &answer["result"]["structuredContent"]["result"]), (200, &json!(1024)));
    }
    assert_eq!(around.send(&demo, "ada", &calculate()).0, 429);
    let time = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "time" } });
    assert_eq!(around.send(&demo, "bob", &time.to_string()).0, 200, "another user's bucket");

    // Credentials for the server: its own token, and never that of the client.
    assert_eq!(around.send(&remote, "ada", &calculate()).0, 200);
    let sent = around.remote.received();
    let sent = sent.iter().find(|one| one.line.starts_with("POST ") && one.body == calculate().as_bytes()).unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer for-the-server"));
    let asked = around.token_endpoint.received();
    assert!(asked[0].header("authorization").is_some_and(|credentials| credentials.starts_with("Basic ")));

    // Traces, with a header from a Secret.
    let deadline = Instant::now() + PATIENCE;
    let traces = loop {
        let found = around.collector.received().into_iter().find(|one| one.line.starts_with("POST /v1/traces"));
        if let Some(found) = found {
            break found;
        }
        assert!(Instant::now() < deadline, "no traces");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(traces.header("x-key"), Some(SECRETS[1]));

    output.extend(run.lines.try_iter());
    output.push_str(&run.stop());
    assert!(
        output.contains(r#""denied_by":"ratelimit""#) && output.contains(r#""denied_by":"authorization""#),
        "{output}"
    );
    for secret in SECRETS.into_iter().map(str::to_owned).chain(["ada", "bob", "forged"].map(|user| around.token(user)))
    {
        assert!(!output.contains(&secret), "{secret} is in {output}");
    }
    assert!(!output.contains("for-the-server"), "{output}");
}
