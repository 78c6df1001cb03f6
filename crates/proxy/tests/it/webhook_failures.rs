//! Webhooks that are slow, broken, hostile or someone else: with `fail` the server sees nothing, with `ignore` the message passes. And a
//! webhook that is not ours, over mutual TLS, whose certificates are replaced while the proxy runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use skep_net::{Body, Budget};
use skep_proxy::Guards;
use skep_testkit::pki::{Authority, Identity};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::client::{PATIENCE, request};
use crate::web::How;
use crate::webhooks::{Hook, patch, proxy, proxy_with};

fn call(name: &str) -> String {
    request(json!(1), "tools/call", json!({ "name": name, "arguments": {} })).to_string()
}

/// A server that sends these bytes to everyone who sends something, and then nothing more.
pub(crate) async fn raw(bytes: &'static [u8]) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _some = connection.read(&mut request).await;
            let _sent = connection.write_all(bytes).await;
            open.push(connection);
        }
    });
    Ok(address)
}

pub(crate) fn entry(address: SocketAddr, policy: &str) -> Value {
    json!({ "name": "hook", "url": format!("http://{address}/"), "failure_policy": policy, "timeout": "1s",
        "tls_config": { "insecure_skip_verify": true } })
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_properly_follows_its_failure_policy() -> Result<()> {
    let elsewhere = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
    let target = format!("http://{}/hook", elsewhere.address);
    let redirect =
        Hook::with(move |_| Response::builder().status(307).header("location", &target).body(Body::empty()).unwrap())
            .await?;
    let allowed = |padding: usize| json!({ "allowed": true, "message": "x".repeat(padding) }).to_string();
    let empty = allowed(0).len();
    let oversized = Hook::with(move |_| Response::new(Body::full(allowed(1024 * 1024 + 1 - empty)))).await?;
    let malformed = Hook::with(|_| Response::new(Body::full(r#"{"allowed":true"#))).await?;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let cases = [
        ("slow to answer", raw(b"").await?),
        ("slow headers", raw(b"HTTP/1.1 200 OK\r\ncontent-le").await?),
        ("slow body", raw(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":").await?),
        ("not HTTP", raw(b"220 mail.example ESMTP\r\n").await?),
        ("redirect", redirect.address),
        ("oversized", oversized.address),
        ("malformed", malformed.address),
        ("nobody", nobody),
    ];
    for (what, address) in cases {
        for (kind, status) in [("mutating_webhooks", 500), ("validating_webhooks", 403)] {
            let strict = proxy(json!({ kind: [entry(address, "fail")] })).await?;
            let lenient = proxy(json!({ kind: [entry(address, "ignore")] })).await?;
            let (strict_caller, lenient_caller) = (strict.caller(), lenient.caller());
            let (refused, passed) = tokio::try_join!(strict_caller.post(call("a")), lenient_caller.post(call("a")))?;
            assert_eq!(refused.status.as_u16(), status, "{what} {kind}");
            assert!(strict.got().is_empty(), "{what} {kind}: the server saw it");
            assert_eq!((passed.status, lenient.got().len()), (StatusCode::OK, 1), "{what} {kind}");
        }
    }
    assert!(elsewhere.payloads().is_empty(), "the redirect was followed");
    Ok(())
}

/// A tree of the message would take 4 MiB, of which the proxy has 2 for one client. No policy passes over that: the webhook did not fail.
#[tokio::test]
async fn a_patch_for_which_there_is_no_memory_is_refused_whatever_the_policy_is() -> Result<()> {
    let add = json!([{ "op": "add", "path": "/mcp_request/params/x", "value": 1 }]);
    let call = |values: usize| {
        let arguments = json!({ "a": vec![0; values] });
        request(json!(1), "tools/call", json!({ "name": "a", "arguments": arguments })).to_string()
    };
    for policy in ["fail", "ignore"] {
        let hook = Hook::new(vec![(200, patch(add.clone()))]).await?;
        let guards = Guards { budget: Budget::new(8 * 1024 * 1024), ..Guards::default() };
        let how = How { guards, ..How::default() };
        let web = proxy_with(json!({ "mutating_webhooks": [hook.entry(policy)] }), how).await?;
        assert_eq!(web.caller().post(call(15_000)).await?.status, StatusCode::SERVICE_UNAVAILABLE, "{policy}");
        assert_eq!((hook.payloads().len(), web.got().len()), (1, 0), "{policy}");
        assert_eq!(web.caller().post(call(1_000)).await?.status, StatusCode::OK, "{policy}");
        // Without a patch there is no tree.
        let same = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
        let guards = Guards { budget: Budget::new(8 * 1024 * 1024), ..Guards::default() };
        let how = How { guards, ..How::default() };
        let web = proxy_with(json!({ "mutating_webhooks": [same.entry(policy)] }), how).await?;
        assert_eq!(web.caller().post(call(15_000)).await?.status, StatusCode::OK, "{policy}");
    }
    Ok(())
}

#[tokio::test]
async fn a_response_of_exactly_a_mebibyte_is_read() -> Result<()> {
    let body = |padding: usize| json!({ "allowed": true, "message": "x".repeat(padding) }).to_string();
    let whole = body(1024 * 1024 - body(0).len());
    let hook = Hook::with(move |_| Response::new(Body::full(whole.clone()))).await?;
    let web = proxy(json!({ "validating_webhooks": [hook.entry("fail")] })).await?;
    assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::OK);
    Ok(())
}

/// The webhook of the examples, as its own process.
struct Example {
    _process: Child,
    port: u16,
}

impl Example {
    async fn start(options: &[&Path]) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/webhook-server.py");
        let mut command = Command::new("python3");
        command.arg(script).args(["--port", "0"]).args(options).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.stderr(Stdio::null()).spawn().context("python3 is needed")?;
        let mut lines = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??.context("it ended")?;
        let port = line.rsplit(' ').next().context("a port")?.parse()?;
        Ok(Self { _process: process, port })
    }

    fn entry(&self, path: &str, tls: Value) -> Value {
        json!({ "name": "example", "url": format!("https://localhost:{}{path}", self.port), "failure_policy": "fail", "tls_config": tls })
    }
}

/// Files in a directory, replaced as Kubernetes does: by a rename.
struct Files(tempfile::TempDir);

impl Files {
    fn put(&self, name: &str, text: &str) -> Result<PathBuf> {
        let (path, new) = (self.0.path().join(name), self.0.path().join("..new"));
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &path)?;
        Ok(path)
    }

    fn put_identity(&self, name: &str, identity: &Identity) -> Result<(PathBuf, PathBuf)> {
        let certificate = self.put(&format!("{name}.crt"), &identity.certificate)?;
        Ok((certificate, self.put(&format!("{name}.key"), &identity.key)?))
    }
}

