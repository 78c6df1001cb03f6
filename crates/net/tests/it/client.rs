use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use skep_net::client::{Error, Options, Schemes, Step};
use skep_net::serve;
use skep_net::{Addresses, Body, Client};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};

use crate::support::{GRACE, Server, get, hello, start, text, until};

fn client() -> Client {
    Client::new(Options::default())
}

/// The ports that requests came from: one for each connection.
#[derive(Clone, Default)]
struct Ports(Arc<Mutex<BTreeSet<u16>>>);

impl Ports {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Responds when as many requests have arrived as the barrier wants.
async fn counting(ports: Ports, at_once: usize) -> Server {
    let barrier = Arc::new(Barrier::new(at_once));
    start(serve::Options::default(), GRACE, move |request, peer| {
        ports.0.lock().unwrap().insert(peer.address.port());
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            match request.uri().path() {
                "/empty" => Response::new(Body::empty()),
                "/stream" => {
                    let (sender, body) = Body::channel(4);
                    tokio::spawn(async move {
                        for _ in 0..3 {
                            sender.send(Bytes::from_static(b"part")).await.unwrap();
                        }
                    });
                    Response::new(body)
                }
                _ => hello(request, peer).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let ports = Ports::default();
    let server = counting(ports.clone(), 1).await;
    let client = client();
    for _ in 0..30 {
        for (path, expected) in [("/", "hello"), ("/empty", ""), ("/stream", "partpartpart")] {
            let answer = client.send(get(&server.url(path))).await.unwrap();
            assert_eq!(text(answer).await, expected);
        }
    }
    assert_eq!(ports.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_kept_up_to_the_limit() {
    let ports = Ports::default();
    let server = counting(ports.clone(), 10).await;
    let client = Client::new(Options { idle_per_host: 4, ..Options::default() });
    let round = || async {
        join_all((0..10).map(|_| async { text(client.send(get(&server.url("/"))).await.unwrap()).await })).await
    };
    round().await;
    assert_eq!(ports.count(), 10);
    round().await;
    assert_eq!(ports.count(), 16, "four were kept");
}

#[tokio::test(start_paused = true)]
async fn unused_connections_are_closed() {
    let ports = Ports::default();
    let server = counting(ports.clone(), 1).await;
    let client = Client::new(Options { idle_timeout: Duration::from_secs(20), ..Options::default() });
    text(client.send(get(&server.url("/"))).await.unwrap()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    text(client.send(get(&server.url("/"))).await.unwrap()).await;
    assert_eq!(ports.count(), 2);
}

#[tokio::test]
async fn the_connection_of_a_half_read_response_is_not_reused() {
    let ports = Ports::default();
    let server = counting(ports.clone(), 1).await;
    let client = client();
    drop(client.send(get(&server.url("/stream"))).await.unwrap());
    assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "hello");
    assert_eq!(ports.count(), 2);
}

#[tokio::test]
async fn a_connection_that_the_backend_closed_is_not_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // It claims to keep the connection and closes it, as servers do that were idle for long.
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            until(&mut stream, "\r\n\r\n").await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    });
    let client = client();
    for _ in 0..50 {
        let answer = client.send(get(&format!("http://{address}/"))).await;
        match answer {
            Ok(answer) => assert_eq!(text(answer).await, "ok"),
            // Closed at the very moment that the request was written: only the caller knows whether to retry.
            Err(error) => assert!(!error.never_reached() && error.category() == "send", "{error:?}"),
        }
        // The end of the connection may be seen now.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_backend_was_never_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = client().send(get(&format!("http://{address}/path?secret=1"))).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.never_reached());
    assert_eq!(error.to_string(), format!("cannot connect to `{address}`"));

    let error = client().send(get("http://nobody.invalid/path?secret=1")).await.unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error:?}");
    assert!(error.never_reached() && error.category() == "resolve");
    assert_eq!(error.to_string(), "cannot resolve `nobody.invalid`");
}

#[tokio::test]
async fn a_backend_that_breaks_off_was_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        until(&mut stream, "\r\n\r\n").await;
    });
    let error = client().send(get(&format!("http://{address}/path?secret=1"))).await.unwrap_err();
    assert!(matches!(error, Error::Send { .. }), "{error:?}");
    assert!(!error.never_reached());
    assert!(!format!("{error:?} {error}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_response_times_out() {
    let server = start(serve::Options::default(), GRACE, |_, _| std::future::pending()).await;
    let limited = Options { response_timeout: Some(Duration::from_secs(10)), ..Options::default() };
    let error = Client::new(limited).send(get(&server.url("/"))).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { step: Step::Answer }), "{error:?}");
    assert!(!error.never_reached());
}

