//! Authorization of everything that a client can send, in every wrapping; and what becomes of lists on their way back.

use anyhow::{Context as _, Result};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::client::{Answer, BOTH, request};
use crate::guarded::{as_user, guarded_config, policies};
use crate::web::{Got, How, Web};

/// `ada` may use what is seen, and nothing else.
const SEEN: &[&str] = &[
    r#"permit(principal == Client::"ada", action, resource == Tool::"seen");"#,
    r#"permit(principal == Client::"ada", action, resource == Prompt::"seen");"#,
    r#"permit(principal == Client::"ada", action, resource == Resource::"file:///seen");"#,
    r#"permit(principal == Client::"ada", action, resource == Resource::"file:///{seen}");"#,
];
const DENIED: &str = "Unauthorized";

/// What a server lists by a method: the member, and one thing that is seen and one that is hidden.
const LISTS: &[(&str, &str, &str, &str, &str)] = &[
    ("tools/list", "tools", "name", "seen", "hidden"),
    ("prompts/list", "prompts", "name", "seen", "hidden"),
    ("resources/list", "resources", "uri", "file:///seen", "file:///hidden"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", "file:///{seen}", "file:///{hidden}"),
];

fn listed(id: &Value, method: &str) -> Value {
    let Some((_, member, key, seen, hidden)) = LISTS.iter().find(|(list, ..)| *list == method) else {
        return json!({ "jsonrpc": "2.0", "id": id, "result": {} });
    };
    let elements = json!([{ *key: seen, "x": 1 }, { *key: hidden }]);
    json!({ "jsonrpc": "2.0", "id": id, "result": { *member: elements, "nextCursor": "c" } })
}

/// A server that lists what it is asked for.
fn lists(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default();
    says(200, Some("application/json"), &listed(&message["id"], method).to_string())
}

fn says(status: u16, kind: Option<&str>, body: &str) -> Response<Body> {
    let mut response = Response::builder().status(status);
    if let Some(kind) = kind {
        response = response.header("content-type", kind);
    }
    response.body(Body::full(body.to_owned())).unwrap()
}

pub(crate) async fn web(
    policies_of: &[&str],
    answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static,
) -> Result<Web> {
    let config = guarded_config(policies(policies_of)).await?;
    Box::pin(Web::with(How { config, ..How::default() }, answer)).await
}

/// A server that always answers the same, for a client that may use what is seen.
async fn always(status: u16, kind: Option<&'static str>, body: String) -> Result<Web> {
    web(SEEN, move |_: &Got| says(status, kind, &body)).await
}

/// The message of an answer, which may be an event of several lines.
fn message(answer: &Answer) -> Result<Value> {
    let text = answer.text().trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    Ok(serde_json::from_str(&if lines.is_empty() { text } else { lines.join("\n") })?)
}

fn call(id: Value, tool: &str) -> Value {
    request(id, "tools/call", json!({ "name": tool, "arguments": {} }))
}

#[tokio::test]
async fn bodies_must_be_json_by_their_media_type() -> Result<()> {
    let web = web(SEEN, lists).await?;
    let client = as_user(&web, "ada");
    let body = call(json!(1), "seen").to_string();
    for kind in
        ["application/json", "application/json;charset=utf-8", "APPLICATION/JSON", "Application/Json ; charset=UTF-8"]
    {
        let answer = client.clone().with("content-type", kind).post(body.clone()).await?;
        assert_eq!(answer.status, StatusCode::OK, "{kind}");
    }
    let reached = web.got().len();
    for kind in ["text/plain", "", "application/jsonp", "application/json, text/plain", "text/plain; application/json"]
    {
        for path in ["/mcp", "/sse", "/x/sse"] {
            let client = client.clone().with("content-type", kind);
            let answer = client.whole(Method::POST, path, body.clone()).await?;
            let expected = (StatusCode::BAD_REQUEST, "Invalid or malformed MCP request");
            assert_eq!((answer.status, answer.text()), expected, "{kind:?} {path}");
        }
    }
    assert_eq!(web.got().len(), reached, "nothing of it reached the server");
    Ok(())
}

#[tokio::test]
async fn policies_may_stand_in_a_file_of_yaml() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("authz.yaml");
    let policy = r#"permit(principal == Client::"ada", action, resource == Tool::"seen");"#;
    std::fs::write(&path, format!("version: '1.0'\ntype: cedarv1\ncedar:\n  policies:\n  - |\n    {policy}\n"))?;
    let config = guarded_config(json!({ "authz_config_path": path })).await?;
    let web = Box::pin(Web::with(How { config, ..How::default() }, lists)).await?;
    for (user, tool, status) in [
        ("ada", "seen", StatusCode::OK),
        ("ada", "hidden", StatusCode::FORBIDDEN),
        ("bob", "seen", StatusCode::FORBIDDEN),
    ] {
        let answer = as_user(&web, user).post(call(json!(1), tool).to_string()).await?;
        assert_eq!(answer.status, status, "{user} {tool}");
    }
    assert_eq!(web.got().len(), 1);
    Ok(())
}

