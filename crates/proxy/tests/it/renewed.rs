//! Sessions that a server forgot, while calls take their time and connections break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::client::{PATIENCE, initialize_request, request};
use crate::forward::{answer, result};
use crate::web::{Got, How, Web};

/// A server that is written by hand, because it does what no server should.
#[derive(Default)]
struct Server {
    made: AtomicUsize,
    /// Sessions with a lower number are forgotten.
    least: AtomicUsize,
    /// From which initialize_request on it does not answer one.
    mute: Option<usize>,
}

/// The next request of a connection: its head and its body.
async fn read(stream: &mut TcpStream) -> Result<String> {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse()? {
                return Ok(text);
            }
        }
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await?;
        anyhow::ensure!(count > 0, "closed");
        text.push_str(std::str::from_utf8(&buffer[..count])?);
    }
}

impl Server {
    /// Answers at an address, and tells of the calls that it took and left without an answer.
    async fn start(self: Arc<Self>, at: SocketAddr) -> Result<mpsc::UnboundedReceiver<String>> {
        let listener = TcpListener::bind(at).await?;
        let (tell, reply) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.clone().converse(stream, tell.clone()));
            }
        });
        Ok(reply)
    }

    async fn converse(self: Arc<Self>, mut stream: TcpStream, tell: mpsc::UnboundedSender<String>) -> Result<()> {
        loop {
            let request = read(&mut stream).await?;
            let session = request.lines().find_map(|line| line.strip_prefix("mcp-session-id: s-"));
            let (mut status, mut header) = ("200 OK", String::new());
            if request.contains("\"initialize\"") {
                let made = self.made.fetch_add(1, Ordering::SeqCst);
                if self.mute.is_some_and(|mute| made >= mute) {
                    tell.send("initialize".to_owned())?;
                    std::future::pending::<()>().await;
                }
                header = format!("mcp-session-id: s-{made}\r\n");
            } else if session.context("no session")?.parse::<usize>()? < self.least.load(Ordering::SeqCst) {
                status = "404 Not Found";
            } else if request.contains("breaks") {
                tell.send("breaks".to_owned())?;
                return Ok(());
            } else if request.contains("slow") {
                tell.send("slow".to_owned())?;
                std::future::pending::<()>().await;
            }
            let body = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{header}content-length: {length}");
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
        }
    }
}

async fn set(server: Server) -> Result<(Web, Arc<Server>, mpsc::UnboundedReceiver<String>)> {
    let web = Web::with(How { lives: false, ..How::default() }, |_| unreachable!("it does not run")).await?;
    let server = Arc::new(server);
    let reply = server.clone().start(web.server).await?;
    Ok((web, server, reply))
}

#[tokio::test]
async fn a_slow_call_after_a_new_handshake_keeps_no_other_session_waiting() -> Result<()> {
    let (web, server, mut reply) = set(Server::default()).await?;
    let (one, two) = (web.caller().initialized().await?, web.caller().initialized().await?);
    server.least.store(2, Ordering::SeqCst);
    let slow = one.clone();
    let slow = tokio::spawn(async move { slow.call(json!(1), "slow", json!({})).await });
    assert_eq!(tokio::time::timeout(PATIENCE, reply.recv()).await?.as_deref(), Some("slow"));
    for caller in [&two, &one] {
        assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    }
    assert!(!slow.is_finished());
    assert_eq!(server.made.load(Ordering::SeqCst), 4, "each session was opened again once");
    Ok(())
}

#[tokio::test]
async fn a_call_whose_connection_breaks_after_a_new_handshake_is_a_bad_gateway_and_is_not_sent_again() -> Result<()> {
    let (web, server, mut reply) = set(Server::default()).await?;
    let caller = web.caller().initialized().await?;
    server.least.store(1, Ordering::SeqCst);
    let answer = caller.ask(json!(1), "tools/call", json!({ "name": "breaks" })).await?;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(reply.recv().await.as_deref(), Some("breaks"));
    assert!(reply.try_recv().is_err(), "once");
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_new_handshake_is_not_waited_for_for_ever() -> Result<()> {
    let (web, server, mut reply) = set(Server { mute: Some(1), ..Server::default() }).await?;
    let caller = web.caller().initialized().await?;
    server.least.store(1, Ordering::SeqCst);
    // Without the patience of a client, which ends as well when time passes.
    let client = skep_net::Client::new(skep_net::client::Options::default());
    let ping = request(json!(1), "ping", json!({})).to_string();
    let ping = http::Request::post(format!("http://{}/mcp", web.address))
        .header("content-type", "application/json")
        .header("mcp-session-id", caller.session.as_deref().context("no session")?)
        .body(skep_net::Body::full(ping))?;
    let asked = tokio::spawn(async move { client.send(ping).await });
    assert_eq!(reply.recv().await.as_deref(), Some("initialize"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let answer = tokio::time::timeout(PATIENCE, asked).await???;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND, "what the server said first");
    Ok(())
}

/// What is kept counts against the client's share, and that is shared by all clients behind one ingress.
#[tokio::test]
async fn little_is_kept_of_a_session_however_long_its_handshake_is_and_it_can_be_renewed() -> Result<()> {
    let made = AtomicUsize::new(0);
    let web = Web::new(move |got: &Got| {
        let message: serde_json::Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let named = got.headers.get("mcp-session-id").and_then(|name| name.to_str().ok());
        if message["method"] == "initialize" {
            let name = format!("s-{}", made.fetch_add(1, Ordering::SeqCst));
            return answer(200, &[("mcp-session-id", &name)], result(got, json!({ "protocolVersion": "2025-06-18" })));
        }
        // It knows the second session only.
        match named {
            Some("s-0") => answer(404, &[], ""),
            _ => answer(200, &[], result(got, json!({}))),
        }
    })
    .await?;
    let mut params = initialize_request();
    params["_meta"] = json!({ "long": "x".repeat(50 * 1024) });
    let path = format!("/mcp/{}", "p".repeat(10 * 1024));
    let mut caller = web.caller();
    let opened = caller.whole(http::Method::POST, &path, request(json!(1), "initialize", params).to_string()).await?;
    assert_eq!(opened.status, StatusCode::OK);
    let kept = web.sessions.store().touch("s-0").await?.context("it is kept")?;
    let length: usize = kept.metadata.values().map(String::len).sum();
    assert!(length < 5 * 1024, "{length} bytes");
    caller.session = Some("s-0".to_owned());
    assert!(caller.ask(json!(2), "ping", json!({})).await?.message()?["result"].is_object());
    let initialized = web.got().into_iter().filter(|got| got.body.windows(12).any(|part| part == b"\"initialize\""));
    let again: serde_json::Value = serde_json::from_slice(&initialized.last().context("it was initialized")?.body)?;
    assert_eq!(again["params"], initialize_request(), "all that a server needs");
    Ok(())
}