#[tokio::test]
async fn private_addresses_are_refused_when_they_are_dialled() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    let careful = Client::new(Options { addresses: Addresses::PublicOnly, ..Options::default() });
    let port = server.address.port();
    // By address, by a name that resolves to one, and in another notation.
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "0x7f000001"] {
        let Ok(uri) = format!("http://{host}:{port}/").parse::<http::Uri>() else { continue };
        let mut request = get("http://x/");
        *request.uri_mut() = uri;
        let error = careful.send(request).await.unwrap_err();
        assert!(matches!(error, Error::RefusedAddress { .. } | Error::RefusedHost { .. }), "{host}: {error:?}");
        assert!(error.never_reached());
    }
    assert_eq!(client().send(get(&format!("http://localhost:{port}/"))).await.unwrap().status(), 200);
}

/// Item 17-12: the addresses that a name resolves to are checked, not the name.
#[tokio::test]
async fn a_name_that_resolves_to_a_refused_address_is_not_dialled() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    let port = server.address.port();
    let send = async |addresses, host: &str| {
        let client = Client::new(Options { addresses, ..Options::default() });
        client.send(get(&format!("http://{host}:{port}/"))).await
    };
    // Names that are not in the hosts file, but that the resolver accepts: numbers that it takes for addresses.
    for (host, is_loopback) in [("127.1", true), ("0x7f000001", true), ("169.16689662", false), ("0", false)] {
        for addresses in [Addresses::Machine, Addresses::Cluster, Addresses::PublicOnly] {
            let result = send(addresses, host).await;
            if is_loopback && addresses == Addresses::Machine {
                assert_eq!(result.unwrap().status(), 200, "{host}");
            } else {
                let error = result.unwrap_err();
                assert!(matches!(error, Error::RefusedAddress { .. }), "{host} {addresses:?}: {error:?}");
                assert!(error.never_reached());
            }
        }
    }
}

/// Item 17-12: a proxy resolves names itself, but the name is checked before the proxy is asked.
#[tokio::test]
async fn a_proxy_is_not_asked_for_a_metadata_service() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let variables = [("HTTP_PROXY".to_owned(), proxy.clone()), ("HTTPS_PROXY".to_owned(), proxy)].into();
    let proxies = skep_net::proxies::Proxies::from_variables(&variables).unwrap();
    let client = Client::new(Options { proxies, addresses: Addresses::Cluster, ..Options::default() });
    for target in
        ["http://169.254.169.254/", "https://metadata.google.internal/", "http://[fd00:ec2::254]/", "http://metadata/"]
    {
        // This proxy never responds.
        let asked = tokio::time::timeout(Duration::from_secs(10), client.send(get(target))).await;
        let error = asked.expect("the proxy is not asked").unwrap_err();
        assert!(matches!(error, Error::RefusedHost { .. }), "{target}: {error:?}");
    }
    // A proxy that is itself at such an address is not asked either.
    let variables = [("HTTP_PROXY".to_owned(), "http://169.254.169.254".to_owned())].into();
    let proxies = skep_net::proxies::Proxies::from_variables(&variables).unwrap();
    let client = Client::new(Options { proxies, ..Options::default() });
    let error = client.send(get("http://mcp.test/")).await.unwrap_err();
    assert!(matches!(error, Error::RefusedAddress { .. }), "{error:?}");
}

#[tokio::test]
async fn only_absolute_targets_of_an_allowed_scheme_are_requested() {
    let strict = Client::new(Options { schemes: Schemes::HttpsOnly, ..Options::default() });
    let error = strict.send(get("http://mcp.test/")).await.unwrap_err();
    assert_eq!(error.to_string(), "scheme `http` is not allowed here");
    let error = client().send(get("ftp://mcp.test/")).await.unwrap_err();
    assert!(matches!(error, Error::Scheme { .. }), "{error:?}");
    for target in ["/mcp", "http://user:secret@mcp.test/"] {
        let error = client().send(get(target)).await.unwrap_err();
        assert!(matches!(error, Error::Target), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("secret"));
    }
}

