//! Webhooks in front of a server: every row of the table of outcomes, what a webhook receives, and what the server gets in the end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;

use crate::client::request;
use crate::web::{Got, How, Web, backend};

/// A webhook that answers what it is told to, and keeps what it received. The last answer is repeated.
#[derive(Clone)]
pub(crate) struct Hook {
    pub(crate) address: SocketAddr,
    pub(crate) got: Arc<Mutex<Vec<Got>>>,
}

impl Hook {
    pub(crate) async fn new(answers: Vec<(u16, Value)>) -> Result<Self> {
        let answers = Mutex::new(VecDeque::from(answers));
        Self::with(move |_| {
            let mut answers = answers.lock().unwrap();
            let (status, body) =
                if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }.unwrap();
            Response::builder().status(status).body(Body::full(body.to_string())).unwrap()
        })
        .await
    }

    pub(crate) async fn with(answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static) -> Result<Self> {
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let address = backend("127.0.0.1:0".parse()?, Arc::new(answer), got.clone()).await?;
        Ok(Self { address, got })
    }

    /// Its entry in a RunConfig.
    pub(crate) fn entry(&self, policy: &str) -> Value {
        json!({ "name": "hook", "url": format!("http://{}/hook", self.address), "failure_policy": policy, "timeout": "1s",
            "tls_config": { "insecure_skip_verify": true } })
    }

    pub(crate) fn payloads(&self) -> Vec<Value> {
        let got = self.got.lock().unwrap();
        got.iter().map(|one| serde_json::from_slice(&one.body).unwrap()).collect()
    }
}

/// A proxy with webhooks, in front of a server that answers everything.
pub(crate) async fn proxy(more: Value) -> Result<Web> {
    proxy_with(more, How::default()).await
}

/// The same, set up further.
pub(crate) async fn proxy_with(more: Value, how: How) -> Result<Web> {
    let mut config = json!({ "name": "srv", "transport": "streamable-http" });
    for (name, value) in more.as_object().context("an object")? {
        config[name] = value.clone();
    }
    let config = RunConfig::from_slice(config.to_string().as_bytes())?;
    let answer = |got: &Got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }).to_string();
        Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
    };
    Box::pin(Web::with(How { config, ..how }, answer)).await
}

fn call(name: &str) -> String {
    request(json!("i"), "tools/call", json!({ "name": name, "arguments": { "a": 1 } })).to_string()
}

pub(crate) fn patch(operations: Value) -> Value {
    json!({ "allowed": true, "patch_type": "json_patch", "patch": operations })
}

fn denied(status: u16, code: i64, message: &str) -> (u16, Value) {
    (status, json!({ "jsonrpc": "2.0", "id": "i", "error": { "code": code, "message": message } }))
}

/// A status and body of a webhook, and how a client is refused by a validating and by a mutating one with the policy `fail`.
type Row = (u16, Value, Option<(u16, Value)>, Option<(u16, Value)>);

fn rows() -> Vec<Row> {
    let policy = || Some(denied(403, 403, "Request denied by policy"));
    let fault = |text: &str| Some(denied(500, -32603, text));
    let failed = || fault("Webhook error");
    let one = |operation: Value| patch(json!([operation]));
    vec![
        (200, json!({ "allowed": true }), None, None),
        (
            200,
            json!({ "allowed": false, "message": "s3cret" }),
            policy(),
            Some(denied(403, 403, "Request denied by webhook policy")),
        ),
        (422, json!({ "allowed": true }), policy(), Some(denied(422, 403, "Request denied by webhook policy"))),
        (500, json!({ "allowed": true }), policy(), failed()),
        (204, json!({ "allowed": true }), policy(), failed()),
        (404, json!({ "allowed": true }), policy(), failed()),
        (200, json!("no"), policy(), failed()),
        (200, json!({ "allowed": "true" }), policy(), failed()),
        (200, json!({ "allowed": true, "uid": "another" }), policy(), failed()),
        (
            200,
            json!({ "allowed": true, "patch_type": "merge", "patch": [{ "op": "remove" }] }),
            None,
            fault("Unsupported patch type from webhook"),
        ),
        (200, patch(json!("x")), None, fault("Malformed patch from webhook")),
        (200, one(json!({ "op": "merge", "path": "/mcp_request/params" })), None, fault("Invalid patch from webhook")),
        (
            200,
            one(json!({ "op": "replace", "path": "/mcp_request/id", "value": 1 })),
            None,
            fault("Invalid patch from webhook"),
        ),
        (
            200,
            one(json!({ "op": "replace", "path": "/mcp_request/method", "value": "x" })),
            None,
            fault("Invalid patch from webhook"),
        ),
        (
            200,
            one(json!({ "op": "remove", "path": "/mcp_request" })),
            None,
            fault("Patch must be scoped to mcp_request"),
        ),
        (
            200,
            one(json!({ "op": "test", "path": "/mcp_request/params/name", "value": "b" })),
            None,
            fault("Failed to apply patch from webhook"),
        ),
    ]
}

