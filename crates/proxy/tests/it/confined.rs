//! Where calls may go and what they carry there, whatever their clients write: a server that speaks HTTP, its names, its pods and
//! its path.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use skep_mcp::Message;
use skep_net::{Body, Client};
use skep_proxy::caller::Identity;
use skep_proxy::downstream::{Forward, ForwardOptions};
use skep_proxy::exchange::{Content, Exchange, Head};
use skep_proxy::sessions::{Kind, Sessions, Store};
use skep_store::Memory;
use skep_upstream::http::{HttpOptions, HttpUpstream, Lookup, Pods, Target, Transport};

use crate::client::{PATIENCE, request};
use crate::forward::{answer, result};
use crate::web::{Got, How, Web, backend, drain};

#[tokio::test]
async fn a_client_cannot_remove_what_is_added_for_the_server() -> Result<()> {
    let mut how = How { remote: Some("/mcp"), ..How::default() };
    let added = r#"{"remote_url":"http://a","header_forward":{"add_plaintext_headers":{"authorization":"ours","x-tenant":"us"}}}"#;
    how.config = skep_runconfig::RunConfig::from_slice(added.as_bytes())?;
    let web = Web::with(how, |got| answer(200, &[], result(got, json!({})))).await?;
    let caller = web.caller().with("connection", "Authorization, x-tenant, X-Forwarded-For, x-private");
    let caller = caller.with("x-tenant", "me").with("x-private", "1");
    assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    let seen = &web.got()[0].headers;
    assert_eq!((&seen["authorization"], &seen["x-tenant"]), (&"ours".parse()?, &"us".parse()?));
    assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
    assert!(!seen.contains_key("x-private"));
    Ok(())
}

/// A server that guards itself against rebinding: it knows its own machine, and pages of that only.
fn guarded(got: &Got) -> Response<Body> {
    let host = got.headers["host"].to_str().unwrap();
    let is_strange = got.headers.get("origin").is_some_and(|origin| origin != "http://localhost");
    if is_strange || !host.starts_with("localhost:") {
        return answer(403, &[], format!("{host} refused"));
    }
    match got.uri.path() {
        "/mcp" => answer(307, &[("location", "/mcp/")], ""),
        "/fails" => answer(500, &[], "failed"),
        _ => answer(200, &[], result(got, json!({}))),
    }
}

#[tokio::test]
async fn an_origin_that_is_not_checked_here_is_checked_by_the_server() -> Result<()> {
    let web = Web::new(guarded).await?;
    let page = web.caller().with("origin", "http://evil.example");
    let ping = request(json!(1), "ping", json!({})).to_string();
    assert_eq!(page.post(ping.clone()).await?.status, StatusCode::FORBIDDEN);
    assert_eq!(web.got().len(), 1, "it is not asked again in another name");
    // Only a success tells which name is the right one, and a failure under another name is not the client's to see.
    let refused = web.caller().whole(Method::POST, "/fails", ping.clone()).await?;
    assert_eq!((refused.status, refused.text()), (StatusCode::FORBIDDEN, &*format!("{} refused", web.server)));
    assert_eq!(web.got().len(), 3);
    assert_eq!(web.caller().post(ping.clone()).await?.status, StatusCode::OK);
    assert_eq!(web.got().len(), 6, "refused, and sent on under the other name");
    // Once that is known, pages are still the server's to refuse.
    assert_eq!(page.post(ping.clone()).await?.status, StatusCode::FORBIDDEN);
    assert_eq!(web.got()[6].headers["origin"], "http://evil.example");

    let mut how = How::default();
    how.config.allowed_origins = vec!["http://ours.example".to_owned()];
    let web = Web::with(how, guarded).await?;
    let page = web.caller().with("origin", "http://ours.example");
    assert_eq!(page.post(ping.clone()).await?.status, StatusCode::OK, "it was checked here");
    assert!(!web.got().last().unwrap().headers.contains_key("origin"));
    assert_eq!(web.caller().with("origin", "http://evil.example").post(ping).await?.status, StatusCode::FORBIDDEN);
    Ok(())
}

