//! What clients see to the letter, and what never reaches a server that speaks HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_proxy::downstream::ForwardOptions;

use crate::client::{BOTH, MODERN, TestClient, initialize_request, modern, request};
use crate::lines::Stage;
use crate::web::{Got, How, Web};

const META: &str = "io.modelcontextprotocol/";

fn fine(_: &Got) -> Response<Body> {
    Response::builder().header("content-type", "application/json").body(Body::full("{}")).unwrap()
}

/// Requests that contradict themselves: the header, the body, and the error with its data.
fn hostile() -> Vec<(Option<&'static str>, Value, Value)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = modern(json!("x"), "tools/call", MODERN);
        change(&mut body["params"]["_meta"]);
        body
    };
    let other = "2027-01-01";
    let plain = || request(json!("x"), "tools/call", json!({ "name": "echo" }));
    vec![
        (Some("2025-11-25"), with(&|_| {}), json!([-32020, { "header": "2025-11-25", "body": MODERN }])),
        (
            Some(MODERN),
            with(&|meta| meta[format!("{META}protocolVersion")] = json!(other)),
            json!([-32020, { "header": MODERN, "body": other }]),
        ),
        (
            None,
            with(&|meta| meta[format!("{META}protocolVersion")] = json!(other)),
            json!([-32022, { "supported": [MODERN], "requested": other }]),
        ),
        (
            Some(MODERN),
            with(&|meta| meta[format!("{META}clientCapabilities")] = json!([])),
            json!([-32021, { "requiredCapabilities": {} }]),
        ),
        (Some(MODERN), plain(), json!([-32602, null])),
        (
            None,
            with(&|meta| drop(meta.as_object_mut().unwrap().remove(&format!("{META}protocolVersion")))),
            json!([-32602, null]),
        ),
    ]
}

async fn refused_with(caller: TestClient, header: Option<&str>, body: &Value, wanted: &Value) -> Result<()> {
    let caller = caller.with("mcp-method", "tools/call").with("mcp-name", "echo");
    let caller = header.into_iter().fold(caller, |caller, version| caller.with("mcp-protocol-version", version));
    let answer = caller.post(body.to_string()).await?;
    assert_eq!(
        (answer.status, answer.headers["content-type"].to_str()?),
        (StatusCode::BAD_REQUEST, "application/json")
    );
    let reply = answer.message()?;
    assert_eq!(json!([reply["error"]["code"], reply["error"]["data"]]), *wanted, "{header:?} {body}");
    assert_eq!((&reply["id"], &reply["jsonrpc"]), (&json!("x"), &json!("2.0")));
    assert_eq!(reply["error"].get("data").is_some(), !wanted[1].is_null(), "no data is not null");
    Ok(())
}

#[tokio::test]
async fn requests_that_contradict_themselves_are_refused_with_their_code_and_reach_no_server() -> Result<()> {
    let web = Web::new(fine).await?;
    let stage = Stage::new().await?;
    for (header, body, wanted) in hostile() {
        refused_with(web.caller(), header, &body, &wanted).await?;
        refused_with(stage.caller(), header, &body, &wanted).await?;
    }
    assert!(web.got().is_empty());
    assert!(stage.received("tools/call").is_empty());
    // One that is right is forwarded, once.
    let right = web.caller().with("mcp-protocol-version", MODERN).with("mcp-method", "tools/call");
    let answer = right.with("mcp-name", "echo").post(modern(json!(1), "tools/call", MODERN).to_string()).await?;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(web.got().len(), 1);
    Ok(())
}

