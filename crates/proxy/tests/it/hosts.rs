//! What a page in a browser can reach: a name that leads to loopback is not enough, and an origin that may call reads errors too.

use anyhow::Result;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use skep_proxy::Guards;
use skep_proxy::hosts::Hosts;

use crate::lines::{How, Stage};
use crate::raw::{Raw, client};
use crate::web::{How as WebHow, Web};

const EVERY_PATH: [(&str, &str); 9] = [
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/mcp"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages"),
    ("GET", "/.well-known/oauth-protected-resource"),
];

fn loopback(allowed: &[&str]) -> Guards {
    let allowed: Vec<String> = allowed.iter().map(|host| (*host).to_owned()).collect();
    Guards { hosts: Hosts::of(([127, 0, 0, 1], 1).into(), &allowed).unwrap(), ..Guards::default() }
}

async fn status(address: std::net::SocketAddr, method: &str, path: &str, hosts: &[&str]) -> Result<u16> {
    let mut raw = Raw::connect(client(1), address).await?;
    let lines =
        [format!("{method} {path} HTTP/1.1")].into_iter().chain(hosts.iter().map(|host| format!("Host: {host}")));
    let head: Vec<String> = lines.chain(["Content-Length: 0\r\n\r\n".to_owned()]).collect();
    raw.write(head.join("\r\n").as_bytes()).await?;
    Ok(raw.response().await?.status)
}

#[tokio::test]
async fn item_13_a_listener_on_loopback_answers_to_names_of_loopback_on_every_path() -> Result<()> {
    for sse in [false, true] {
        let stage = Stage::with(How { sse, guards: loopback(&["tools.test"]), ..How::default() }).await?;
        for (method, path) in EVERY_PATH {
            let at = |hosts: &'static [&'static str]| status(stage.address, method, path, hosts);
            assert_eq!(at(&["evil.test"]).await?, 403, "{method} {path}");
            assert_eq!(at(&["evil.test:80"]).await?, 403, "{method} {path}");
            assert_eq!(at(&[]).await?, 400, "{method} {path}");
            assert_eq!(at(&["localhost", "localhost"]).await?, 400, "{method} {path}");
            assert_eq!(at(&["localhost", "evil.test"]).await?, 400, "{method} {path}");
            for fine in [&["localhost"][..], &["127.0.0.1:1"], &["[::1]:9"], &["tools.test:1"]] {
                let found = status(stage.address, method, path, fine).await?;
                let is_sound = sse && path == "/messages" || found != 403;
                assert!(is_sound && (found != 400 || path != "/health"), "{method} {path} {fine:?} {found}");
            }
        }
        assert_eq!(status(stage.address, "GET", "/health", &["localhost:99"]).await?, 200);
    }
    Ok(())
}

#[tokio::test]
async fn item_13_a_server_that_speaks_http_is_not_reached_by_another_name() -> Result<()> {
    let fine = |_: &crate::web::Got| http::Response::new(skep_net::Body::full("{}"));
    let web = Web::with(WebHow { guards: loopback(&[]), ..WebHow::default() }, fine).await?;
    for (method, path) in EVERY_PATH.into_iter().chain([("GET", "/"), ("GET", "/anything")]) {
        assert_eq!(status(web.address, method, path, &["evil.test"]).await?, 403, "{method} {path}");
    }
    assert!(web.got().is_empty());
    assert_eq!(status(web.address, "GET", "/", &["localhost"]).await?, 200);
    // One that others reach answers to any name, as Services and ingresses have them, but to one at a time.
    let web = Web::new(fine).await?;
    assert_eq!(status(web.address, "GET", "/", &["mcp.example.com"]).await?, 200);
    assert_eq!(status(web.address, "GET", "/", &[]).await?, 400);
    assert_eq!(status(web.address, "GET", "/", &["a.test", "b.test"]).await?, 400);
    Ok(())
}

#[tokio::test]
async fn item_24_what_the_proxy_answers_itself_can_be_read_by_pages_of_an_allowed_origin() -> Result<()> {
    let page = "https://page.example";
    let mut how = How::default();
    how.config.allowed_origins = vec![page.to_owned()];
    let stage = Stage::with(how).await?;
    let from = |origin: &'static str| stage.caller().with("origin", origin);
    let readable = |answer: &crate::client::Answer| answer.headers.get("access-control-allow-origin").cloned();
    // Errors of all kinds, and the answers of the server, which are ours to frame.
    let long = "x".repeat(9 * 1024 * 1024);
    for (method, path, body, expected) in [
        (Method::POST, "/nowhere", "{}", StatusCode::NOT_FOUND),
        (Method::POST, "/mcp", "{", StatusCode::BAD_REQUEST),
        (Method::PUT, "/mcp", "{}", StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/mcp", long.as_str(), StatusCode::PAYLOAD_TOO_LARGE),
        (Method::GET, "/health", "", StatusCode::OK),
        (Method::POST, "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, StatusCode::OK),
    ] {
        let answer = from(page).whole(method.clone(), path, body.to_owned()).await?;
        assert_eq!(answer.status, expected, "{method} {path}");
        assert_eq!(readable(&answer), Some(HeaderValue::from_static(page)), "{method} {path}");
        assert_eq!(answer.headers["vary"], "Origin");
        assert!(answer.headers["access-control-expose-headers"].to_str()?.contains("Mcp-Session-Id"));
        let other = from("https://evil.example").whole(method.clone(), path, body.to_owned()).await?;
        assert_eq!(readable(&other), None, "{method} {path}");
    }
    // A browser asks first.
    let asking = from(page).with("access-control-request-method", "POST");
    let asking = asking.with("access-control-request-headers", "content-type,mcp-session-id");
    let answer = asking.whole(Method::OPTIONS, "/mcp", "").await?;
    assert_eq!((answer.status, readable(&answer)), (StatusCode::NO_CONTENT, Some(HeaderValue::from_static(page))));
    assert_eq!(answer.headers["access-control-allow-headers"], "content-type,mcp-session-id");
    assert!(answer.headers["access-control-allow-methods"].to_str()?.contains("DELETE"));
    let evil = from("https://evil.example").with("access-control-request-method", "POST");
    let answer = evil.whole(Method::OPTIONS, "/mcp", "").await?;
    assert!(answer.status == StatusCode::FORBIDDEN && readable(&answer).is_none(), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn item_24_errors_in_front_of_a_server_that_speaks_http_can_be_read_and_its_answers_are_its_own() -> Result<()> {
    let mut how = WebHow { lives: false, ..WebHow::default() };
    how.config.allowed_origins = vec!["https://page.example".to_owned()];
    let web = Web::with(how, |_| http::Response::new(skep_net::Body::empty())).await?;
    let caller = web.caller().with("origin", "https://page.example");
    let answer = caller.ask(json!(1), "ping", json!({})).await?;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(answer.headers["access-control-allow-origin"], "https://page.example");
    web.start(|_| http::Response::new(skep_net::Body::full("{}"))).await?;
    let answer = caller.ask(json!(1), "ping", json!({})).await?;
    assert!(answer.status == StatusCode::OK && !answer.headers.contains_key("access-control-allow-origin"));
    Ok(())
}
