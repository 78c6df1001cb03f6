//! The audit log of a proxy: every request once, whoever answers it and however its reply travels.

mod answers;

use std::path::PathBuf;

use anyhow::Result;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;
use skep_testkit::Seen;

use crate::client::{BOTH, PATIENCE, initialize_request, request};
use crate::guarded::{as_user, guarded, policies};
use crate::lines::{self, Stage};
use crate::web::{self, Got, Web};

/// A log in a directory of its own.
struct Log {
    directory: tempfile::TempDir,
}

impl Log {
    fn new() -> Result<Self> {
        Ok(Self { directory: tempfile::tempdir()? })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// The configuration of an audit log in this file.
    fn config(&self, more: Value) -> Value {
        let mut audit = json!({ "enabled": true, "logFile": self.path() });
        for (name, value) in more.as_object().unwrap() {
            audit[name] = value.clone();
        }
        json!({ "name": "srv", "host": "0.0.0.0", "audit_config": audit })
    }

    /// Waits for so many events and returns them. There are never more.
    async fn events(&self, count: usize) -> Result<Vec<Value>> {
        skep_testkit::eventually(&format!("{count} events"), PATIENCE, || async {
            let text = std::fs::read_to_string(self.path())?;
            let events = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
            Ok(match events {
                Ok(events) if events.len() >= count => {
                    anyhow::ensure!(events.len() == count, "more than {count}: {text}");
                    Seen::Yes(events)
                }
                _ => Seen::NotYet(text),
            })
        })
        .await
    }

    /// The last of so many events.
    async fn last(&self, count: usize) -> Result<Value> {
        Ok(self.events(count).await?.pop().unwrap())
    }
}

fn merged(mut config: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn run_config(config: Value) -> Result<RunConfig> {
    Ok(RunConfig::from_slice(config.to_string().as_bytes())?)
}

fn stdio(config: Value) -> Result<lines::How> {
    let config = merged(config, json!({ "transport": "stdio" }));
    Ok(lines::How { config: run_config(config)?, ..lines::How::default() })
}

/// What tests compare most: type, outcome, the method of the target and its name.
fn essence(event: &Value) -> [&str; 4] {
    ["/type", "/outcome", "/target/method", "/target/name"]
        .map(|path| event.pointer(path).and_then(Value::as_str).unwrap_or(""))
}

fn extra<'a>(event: &'a Value, name: &str) -> &'a Value {
    &event["metadata"]["extra"][name]
}

