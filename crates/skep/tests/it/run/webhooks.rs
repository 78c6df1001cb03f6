//! Webhooks under `skep run`: the Secrets of the files reach them, and no disk.

use super::*;

/// The webhook of the examples, as its own process.
struct Webhook {
    process: Child,
    port: String,
}

impl Webhook {
    fn start(key: &str) -> Self {
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
