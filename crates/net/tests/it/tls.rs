use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use skep_net::client::{self, Error};
use skep_net::serve::Options;
use skep_net::tls::{Identity, Roots, Trust, server};
use skep_net::{Body, Client};
use skep_testkit::pki::Authority;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::support::{GRACE, Server, get, hello, raw, rest, start, text};

pub(crate) fn identity(authority: &Authority, name: &str, names: &[&str]) -> Identity {
    let issued = authority.issue(name, None, names).unwrap();
    Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

pub(crate) fn roots(authority: &Authority) -> Roots {
    Roots::from_pem(authority.certificate().as_bytes()).unwrap()
}

/// Responds with the HTTP version of the request.
pub(crate) async fn secure(authority: &Authority, clients: Option<Roots>) -> Server {
    let tls = server(identity(authority, "server", &["localhost", "127.0.0.1", "mcp.test"]), clients).unwrap();
    start(Options { tls: Some(tls), ..Options::default() }, GRACE, |request, peer| async move {
        assert!(peer.tls);
        Response::new(Body::full(format!("{:?}", request.version())))
    })
    .await
}

fn client(trust: Trust, identity: Option<Identity>, http2: bool) -> Client {
    Client::new(client::Options { trust, identity, http2, ..client::Options::default() })
}

fn url(server: &Server, host: &str) -> String {
    format!("https://{host}:{}/", server.address.port())
}

#[tokio::test]
async fn both_versions_are_spoken_over_tls() {
    let authority = Authority::generate().unwrap();
    let server = secure(&authority, None).await;
    for (http2, version) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let client = client(Trust::Roots(roots(&authority)), None, http2);
        for host in ["localhost", "127.0.0.1", "localhost"] {
            let answer = client.send(get(&url(&server, host))).await.unwrap();
            assert_eq!(answer.version(), version);
            assert_eq!(text(answer).await, format!("{version:?}"));
        }
    }
}

#[tokio::test]
async fn only_a_trusted_server_of_that_name_is_accepted() {
    let (authority, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let tls = server(identity(&authority, "server", &["mcp.test"]), None).unwrap();
    let misnamed = start(Options { tls: Some(tls), ..Options::default() }, GRACE, hello).await;
    let server = secure(&authority, None).await;
    let refused = [
        (Trust::Roots(roots(&other)), &server),
        (Trust::System, &server),
        (Trust::Roots(roots(&authority)), &misnamed),
    ];
    for (trust, server) in refused {
        let error = client(trust.clone(), None, true).send(get(&url(server, "localhost"))).await.unwrap_err();
        // A machine may have no roots at all, which trusts no server either.
        assert_eq!(error.category(), "tls", "{trust:?}: {error:?}");
        assert!(error.never_reached());
    }
    for server in [&server, &misnamed] {
        let answer = client(Trust::DangerouslyAnyone, None, true).send(get(&url(server, "localhost"))).await;
        assert_eq!(answer.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn each_side_presents_its_certificate() {
    let (authority, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let server = secure(&authority, Some(roots(&authority))).await;
    let trust = || Trust::Roots(roots(&authority));
    for http2 in [true, false] {
        let known = client(trust(), Some(identity(&authority, "me", &[])), http2);
        assert_eq!(known.send(get(&url(&server, "localhost"))).await.unwrap().status(), 200);
        for stranger in [None, Some(identity(&other, "me", &[]))] {
            // In TLS 1.3 the client is done before the server has verified its certificate, so it learns late.
            let error = client(trust(), stranger, http2).send(get(&url(&server, "localhost"))).await.unwrap_err();
            assert!(matches!(error, Error::Tls { .. } | Error::Send { .. }), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_cut() {
    let authority = Authority::generate().unwrap();
    let server = secure(&authority, None).await;
    let mut stream = raw(server.address, "\x16\x03\x01").await;
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_completes_the_handshake_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = client(Trust::DangerouslyAnyone, None, true);
    let error = client.send(get(&format!("https://127.0.0.1:{port}/"))).await.unwrap_err();
    assert_eq!(error.to_string(), "the TLS handshake took too long");
    assert!(error.never_reached());
}

/// Speaks HTTP/2 on its first connection and HTTP/1.1 on all others, and responds with the requested host. It takes one
/// request at a time on the first connection and breaks it when `/break` is requested, as a backend does that is
/// replaced.
async fn changing(authority: &Authority) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let speaking = |protocol: &[u8]| {
        let mut config = (*server(identity(authority, "server", &["localhost"]), None).unwrap()).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    };
    let (newer, older) = (speaking(b"h2"), speaking(b"http/1.1"));
    tokio::spawn(async move {
        let broken = Arc::new(Notify::new());
        let answer = service_fn(|request: Request<Incoming>| {
            let broken = Arc::clone(&broken);
            async move {
                if request.uri().path() == "/break" && request.version() == Version::HTTP_2 {
                    broken.notify_one();
                    std::future::pending::<()>().await;
                }
                let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
                Ok::<_, Infallible>(Response::new(Body::full(host.unwrap_or_default())))
            }
        });
        let (stream, _) = listener.accept().await.unwrap();
        let io = TokioIo::new(newer.accept(stream).await.unwrap());
        let one_by_one = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(1)
            .serve_connection(io, answer);
        tokio::select! {
            ended = one_by_one => panic!("{ended:?}"),
            () = broken.notified() => {}
        }
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let io = TokioIo::new(older.accept(stream).await.unwrap());
            http1::Builder::new().keep_alive(false).serve_connection(io, answer).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_request_that_is_retried_on_another_connection_keeps_its_host() {
    let authority = Authority::generate().unwrap();
    let port = changing(&authority).await.port();
    let client = client(Trust::Roots(roots(&authority)), None, true);
    let url = |path: &str| format!("https://localhost:{port}{path}");
    assert_eq!(client.send(get(&url("/"))).await.unwrap().version(), Version::HTTP_2);

    // Two are in flight when the connection breaks, so their outcome is unknown. The others were not sent.
    let requests = ["/break", "/", "/", "/own", "/own"].map(|path| {
        let mut request = get(&url(path));
        if path == "/own" {
            request.headers_mut().insert("host", "other.test".parse().unwrap());
        }
        client.send(request)
    });
    let mut hosts = Vec::new();
    for answer in join_all(requests).await.into_iter().flatten() {
        assert_eq!(answer.version(), Version::HTTP_11);
        hosts.push(String::from_utf8(text(answer).await.to_vec()).unwrap());
    }
    assert_eq!(hosts, [format!("localhost:{port}"), "other.test".to_owned(), "other.test".to_owned()]);
}