#[tokio::test]
async fn several_messages_in_one_body_are_refused_in_every_shape() -> Result<()> {
    let (web, stage) = (Web::new(fine).await?, Stage::new().await?);
    let expected_text = "JSON-RPC batch requests are not supported (batching was removed in MCP revision 2025-06-18)";
    let expected = format!(r#"{{"error":{{"code":-32600,"message":"{expected_text}"}},"jsonrpc":"2.0"}}"#);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for body in ["[]", "[1]", &format!("[{request}]"), &format!(" \r\n\t[{request},{request}]"), "[[]]", "[null]"] {
        for address in [web.address, stage.address] {
            for kind in ["application/json", "text/plain"] {
                let answer = TestClient::new(address).with("content-type", kind).post(body.to_owned()).await?;
                assert_eq!((answer.status, answer.text()), (StatusCode::BAD_REQUEST, expected.as_str()), "{body}");
            }
        }
    }
    let mut stranger = web.caller();
    stranger.session = Some("unknown".to_owned());
    assert_eq!(stranger.post("[]").await?.text(), expected);
    // Also where bodies that are not called JSON are not parsed.
    let older = Web::with(How { sse: true, ..How::default() }, fine).await?;
    for method in [Method::POST, Method::PUT] {
        let caller = older.caller().with("content-type", "text/plain");
        let answer = caller.whole(method, "/messages?sessionId=s", format!(" [{request}]")).await?;
        assert_eq!((answer.status, answer.text()), (StatusCode::BAD_REQUEST, expected.as_str()));
    }
    assert!(older.got().is_empty());
    assert!(web.got().is_empty() && stage.received("ping").is_empty());
    Ok(())
}

