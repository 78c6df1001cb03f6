//! Through an HTTP proxy, implemented here.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use skep_net::Client;
use skep_net::client::{Error, Options};
use skep_net::proxies::Proxies;
use skep_net::serve;
use skep_net::tls::Trust;
use skep_testkit::pki::Authority;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{GRACE, get, hello, start, text, until};
use crate::tls::{roots, secure};

/// A proxy that connects everything to one backend and keeps the heads that it was sent.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

async fn proxy(answer: &'static str, backend: SocketAddr) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy { address: listener.local_addr().unwrap(), heads: Arc::default() };
    let heads = Arc::clone(&proxy.heads);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = until(&mut stream, "\r\n\r\n").await;
            let mut backend = TcpStream::connect(backend).await.unwrap();
            if head.starts_with("CONNECT") {
                stream.write_all(answer.as_bytes()).await.unwrap();
            } else {
                backend.write_all(head.as_bytes()).await.unwrap();
            }
            heads.lock().unwrap().push(head);
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut backend).await });
        }
    });
    proxy
}

fn client(proxy: &Proxy, trust: Trust) -> Client {
    let address = format!("http://user:secret@{}", proxy.address);
    let variables = [("HTTP_PROXY".to_owned(), address.clone()), ("HTTPS_PROXY".to_owned(), address)].into();
    let proxies = Proxies::from_variables(&variables).unwrap();
    Client::new(Options { proxies, trust, ..Options::default() })
}

#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let authority = Authority::generate().unwrap();
    let server = secure(&authority, None).await;
    let proxy = proxy("HTTP/1.1 200 Connection established\r\n\r\n", server.address).await;
    let client = client(&proxy, Trust::Roots(roots(&authority)));
    for _ in 0..3 {
        let answer = client.send(get("https://mcp.test:8443/path?query")).await.unwrap();
        assert_eq!(text(answer).await, "HTTP/2.0");
    }
    let heads = proxy.heads.lock().unwrap();
    let expected = "CONNECT mcp.test:8443 HTTP/1.1\r\nHost: mcp.test:8443\r\n\
                    Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n";
    assert_eq!(*heads, [expected]);
}

#[tokio::test]
async fn plain_http_is_requested_from_the_proxy_itself() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    let proxy = proxy("", server.address).await;
    let answer = client(&proxy, Trust::System).send(get("http://mcp.test/path?query")).await.unwrap();
    assert_eq!(text(answer).await, "hello");
    let heads = proxy.heads.lock().unwrap();
    assert!(heads[0].starts_with("GET http://mcp.test/path?query HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("proxy-authorization: Basic dXNlcjpzZWNyZXQ=\r\n"), "{heads:?}");
    assert!(heads[0].contains("host: mcp.test\r\n"), "{heads:?}");
}

#[tokio::test]
async fn a_proxy_that_refuses_says_why() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    for (answer, said) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "it responded `407`"),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno access", "it responded `403`"),
        ("HTTP/1.1 200 OK\r\n\r\nsurprise", "it sent data after its response"),
        ("nonsense\r\n\r\n", "its response is not HTTP"),
        ("nonsense\r\n\r\n with a 200 behind it", "its response is not HTTP"),
    ] {
        let proxy = proxy(answer, server.address).await;
        let error = client(&proxy, Trust::System).send(get("https://mcp.test/path?query")).await.unwrap_err();
        assert!(matches!(error, Error::Proxy { .. }), "{error:?}");
        assert_eq!(error.to_string(), format!("the proxy does not connect to `mcp.test:443`: {said}"));
        assert!(error.never_reached());
        assert!(!format!("{error:?}").contains("secret"));
    }
}

#[tokio::test]
async fn loopback_is_never_reached_through_a_proxy() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    let proxy = proxy("", server.address).await;
    let answer = client(&proxy, Trust::System).send(get(&server.url("/"))).await.unwrap();
    assert_eq!(text(answer).await, "hello");
    assert!(proxy.heads.lock().unwrap().is_empty());
}