#[tokio::test]
async fn a_webhook_of_another_program_is_called_over_mutual_tls_and_certificates_rotate() -> Result<()> {
    let (files, authority, stranger) = (Files(tempfile::tempdir()?), Authority::generate()?, Authority::generate()?);
    let ca = files.put("ca.crt", &authority.certificate())?;
    let (server_certificate, server_key) =
        files.put_identity("server", &authority.issue("hook", None, &["localhost"])?)?;
    let (certificate, key) = files.put_identity("client", &authority.issue("proxy", None, &[])?)?;
    let hmac = files.put("hmac", "shared")?;
    let options = [
        "--tls".as_ref(),
        server_certificate.as_path(),
        &server_key,
        "--client-ca".as_ref(),
        &ca,
        "--key".as_ref(),
        &hmac,
    ];
    let example = Example::start(&options).await?;
    let tls = json!({ "ca_bundle_path": ca, "client_cert_path": certificate, "client_key_path": key });
    let mut mutating = example.entry("/mutate", tls.clone());
    let mut validating = example.entry("/validate", tls.clone());
    (mutating["hmac_secret_ref"], validating["hmac_secret_ref"]) = (json!(hmac), json!(hmac));
    let web = proxy(json!({ "mutating_webhooks": [mutating], "validating_webhooks": [validating] })).await?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::OK);
    let got: Value = serde_json::from_slice(&web.got()[0].body)?;
    assert_eq!(got["params"]["arguments"]["limit"], 10, "the server got what the webhook made");
    assert_eq!(web.caller().post(call("delete_all")).await?.status, StatusCode::FORBIDDEN);
    // Both ends get a new key.
    files.put("hmac", "another")?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::OK);

    // A certificate that does not fit its key yet changes nothing; one that the webhook does not trust is presented, and refused.
    let other = stranger.issue("proxy", None, &[])?;
    files.put("client.crt", &other.certificate)?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::OK);
    files.put("client.key", &other.key)?;
    let refused = web.caller().post(call("search")).await?;
    assert_eq!(
        (refused.status, refused.message()?["error"]["message"].clone()),
        (StatusCode::INTERNAL_SERVER_ERROR, json!("Webhook error"))
    );
    files.put_identity("client", &authority.issue("proxy", None, &[])?)?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::OK);
    // So it is with the authorities that are trusted.
    files.put("ca.crt", &stranger.certificate())?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::INTERNAL_SERVER_ERROR);
    files.put("ca.crt", &authority.certificate())?;
    assert_eq!(web.caller().post(call("search")).await?.status, StatusCode::OK);
    assert_eq!(web.got().len(), 5);
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_is_not_the_right_one_is_told_nothing() -> Result<()> {
    let (files, authority, stranger) = (Files(tempfile::tempdir()?), Authority::generate()?, Authority::generate()?);
    let (certificate, key) = files.put_identity("server", &authority.issue("hook", None, &["localhost"])?)?;
    let example = Example::start(&["--tls".as_ref(), &certificate, &key]).await?;
    let other = files.put("other.crt", &stranger.certificate())?;
    let right = files.put("ca.crt", &authority.certificate())?;
    for (what, tls, is_trusted) in [
        ("another authority", json!({ "ca_bundle_path": other }), false),
        ("the system's authorities", json!({}), false),
        ("its authority", json!({ "ca_bundle_path": right }), true),
        ("anyone", json!({ "insecure_skip_verify": true }), true),
    ] {
        for policy in ["fail", "ignore"] {
            let mut entry = example.entry("/validate", tls.clone());
            entry["failure_policy"] = json!(policy);
            let web = proxy(json!({ "validating_webhooks": [entry] })).await?;
            let answer = web.caller().post(call("search")).await?;
            let passes = is_trusted || policy == "ignore";
            let expected = if passes { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!((answer.status, web.got().len()), (expected, usize::from(passes)), "{what} {policy}");
            // Only a webhook that was asked can deny.
            let answer = web.caller().post(call("delete_all")).await?;
            let expected = if is_trusted || policy == "fail" { StatusCode::FORBIDDEN } else { StatusCode::OK };
            assert_eq!(answer.status, expected, "{what} {policy}");
        }
    }
    Ok(())
}

/// The whole exchange has one timeout, however slowly parts of it arrive.
#[tokio::test]
async fn a_webhook_that_trickles_is_cut_off_when_its_time_is_over() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await?;
                for _ in 0..1000 {
                    connection.write_all(b" ").await?;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                std::io::Result::Ok(())
            });
        }
    });
    let web = proxy(json!({ "validating_webhooks": [entry(address, "fail")] })).await?;
    let answer = tokio::time::timeout(Duration::from_secs(5), web.caller().post(call("a"))).await??;
    assert_eq!((answer.status, web.got().len()), (StatusCode::FORBIDDEN, 0));
    Ok(())
}