#[tokio::test]
async fn item_6_denials_by_every_middleware_are_recorded_once() -> Result<()> {
    let log = Log::new()?;
    let web = guarded(merged(
        merged(
            log.config(json!({})),
            policies(&[
                r#"permit(principal, action, resource == Tool::"look");"#,
                r#"forbid(principal, action, resource == Tool::"delete");"#,
            ]),
        ),
        json!({
            "allowed_origins": ["https://app.example"], "tools_filter": ["look", "delete", "other"],
            "additional_middleware_configs": [{ "type": "bodylimit", "parameters": { "max_bytes": 2000 } }],
        }),
    ))
    .await?;
    let call = |tool: &str| request(json!(1), "tools/call", json!({ "name": tool, "arguments": {} })).to_string();
    let ada = as_user(&web, "ada");

    assert_eq!(web.caller().post(call("look")).await?.status, StatusCode::UNAUTHORIZED);
    let event = log.last(1).await?;
    assert_eq!(essence(&event), ["http_request", "denied", "POST", ""], "no body was read");
    assert_eq!((extra(&event, "denied_by"), &event["subjects"]), (&json!("auth"), &json!({ "user": "anonymous" })));

    assert_eq!(
        ada.clone().with("origin", "https://evil.example").post(call("look")).await?.status,
        StatusCode::FORBIDDEN
    );
    let event = log.last(2).await?;
    assert_eq!((essence(&event)[1], extra(&event, "denied_by")), ("denied", &json!("origin")));

    assert_eq!(ada.post(vec![b' '; 2001]).await?.status, StatusCode::PAYLOAD_TOO_LARGE);
    let event = log.last(3).await?;
    assert_eq!((essence(&event)[1], extra(&event, "denied_by")), ("failure", &json!("bodylimit")));
    assert_eq!(event["subjects"]["user_id"], "ada", "the head was accepted: {event}");

    assert_eq!(ada.post(call("hidden")).await?.status, StatusCode::OK);
    let event = log.last(4).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "application_error", "tools/call", "hidden"]);
    assert_eq!(
        (extra(&event, "denied_by"), extra(&event, "jsonrpc_error_code")),
        (&json!("tool-call-filter"), &json!(-32602))
    );

    for (count, tool, reason, policies) in [
        (5, "delete", "forbidden by policy1", json!(["policy1 at policies[1]:1"])),
        (6, "other", "denied: no policy permits it", Value::Null),
    ] {
        assert_eq!(ada.post(call(tool)).await?.status, StatusCode::FORBIDDEN);
        let event = log.last(count).await?;
        assert_eq!(essence(&event), ["mcp_tool_call", "denied", "tools/call", tool]);
        assert_eq!(extra(&event, "denied_by"), "authorization");
        assert_eq!((extra(&event, "denial_reason"), extra(&event, "policies")), (&json!(reason), &policies));
    }
    assert_eq!(ada.post("no message").await?.status, StatusCode::BAD_REQUEST);
    let event = log.last(7).await?;
    assert_eq!((essence(&event)[1], extra(&event, "denied_by")), ("failure", &json!("tool-filter")));

    assert_eq!(ada.post(call("look")).await?.status, StatusCode::OK);
    let event = log.last(8).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "success", "tools/call", "look"]);
    assert!(extra(&event, "denied_by").is_null(), "{event}");
    assert_eq!(extra(&event, "policies"), &json!(["policy0 at policies[0]:1"]), "of a permitted call as well");
    let text = std::fs::read_to_string(log.path())?;
    assert!(!text.contains("Bearer ") && !text.contains("eyJ"), "no token is in the log: {text}");
    Ok(())
}

#[tokio::test]
async fn item_6_a_body_that_cannot_be_authorized_is_denied() -> Result<()> {
    let log = Log::new()?;
    let web = guarded(merged(log.config(json!({})), policies(&["permit(principal, action, resource);"]))).await?;
    assert_eq!(as_user(&web, "ada").post("no message").await?.status, StatusCode::BAD_REQUEST);
    let event = log.last(1).await?;
    assert_eq!(essence(&event)[..2], ["http_request", "denied"], "{event}");
    assert_eq!(extra(&event, "denied_by"), "authorization");
    // A message in a body that does not say that it is one.
    let call = request(json!(1), "tools/call", json!({ "name": "look", "arguments": {} })).to_string();
    let text = as_user(&web, "ada").with("content-type", "text/plain");
    assert_eq!(text.post(call).await?.status, StatusCode::BAD_REQUEST);
    let event = log.last(2).await?;
    assert_eq!((essence(&event)[1], extra(&event, "denied_by")), ("denied", &json!("authorization")), "{event}");
    Ok(())
}