/// Every client is the user who runs the proxy, whatever its token says.
#[tokio::test]
async fn without_an_identity_provider_policies_are_about_the_local_user() -> Result<()> {
    let policy = r#"permit(principal == Client::"local", action, resource == Tool::"seen") when { principal.claim_iss == "toolhive-local" && principal.claim_aud == "toolhive" && principal.claim_email == "local@localhost" && principal.claim_name == "Local User: local" };"#;
    let mut config = policies(&[policy]);
    config["name"] = json!("srv");
    let config = skep_runconfig::RunConfig::from_slice(config.to_string().as_bytes())?;
    let web = Box::pin(Web::with(How { config, ..How::default() }, lists)).await?;
    for client in [web.caller(), as_user(&web, "ada"), web.caller().with("authorization", "Bearer nonsense")] {
        for (tool, status) in [("seen", StatusCode::OK), ("hidden", StatusCode::FORBIDDEN)] {
            assert_eq!(client.post(call(json!(1), tool).to_string()).await?.status, status, "{tool}");
        }
    }
    assert_eq!(web.got().len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_denial_has_the_id_of_its_request_as_it_was_sent() -> Result<()> {
    let web = web(SEEN, lists).await?;
    let client = as_user(&web, "ada");
    for id in [json!("x"), json!(7), json!(0), json!(-1), json!("")] {
        let answer = client.post(call(id.clone(), "hidden").to_string()).await?;
        let expected = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": 403, "message": DENIED } });
        assert_eq!((answer.status, answer.message()?), (StatusCode::FORBIDDEN, expected));
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let answer = client.tell("tools/call", json!({ "name": "hidden" })).await?;
    let expected = json!({ "jsonrpc": "2.0", "error": { "code": 403, "message": DENIED } });
    assert_eq!((answer.status, answer.message()?), (StatusCode::FORBIDDEN, expected), "a notification has none");
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn prompts_and_resources_are_decided_about_like_tools() -> Result<()> {
    let web = web(SEEN, lists).await?;
    let mut allowed = 0;
    for (method, member, seen, hidden) in [
        ("tools/call", "name", "seen", "hidden"),
        ("prompts/get", "name", "seen", "hidden"),
        ("resources/read", "uri", "file:///seen", "file:///hidden"),
        ("resources/subscribe", "uri", "file:///seen", "file:///hidden"),
        ("resources/unsubscribe", "uri", "file:///seen", "file:///SEEN"),
    ] {
        for (user, name, expected) in [
            ("ada", seen, StatusCode::OK),
            ("ada", hidden, StatusCode::FORBIDDEN),
            ("bob", seen, StatusCode::FORBIDDEN),
            ("ada", "", StatusCode::FORBIDDEN),
        ] {
            let answer = as_user(&web, user).ask(json!(1), method, json!({ member: name })).await?;
            assert_eq!(answer.status, expected, "{user} {method} {name}");
            allowed += usize::from(expected == StatusCode::OK);
            assert_eq!(web.got().len(), allowed);
        }
        let nameless = as_user(&web, "ada").ask(json!(1), method, json!({})).await?;
        assert_eq!(nameless.status, StatusCode::FORBIDDEN, "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn every_list_is_filtered_in_every_wrapping() -> Result<()> {
    for (method, member, key, seen, hidden) in LISTS {
        let list = listed(&json!(1), method).to_string();
        let split = list.replacen(",\"result\"", "\n,\"result\"", 1).replace('\n', "\ndata: ");
        for (kind, body) in [
            (Some("application/json"), list.clone()),
            (Some("Application/JSON; charset=utf-8"), format!("\u{feff}{list}")),
            (Some("text/plain"), format!(" \r\n\t{list}\n ")),
            (None, list.clone()),
            (Some("text/event-stream"), format!("data: {list}\n\n")),
            (Some("Text/Event-Stream"), format!("event: x\rdata: {list}\r\r")),
            (Some("text/event-stream"), format!("\u{feff}: hello\r\nid: 1\r\ndata:{list}\r\n\r\n")),
            (Some("text/event-stream"), format!("data: {split}\n\n")),
            (Some("text/event-stream"), format!("data: {list}")),
        ] {
            let web = always(200, kind, body.clone()).await?;
            let answer = as_user(&web, "ada").taking(BOTH).ask(json!(1), method, json!({})).await?;
            let message = message(&answer).with_context(|| body.clone())?;
            assert_eq!(message["result"][*member], json!([{ *key: seen, "x": 1 }]), "{kind:?} {body}");
            assert_eq!(message["result"]["nextCursor"], "c");
            assert!(!answer.text().contains(hidden), "{kind:?} {body}");
            assert!(
                answer
                    .headers
                    .get("content-length")
                    .is_none_or(|length| length == answer.body.len().to_string().as_str())
            );
            let empty = as_user(&web, "bob").taking(BOTH).ask(json!(1), method, json!({})).await?;
            assert_eq!(self::message(&empty)?["result"][*member], json!([]), "{kind:?} {body}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_status_of_a_list_stays_and_what_is_no_list_passes() -> Result<()> {
    let list = listed(&json!(1), "tools/list").to_string();
    for status in [200, 201, 203, 400, 500] {
        let web = always(status, Some("application/json"), list.clone()).await?;
        let answer = as_user(&web, "ada").ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!((answer.status.as_u16(), answer.text().contains("hidden")), (status, false));
    }
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"none"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":null, "x" : 1.50}}"#,
    ] {
        let web = always(200, Some("application/json"), body.to_owned()).await?;
        let answer = as_user(&web, "ada").ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(answer.text(), body, "it keeps its bytes");
    }
    Ok(())
}

#[tokio::test]
async fn a_list_that_cannot_be_evaluated_is_withheld() -> Result<()> {
    let list = listed(&json!(1), "tools/list").to_string();
    let long: Vec<_> = (0..10_001).map(|number| json!({ "name": format!("hidden{number}") })).collect();
    let mut shapes = vec![
        format!("[{list}]"),
        format!("{list}{list}"),
        format!("{list}\n{list}"),
        list.replace("\"result\"", "\"error\":{\"code\":1,\"message\":\"\"},\"result\""),
        list.replace("\"result\"", "\"method\":\"x\",\"result\""),
        list.replace("\"name\":\"hidden\"", "\"title\":\"hidden\""),
        list.replace("\"name\":\"hidden\"", "\"Name\":\"hidden\""),
        list.replace("\"name\":\"hidden\"", "\"name\":\"seen\",\"name\":\"hidden\""),
        list.replace("\"tools\"", "\"tools\":[],\"tools\""),
        list.replace("\"tools\"", "\"Tools\""),
        list.replace("{\"name\":\"hidden\"}", "\"hidden\""),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": { "a": "hidden" } } }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": long } }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": [{ "name": "hidden" }] }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": "hidden" }).to_string(),
        "hidden, but not JSON".to_owned(),
    ];
    for space in ['\u{b}', '\u{c}', '\u{85}', '\u{a0}', '\u{1680}', '\u{3000}', '\u{200b}', '\0'] {
        shapes.extend([format!("{space}{list}"), format!("{list}{space}")]);
    }
    for body in shapes {
        let is_prose = body.starts_with("hidden");
        let event = |name: &str| format!("event: {name}\ndata: {}\n\n", body.replace('\n', "\ndata: "));
        for (status, kind, wrapped) in [
            (200, "application/json", body.clone()),
            (400, "application/json", body.clone()),
            (500, "application/json", body.clone()),
            (200, "text/event-stream", event("message")),
            (200, "text/event-stream", event("x")),
        ] {
            if is_prose && (status != 200 || wrapped.starts_with("event: x")) {
                continue;
            }
            let web = always(status, Some(kind), wrapped.clone()).await?;
            let answer = as_user(&web, "ada").taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
            let shown: String = wrapped.chars().take(200).collect();
            assert!(!answer.text().contains("hidden"), "{status} {shown}: {}", answer.text());
            let error = &answer.message().with_context(|| shown.clone())?["error"];
            assert_eq!(*error, json!({ "code": -32603, "message": "internal error" }), "{status} {shown}");
            let expected = if kind == "application/json" && status == 200 { 500 } else { status };
            assert_eq!(answer.status, expected, "{shown}");
        }
    }
    Ok(())
}

/// What a client unpacks may be a list, whatever it looks like before.
#[tokio::test]
async fn a_reply_that_is_compressed_is_withheld_whatever_its_status() -> Result<()> {
    for status in [200, 400, 500] {
        let web = web(SEEN, move |_: &Got| {
            let head = Response::builder().status(status).header("content-type", "application/json");
            head.header("content-encoding", "gzip").body(Body::full("\u{1f}packed: hidden")).unwrap()
        })
        .await?;
        let answer = as_user(&web, "ada").ask(json!(1), "tools/list", json!({})).await?;
        assert!(!answer.text().contains("hidden"), "{status}: {}", answer.text());
        assert_eq!(answer.message()?["error"], json!({ "code": -32603, "message": "internal error" }), "{status}");
        assert_eq!(answer.status, if status == 200 { 500 } else { status });
    }
    Ok(())
}

#[tokio::test]
async fn what_is_certainly_no_reply_passes_in_errors_and_in_events_of_other_names() -> Result<()> {
    for body in [r#"{"error":"invalid_token","error_description":"hidden"}"#, "hidden", r#"{"time":1}"#] {
        let web = always(404, Some("application/json"), body.to_owned()).await?;
        let answer = as_user(&web, "ada").taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, body));
        let event = format!("event: ping\ndata: {body}\n\n");
        let web = always(200, Some("text/event-stream"), event.clone()).await?;
        let answer = as_user(&web, "ada").taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(answer.text().trim_end(), event.trim_end());
    }
    Ok(())
}

/// Other clients are answered meanwhile.
#[tokio::test]
async fn a_long_list_is_filtered() -> Result<()> {
    let long: Vec<_> =
        (0..1_000).map(|number| json!({ "name": format!("t{number}") })).chain([json!({ "name": "seen" })]).collect();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": long } }).to_string();
    let web = always(200, Some("application/json"), list).await?;
    let (ada, bob) = (as_user(&web, "ada"), as_user(&web, "bob"));
    let (list, denied) = tokio::join!(
        ada.ask(json!(1), "tools/list", json!({})),
        bob.ask(json!(1), "tools/call", json!({ "name": "seen" }))
    );
    assert_eq!(list?.message()?["result"]["tools"], json!([{ "name": "seen" }]));
    assert_eq!(denied?.status, StatusCode::FORBIDDEN);
    Ok(())
}

#[tokio::test]
async fn lists_on_the_stream_of_a_session_and_on_a_resumed_one_are_filtered() -> Result<()> {
    let list = listed(&json!("a"), "tools/list").to_string();
    for (sse, path) in [(true, "/sse"), (false, "/mcp")] {
        let body = format!("event: endpoint\ndata: /messages?sessionId=abc\n\ndata: {list}\n\ndata: {list}{list}\n\n");
        let body = if sse {
            body
        } else {
            body.replace("event: endpoint", "event: message").replace("/messages?sessionId=abc", "")
        };
        let config = guarded_config(policies(SEEN)).await?;
        let how = How { config, sse, ..How::default() };
        let web = Box::pin(Web::with(how, move |_: &Got| says(200, Some("text/event-stream"), &body))).await?;
        let client = as_user(&web, "ada").with("last-event-id", "0").taking("text/event-stream");
        let mut events = client.events(Method::GET, path, "").await?;
        events.next().await?;
        assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen", "x": 1 }]), "{path}");
        assert_eq!(events.message().await?["error"]["code"], -32603, "{path}");
    }
    Ok(())
}
