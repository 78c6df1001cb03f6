//! Streamable HTTP with sessions.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use serde_json::{Value, json};
use skep_net::Body;
use skep_upstream::http::HttpOptions;
use skep_upstream::{Call, CallError, ClientContext, Replies, SessionId, Upstream, UpstreamState};

use crate::server::{
    PATIENCE, Server, call, events, handshake, initialize, message, open, request, respond, respond_to, result, status,
    text,
};

#[tokio::test]
async fn a_session_is_opened_named_in_every_request_and_closed() {
    let server = Server::start(|got| {
        handshake(got, "theirs").unwrap_or_else(|| respond(200, &result(&got.body, &json!({ "tools": [] }))))
    })
    .await;
    let upstream = server.upstream_with(HttpOptions {
        headers: HeaderMap::from_iter([("x-own".parse().unwrap(), "own".parse().unwrap())]),
        ..HttpOptions::default()
    });
    let session = open(&upstream).await;
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer t".parse().unwrap())]);
    let listed = respond_to(
        &upstream,
        Call { client: ClientContext::with_headers(headers), ..call(&session, &json!("a"), "tools/list") },
    )
    .await
    .unwrap();
    assert_eq!(listed, json!({ "jsonrpc": "2.0", "id": "a", "result": { "tools": [] } }));
    let notification = message(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    upstream.send(Some(&session), &notification).await.unwrap();
    upstream.clone().close(&session);
    let closed = server.wait(|got| got.method == "DELETE").await;
    assert_eq!((closed.header("mcp-session-id"), closed.header("authorization")), (Some("theirs"), Some("Bearer t")));
    let got = server.got();
    let all: Vec<_> =
        got.iter().map(|got| (got.what(), got.header("mcp-session-id"), got.header("mcp-protocol-version"))).collect();
    let named = (Some("theirs"), Some("2025-06-18"));
    assert_eq!(all[0], ("initialize", None, None));
    for (one, method) in
        all[1..].iter().zip(["notifications/initialized", "tools/list", "notifications/roots/list_changed", "DELETE"])
    {
        assert_eq!(*one, (method, named.0, named.1));
    }
    assert!(got.iter().all(|got| got.header("x-own") == Some("own")));
    assert_eq!(respond_to(&upstream, call(&session, &json!(1), "ping")).await, Err(CallError::NotSent));
}

#[tokio::test]
async fn what_comes_before_a_response_is_the_clients_and_the_response_of_another_request_is_not() {
    let server = Server::start(|got| {
        handshake(got, "s").unwrap_or_else(|| {
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 1 } });
            let foreign = json!({ "jsonrpc": "2.0", "id": 8, "result": "foreign" });
            let own = result(&got.body, &json!("own"));
            events(Body::full(format!(": hi\n\nid: 1\ndata:\n\ndata: {progress}\n\ndata: {foreign}\n\nevent: message\ndata: {own}\n\n")))
        })
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let call = Call { takes_interim: true, ..call(&session, &json!(7), "tools/call") };
    let Replies { interim, mut response } = upstream.clone().call(call).await.unwrap();
    let response = tokio::time::timeout(PATIENCE, response.response()).await.unwrap().unwrap();
    assert_eq!(text(response.body())["result"], "own");
    let mut interim = interim.unwrap();
    assert_eq!(text(&interim.recv().await.unwrap())["method"], "notifications/progress");
    assert!(interim.recv().await.is_none());
}

#[tokio::test]
async fn a_body_that_is_no_response_to_the_request_fails_the_call() {
    for (body, code, failed) in [
        (json!({ "jsonrpc": "2.0", "id": 8, "result": {} }).to_string(), 200, CallError::Malformed),
        ("<html>".to_owned(), 200, CallError::Malformed),
        (String::new(), 200, CallError::Disconnected),
        ("<html>".to_owned(), 401, CallError::Rejected(http::StatusCode::UNAUTHORIZED)),
        (String::new(), 500, CallError::Rejected(http::StatusCode::INTERNAL_SERVER_ERROR)),
        (" ".repeat(64 * 1024 * 1024 + 1), 200, CallError::TooLarge { limit: 64 * 1024 * 1024 }),
    ] {
        let server = Server::start(move |_| {
            let mut response = status(code);
            *response.body_mut() = Body::full(body.clone());
            response
        })
        .await;
        let call = Call::new(request(&json!(7), "tools/list"), skep_mcp::Era::Legacy);
        assert_eq!(respond_to(&server.upstream(), call).await, Err(failed));
    }
}