#[tokio::test]
async fn item_6_an_event_says_who_did_what_from_where() -> Result<()> {
    let log = Log::new()?;
    let how = stdio(log.config(json!({ "includeRequestData": true, "includeResponseData": true })))?;
    let stage = Stage::with(how).await?;
    let client =
        stage.caller().with("user-agent", "tests/1").with("x-request-id", "r-1").with("x-forwarded-for", "203.0.113.9");
    let client = client.initialized().await?;
    let [first, second] = &log.events(2).await?[..] else { panic!("two events") };
    assert_eq!(essence(first), ["mcp_initialize", "success", "initialize", ""]);
    assert_eq!((&first["subjects"]["client_name"], &first["subjects"]["client_version"]), (&json!("c"), &json!("1")));
    assert_eq!(first["data"]["request"]["params"], initialize_request());
    assert_eq!(first["data"]["response"]["result"]["serverInfo"]["name"], "s");
    assert_eq!(essence(second), ["mcp_notification", "success", "notifications/initialized", ""]);

    let answer = client.ask(json!(7), "tools/call", json!({ "name": "echo", "arguments": { "a": 1 } })).await?;
    let event = log.last(3).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "success", "tools/call", "echo"]);
    assert_eq!(
        event["source"],
        json!({ "type": "network", "value": "127.0.0.1", "extra": { "user_agent": "tests/1", "request_id": "r-1" } }),
        "headers of clients are not believed"
    );
    assert_eq!(event["target"], json!({ "endpoint": "/mcp", "method": "tools/call", "type": "tool", "name": "echo" }));
    assert_eq!(
        (&event["level"], &event["msg"], &event["component"]),
        (&json!("AUDIT"), &json!("audit_event"), &json!("toolhive-api"))
    );
    assert_eq!(extra(&event, "response_size_bytes"), &json!(answer.body.len()));
    assert_eq!(extra(&event, "transport"), "http");
    assert!(event["subjects"]["user"].as_str().is_some_and(|user| user.starts_with("Local User: ")), "{event}");
    assert!(
        event["audit_id"].as_str().is_some_and(|id| id.len() == 36)
            && event["logged_at"].as_str().is_some_and(|time| time.ends_with('Z'))
    );
    assert_eq!(event["data"]["request"]["params"]["arguments"], json!({ "a": 1 }));
    assert_eq!(event["data"]["response"]["id"], 7);

    let large =
        client.ask(json!(8), "tools/call", json!({ "name": "echo", "arguments": { "a": "x".repeat(2000) } })).await?;
    let event = log.last(4).await?;
    assert!(event["data"].get("request").is_none(), "a request above the limit is left out: {event}");
    assert_eq!(event["data"]["response"].as_str().map(str::len), Some(1024), "a response is cut");
    assert_eq!(extra(&event, "response_size_bytes"), &json!(large.body.len()));
    Ok(())
}

#[tokio::test]
async fn item_6_errors_in_replies_are_found_as_json_and_as_events() -> Result<()> {
    let log = Log::new()?;
    let stage =
        Stage::with(stdio(log.config(json!({ "excludeEventTypes": ["mcp_initialize", "mcp_notification"] })))?).await?;
    let client = stage.caller().initialized().await?;
    for (count, accept) in [(1, "application/json"), (2, BOTH)] {
        let answer = client.clone().taking(accept).ask(json!(1), "no/such", json!({})).await?;
        assert_eq!(answer.status, StatusCode::OK);
        let event = log.last(count).await?;
        assert_eq!(essence(&event)[..2], ["mcp_request", "application_error"], "{accept}: {event}");
        assert_eq!(
            (extra(&event, "jsonrpc_error_code"), extra(&event, "jsonrpc_error_message")),
            (&json!(-32601), &json!("no"))
        );
    }
    // A stream with messages before the response.
    let params = json!({ "name": "progress", "arguments": {}, "_meta": { "progressToken": 1 } });
    let answer = client.clone().taking(BOTH).ask(json!(1), "tools/call", params).await?;
    assert!(answer.text().contains("notifications/progress"), "{}", answer.text());
    assert_eq!(essence(&log.last(3).await?), ["mcp_tool_call", "success", "tools/call", "progress"]);
    // The stream of a session is recorded when it opens.
    let stream = client.clone().taking("text/event-stream").events(Method::GET, "/mcp", "").await?;
    let event = log.last(4).await?;
    assert_eq!(essence(&event), ["sse_connection", "success", "GET", ""]);
    assert_eq!(event["target"]["type"], "sse_endpoint");
    drop(stream);
    // One that is not allowed to open is recorded as well.
    let refused = stage.caller().taking("text/event-stream").whole(Method::GET, "/mcp", "").await?;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(essence(&log.last(5).await?)[..2], ["sse_connection", "failure"]);
    Ok(())
}

#[tokio::test]
async fn item_6_replies_on_the_stream_of_a_session_belong_to_their_requests() -> Result<()> {
    let log = Log::new()?;
    let how = lines::How { sse: true, ..stdio(log.config(json!({})))? };
    let stage = Stage::with(how).await?;
    let client = stage.caller();
    let (mut events, path) = crate::sse::open(&client.clone().taking("text/event-stream")).await?;
    assert_eq!(essence(&log.last(1).await?)[..2], ["sse_connection", "success"]);
    for (count, method, outcome) in
        [(2, "initialize", "success"), (3, "no/such", "application_error"), (4, "ping", "success")]
    {
        let params = if method == "initialize" { initialize_request() } else { json!({}) };
        let accepted = client.whole(Method::POST, &path, request(json!(count), method, params).to_string()).await?;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        events.message().await?;
        let event = log.last(count).await?;
        assert_eq!(essence(&event)[1..3], [outcome, method], "{event}");
    }
    // Its client closes the stream before there is a reply.
    client.whole(Method::POST, &path, request(json!(9), "hold", json!({})).to_string()).await?;
    stage.until_received("hold", 1).await?;
    drop(events);
    let event = log.last(5).await?;
    assert_eq!((essence(&event)[2], extra(&event, "incomplete")), ("hold", &json!(true)));
    Ok(())
}