#[tokio::test]
async fn an_unknown_session_is_reported_with_the_id_of_the_request_and_never_with_another() -> Result<()> {
    let web = Web::new(fine).await?;
    let mut stranger = web.caller();
    stranger.session = Some("unknown".to_owned());
    for (method, body, id) in [
        (Method::POST, r#"{"jsonrpc":"2.0","id":"a\u0062","method":"ping"}"#, r#""id":"a\u0062","#),
        (
            Method::POST,
            r#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}"#,
            r#""id":12345678901234567890,"#,
        ),
        (Method::POST, r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, r#""id":0,"#),
        (Method::POST, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, ""),
        (Method::POST, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, ""),
        (Method::POST, "", ""),
        (Method::POST, "{", ""),
        (Method::GET, "", ""),
        (Method::DELETE, "", ""),
    ] {
        let answer = stranger.whole(method.clone(), "/mcp", body).await?;
        let expected_text =
            format!(r#"{{"error":{{"code":-32001,"message":"Session not found"}},{id}"jsonrpc":"2.0"}}"#);
        assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, expected_text.as_str()), "{method} {body}");
    }
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_session_that_two_readers_could_read_as_two_is_none() -> Result<()> {
    let (web, stage) = (Web::new(fine).await?, Stage::new().await?);
    let known = stage.caller().initialized().await?.session.unwrap();
    let reply = stage.seen.lock().unwrap().messages.len();
    for address in [web.address, stage.address] {
        for names in [vec![b"\xe9".as_slice()], vec![b"", known.as_bytes()], vec![known.as_bytes(), b"\xe9"]] {
            for (method, body, id) in [
                (Method::POST, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, r#""id":7,"#),
                (Method::POST, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, ""),
                (Method::GET, "", ""),
                (Method::DELETE, "", ""),
            ] {
                let mut caller = TestClient::new(address).taking(BOTH);
                for name in &names {
                    caller.headers.append("mcp-session-id", HeaderValue::from_bytes(name)?);
                }
                let answer = caller.whole(method.clone(), "/mcp", body).await?;
                let expected_text =
                    format!(r#"{{"error":{{"code":-32001,"message":"Session not found"}},{id}"jsonrpc":"2.0"}}"#);
                assert_eq!(
                    (answer.status, answer.text()),
                    (StatusCode::NOT_FOUND, &*expected_text),
                    "{names:?} {method}"
                );
            }
        }
    }
    assert!(web.got().is_empty());
    assert_eq!(stage.seen.lock().unwrap().messages.len(), reply);
    // A name with nothing in it is no name, and the server gets none.
    assert_eq!(web.caller().with("mcp-session-id", "").ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    assert!(!web.got()[0].headers.contains_key("mcp-session-id"));
    Ok(())
}

#[tokio::test]
async fn only_a_handshake_opens_a_session_and_it_is_never_sent_twice() -> Result<()> {
    let status = Arc::new(AtomicU16::new(200));
    let reply = status.clone();
    let web = Web::new(move |_| {
        let response = Response::builder().status(reply.load(Ordering::SeqCst)).header("mcp-session-id", "theirs");
        response.header("content-type", "application/json").body(Body::full("{}")).unwrap()
    })
    .await?;
    let mut named = web.caller();
    named.session = Some("theirs".to_owned());
    assert_eq!(web.caller().ask(json!(1), "tools/list", json!({})).await?.status, StatusCode::OK);
    assert_eq!(named.ask(json!(1), "ping", json!({})).await?.status, StatusCode::NOT_FOUND, "no list opens a session");
    for refusal in [404, 500, 202] {
        status.store(refusal, Ordering::SeqCst);
        let before = web.got().len();
        assert_eq!(named.ask(json!(1), "initialize", initialize_request()).await?.status, refusal);
        assert_eq!(web.got().len(), before + 1);
        assert_eq!(named.ask(json!(1), "ping", json!({})).await?.status, StatusCode::NOT_FOUND, "{refusal}");
    }
    status.store(200, Ordering::SeqCst);
    named.ask(json!(1), "initialize", initialize_request()).await?;
    assert_eq!(named.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_session_is_gone_when_the_server_says_so_and_not_when_it_fails() -> Result<()> {
    for (said, stays) in
        [(200, false), (202, false), (204, false), (404, false), (400, true), (401, true), (405, true), (500, true)]
    {
        let web = Web::new(move |got| {
            let response = Response::builder().header("mcp-session-id", "theirs");
            let response = if got.method == Method::DELETE { response.status(said) } else { response };
            response.body(Body::empty()).unwrap()
        })
        .await?;
        let caller = web.caller().initialized().await?;
        assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, said);
        let known = caller.ask(json!(1), "ping", json!({})).await?.status == StatusCode::OK;
        assert_eq!(known, stays, "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn methods_that_need_a_session_are_refused_where_there_are_none() -> Result<()> {
    for (stateless, version, refuses) in [
        (false, None, false),
        (false, Some("2025-11-25"), false),
        (false, Some(MODERN), true),
        (true, None, true),
        (true, Some("2025-11-25"), true),
        (true, Some(MODERN), true),
    ] {
        let options = ForwardOptions { stateless, ..ForwardOptions::default() };
        let web = Web::with(How { options, ..How::default() }, fine).await?;
        let caller =
            version.into_iter().fold(web.caller(), |caller, version| caller.with("mcp-protocol-version", version));
        for method in [Method::GET, Method::HEAD, Method::DELETE] {
            let answer = caller.whole(method.clone(), "/mcp", "").await?;
            assert_eq!(answer.status == StatusCode::METHOD_NOT_ALLOWED, refuses, "{method} {stateless} {version:?}");
            if refuses && method != Method::HEAD {
                assert_eq!(answer.headers["allow"], "POST, OPTIONS");
                let expected_text = "method not allowed: server is stateless / stateless MCP revision (POST only)";
                assert_eq!(answer.text(), expected_text);
            }
        }
        let refused = web.got().len();
        for method in [Method::OPTIONS, Method::PUT, Method::POST] {
            assert_eq!(caller.whole(method, "/mcp", "").await?.status, StatusCode::OK);
        }
        assert_eq!((refused, web.got().len()), if refuses { (0, 3) } else { (3, 6) });
    }
    Ok(())
}

#[tokio::test]
async fn redirects_keep_method_and_body_and_end() -> Result<()> {
    let web = Web::new(|got| {
        let to = |status: u16, location: Option<&str>| {
            let mut response = Response::builder().status(status);
            if let Some(location) = location {
                response = response.header("location", location);
            }
            response.body(Body::full("as it came")).unwrap()
        };
        match got.uri.path() {
            "/loop" => to(307, Some("/loop")),
            "/nowhere" => to(302, None),
            "/deep/relative" => to(308, Some("../end?a=1")),
            "/see-other" => to(303, Some("/end")),
            path => match path.strip_prefix("/by/").and_then(|status| status.parse().ok()) {
                Some(status) => to(status, Some("/end")),
                None => fine(got),
            },
        }
    })
    .await?;
    let sent = async |path: &str| -> Result<(StatusCode, Vec<Got>)> {
        web.got.lock().unwrap().clear();
        let answer = web.caller().whole(Method::POST, path, r#"{"kept":1}"#).await?;
        Ok((answer.status, web.got()))
    };
    for status in [301, 302, 307, 308] {
        let (reply, got) = sent(&format!("/by/{status}")).await?;
        assert_eq!((reply, got.len()), (StatusCode::OK, 2), "{status}");
        assert_eq!(
            (&got[1].method, got[1].uri.path(), &got[1].body[..]),
            (&Method::POST, "/end", &br#"{"kept":1}"#[..])
        );
    }
    assert_eq!(sent("/deep/relative").await?.1[1].uri, "/end?a=1");
    for (path, status, times) in [("/loop", 307, 11), ("/nowhere", 302, 1), ("/see-other", 303, 1)] {
        let (reply, got) = sent(path).await?;
        assert_eq!((reply.as_u16(), got.len()), (status, times), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn pages_beside_the_protocol_are_ours_and_all_else_is_the_servers() -> Result<()> {
    let (web, stage) = (Web::new(fine).await?, Stage::new().await?);
    for path in
        ["/health", "/metrics", "/.well-known/", "/.well-known/oauth-protected-resource/mcp", "/.well-known/mcp"]
    {
        web.caller().whole(Method::GET, path, "").await?;
        stage.caller().whole(Method::GET, path, "").await?;
    }
    assert!(web.got().is_empty());
    for path in ["/", "/mcp", "/mcp/", "/health/", "/healthz", "/metrics/x", "/.well-known", "/x/.well-known/y"] {
        assert_eq!(web.caller().whole(Method::GET, path, "").await?.status, StatusCode::OK, "{path}");
    }
    assert_eq!(web.got().len(), 8);
    // Of a stdio server there is one path, and nothing that looks like it.
    for path in ["/", "/mcp/", "/mcp/x", "/mcpx", "/MCP", "/health/", "/.well-known"] {
        let answer = stage.caller().whole(Method::POST, path, "{}").await?;
        assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, "404 page not found"), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn pages_of_a_browser_may_call_if_their_origin_is_listed() -> Result<()> {
    let mut how = How::default();
    how.config.allowed_origins = vec!["https://a.example".to_owned()];
    let web = Web::with(how, fine).await?;
    for (origins, passes) in [
        (&[][..], true),
        (&["https://a.example"], true),
        (&["https://A.Example"], true),
        (&["https://a.example", "https://a.example"], false),
        (&["https://b.example"], false),
        (&["http://a.example"], false),
        (&["https://a.example:444"], false),
        (&["null"], false),
        (&[""], false),
    ] {
        let mut caller = web.caller();
        for origin in origins {
            caller.headers.append("origin", HeaderValue::from_static(origin));
        }
        let answer = caller.ask(json!(1), "ping", json!({})).await?;
        assert_eq!(answer.status == StatusCode::OK, passes, "{origins:?}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
        if !passes {
            let expected_text = r#"{"error":{"code":-32600,"message":"Origin not allowed"},"jsonrpc":"2.0"}"#;
            assert_eq!((answer.status, answer.text()), (StatusCode::FORBIDDEN, expected_text));
            assert_eq!(answer.headers["content-type"], "application/json");
        }
    }
    assert_eq!(web.got().len(), 3);
    Ok(())
}

#[tokio::test]
async fn credentials_stay_here_if_the_chain_says_so_and_refusals_of_the_server_pass() -> Result<()> {
    let refuses = |_: &Got| {
        let response = Response::builder().status(401).header("www-authenticate", "Bearer realm=\"r\"");
        response.body(Body::full("who are you?")).unwrap()
    };
    let credentials = ["authorization", "cookie"];
    for strips in [false, true] {
        let mut how = How::default();
        if strips {
            let listed = br#"{"middleware_configs":[{"type":"strip-auth","parameters":{}}]}"#;
            how.config = skep_runconfig::RunConfig::from_slice(listed)?;
        }
        let web = Web::with(how, refuses).await?;
        let caller = web.caller().with("authorization", "Bearer t").with("cookie", "c=1");
        let answer = caller.with("x-kept", "1").ask(json!(1), "ping", json!({})).await?;
        assert_eq!((answer.status, answer.text()), (StatusCode::UNAUTHORIZED, "who are you?"));
        assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"r\"");
        let got = web.got().remove(0);
        assert!(credentials.iter().all(|name| got.headers.contains_key(*name) != strips), "{:?}", got.headers);
        assert!(got.headers.contains_key("x-kept"));
    }
    Ok(())
}

#[tokio::test]
async fn answers_as_events_have_a_name_and_nothing_around_them() -> Result<()> {
    let stage = Stage::new().await?;
    let answer = stage.caller().taking(BOTH).ask(json!(4), "ping", json!({})).await?;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    assert_eq!(answer.headers["cache-control"], "no-cache");
    let data = answer.text().strip_prefix("event: message\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let data: Value = serde_json::from_str(data.unwrap_or_else(|| panic!("{}", answer.text())))?;
    assert_eq!(data, json!({ "jsonrpc": "2.0", "id": 4, "result": {} }));
    Ok(())
}

#[tokio::test]
async fn a_strict_proxy_takes_known_versions_or_none() -> Result<()> {
    let mut how = crate::lines::How::default();
    how.config.strict_protocol_validation = true;
    let stage = Stage::with(how).await?;
    let ask = async |version: Option<&str>| -> Result<StatusCode> {
        let caller =
            version.into_iter().fold(stage.caller(), |caller, version| caller.with("mcp-protocol-version", version));
        Ok(caller.ask(json!(1), "ping", json!({})).await?.status)
    };
    for version in [None, Some("2024-11-05"), Some("2025-03-26"), Some("2025-06-18"), Some("2025-11-25")] {
        assert_eq!(ask(version).await?, StatusCode::OK, "{version:?}");
    }
    for version in ["2025-06-17", "2025-06-18 x", "nonsense"] {
        assert_eq!(ask(Some(version)).await?, StatusCode::BAD_REQUEST, "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn sse_streams_name_where_the_client_came_in() -> Result<()> {
    let host = "h.example";
    for (prefix, trusts, prefixed, at, expected) in [
        ("", false, None, None, "/messages?sessionId=s"),
        ("", false, Some("/theirs"), Some(host), "/messages?sessionId=s"),
        ("", true, Some("/theirs/"), None, "/theirs/messages?sessionId=s"),
        ("mine", false, None, None, "/mine/messages?sessionId=s"),
        ("/mine/", true, Some("/theirs"), None, "/mine/messages?sessionId=s"),
        ("", true, Some("/theirs"), Some(host), "https://h.example/theirs/messages?sessionId=s"),
        ("", true, None, None, "/messages?sessionId=s"),
    ] {
        let endpoint_prefix = prefix.to_owned();
        let options = ForwardOptions { trust_proxy_headers: trusts, endpoint_prefix, ..ForwardOptions::default() };
        let web = Web::with(How { options, sse: true, ..How::default() }, |_| {
            let body =
                "event: endpoint\ndata: /messages?sessionId=s\n\nevent: message\ndata: /messages?sessionId=s\n\n";
            Response::builder().header("content-type", "text/event-stream").body(Body::full(body)).unwrap()
        })
        .await?;
        let mut caller = web.caller().with("x-forwarded-proto", "https");
        caller = prefixed.into_iter().fold(caller, |caller, value| caller.with("x-forwarded-prefix", value));
        caller = at.into_iter().fold(caller, |caller, value| caller.with("x-forwarded-host", value));
        let mut events = caller.events(Method::GET, "/sse", "").await?;
        let what = format!("{prefix} {trusts} {prefixed:?} {at:?}");
        assert_eq!(events.next().await?, Some(("endpoint".to_owned(), expected.to_owned())), "{what}");
        let message = ("message".to_owned(), "/messages?sessionId=s".to_owned());
        assert_eq!(events.next().await?, Some(message), "other events stay as they are");
    }
    Ok(())
}