#[tokio::test]
async fn an_error_without_an_id_is_the_response_to_its_request() {
    let error = json!({ "code": -32600, "message": "no" });
    let body = json!({ "jsonrpc": "2.0", "error": error });
    let server = Server::start(move |_| respond(400, &body)).await;
    let call = Call::new(request(&json!("mine"), "tools/list"), skep_mcp::Era::Legacy);
    let refused = respond_to(&server.upstream(), call).await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]), (&json!("mine"), &error));
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_re_initialized_once() {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |got| {
        if got.what() == "initialize" {
            let number = opened.fetch_add(1, Ordering::SeqCst);
            return handshake(got, &format!("s{number}")).unwrap();
        }
        match got.header("mcp-session-id") {
            Some("s0") if got.what() == "tools/call" => status(404),
            _ => handshake(got, "").unwrap_or_else(|| respond(200, &result(&got.body, &json!({})))),
        }
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let (one, other) = tokio::join!(
        respond_to(&upstream, call(&session, &json!(1), "tools/call")),
        respond_to(&upstream, call(&session, &json!(2), "tools/call")),
    );
    assert_eq!((&one.unwrap()["id"], &other.unwrap()["id"]), (&json!(1), &json!(2)));
    let initialized: Vec<Value> =
        server.got().iter().filter(|got| got.what() == "initialize").map(|got| got.body.clone()).collect();
    assert_eq!(initialized.len(), 2, "once by the client, once again");
    assert_eq!(initialized[0], initialized[1]);
}

#[tokio::test]
async fn a_session_of_another_replica_is_opened_when_it_is_used() {
    let server =
        Server::start(|got| handshake(got, "s").unwrap_or_else(|| respond(200, &result(&got.body, &json!({}))))).await;
    let (upstream, session) = (server.upstream(), SessionId::from("restored"));
    upstream.restore(&session, initialize().body());
    assert!(server.got().is_empty());
    respond_to(&upstream, call(&session, &json!(1), "tools/list")).await.unwrap();
    assert_eq!(server.methods(), ["initialize", "notifications/initialized", "tools/list"]);
    assert_eq!(upstream.idle_sessions(std::time::Duration::ZERO), [session]);
    assert!(upstream.idle_sessions(PATIENCE).is_empty());
}

#[tokio::test]
async fn dropping_a_call_cancels_it_at_the_server() {
    let streams: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let kept = streams.clone();
    let server = Server::start(move |got| {
        let stream = || {
            let (sender, body) = Body::channel(1);
            kept.lock().unwrap().push(sender);
            events(body)
        };
        handshake(got, "s").unwrap_or_else(|| if got.what() == "tools/call" { stream() } else { status(202) })
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let replies = upstream.clone().call(call(&session, &json!("x"), "tools/call")).await.unwrap();
    server.wait(|got| got.what() == "tools/call").await;
    drop(replies);
    let cancelled = server.wait(|got| got.what() == "notifications/cancelled").await;
    assert_eq!((&cancelled.body["params"]["requestId"], cancelled.header("mcp-session-id")), (&json!("x"), Some("s")));
    let stream = streams.lock().unwrap().pop().unwrap();
    tokio::time::timeout(PATIENCE, stream.closed()).await.expect("the connection is closed");
}

#[tokio::test]
async fn a_request_that_its_client_cancels_ends_and_is_cancelled_at_the_server() {
    let streams: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let server = Server::start(move |got| {
        handshake(got, "s").unwrap_or_else(|| {
            let (sender, body) = Body::channel(1);
            streams.lock().unwrap().push(sender);
            if got.what() == "tools/call" { events(body) } else { status(202) }
        })
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let mut replies = upstream.clone().call(call(&session, &json!(5), "tools/call")).await.unwrap();
    let cancelled =
        message(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } }));
    upstream.send(Some(&session), &cancelled).await.unwrap();
    assert_eq!(replies.response.response().await.err(), Some(CallError::Cancelled));
    drop(replies);
    server.wait(|got| got.what() == "notifications/cancelled").await;
    let sent = server.methods().iter().filter(|method| *method == "notifications/cancelled").count();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn a_stream_that_breaks_is_resumed_after_its_last_event_and_half_an_event_is_none() {
    let server = Server::start(|got| {
        if got.header("last-event-id") == Some("e1") {
            let response = json!({ "jsonrpc": "2.0", "id": 1, "result": "whole" });
            return events(Body::full(format!("data: {response}\n\n")));
        }
        let half = result(&got.body, &json!("half"));
        let id = if got.body["id"] == 1 { "id: e1\nretry: 1\ndata:\n\n" } else { "" };
        handshake(got, "s").unwrap_or_else(|| events(Body::full(format!("{id}data: {half}\n"))))
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let resumed = respond_to(&upstream, call(&session, &json!(1), "tools/call")).await.unwrap();
    assert_eq!(resumed["result"], "whole");
    let lost = respond_to(&upstream, call(&session, &json!(2), "tools/call")).await;
    assert_eq!(lost, Err(CallError::Disconnected), "no event has an id");
}

#[tokio::test]
async fn a_redirect_to_the_same_host_is_followed_and_no_other() {
    let server = Server::start(|got| match got.uri.path() {
        "/mcp" => {
            let mut moved = status(307);
            let location = if got.body["id"] == 1 { "/moved" } else { "http://192.0.2.1/moved" };
            moved.headers_mut().insert("location", location.parse().unwrap());
            moved
        }
        _ => respond(200, &result(&got.body, &json!({}))),
    })
    .await;
    let ask = |id: u64| Call::new(request(&json!(id), "tools/list"), skep_mcp::Era::Legacy);
    assert_eq!(respond_to(&server.upstream(), ask(1)).await.unwrap()["id"], 1);
    let elsewhere = respond_to(&server.upstream(), ask(2)).await;
    assert_eq!(elsewhere, Err(CallError::Rejected(http::StatusCode::TEMPORARY_REDIRECT)));
}

#[tokio::test]
async fn a_listening_stream_is_resumed_and_requests_on_it_are_the_clients() {
    let kept: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let server = Server::start(move |got| {
        if got.method == "GET" && got.header("last-event-id").is_none() {
            let first = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": 1 } });
            return events(Body::full(format!("retry: 1\nid: e1\ndata: {first}\n\n")));
        }
        if got.method == "GET" {
            let asked = json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" });
            let (sender, body) = Body::channel(4);
            sender.try_send(format!("data: nonsense\n\ndata: {asked}\n\n").into()).unwrap();
            kept.lock().unwrap().push(sender);
            return events(body);
        }
        handshake(got, "s").unwrap_or_else(|| status(202))
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let mut listener = upstream.events(&session, skep_net::Budget::default());
    let next = async |listener: &mut tokio::sync::mpsc::Receiver<bytes::Bytes>| {
        text(&tokio::time::timeout(PATIENCE, listener.recv()).await.unwrap().unwrap())
    };
    assert_eq!(next(&mut listener).await["params"]["data"], 1);
    assert_eq!(next(&mut listener).await["id"], "q");
    let resumed = server.wait(|got| got.header("last-event-id") == Some("e1")).await;
    assert_eq!(resumed.header("mcp-session-id"), Some("s"));
    for (id, is_sent) in [("unasked", false), ("q", true), ("q", false)] {
        let before = server.got().len();
        upstream.send(Some(&session), &message(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }))).await.unwrap();
        assert_eq!(server.got().len() - before, usize::from(is_sent), "{id}");
    }
}

#[tokio::test]
async fn a_request_of_the_server_that_no_client_takes_is_refused() {
    let server = Server::start(|got| {
        let asked = json!({ "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage" });
        let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
        let own = result(&got.body, &json!({}));
        match got.what() {
            "tools/call" => events(Body::full(format!("data: {asked}\n\ndata: {ping}\n\ndata: {own}\n\n"))),
            _ => handshake(got, "s").unwrap_or_else(|| status(202)),
        }
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    respond_to(&upstream, call(&session, &json!(1), "tools/call")).await.unwrap();
    assert_eq!(server.wait(|got| got.body["id"] == "q").await.body["error"]["code"], -32601);
    assert_eq!(server.wait(|got| got.body["id"] == "p").await.body["result"], json!({}));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_probed_until_it_can() {
    let unknown = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = skep_upstream::http::Target::remote(&format!("http://{unknown}/mcp")).unwrap();
    let client = skep_net::Client::new(skep_net::client::Options::default());
    let upstream = skep_upstream::http::HttpUpstream::new(target, client, HttpOptions::default());
    let mut state = upstream.state();
    let failing = tokio::time::timeout(PATIENCE, state.wait_for(|state| matches!(state, UpstreamState::Failing(_))));
    assert_eq!(*failing.await.unwrap().unwrap(), UpstreamState::Failing("connection refused".into()));
    let call = Call::new(request(&json!(1), "tools/list"), skep_mcp::Era::Legacy);
    assert_eq!(respond_to(&upstream, call).await, Err(CallError::Unavailable("connection refused".into())));
    let _server = Server::start_at(unknown, |_| status(404)).await;
    let ready = tokio::time::timeout(PATIENCE, state.wait_for(|state| matches!(state, UpstreamState::Ready(_))));
    assert_eq!(*ready.await.unwrap().unwrap(), UpstreamState::ready(skep_mcp::Era::Legacy));
}

/// A pod that was replaced knows nothing of what its predecessor agreed to.
#[tokio::test]
async fn a_server_that_forgot_a_session_is_told_its_log_level_and_subscriptions_again() {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |got| {
        if got.what() == "initialize" {
            let number = opened.fetch_add(1, Ordering::SeqCst);
            return handshake(got, &format!("s{number}")).unwrap();
        }
        match got.header("mcp-session-id") {
            Some("s0") if got.what() == "tools/call" => status(404),
            _ => handshake(got, "").unwrap_or_else(|| match got.body["params"]["uri"].as_str() {
                Some("file:///refused") => respond(
                    200,
                    &json!({ "jsonrpc": "2.0", "id": got.body["id"], "error": { "code": -32002, "message": "" } }),
                ),
                _ => respond(200, &result(&got.body, &json!({}))),
            }),
        }
    })
    .await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    for (method, params) in [
        ("logging/setLevel", json!({ "level": "debug" })),
        ("resources/subscribe", json!({ "uri": "file:///kept" })),
        ("resources/subscribe", json!({ "uri": "file:///left" })),
        ("resources/unsubscribe", json!({ "uri": "file:///left" })),
        ("resources/subscribe", json!({ "uri": "file:///refused" })),
    ] {
        let request = message(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        respond_to(&upstream, Call { message: request, ..call(&session, &json!(1), method) }).await.unwrap();
    }
    respond_to(&upstream, call(&session, &json!(2), "tools/call")).await.unwrap();
    let is_new = |got: &crate::server::Got| got.header("mcp-session-id") == Some("s1");
    let level = server.wait(|got| is_new(got) && got.what() == "logging/setLevel").await;
    assert_eq!(level.body["params"]["level"], "debug");
    let subscribed = server.wait(|got| is_new(got) && got.what() == "resources/subscribe").await;
    assert_eq!(subscribed.body["params"]["uri"], "file:///kept");
    let all = server.got();
    assert_eq!(all.iter().filter(|got| is_new(got) && got.what().starts_with("resources/")).count(), 1);
}
