//! HTTP+SSE: responses come on one stream, beside the requests.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use skep_net::{Body, BodySender};
use skep_upstream::http::{HttpOptions, Transport};
use skep_upstream::{Call, CallError, Replies, SessionId, Upstream};

use crate::server::{Got, PATIENCE, Server, call, events, initialize, message, open, respond_to, result, status, text};

/// A server whose streams name an endpoint, and where it writes to them.
async fn server(endpoint: &'static str) -> (Server, Arc<Mutex<Vec<BodySender>>>) {
    server_that(endpoint, false).await
}

/// The same, of a server that may ping a client while it is initialized.
async fn server_that(endpoint: &'static str, pings: bool) -> (Server, Arc<Mutex<Vec<BodySender>>>) {
    let streams: Arc<Mutex<Vec<BodySender>>> = Arc::default();
    let kept = streams.clone();
    let server = Server::start(move |got: &Got| {
        if got.method == "GET" {
            let (sender, body) = Body::channel(16);
            sender.try_send(format!("event: endpoint\ndata: {endpoint}\n\n").into()).unwrap();
            kept.lock().unwrap().push(sender);
            return events(body);
        }
        if got.uri.path() != "/messages" {
            return status(405);
        }
        let write = |message: &Value| {
            let streams = kept.lock().unwrap();
            let _gone = streams.last().unwrap().try_send(format!("event: message\ndata: {message}\n\n").into());
        };
        match got.what() {
            "initialize" => {
                if pings {
                    write(&json!({ "jsonrpc": "2.0", "id": "before", "method": "ping" }));
                }
                write(&result(&got.body, &json!({ "protocolVersion": "2024-11-05" })));
            }
            "notifications/initialized" if pings => write(&json!({ "jsonrpc": "2.0", "id": "after", "method": "ping" })),
            "tools/call" => {
                let token = &got.body["params"]["_meta"]["progressToken"];
                write(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token } }));
                write(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} }));
                write(&result(&got.body, &json!("done")));
            }
            "tools/list" => write(&result(&got.body, &json!({ "tools": [] }))),
            "hang" => kept.lock().unwrap().clear(),
            _ => {}
        }
        status(202)
    })
    .await;
    (server, streams)
}

#[tokio::test]
async fn a_server_that_takes_no_post_is_spoken_to_by_its_stream() {
    let (server, _streams) = server("/messages?sessionId=1").await;
    let upstream = server.upstream();
    let session = open(&upstream).await;
    let mut listener = upstream.events(&session, skep_net::Budget::default());
    let params = json!({ "_meta": { "progressToken": "t" } });
    let request = message(&json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params }));
    let call =
        Call { session: Some(session.clone()), takes_interim: true, ..Call::new(request, skep_mcp::Era::Legacy) };
    let Replies { interim, mut response } = upstream.clone().call(call).await.unwrap();
    let response = tokio::time::timeout(PATIENCE, response.response()).await.unwrap().unwrap();
    assert_eq!(text(response.body()), json!({ "jsonrpc": "2.0", "id": 4, "result": "done" }));
    assert_eq!(text(&interim.unwrap().recv().await.unwrap())["method"], "notifications/progress");
    assert_eq!(text(&listener.recv().await.unwrap())["method"], "notifications/message");
    assert!(server.got().iter().skip(2).all(|got| got.uri == "/messages?sessionId=1"));
    assert_eq!(server.methods(), ["initialize", "GET", "initialize", "notifications/initialized", "tools/call"]);
}

#[tokio::test]
async fn a_stream_that_broke_fails_its_calls_and_the_next_one_opens_it_again() {
    let (server, _streams) = server("messages").await;
    let options = HttpOptions { transport: Some(Transport::Sse), ..HttpOptions::default() };
    let upstream = server.upstream_with(options);
    let session = open(&upstream).await;
    assert_eq!(respond_to(&upstream, call(&session, &json!(1), "hang")).await, Err(CallError::Disconnected));
    let listed = respond_to(&upstream, call(&session, &json!(2), "tools/list")).await.unwrap();
    assert_eq!(listed["result"], json!({ "tools": [] }));
    assert_eq!(server.methods().iter().filter(|method| *method == "GET").count(), 2);
}

#[tokio::test]
async fn an_endpoint_on_another_host_is_refused() {
    let (server, _streams) = server("http://192.0.2.1/messages").await;
    let upstream = server.upstream_with(HttpOptions { transport: Some(Transport::Sse), ..HttpOptions::default() });
    let opened = upstream.open(&SessionId::from("s"), &initialize(), &skep_upstream::ClientContext::default()).await;
    assert_eq!(opened, Err(CallError::Malformed));
}

/// A ping that comes before the session is open is answered on its own stream, and opens no other session.
#[tokio::test]
async fn a_server_that_pings_while_it_is_initialized_is_answered_at_once() {
    let (server, _streams) = server_that("/messages?sessionId=1", true).await;
    let upstream = server.upstream_with(HttpOptions { transport: Some(Transport::Sse), ..HttpOptions::default() });
    let session = tokio::time::timeout(PATIENCE, open(&upstream)).await.unwrap();
    // The stream breaks, and the next call opens the session again.
    assert_eq!(respond_to(&upstream, call(&session, &json!(1), "hang")).await, Err(CallError::Disconnected));
    let listed = tokio::time::timeout(PATIENCE, respond_to(&upstream, call(&session, &json!(2), "tools/list"))).await;
    assert_eq!(listed.unwrap().unwrap()["result"], json!({ "tools": [] }));
    assert_eq!(server.methods().iter().filter(|method| *method == "GET").count(), 2, "{:?}", server.methods());
    let pongs = || server.got().iter().filter(|got| got.body["result"] == json!({})).count();
    tokio::time::timeout(PATIENCE, async {
        while pongs() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}
