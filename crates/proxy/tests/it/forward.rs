//! A server that speaks HTTP itself, here or anywhere else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_proxy::downstream::ForwardOptions;
use skep_upstream::http::{Lookup, Pods};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{BOTH, PATIENCE, initialize_request, request};
use crate::web::{Got, How, Web, backend, backend_until, drain};

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<String>) -> Response<Body> {
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::full(body.into())).unwrap()
}

fn message(got: &Got) -> Value {
    serde_json::from_slice(&got.body).unwrap_or_default()
}

pub(crate) fn result(got: &Got, result: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": message(got)["id"], "result": result }).to_string()
}

/// A server with sessions, each of which it knows until a test makes it forget them.
fn with_sessions(forgets: Arc<AtomicUsize>) -> impl Fn(&Got) -> Response<Body> + Send + Sync {
    with_names("not-a-uuid", forgets)
}

/// The same, with other names for its sessions.
fn with_names(prefix: &'static str, forgets: Arc<AtomicUsize>) -> impl Fn(&Got) -> Response<Body> + Send + Sync {
    let known: Mutex<Vec<String>> = Mutex::default();
    let made = AtomicUsize::new(0);
    move |got| {
        let mut known = known.lock().unwrap();
        if forgets.load(Ordering::SeqCst) > 0 {
            forgets.fetch_sub(1, Ordering::SeqCst);
            known.clear();
        }
        if message(got)["method"] == "initialize" {
            let name = format!("{prefix}-{}", made.fetch_add(1, Ordering::SeqCst));
            known.push(name.clone());
            return answer(200, &[("mcp-session-id", &name)], result(got, json!({ "protocolVersion": "2025-06-18" })));
        }
        let named = got.headers.get("mcp-session-id").and_then(|name| name.to_str().ok());
        match named {
            Some(name) if !known.contains(&name.to_owned()) => answer(404, &[], ""),
            _ if got.method == Method::DELETE => answer(if got.uri.path() == "/stubborn" { 500 } else { 200 }, &[], ""),
            _ if message(got).get("id").is_none() => answer(202, &[], ""),
            _ => answer(200, &[("mcp-session-id", named.unwrap_or_default())], result(got, json!({ "by": named }))),
        }
    }
}

#[tokio::test]
async fn calls_pass_with_what_they_carry_and_without_what_belongs_to_the_connection() -> Result<()> {
    let web = Web::new(|got| {
        answer(200, &[("x-their", "1"), ("connection", "x-drop"), ("x-drop", "1")], result(got, json!({})))
    })
    .await?;
    let caller = web
        .caller()
        .with("x-mine", "1")
        .with("connection", "x-private")
        .with("x-private", "1")
        .with("x-forwarded-for", "6.6.6.6")
        .with("forwarded", "for=6.6.6.6")
        .with("x-forwarded-prefix", "/p")
        .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let body = "{\"jsonrpc\":\"2.0\", \"id\":12345678901234567890, \"method\":\"ping\"}";
    let got = caller.whole(Method::POST, "/mcp?a=%20b", body).await?;
    assert_eq!((got.status, got.headers["x-their"].to_str()?), (StatusCode::OK, "1"));
    assert!(got.headers.get("x-drop").is_none());
    let seen = &web.got()[0];
    assert_eq!(seen.body, body);
    assert_eq!(seen.uri, "/mcp?a=%20b");
    assert_eq!(seen.headers["host"], web.server.to_string());
    assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(seen.headers["x-forwarded-host"], web.address.to_string());
    assert_eq!(seen.headers["x-forwarded-proto"], "http");
    assert_eq!(seen.headers["x-forwarded-prefix"], "/p");
    assert!(seen.headers.contains_key("traceparent") && seen.headers.contains_key("x-mine"));
    assert!(!seen.headers.contains_key("x-private") && !seen.headers.contains_key("forwarded"));
    Ok(())
}

#[tokio::test]
async fn a_password_in_what_a_client_asks_for_stays_here() -> Result<()> {
    let web = Web::new(|got| answer(200, &[], result(got, json!({})))).await?;
    let body = request(json!(1), "ping", json!({})).to_string();
    let (address, length) = (web.address, body.len());
    let head = format!("POST http://user:word@{address}/mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).await?;
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut said)).await??;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(web.got()[0].headers["x-forwarded-host"], address.to_string());
    Ok(())
}