/// A server whose replies are streams, with an error for tools that fail.
fn streaming(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let reply = match message["params"]["name"].as_str() {
        Some("fails") => {
            json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32000, "message": "it broke" } })
        }
        _ => json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "tools": [] } }),
    };
    let padding =
        json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": "x".repeat(1000) } });
    let body = format!("event: message\ndata: {padding}\n\nevent: message\ndata: {reply}\n\n");
    Response::builder().header("content-type", "text/event-stream").body(Body::full(body)).unwrap()
}

#[tokio::test]
async fn item_6_errors_in_streams_of_servers_are_found_whether_or_not_middleware_reads_them() -> Result<()> {
    let allow_all = policies(&["permit(principal, action, resource);"]);
    for (is_read, more) in [(false, json!({})), (true, allow_all)] {
        let log = Log::new()?;
        let config = run_config(merged(log.config(json!({})), more))?;
        let web = Web::with(web::How { config, ..web::How::default() }, streaming).await?;
        let client = web.caller().taking(BOTH).with("accept-encoding", "gzip");
        let call = |name: &str| request(json!(1), "tools/call", json!({ "name": name, "arguments": {} })).to_string();
        client.post(call("fails")).await?;
        let event = log.last(1).await?;
        assert_eq!(essence(&event), ["mcp_tool_call", "application_error", "tools/call", "fails"], "{is_read}");
        assert_eq!(extra(&event, "jsonrpc_error_message"), "it broke");
        client.post(call("works")).await?;
        assert_eq!(essence(&log.last(2).await?)[1], "success", "{is_read}");
        client.ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(essence(&log.last(3).await?)[..2], ["mcp_tools_list", "success"], "{is_read}");
        let asked_for = &web.got()[0].headers["accept-encoding"];
        assert_eq!(asked_for, "identity", "what is compressed could not be seen");
    }
    Ok(())
}

#[tokio::test]
async fn item_6_a_request_whose_client_leaves_and_a_server_that_is_away_are_recorded() -> Result<()> {
    let log = Log::new()?;
    let stage = Stage::with(stdio(log.config(json!({ "eventTypes": ["mcp_tool_call", "mcp_request"] })))?).await?;
    let client = stage.caller().initialized().await?;
    let held = client.clone();
    let task =
        tokio::spawn(
            async move { held.ask(json!(5), "tools/call", json!({ "name": "silent", "arguments": {} })).await },
        );
    stage.until_received("tools/call", 1).await?;
    task.abort();
    let event = log.last(1).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "error", "tools/call", "silent"]);
    assert_eq!(extra(&event, "incomplete"), true);
    assert!(event["subjects"]["user_id"].is_string(), "{event}");

    let log = Log::new()?;
    let config = run_config(log.config(json!({})))?;
    let web = Web::with(web::How { config, lives: false, ..web::How::default() }, streaming).await?;
    assert_eq!(web.caller().ask(json!(1), "ping", json!({})).await?.status, StatusCode::BAD_GATEWAY);
    assert_eq!(essence(&log.last(1).await?)[..2], ["mcp_ping", "error"]);
    Ok(())
}

#[tokio::test]
async fn item_6_a_trusted_proxy_names_the_address_of_the_client() -> Result<()> {
    let log = Log::new()?;
    let config = merged(log.config(json!({ "component": "mine" })), json!({ "trust_proxy_headers": true }));
    let stage = Stage::with(stdio(config)?).await?;
    let client = stage.caller().with("x-forwarded-for", "198.51.100.1, 203.0.113.9");
    client.ask(json!(1), "ping", json!({})).await?;
    let event = log.last(1).await?;
    assert_eq!((&event["source"]["value"], &event["component"]), (&json!("203.0.113.9"), &json!("mine")));
    Ok(())
}