#[tokio::test]
async fn redirects_are_followed_by_the_name_that_the_server_was_called_by_and_stay_with_its_pod() -> Result<()> {
    // As frameworks do it that want a slash at the end.
    let moves = |got: &Got| {
        let host = got.headers["host"].to_str().unwrap();
        match got.uri.path() {
            "/mcp" => answer(307, &[("location", &format!("http://{host}/mcp/"))], "moved"),
            _ => answer(200, &[], result(got, json!({ "host": host }))),
        }
    };
    let pods: [Arc<Mutex<Vec<Got>>>; 2] = Default::default();
    let mut addresses = Vec::new();
    for got in &pods {
        addresses.push(backend("127.0.0.1:0".parse()?, Arc::new(moves), got.clone()).await?);
    }
    let resolve = move || -> Lookup { Box::pin(std::future::ready(Ok(addresses.clone()))) };
    let web = Web::with(How { pods: Some(Pods::new(resolve)), ..How::default() }, moves).await?;
    for id in 0..4 {
        let followed = web.caller().ask(json!(id), "ping", json!({})).await?;
        assert_eq!(
            (followed.status, &followed.message()?["result"]["host"]),
            (StatusCode::OK, &json!(web.server.to_string()))
        );
    }
    for got in &pods {
        let paths: Vec<String> = got.lock().unwrap().iter().map(|got| got.uri.to_string()).collect();
        assert_eq!(paths, ["/mcp", "/mcp/", "/mcp", "/mcp/"]);
    }
    assert!(web.got().is_empty());

    // The same for one that knows only its own machine.
    let web = Web::new(move |got| {
        let is_known = got.headers["host"].to_str().unwrap().starts_with("localhost:");
        if is_known { moves(got) } else { answer(421, &[], "") }
    })
    .await?;
    for id in 0..2 {
        assert_eq!(web.caller().ask(json!(id), "ping", json!({})).await?.status, StatusCode::OK);
    }
    assert_eq!(web.got().len(), 5);
    Ok(())
}