#[tokio::test]
async fn a_server_that_knows_only_its_own_machine_is_called_so() -> Result<()> {
    let web = Web::new(|got| {
        let host = got.headers["host"].to_str().unwrap().to_owned();
        if host.starts_with("localhost:") { answer(200, &[], result(got, json!({}))) } else { answer(421, &[], "") }
    })
    .await?;
    for _ in 0..2 {
        assert_eq!(web.caller().ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    }
    assert_eq!(web.got().len(), 3, "it is found out once");
    // Pages that it keeps to its own machine stay there.
    let web = Web::new(|got| {
        let is_local = got.headers["host"].to_str().unwrap().starts_with("localhost:");
        if is_local { answer(200, &[], "secrets") } else { answer(403, &[], "") }
    })
    .await?;
    for (method, body) in [(Method::GET, ""), (Method::POST, "{}"), (Method::DELETE, "")] {
        assert_eq!(web.caller().whole(method, "/admin", body).await?.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(web.got().len(), 3);
    // A refusal that has another reason stays one.
    let web = Web::new(|_| answer(403, &[], "no")).await?;
    let refused = web.caller().ask(json!(1), "ping", json!({})).await?;
    assert_eq!((refused.status, refused.text()), (StatusCode::FORBIDDEN, "no"));
    Ok(())
}

#[tokio::test]
async fn unknown_sessions_never_reach_the_server() -> Result<()> {
    let web = Web::new(with_sessions(Arc::default())).await?;
    let mut stranger = web.caller();
    stranger.session = Some("unknown".to_owned());
    for id in [json!("a"), json!(7)] {
        let refused = stranger.ask(id.clone(), "ping", json!({})).await?;
        assert_eq!((refused.status, refused.message()?["id"].clone()), (StatusCode::NOT_FOUND, id));
    }
    for (method, body) in
        [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}")]
    {
        let refused = stranger.whole(method, "/mcp", body).await?;
        assert_eq!(refused.text(), r#"{"error":{"code":-32001,"message":"Session not found"},"jsonrpc":"2.0"}"#);
    }
    let forged = stranger.clone().with("mcp-protocol-version", "2026-07-28");
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    assert_eq!(forged.ask(json!(1), "ping", json!({ "_meta": meta })).await?.status, StatusCode::NOT_FOUND);
    assert!(web.got().is_empty());
    // A handshake is one, whatever session it names; the name stays here.
    assert_eq!(stranger.ask(json!(1), "initialize", initialize_request()).await?.status, StatusCode::OK);
    assert!(!web.got()[0].headers.contains_key("mcp-session-id"));
    Ok(())
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_renewed_and_keeps_its_name() -> Result<()> {
    let forgets = Arc::new(AtomicUsize::new(0));
    let web = Web::new(with_sessions(forgets.clone())).await?;
    let caller = web.caller().initialized().await?;
    for round in 0..2 {
        forgets.store(1, Ordering::SeqCst);
        let answer = caller.ask(json!(round), "ping", json!({})).await?;
        assert_eq!(answer.status, StatusCode::OK);
        let at_server = format!("not-a-uuid-{}", round + 1);
        assert_eq!(answer.message()?, json!({ "jsonrpc": "2.0", "id": round, "result": { "by": at_server } }));
        assert_eq!(answer.headers["mcp-session-id"].to_str()?, caller.session.as_deref().unwrap(), "its own name");
    }
    let methods: Vec<String> =
        web.got().iter().map(|got| message(got)["method"].as_str().unwrap_or_default().to_owned()).collect();
    let renewed = ["ping", "initialize", "notifications/initialized", "ping"];
    assert_eq!(methods.get(2..6), Some(&renewed.map(str::to_owned)[..]));
    assert_eq!(methods.get(6..), Some(&renewed.map(str::to_owned)[..]));
    // Many calls at once renew it once.
    forgets.store(1, Ordering::SeqCst);
    let calls: Vec<_> = (0..10)
        .map(|id| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.ask(json!(id), "ping", json!({})).await.unwrap().status })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await?, StatusCode::OK);
    }
    let handshakes = web.got().iter().filter(|got| message(got)["method"] == "initialize").count();
    assert_eq!(handshakes, 4);
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_is_gone_if_the_server_says_so() -> Result<()> {
    let web = Web::new(with_sessions(Arc::default())).await?;
    let caller = web.caller().initialized().await?;
    assert_eq!(caller.whole(Method::DELETE, "/stubborn", "").await?.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK, "it is still there");
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::OK);
    assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn hostile_bodies_are_refused_here_and_broken_ones_are_the_servers_to_refuse() -> Result<()> {
    let web = Web::new(|got| {
        if serde_json::from_slice::<Value>(&got.body).is_err() {
            answer(400, &[], "not JSON")
        } else {
            answer(200, &[], "{}")
        }
    })
    .await?;
    let caller = web.caller();
    let modern = caller.clone().with("mcp-protocol-version", "2026-07-28");
    for (who, body, code) in [
        (&caller, "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600),
        (&caller, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"method\":\"tools/call\"}", -32600),
        (&caller, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"METHOD\":\"tools/call\"}", -32600),
        (&modern, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", -32602),
    ] {
        let answer = who.post(body).await?;
        assert_eq!(
            (answer.status, &answer.message()?["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(code)),
            "{body}"
        );
    }
    assert!(web.got().is_empty());
    let truncated = caller.post("{\"jsonrpc\":\"2.0\",\"id\":").await?;
    assert_eq!((truncated.status, truncated.text()), (StatusCode::BAD_REQUEST, "not JSON"));
    assert_eq!(caller.post(vec![b' '; 9 * 1024 * 1024]).await?.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(web.got().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_server_without_sessions_takes_posts_only() -> Result<()> {
    let options = ForwardOptions { stateless: true, ..ForwardOptions::default() };
    let web = Web::with(How { options, ..How::default() }, |_| answer(200, &[], "{}")).await?;
    for method in [Method::GET, Method::DELETE, Method::HEAD] {
        let refused = web.caller().whole(method, "/mcp", "").await?;
        assert_eq!(
            (refused.status, refused.headers["allow"].to_str()?),
            (StatusCode::METHOD_NOT_ALLOWED, "POST, OPTIONS")
        );
    }
    assert_eq!(web.caller().ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    let web = Web::new(|_| answer(200, &[], "{}")).await?;
    let modern = web.caller().with("mcp-protocol-version", "2026-07-28");
    assert_eq!(modern.whole(Method::GET, "/mcp", "").await?.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(web.caller().whole(Method::GET, "/mcp", "").await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_server_only() -> Result<()> {
    let web = Web::new(|got| match got.uri.path() {
        "/mcp" => answer(307, &[("location", "/real?x=1")], ""),
        "/loop" => answer(302, &[("location", "/loop")], ""),
        "/away" => answer(308, &[("location", "http://elsewhere.example/mcp")], "away"),
        _ => answer(200, &[], result(got, json!({ "method": got.method.as_str() }))),
    })
    .await?;
    let followed = web.caller().ask(json!(1), "ping", json!({})).await?;
    assert_eq!(followed.message()?["result"]["method"], "POST");
    assert_eq!(web.got()[1].uri, "/real?x=1");
    let away = web.caller().whole(Method::POST, "/away", "{}").await?;
    assert_eq!((away.status, away.text()), (StatusCode::PERMANENT_REDIRECT, "away"));
    assert_eq!(web.caller().whole(Method::POST, "/loop", "{}").await?.status, StatusCode::FOUND);
    Ok(())
}

#[tokio::test]
async fn a_remote_server_gets_its_own_path_and_query_and_not_our_name() -> Result<()> {
    let how = How { remote: Some("/their/mcp?key=1"), ..How::default() };
    let web = Web::with(how, |got| answer(200, &[], result(got, json!({})))).await?;
    web.caller().whole(Method::POST, "/mcp?mine=2", "{}").await?;
    let got = &web.got()[0];
    assert_eq!(got.uri, "/their/mcp?key=1&mine=2");
    assert!(!got.headers.contains_key("x-forwarded-host"));
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_bad_gateway_and_its_sessions_outlive_it() -> Result<()> {
    let how = How { lives: false, ..How::default() };
    let web = Web::with(how, with_sessions(Arc::default())).await?;
    assert_eq!(web.caller().ask(json!(1), "initialize", initialize_request()).await?.status, StatusCode::BAD_GATEWAY);
    assert_eq!(web.caller().ask(json!(1), "ping", json!({})).await?.status, StatusCode::BAD_GATEWAY);
    web.start(with_sessions(Arc::default())).await?;
    let caller = web.caller().initialized().await?;
    assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn lists_are_filtered_in_json_and_in_streams_and_calls_by_name() -> Result<()> {
    let mut how = How::default();
    how.config.tools_filter = vec!["seen".to_owned()];
    let web = Web::with(how, |got| {
        let list = result(got, json!({ "tools": [{ "name": "seen" }, { "name": "hidden" }], "nextCursor": "n" }));
        if message(got)["method"] != "tools/list" {
            return answer(200, &[], result(got, json!({})));
        }
        if got.headers["accept"] == BOTH {
            let mut response = answer(200, &[], format!(": hello\n\nid: 4\nevent: message\ndata: {list}\n\n"));
            response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
            return response;
        }
        answer(200, &[], list)
    })
    .await?;
    for accept in ["application/json", BOTH] {
        let list = web.caller().taking(accept).ask(json!(1), "tools/list", json!({})).await?;
        let list = list.message()?;
        assert_eq!(list["result"], json!({ "tools": [{ "name": "seen" }], "nextCursor": "n" }), "{accept}");
    }
    let refused = web.caller().call(json!(2), "hidden", json!({})).await?;
    assert_eq!(refused["error"]["message"], "tool not found");
    assert!(web.got().iter().all(|got| message(got)["method"] != "tools/call"));
    Ok(())
}

#[tokio::test]
async fn sse_streams_name_paths_that_the_client_can_use_and_are_filtered() -> Result<()> {
    let options = ForwardOptions { endpoint_prefix: "/tools/".to_owned(), ..ForwardOptions::default() };
    let mut how = How { options, sse: true, ..How::default() };
    how.config.tools_filter = vec!["seen".to_owned()];
    let stream: Arc<Mutex<Option<skep_net::BodySender>>> = Arc::default();
    let kept = stream.clone();
    let web = Web::with(how, move |got| {
        if got.method != Method::GET {
            return answer(202, &[], "Accepted");
        }
        let (sender, body) = Body::channel(8);
        sender.try_send("event: endpoint\ndata: /messages?session_id=abc\n\n".into()).unwrap();
        *kept.lock().unwrap() = Some(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    })
    .await?;
    let caller = web.caller();
    let mut events = caller.events(Method::GET, "/sse", "").await?;
    assert_eq!(events.next().await?, Some(("endpoint".to_owned(), "/tools/messages?session_id=abc".to_owned())));
    let list = request(json!(5), "tools/list", json!({})).to_string();
    assert_eq!(caller.whole(Method::POST, "/messages?session_id=abc", list).await?.status, StatusCode::ACCEPTED);
    let said = json!({ "jsonrpc": "2.0", "id": 5, "result": { "tools": [{ "name": "seen" }, { "name": "hidden" }] } });
    let sender = stream.lock().unwrap().take().unwrap();
    sender.send(format!("data: {said}\n\n").into()).await?;
    assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen" }]));
    // Anything else passes as it is.
    sender.send("event: other\r\nid: 9\r\ndata: {\"a\" : 1}\r\n\r\n".into()).await?;
    assert_eq!(events.next().await?, Some(("other".to_owned(), "{\"a\" : 1}".to_owned())));
    Ok(())
}

#[tokio::test]
async fn sessions_stay_with_their_pod_and_other_calls_take_turns() -> Result<()> {
    let new = || Arc::new(AtomicUsize::new(0));
    let first: Arc<Mutex<Vec<Got>>> = Arc::default();
    let second: Arc<Mutex<Vec<Got>>> = Arc::default();
    let mut pods = Vec::new();
    for (name, got) in [("first", &first), ("second", &second)] {
        pods.push(backend("127.0.0.1:0".parse()?, Arc::new(with_names(name, new())), got.clone()).await?);
    }
    let there = Arc::new(Mutex::new(pods.clone()));
    let known = there.clone();
    let resolve = move || -> Lookup { Box::pin(std::future::ready(Ok(known.lock().unwrap().clone()))) };
    let how = How { pods: Some(Pods::new(resolve)), ..How::default() };
    let web = Web::with(how, with_sessions(new())).await?;

    let one = web.caller().initialized().await?;
    let other = web.caller().initialized().await?;
    for caller in [&one, &other] {
        for id in 0..3 {
            assert_eq!(caller.ask(json!(id), "ping", json!({})).await?.status, StatusCode::OK);
        }
    }
    let (mine, theirs) = (std::mem::take(&mut *first.lock().unwrap()), std::mem::take(&mut *second.lock().unwrap()));
    for got in [&mine, &theirs] {
        let methods: Vec<Value> = got.iter().map(|got| message(got)["method"].clone()).collect();
        assert_eq!(methods, ["initialize", "notifications/initialized", "ping", "ping", "ping"]);
        let name = web.server.to_string();
        assert!(
            got.iter().all(|got| got.headers["host"] == name.as_str()),
            "the name of the server is that of its Service"
        );
    }
    // Without a session, each in turn.
    for id in 0..4 {
        web.caller().ask(json!(id), "ping", json!({})).await?;
    }
    assert_eq!((first.lock().unwrap().len(), second.lock().unwrap().len()), (2, 2));
    assert!(web.got().is_empty(), "nothing goes by the Service while there is a choice");

    // A pod that is gone: its session is opened again elsewhere, under the same name, and the other one is left alone.
    *there.lock().unwrap() = pods.split_off(1);
    let (gone, stays) = (first.lock().unwrap().len(), other);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while web.got().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the lost session does not move");
        assert_eq!(one.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
        assert_eq!(stays.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    }
    let moved: Vec<Value> = web.got().iter().map(|got| message(got)["method"].clone()).collect();
    assert_eq!(moved, ["initialize", "notifications/initialized", "ping"], "one pod is left: the Service is as good");
    assert!(first.lock().unwrap().len() >= gone);
    assert!(second.lock().unwrap().iter().all(|got| message(got)["method"] != "initialize"));
    Ok(())
}

#[tokio::test]
async fn a_pod_that_does_not_answer_costs_no_client_a_call() -> Result<()> {
    let dead = || std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let pods = vec![dead()?, dead()?];
    let resolve = move || -> Lookup { Box::pin(std::future::ready(Ok(pods.clone()))) };
    let how = How { pods: Some(Pods::new(resolve)), ..How::default() };
    let web = Web::with(how, with_sessions(Arc::new(AtomicUsize::new(0)))).await?;
    assert_eq!(web.caller().ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    let caller = web.caller().initialized().await?;
    assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    assert_eq!(web.got().len(), 4, "all of it by the Service");
    Ok(())
}

#[tokio::test]
async fn a_session_whose_pod_died_moves_though_the_name_service_has_not_heard_of_it() -> Result<()> {
    let mut pods = Vec::new();
    for name in ["first", "second"] {
        let (stop, answer) = (drain(), Arc::new(with_names(name, Arc::default())));
        pods.push((backend_until(stop.clone(), "127.0.0.1:0".parse()?, answer, Arc::default()).await?, stop));
    }
    // Turns are taken in this order, so the next one is that of the pod that died.
    pods.sort_by_key(|(address, _)| *address);
    let known: Vec<std::net::SocketAddr> = pods.iter().map(|(address, _)| *address).collect();
    let resolve = move || -> Lookup { Box::pin(std::future::ready(Ok(known.clone()))) };
    let how = How { pods: Some(Pods::new(resolve)), ..How::default() };
    let web = Web::with(how, with_sessions(Arc::default())).await?;
    let callers = [web.caller().initialized().await?, web.caller().initialized().await?];
    let (dead, stop) = &pods[0];
    stop.start();
    skep_testkit::eventually("the pod is gone", PATIENCE, || async {
        Ok(match TcpStream::connect(dead).await {
            Ok(_) => skep_testkit::Seen::NotYet("it is there".to_owned()),
            Err(_) => skep_testkit::Seen::Yes(()),
        })
    })
    .await?;
    for caller in &callers {
        let answer = caller.ask(json!(1), "ping", json!({})).await?;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["mcp-session-id"].to_str()?, caller.session.as_deref().unwrap());
    }
    Ok(())
}
