//! Webhooks of servers on this machine.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{Running, call, demo_server, exchange, write};

/// The webhook of the examples, as its own process.
pub(crate) struct Webhook {
    process: Child,
    pub(crate) port: String,
}

impl Webhook {
    pub(crate) fn start(key: &str) -> Self {
        let script = crate::repository().join("examples/webhook-server.py");
        let mut command = Command::new("python3");
        command.arg(script).args(["--port", "0", "--key", key]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { process, port }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

#[test]
fn webhooks_are_called_with_the_secrets_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::start(&write(directory.path(), "key", "hush"));
    let manifest = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: hooks}}\nstringData: {{hmac: hush}}\n---\n\
         apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPWebhookConfig\nmetadata: {{name: hooks}}\n\
         spec: {{validating: [{{name: v, url: 'http://127.0.0.1:{}/validate', tlsConfig: {{insecureSkipVerify: true}},\n\
         hmacSecretRef: {{name: hooks, key: hmac}}}}]}}\n{}",
        webhook.port,
        demo_server("demo", ", webhookConfigRef: {name: hooks}")
    );
    let run = Running::start(&["-f", &write(directory.path(), "all.yaml", &manifest), "-o", "json"]);
    let url = run.about("demo")["url"].as_str().unwrap().to_owned();
    assert_eq!(call(&url), 1024);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "delete_all" } });
    let (status, refused) = exchange(&url, &body.to_string());
    assert_eq!((status, &refused["error"]["message"]), (403, &json!("Request denied by policy")));
    run.stop();
}

/// The names of the tools are those of the server, so that the webhook knows them.
#[test]
fn a_virtual_server_calls_webhooks_with_the_secrets_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let webhook = Webhook::start(&write(directory.path(), "key", "hush"));
    let group = "{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPGroup, metadata: {name: team}}\n---\n";
    let manifest = format!(
        "{group}apiVersion: v1\nkind: Secret\nmetadata: {{name: hooks}}\nstringData: {{hmac: hush}}\n---\n\
         apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPWebhookConfig\nmetadata: {{name: hooks}}\n\
         spec: {{validating: [{{name: v, url: 'http://127.0.0.1:{}/validate', tlsConfig: {{insecureSkipVerify: true}},\n\
         hmacSecretRef: {{name: hooks, key: hmac}}}}]}}\n---\n\
         apiVersion: toolhive.stacklok.dev/v1beta1\nkind: VirtualMCPServer\nmetadata: {{name: all}}\n\
         spec: {{groupRef: {{name: team}}, incomingAuth: {{type: anonymous}}, webhookConfigRef: {{name: hooks}},\n\
         config: {{aggregation: {{conflictResolution: manual}}}}}}\n{}",
        webhook.port,
        demo_server("demo", ", groupRef: {name: team}")
    );
    let run = Running::start(&["-f", &write(directory.path(), "all.yaml", &manifest), "-o", "json"]);
    let url = run.settled("all")["url"].as_str().unwrap().to_owned();
    assert_eq!(call(&url), 1024);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "delete_all" } });
    let (status, refused) = exchange(&url, &body.to_string());
    assert_eq!((status, &refused["error"]["message"]), (403, &json!("Request denied by policy")));
    run.stop();
}