/// A server that opens a stream for every GET and tells a URL on it.
fn telling(url: &'static str, stream: Arc<Mutex<Option<skep_net::BodySender>>>) -> impl Fn(&Got) -> Response<Body> {
    move |got| {
        if got.method != Method::GET {
            return answer(202, &[], "Accepted");
        }
        let (sender, body) = Body::channel(8);
        sender.try_send(format!("event: endpoint\ndata: {url}\n\n").into()).unwrap();
        *stream.lock().unwrap() = Some(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    }
}

#[tokio::test]
async fn no_client_leaves_the_path_of_a_remote_server_but_for_the_endpoint_of_its_own_stream() -> Result<()> {
    for sse in [false, true] {
        let how = How { remote: Some("/their/sse?key=1"), sse, ..How::default() };
        let stream: Arc<Mutex<Option<skep_net::BodySender>>> = Arc::default();
        let web = Web::with(how, telling("/messages/?sessionId=abc", stream.clone())).await?;
        let (caller, body) = (web.caller(), "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}");
        let went = async |method: Method, path: &str| -> Result<String> {
            caller.whole(method, path, body).await?;
            Ok(web.got().last().unwrap().uri.to_string())
        };
        let astray = [
            (Method::DELETE, "/admin/users/5?sessionId=x", "/their/sse?key=1&sessionId=x"),
            (Method::POST, "/admin/users?session_id=x", "/their/sse?key=1&session_id=x"),
            (Method::POST, "/admin/users?sessionId=abc", "/their/sse?key=1&sessionId=abc"),
            (Method::POST, "/messages/../admin?sessionId=abc", "/their/sse?key=1&sessionId=abc"),
            (Method::POST, "/messages/?sessionId=abcd", "/their/sse?key=1&sessionId=abcd"),
            (Method::DELETE, "/messages/?sessionId=abc", "/their/sse?key=1&sessionId=abc"),
        ];
        for (method, path, expected) in astray.clone() {
            assert_eq!(went(method, path).await?, expected);
        }
        let mut events = caller.events(Method::GET, "/sse", "").await?;
        assert_eq!(events.next().await?.unwrap().1, "/messages/?sessionId=abc");
        for (method, path, expected) in astray {
            assert_eq!(went(method, path).await?, expected);
        }
        let reply = if sse { "/messages/?key=1&sessionId=abc" } else { "/their/sse?key=1&sessionId=abc" };
        assert_eq!(went(Method::POST, "/messages/?sessionId=abc").await?, reply);
        // Nor does it lead there when the stream is gone.
        stream.lock().unwrap().take();
        skep_testkit::eventually("the path is forgotten", PATIENCE, || async {
            let uri = went(Method::POST, "/messages/?sessionId=abc").await?;
            let is_forgotten = uri == "/their/sse?key=1&sessionId=abc";
            Ok(if is_forgotten { skep_testkit::Seen::Yes(()) } else { skep_testkit::Seen::NotYet(uri) })
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn messages_for_the_stream_of_another_client_go_nowhere() -> Result<()> {
    let got: Arc<Mutex<Vec<Got>>> = Arc::default();
    let streams: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let kept = streams.clone();
    let answer = move |got: &Got| {
        if got.method != Method::GET {
            return Response::builder().status(202).body(Body::empty()).unwrap();
        }
        let (sender, body) = Body::channel(8);
        sender.try_send("event: endpoint\ndata: /messages?sessionId=abc\n\n".into()).unwrap();
        kept.lock().unwrap().push(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    };
    let server = backend("127.0.0.1:0".parse()?, Arc::new(answer), got.clone()).await?;
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Mcp);
    let client = Client::new(skep_net::client::Options::default());
    let http = HttpOptions { transport: Some(Transport::Sse), ..HttpOptions::default() };
    let upstream = HttpUpstream::new(Target::local(&format!("http://{server}"))?, client, http);
    let front = Forward::new(upstream, sessions, ForwardOptions::default(), drain());
    let ask = async |who: &str, method: Method, uri: &str| {
        let body: &[u8] = if method == Method::GET { b"" } else { br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"# };
        let content = match body {
            b"" => Content::Opaque(Bytes::new()),
            body => Content::Message(Message::parse(Bytes::from_static(body)).unwrap()),
        };
        let peer = skep_net::Peer { address: ([127, 0, 0, 1], 1).into(), tls: false };
        let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        let mut exchange = Exchange::new(Head::new(parts, peer), content);
        let identity = Identity { issuer: "i".into(), subject: who.into(), name: who.into() };
        exchange.head.caller = Some(identity.into());
        front.call(&mut exchange).await
    };
    let mut stream = ask("ann", Method::GET, "/sse").await.into_body();
    assert!(stream.frame().await.unwrap()?.into_data().unwrap().starts_with(b"event: endpoint"));
    for uri in ["/messages?sessionId=abc", "/messages?x=1&session%49d=abc", "/messages?sessionId=other&sessionId=abc"] {
        let refused = ask("bob", Method::POST, uri).await;
        assert_eq!(refused.status(), StatusCode::NOT_FOUND, "{uri}");
        let reply = refused.into_body().collect().await?.to_bytes();
        assert_eq!(reply, r#"{"error":{"code":-32001,"message":"Session not found"},"id":7,"jsonrpc":"2.0"}"#);
    }
    assert_eq!(got.lock().unwrap().len(), 1, "only the stream reached the server");
    for (who, uri) in [("ann", "/messages?sessionId=abc"), ("bob", "/messages?sessionId=of-another-proxy")] {
        assert_eq!(ask(who, Method::POST, uri).await.status(), StatusCode::ACCEPTED, "{who}");
    }
    // When the stream has ended, it belongs to no client, and the server says so itself.
    drop(stream);
    let passed = async {
        while ask("bob", Method::POST, "/messages?sessionId=abc").await.status() != StatusCode::ACCEPTED {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, passed).await?;
    Ok(())
}
