//! Servers of 2026-07-28, and how an era is found out.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use skep_auth::Identity;
use skep_mcp::Era;
use skep_net::Body;
use skep_upstream::http::{Credentials, CredentialsError, HttpOptions, ServerRequest};
use skep_upstream::{BoxFuture, BridgedUpstream, Call, ClientContext, SessionId, Upstream, UpstreamState};

use crate::server::{Got, PATIENCE, Server, events, handshake, message, respond, respond_to, result, status};

/// A modern request.
fn modern(method: &str, mut params: Value) -> Call {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let request = message(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
    Call::new(request, Era::Modern)
}

fn discovered(got: &Got) -> Option<http::Response<Body>> {
    let versions = json!({ "supportedVersions": ["2026-07-28"] });
    (got.what() == "server/discover").then(|| respond(200, &result(&got.body, &versions)))
}

#[tokio::test]
async fn the_era_is_what_the_server_says_of_itself() {
    let error = |code: i64| json!({ "jsonrpc": "2.0", "id": 0, "error": { "code": code, "message": "no" } });
    let versions = |version: &str| json!({ "jsonrpc": "2.0", "id": 0, "result": { "supportedVersions": [version] } });
    for (code, body, expected) in [
        (200, versions("2026-07-28"), Some(Era::Modern)),
        (200, versions("2030-01-01"), Some(Era::Legacy)),
        (404, error(-32601), Some(Era::Legacy)),
        (400, error(-32022), Some(Era::Legacy)),
        (405, json!(null), Some(Era::Legacy)),
        (503, json!(null), None),
    ] {
        let server = Server::start(move |_| respond(code, &body)).await;
        let upstream = server.upstream();
        let mut state = upstream.state();
        let probed = tokio::time::timeout(PATIENCE, state.wait_for(|state| *state != UpstreamState::Starting));
        let probed = probed.await.unwrap().unwrap().clone();
        assert_eq!(matches!(&probed, UpstreamState::Failing(_)), expected.is_none(), "{code}");
        assert!(expected.is_none_or(|era| probed == UpstreamState::ready(era)), "{code} {probed:?}");
        let got = server.wait(|got| got.what() == "server/discover").await;
        assert_eq!(
            (got.header("mcp-method"), got.header("mcp-protocol-version")),
            (Some("server/discover"), Some("2026-07-28"))
        );
    }
}

/// A legacy server for clients with a key.
fn with_key(got: &Got) -> http::Response<Body> {
    if got.header("x-key") != Some("k") {
        return status(401);
    }
    let unknown = json!({ "jsonrpc": "2.0", "id": got.body["id"], "error": { "code": -32601, "message": "no" } });
    match got.what() {
        "server/discover" => respond(404, &unknown),
        "tools/list" => respond(200, &result(&got.body, &json!({ "tools": [] }))),
        _ => handshake(got, "s").unwrap_or_else(|| status(200)),
    }
}

/// The key, in the name of clients only.
#[derive(Debug)]
struct OfClients;

impl Credentials for OfClients {
    fn add<'a>(&'a self, request: &'a mut ServerRequest) -> BoxFuture<'a, Result<(), CredentialsError>> {
        let added = request.caller.as_ref().map(|_| ()).ok_or(CredentialsError::NoCaller);
        request.headers.insert("x-key", http::HeaderValue::from_static("k"));
        Box::pin(std::future::ready(added))
    }

    fn refused(&self, _request: &ServerRequest) {}
}

#[tokio::test]
async fn a_server_that_takes_clients_only_is_probed_in_the_name_of_one() {
    let identity = Identity { issuer: "https://i".into(), subject: "ann".into(), name: "Ann".into() };
    let ann = ClientContext { caller: Some(identity.into()), ..ClientContext::default() };
    let keys = http::HeaderMap::from_iter([("x-key".parse().unwrap(), "k".parse().unwrap())]);
    let own = HttpOptions { credentials: Some(Arc::new(OfClients)), ..HttpOptions::default() };
    for (options, client, refused) in [
        (own, ann, "no credentials for the server"),
        (HttpOptions::default(), ClientContext::with_headers(keys), "the server responded with HTTP status 401"),
    ] {
        let server = Server::start(with_key).await;
        let upstream = server.upstream_with(options);
        let bridge = BridgedUpstream::new(upstream.clone());
        let call = |client: ClientContext| Call { client, ..modern("tools/list", json!({})) };
        let listed = |client| async {
            let listed = tokio::time::timeout(PATIENCE, bridge.clone().call(call(client))).await.unwrap();
            match listed {
                Ok(mut replies) => replies.response.response().await,
                Err(error) => Err(error),
            }
        };
        let error = listed(ClientContext::default()).await.unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
        assert_eq!(*upstream.state().borrow(), UpstreamState::Starting, "one client says nothing of the server");
        let translated = listed(client).await.unwrap();
        assert!(translated.result().is_some(), "{translated:?}");
        assert_eq!(*upstream.state().borrow(), UpstreamState::ready(Era::Legacy));
        let last = server.wait(|got| got.what() == "tools/list").await;
        assert_eq!(last.header("mcp-session-id"), Some("s"), "in a session, as legacy servers have it");
    }
}

fn key(value: &'static str) -> ClientContext {
    let header = (http::HeaderName::from_static("x-key"), http::HeaderValue::from_static(value));
    ClientContext::with_headers(http::HeaderMap::from_iter([header]))
}

#[tokio::test]
async fn what_the_probe_of_one_client_fails_with_says_nothing_of_the_server() {
    let page = || http::Response::builder().header("content-type", "text/html").body(Body::full("<p>pay</p>")).unwrap();
    let broken = || http::Response::builder().header("content-type", "application/json").body(Body::full("{")).unwrap();
    for code in [400, 402, 404, 422, 302, 200, 0] {
        let server = Server::start(move |got| match (got.header("x-key"), code) {
            (None, _) => status(401),
            (Some("good"), _) => discovered(got).unwrap_or_else(|| status(400)),
            (Some(_), 0) => broken(),
            (Some(_), 200) => page(),
            (Some(_), code) => status(code),
        })
        .await;
        let upstream = server.upstream();
        for _ in 0..2 {
            let refused = tokio::time::timeout(PATIENCE, upstream.identify(&key("bad"))).await.unwrap();
            assert!(refused.is_err(), "{code}");
            assert_eq!(*upstream.state().borrow(), UpstreamState::Starting, "{code}");
        }
        tokio::time::timeout(PATIENCE, upstream.identify(&key("good"))).await.unwrap().unwrap();
        assert_eq!(*upstream.state().borrow(), UpstreamState::ready(Era::Modern), "{code}");
    }
}

#[tokio::test]
async fn a_legacy_server_that_takes_initialize_of_a_client_is_known_for_all() {
    for by_stream in [false, true] {
        let streams: Mutex<Vec<skep_net::BodySender>> = Mutex::default();
        let server = Server::start(move |got| {
            let is_posted = got.uri.path() == "/messages";
            match got.what() {
                _ if got.header("x-key").is_none() => status(401),
                "GET" if by_stream => {
                    let (sender, body) = Body::channel(4);
                    sender.try_send("event: endpoint\ndata: /messages\n\n".into()).unwrap();
                    streams.lock().unwrap().push(sender);
                    events(body)
                }
                "initialize" if by_stream && is_posted => {
                    let response = result(&got.body, &json!({ "protocolVersion": "2024-11-05" }));
                    let written = format!("event: message\ndata: {response}\n\n");
                    streams.lock().unwrap().last().unwrap().try_send(written.into()).unwrap();
                    status(202)
                }
                _ if by_stream && is_posted => status(202),
                _ if by_stream => status(405),
                _ => handshake(got, "s").unwrap_or_else(|| status(400)),
            }
        })
        .await;
        let upstream = server.upstream();
        tokio::time::timeout(PATIENCE, upstream.identify(&key("k"))).await.unwrap().unwrap();
        assert_eq!(*upstream.state().borrow(), UpstreamState::ready(Era::Legacy), "by stream: {by_stream}");
    }
}

/// The proxy itself is told that it comes too often, and later that there is nothing for it.
#[tokio::test]
async fn what_a_client_found_out_is_not_overwritten_by_a_probe_without_a_client() {
    for is_probing in [false, true] {
        let (held, asked) = (Arc::new(Mutex::new(None)), Mutex::new(0));
        let kept = held.clone();
        let server = Server::start(move |got| {
            if got.header("x-key").is_some() {
                return discovered(got).unwrap_or_else(|| status(400));
            }
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            if *asked == 1 {
                return status(429);
            }
            let (sender, body) = Body::channel(1);
            *kept.lock().unwrap() = is_probing.then_some(sender);
            http::Response::builder().status(404).header("content-type", "application/json").body(body).unwrap()
        })
        .await;
        let upstream = server.upstream();
        let mut state = upstream.state();
        if is_probing {
            server.wait(|_| held.lock().unwrap().is_some()).await;
        }
        tokio::time::timeout(PATIENCE, upstream.identify(&key("k"))).await.unwrap().unwrap();
        assert_eq!(*state.borrow_and_update(), UpstreamState::ready(Era::Modern));
        held.lock().unwrap().take();
        let changed = tokio::time::timeout(std::time::Duration::from_millis(1500), state.changed()).await;
        assert!(changed.is_err(), "{:?}", state.borrow());
        let without = server.got().iter().filter(|got| got.header("x-key").is_none()).count();
        assert_eq!(without, if is_probing { 2 } else { 1 }, "it is probed no more");
    }
}

#[tokio::test]
async fn a_response_that_says_nothing_of_the_era_is_not_remembered() {
    for busy in [429, 408, 407] {
        let asked = Mutex::new(0);
        let server = Server::start(move |got| {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            if *asked == 1 { status(busy) } else { discovered(got).unwrap_or_else(|| status(400)) }
        })
        .await;
        let upstream = server.upstream();
        let mut state = upstream.state();
        let ready = tokio::time::timeout(PATIENCE, state.wait_for(|state| *state != UpstreamState::Starting));
        assert_eq!(*ready.await.unwrap().unwrap(), UpstreamState::ready(Era::Modern), "{busy}");
    }
}

#[tokio::test]
async fn a_session_that_was_restored_before_the_era_was_known_ends_everywhere() {
    let server =
        Server::start(|got| discovered(got).unwrap_or_else(|| respond(200, &result(&got.body, &json!({}))))).await;
    let bridge = BridgedUpstream::new(server.upstream());
    let session = SessionId::from("s");
    bridge.restore(&session, br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
    let request = message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    let call = Call { session: Some(session.clone()), ..Call::new(request, Era::Legacy) };
    let mut replies = bridge.clone().call(call).await.unwrap();
    replies.response.response().await.unwrap();
    bridge.clone().close(&session);
    let gone = async {
        while !bridge.idle_sessions(std::time::Duration::ZERO).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("nothing is left of it");
}

#[tokio::test]
async fn a_modern_request_repeats_in_headers_what_the_protocol_wants() {
    let server = Server::start(|got| {
        let region = json!({ "type": "string", "x-mcp-header": "Region" });
        let tools = json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object", "properties": { "region": region } } }] });
        discovered(got).unwrap_or_else(|| respond(200, &result(&got.body, &tools)))
    })
    .await;
    let upstream = server.upstream();
    for _ in 0..2 {
        let call = modern("tools/call", json!({ "name": "t", "arguments": { "region": "münchen" } }));
        respond_to(&upstream, call).await.unwrap();
    }
    assert_eq!(server.methods(), ["tools/list", "tools/call", "tools/call"], "the tools are listed once");
    let got = server.wait(|got| got.what() == "tools/call").await;
    for (name, value) in [
        ("mcp-method", Some("tools/call")),
        ("mcp-name", Some("t")),
        ("mcp-param-region", Some("=?base64?bcO8bmNoZW4=?=")),
        ("mcp-protocol-version", Some("2026-07-28")),
        ("mcp-session-id", None),
    ] {
        assert_eq!(got.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn dropping_a_modern_call_closes_its_stream_and_sends_nothing() {
    let streams: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let kept = streams.clone();
    let server = Server::start(move |_| {
        let (sender, body) = Body::channel(1);
        kept.lock().unwrap().push(sender);
        events(body)
    })
    .await;
    let upstream = server.upstream();
    let replies = upstream.clone().call(modern("resources/read", json!({ "uri": "a:b" }))).await.unwrap();
    server.wait(|got| got.what() == "resources/read").await;
    drop(replies);
    let stream = streams.lock().unwrap().pop().unwrap();
    tokio::time::timeout(PATIENCE, stream.closed()).await.expect("the connection is closed");
    assert_eq!(server.methods(), ["resources/read"]);
}

#[tokio::test]
async fn a_modern_stream_is_not_resumed() {
    let server = Server::start(|got| match got.method.as_str() {
        "GET" => status(500),
        _ => events(Body::full("id: e1\nretry: 1\ndata:\n\n")),
    })
    .await;
    let lost = respond_to(&server.upstream(), modern("prompts/list", json!({}))).await;
    assert_eq!(lost, Err(skep_upstream::CallError::Disconnected));
    assert_eq!(server.methods(), ["prompts/list"]);
}