/// Item 17-12: the rule for targets behind a proxy does not apply to those that are reached directly.
#[tokio::test]
async fn with_a_proxy_the_rule_about_addresses_holds_for_every_target_that_is_reached_without_it() {
    let server = start(serve::Options::default(), GRACE, hello).await;
    // It responds to every request.
    let proxy = format!("http://{}", server.address);
    for (variable, refused) in [
        // Another scheme.
        ("HTTPS_PROXY", "http://10.255.255.1:9/"),
        // Excepted, by address and by a name that the resolver takes for an address.
        ("HTTP_PROXY", "http://10.1.2.3:9/"),
        ("HTTP_PROXY", "http://0xa010203:9/"),
    ] {
        let except = ("NO_PROXY".to_owned(), "10.1.2.3,0xa010203".to_owned());
        let variables = [(variable.to_owned(), proxy.clone()), except].into();
        let proxies = skep_net::proxies::Proxies::from_variables(&variables).unwrap();
        let client = Client::new(Options { proxies, addresses: Addresses::PublicOnly, ..Options::default() });
        let asked = tokio::time::timeout(Duration::from_secs(10), client.send(get(refused))).await;
        let error = asked.expect("it is not dialled").unwrap_err();
        assert!(matches!(error, Error::RefusedHost { .. } | Error::RefusedAddress { .. }), "{refused}: {error:?}");
        if variable == "HTTP_PROXY" {
            // The proxy decides which private addresses may be reached through it.
            for target in ["http://10.9.9.9/", "http://intranet.test/"] {
                assert_eq!(client.send(get(target)).await.unwrap().status(), 200, "{target}");
            }
            let error = client.send(get("http://169.254.169.254/")).await.unwrap_err();
            assert!(matches!(error, Error::RefusedHost { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn redirects_are_responses_like_any_other() {
    let server = start(serve::Options::default(), GRACE, |_, _| async {
        let moved = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header("location", "/elsewhere");
        moved.body(Body::empty()).unwrap()
    })
    .await;
    let answer = client().send(get(&server.url("/"))).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn the_backend_sees_a_host_and_a_path_and_the_body() {
    let server = start(serve::Options::default(), GRACE, |request, _| async move {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        let seen = format!("{} {} {host} ", request.method(), request.uri());
        let body = skep_net::body::collect(request.into_body(), crate::support::PLENTY).await.unwrap();
        Response::new(Body::full([seen.as_bytes(), &body].concat()))
    })
    .await;
    let request = Request::post(server.url("/mcp?a=b")).body(Body::full("content")).unwrap();
    let expected = format!("POST /mcp?a=b {} content", server.address);
    assert_eq!(text(client().send(request).await.unwrap()).await, expected);
    let request = Request::post(server.url("")).header("host", "other.test").body(Body::empty()).unwrap();
    assert_eq!(text(client().send(request).await.unwrap()).await, "POST / other.test ");
}

#[tokio::test]
async fn a_reverse_proxy_forwards_streams_as_they_arrive() {
    let go_on = Arc::new(Notify::new());
    let go = Arc::clone(&go_on);
    let backend = start(serve::Options::default(), GRACE, move |_, _| {
        let go = Arc::clone(&go);
        async move {
            let (sender, body) = Body::channel(1);
            tokio::spawn(async move {
                sender.send(Bytes::from_static(b"one\n")).await.unwrap();
                go.notified().await;
                sender.send(Bytes::from_static(b"two\n")).await.unwrap();
            });
            Response::new(body)
        }
    })
    .await;
    let (target, client) = (backend.address, client());
    let front = start(serve::Options::default(), GRACE, move |request, _| {
        let client = client.clone();
        async move {
            let (mut parts, body) = request.into_parts();
            parts.uri = format!("http://{target}{}", parts.uri).parse().unwrap();
            client.send(Request::from_parts(parts, Body::from(body))).await.unwrap()
        }
    })
    .await;
    let mut stream = crate::support::raw(front.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    // The first part arrives while the backend holds the second back.
    until(&mut stream, "one\n\r\n").await;
    go_on.notify_one();
    until(&mut stream, "two\n\r\n0\r\n\r\n").await;
}