#[tokio::test]
async fn every_outcome_is_that_of_the_table_for_both_kinds_and_both_policies() -> Result<()> {
    for (index, (status, body, validating, mutating)) in rows().into_iter().enumerate() {
        for (kind, refusal) in [("validating_webhooks", validating), ("mutating_webhooks", mutating)] {
            for policy in ["fail", "ignore"] {
                let hook = Hook::new(vec![(status, body.clone())]).await?;
                let web = proxy(json!({ kind: [hook.entry(policy)] })).await?;
                let answer = web.caller().post(call("a")).await?;
                // The first denials are denials whatever the policy is.
                let refusal = refusal.clone().filter(|_| policy == "fail" || index <= 2);
                let place = format!("{status} {body} {kind} {policy}");
                assert_eq!(hook.payloads().len(), 1, "{place}");
                if let Some((status, body)) = refusal {
                    assert_eq!((answer.status.as_u16(), answer.message()?), (status, body), "{place}");
                    assert!(web.got().is_empty(), "{place}");
                } else {
                    assert_eq!((answer.status, web.got().len()), (StatusCode::OK, 1), "{place}");
                    assert_eq!(web.got()[0].body, call("a"), "{place}: the bytes of the client");
                }
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_makes_an_invalid_message_is_refused_whatever_the_policy_is() -> Result<()> {
    for operation in [
        json!({ "op": "add", "path": "/mcp_request/Method", "value": "tools/list" }),
        json!({ "op": "add", "path": "/mcp_request/params/Name", "value": "b" }),
        json!({ "op": "add", "path": "/mcp_request/result", "value": {} }),
    ] {
        for policy in ["fail", "ignore"] {
            let hook = Hook::new(vec![(200, patch(json!([operation])))]).await?;
            let web = proxy(json!({ "mutating_webhooks": [hook.entry(policy)] })).await?;
            let answer = web.caller().post(call("a")).await?;
            let expected = denied(500, -32603, "Webhook produced an invalid MCP request");
            assert_eq!((answer.status.as_u16(), answer.message()?), expected, "{operation} {policy}");
            assert!(web.got().is_empty());
        }
    }
    Ok(())
}

#[tokio::test]
async fn webhooks_are_called_in_order_and_each_sees_what_the_one_before_made() -> Result<()> {
    let first = Hook::new(vec![(
        200,
        patch(json!([{ "op": "add", "path": "/mcp_request/params/arguments/b", "value": "<&>" }])),
    )])
    .await?;
    let second = Hook::new(vec![(
        200,
        patch(json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": "other" }])),
    )])
    .await?;
    let (third, fourth) = (
        Hook::new(vec![(200, json!({ "allowed": true }))]).await?,
        Hook::new(vec![(200, json!({ "allowed": false }))]).await?,
    );
    let last = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
    let entries = |hooks: &[&Hook]| hooks.iter().map(|hook| hook.entry("fail")).collect::<Vec<_>>();
    let web = proxy(
        json!({ "mutating_webhooks": entries(&[&first, &second]), "validating_webhooks": entries(&[&third, &last]) }),
    )
    .await?;
    let answer = web.caller().with("mcp-name", "a").with("mcp-method", "tools/call").post(call("a")).await?;
    assert_eq!(answer.status, StatusCode::OK);
    let original: Value = serde_json::from_str(&call("a"))?;
    let mut changed = original.clone();
    changed["params"]["arguments"]["b"] = json!("<&>");
    let mut renamed = changed.clone();
    renamed["params"]["name"] = json!("other");
    let payloads: Vec<Value> = [&first, &second, &third, &last].iter().flat_map(|hook| hook.payloads()).collect();
    let seen: Vec<&Value> = payloads.iter().map(|payload| &payload["mcp_request"]).collect();
    assert_eq!(seen, [&original, &changed, &renamed, &renamed]);
    let uids: Vec<&str> = payloads.iter().filter_map(|payload| payload["uid"].as_str()).collect();
    assert!(uids[0] != uids[1] && uids[1] != uids[2] && uids[2] == uids[3], "{uids:?}");
    let got = &web.got()[0];
    assert_eq!(serde_json::from_slice::<Value>(&got.body)?, renamed);
    assert_eq!(got.headers["content-length"].to_str()?, got.body.len().to_string());
    assert_eq!(got.headers["mcp-name"], "other", "headers say what is sent");
    // The first denial stops.
    let web = proxy(json!({ "validating_webhooks": entries(&[&fourth, &last]) })).await?;
    assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::FORBIDDEN);
    assert_eq!((last.payloads().len(), web.got().len()), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a_webhook_is_told_who_sends_what_and_the_request_is_signed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("hmac");
    std::fs::write(&key, "one\n")?;
    let hook = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
    let mut entry = hook.entry("fail");
    entry["hmac_secret_ref"] = json!(key);
    let web = proxy(json!({ "validating_webhooks": [entry] })).await?;
    assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::OK);
    let got = hook.got.lock().unwrap()[0].clone();
    let text = std::str::from_utf8(&got.body)?;
    let payload: Value = serde_json::from_str(text)?;
    let place = |name: &str| text.find(&format!("\"{name}\":")).unwrap();
    assert!(["version", "uid", "timestamp", "principal", "mcp_request", "context"].map(place).is_sorted());
    assert_eq!(payload["version"], "v0.1.0");
    assert!(payload["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(payload["principal"]["claims"]["iss"], "toolhive-local");
    assert_eq!(payload["context"]["server_name"], "srv");
    assert_eq!(payload["context"]["transport"], "streamable-http");
    assert!(payload["context"]["source_ip"].as_str().unwrap().starts_with("127.0.0.1:"));
    let signature = |got: &Got, key: &[u8]| {
        let timestamp: i64 = got.headers["x-toolhive-timestamp"].to_str().unwrap().parse().unwrap();
        got.headers["x-toolhive-signature"] == skep_webhook::signature::sign(key, timestamp, &got.body)
    };
    assert_eq!((got.method.clone(), &got.headers["content-type"]), (Method::POST, &"application/json".parse()?));
    assert!(signature(&got, b"one\n"), "a line feed is part of the key");
    // A new key takes effect with the next call, and without one nothing is sent.
    std::fs::write(&key, "two")?;
    assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::OK);
    assert!(signature(&hook.got.lock().unwrap()[1], b"two"));
    for _ in 0..2 {
        std::fs::write(&key, "")?;
        assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::FORBIDDEN);
        let _already = std::fs::remove_file(&key);
    }
    assert_eq!((hook.got.lock().unwrap().len(), web.got().len()), (2, 2));
    Ok(())
}

#[tokio::test]
async fn a_changed_message_goes_through_the_filter_and_the_policies_again() -> Result<()> {
    let rename = |name: &str| patch(json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": name }]));
    let policies = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": [
        r#"forbid(principal, action == Action::"call_tool", resource == Tool::"delete");"#, "permit(principal, action, resource);"] } });
    let hook = Hook::new(vec![(200, rename("delete"))]).await?;
    let entry = json!([hook.entry("fail")]);
    let guarded = proxy(json!({ "mutating_webhooks": entry, "authz_config": policies })).await?;
    let answer = guarded.caller().post(call("look")).await?;
    assert_eq!(
        (answer.status, answer.message()?["error"]["message"].clone()),
        (StatusCode::FORBIDDEN, json!("Unauthorized"))
    );
    let filtered = proxy(json!({ "mutating_webhooks": entry, "tools_filter": ["look"] })).await?;
    let answer = filtered.caller().post(call("look")).await?;
    assert_eq!(
        (answer.status, answer.message()?["error"]["message"].clone()),
        (StatusCode::OK, json!("tool not found"))
    );
    assert_eq!(hook.payloads().len(), 2);
    assert!(guarded.got().is_empty() && filtered.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_validating_webhook_is_asked_once_about_a_message_and_again_about_another() -> Result<()> {
    let hook = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
    let renamed =
        json!({ "validating_webhooks": [hook.entry("fail")], "tools_override": { "actual": { "name": "shown" } } });
    let web = proxy(renamed).await?;
    assert_eq!(web.caller().post(call("shown")).await?.status, StatusCode::OK);
    let seen: Vec<Value> =
        hook.payloads().iter().map(|payload| payload["mcp_request"]["params"]["name"].clone()).collect();
    assert_eq!(seen, ["actual"], "once, and about the name that the server gets");
    // A middleware that changes the message after it was validated does not go round the validation.
    let (late, validator) = (
        Hook::new(vec![(200, patch(json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": "b" }])))])
            .await?,
        Hook::new(vec![(200, json!({ "allowed": true })), (200, json!({ "allowed": false }))]).await?,
    );
    let parameters =
        |hook: &Hook| json!({ "webhooks": [hook.entry("fail")], "server_name": "srv", "transport": "stdio" });
    let listed = json!([{ "type": "validating-webhook", "parameters": parameters(&validator) }, { "type": "mutating-webhook", "parameters": parameters(&late) }]);
    let web = proxy(json!({ "middleware_configs": listed })).await?;
    assert_eq!(web.caller().post(call("a")).await?.status, StatusCode::FORBIDDEN);
    assert_eq!((validator.payloads().len(), web.got().len()), (2, 0));
    Ok(())
}

#[tokio::test]
async fn messages_are_reviewed_however_they_come_and_nothing_else_is() -> Result<()> {
    let hook = Hook::new(vec![(200, json!({ "allowed": false }))]).await?;
    let web = proxy(json!({ "validating_webhooks": [hook.entry("ignore")] })).await?;
    let client = web.caller();
    for (method, kind) in
        [(Method::POST, "text/plain"), (Method::PUT, "application/json"), (Method::POST, "application/json")]
    {
        let refused = client.clone().with("content-type", kind).whole(method, "/other", call("a")).await?;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{kind}");
    }
    let told = client.tell("notifications/progress", json!({ "progressToken": 1 })).await?;
    assert_eq!((told.status, told.message()?.get("id")), (StatusCode::FORBIDDEN, None));
    assert_eq!(hook.payloads().len(), 4);
    for body in ["x", "[1]", r#"{"jsonrpc":"2.0","id":1,"method":"a","Method":"tools/call"}"#] {
        assert_eq!(client.post(body).await?.status, StatusCode::BAD_REQUEST, "{body}");
    }
    assert!(web.got().is_empty());
    // A client's answer to a request of the server is not reviewed, nor is a request without a message.
    client.post(json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string()).await?;
    client.whole(Method::DELETE, "/mcp", "").await?;
    assert_eq!((web.got().len(), hook.payloads().len()), (2, 4));
    Ok(())
}

#[tokio::test]
async fn a_message_of_a_mebibyte_is_reviewed_and_a_longer_one_is_refused() -> Result<()> {
    let hook = Hook::new(vec![(200, json!({ "allowed": true }))]).await?;
    for kind in ["validating_webhooks", "mutating_webhooks"] {
        let web = proxy(json!({ kind: [hook.entry("ignore")] })).await?;
        let of_length = |length: usize| {
            let empty = call("").len();
            call(&"x".repeat(length - empty))
        };
        assert_eq!(web.caller().post(of_length(1024 * 1024)).await?.status, StatusCode::OK, "{kind}");
        let answer = web.caller().post(of_length(1024 * 1024 + 1)).await?;
        let expected = denied(413, -32600, "Request body exceeds maximum size");
        assert_eq!((answer.status.as_u16(), answer.message()?), expected, "{kind}");
        assert_eq!(web.got().len(), 1);
    }
    assert_eq!(hook.payloads().len(), 2);
    Ok(())
}
