use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use skep_mcp::Message;
use skep_net::{Body, Client};
use skep_upstream::http::{HttpOptions, HttpUpstream, Pods, Target};
use skep_upstream::stdio::{Connect, ConnectionEvent, Limits, StdioUpstream, Supervision};
use skep_workload::cluster::State;
use skep_workload::pipe::Pipe;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::backend::{known, report_outage, watch_link, watch_pods};
use super::health_check::check_health;
use super::reaper::{close_ended, reap};
use super::*;
use crate::downstream::{Endpoint, Forward, ForwardOptions, Streamable};
use crate::exchange::{Content, Exchange, Head};
use crate::http::SESSION;
use crate::sessions::{Kind, Sessions, Store};

#[tokio::test(start_paused = true)]
async fn a_server_on_stdio_is_available_once_it_was_initialized_and_no_sooner() {
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let health = Arc::new(Health::new("stdio", drain));
    let (events, hears) = mpsc::channel(16);
    tokio::spawn(watch_link(hears, health.clone()));
    let lost = |why: &str| ServerHealth::Unavailable(why.to_owned());
    let starting = ServerHealth::Starting("the server has not answered `initialize` yet".to_owned());
    for (sent, known) in [
        // However long it lives.
        (ConnectionEvent::Connected, starting),
        (ConnectionEvent::Lost("a".to_owned()), lost("a")),
        (ConnectionEvent::Connected, lost("a")),
        (ConnectionEvent::Initialized, ServerHealth::Available { milliseconds: None }),
        (ConnectionEvent::Lost("b".to_owned()), lost("b")),
        (ConnectionEvent::Connected, lost("b")),
    ] {
        events.send(sent.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(health.known(), known, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_behind_http_is_available_once_it_passed_a_health_check_and_no_sooner() {
    let starting = |why: &str| ServerHealth::Starting(why.to_owned());
    let unchecked = starting("the server has not answered a health check yet");
    let available = ServerHealth::Available { milliseconds: None };
    for is_checked in [true, false] {
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        let health = Arc::new(Health::new("streamable-http", drain));
        let state = watch::Sender::new(State::Missing);
        tokio::spawn(watch_pods(state.subscribe(), is_checked, health.clone()));
        let one_ready = State::Starting { ready: 1, wanted: 2 };
        for (now, checked, otherwise) in [
            (State::Starting { ready: 0, wanted: 2 }, &starting("none of 2 pods of the server is ready"), None),
            (one_ready, &unchecked, Some(&available)),
            // More pods change nothing about its answers.
            (State::Ready, &unchecked, Some(&available)),
            (State::Stopped, &ServerHealth::Unavailable("the server is scaled to zero".to_owned()), None),
            (State::Failing("no image".to_owned()), &ServerHealth::Unavailable("no image".to_owned()), None),
            (State::Ready, &unchecked, Some(&available)),
        ] {
            state.send_replace(now.clone());
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(&health.known(), otherwise.filter(|_| !is_checked).unwrap_or(checked), "{now:?} {is_checked}");
        }
        // What a health check found stays until the pods say otherwise.
        health.set(available.clone());
        state.send_replace(State::Starting { ready: 1, wanted: 2 });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(health.known(), available);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_while_the_pods_of_a_stdio_server_cannot_run_and_wait_while_they_start() {
    let (connect, _heard) = agreeable();
    let (state, outage) = (watch::Sender::new(State::Stopped), watch::Sender::new(None));
    let outage_seen = outage.subscribe();
    tokio::spawn(report_outage(state.subscribe(), outage));
    let may = state.subscribe();
    let connect: Connect = Box::new(move || {
        let (mut may, connecting) = (may.clone(), connect());
        Box::pin(async move {
            may.wait_for(State::serves).await.map_err(|error| error.to_string())?;
            connecting.await
        })
    });
    let (_never, ending) = watch::channel(false);
    let supervision = Supervision { events: mpsc::channel(1).0, ending, shared: None, outage: outage_seen };
    let (upstream, talk) = StdioUpstream::start_for(connect, Limits::default(), supervision);
    tokio::spawn(talk);
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(skep_store::Memory::new(Duration::from_hours(1))), Kind::Streamable);
    let front = Streamable::new(Endpoint::new(upstream, sessions.clone(), Duration::from_mins(1), drain), false);
    let session = sessions.open(None).await.unwrap();
    let call = || async {
        let started = tokio::time::Instant::now();
        let message = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let answer = called(&front, &session, Method::POST, message).await;
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (String::from_utf8(body.to_vec()).unwrap(), started.elapsed())
    };
    for (now, why) in [
        (State::Stopped, "the server is scaled to zero"),
        (State::Failing("pod `s-0` of the server cannot run: ImagePullBackOff".to_owned()), "ImagePullBackOff"),
    ] {
        state.send_replace(now);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let (body, waited) = call().await;
        assert!(body.contains(why) && waited < Duration::from_secs(1), "{body} after {waited:?}");
    }
    // It comes up while a call waits for it.
    state.send_replace(State::Starting { ready: 0, wanted: 1 });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let comes_up = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        state.send_replace(State::Ready);
    };
    let ((body, waited), ()) = tokio::join!(call(), comes_up);
    assert!(body.contains("result") && waited >= Duration::from_secs(5), "{body} after {waited:?}");
}

/// A server that agrees to everything, and the methods that it gets.
pub(crate) fn agreeable() -> (Connect, mpsc::UnboundedReceiver<String>) {
    let (got, heard) = mpsc::unbounded_channel();
    let connect: Connect = Box::new(move || {
        let got = got.clone();
        Box::pin(async move {
            let (stdin, input) = tokio::io::duplex(1 << 16);
            let (mut output, stdout) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let mut lines = BufReader::new(input).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
                    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, message["id"]);
                    output.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                    let method = message["method"].as_str().unwrap_or_default().to_owned();
                    if !method.contains("initialize") {
                        got.send(method).unwrap();
                    }
                }
            });
            Ok(Pipe {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                stderr: Box::new(tokio::io::empty()),
                held: Box::new(()),
            })
        })
    });
    (connect, heard)
}

async fn called(front: &Arc<Streamable>, session: &str, method: Method, body: &'static [u8]) -> Response<Body> {
    let headers = HeaderMap::from_iter([(SESSION, HeaderValue::from_str(session).unwrap())]);
    let peer = skep_net::Peer { address: SocketAddr::from(([127, 0, 0, 1], 1)), tls: false };
    let content = match body {
        b"" => Content::Opaque(Bytes::new()),
        body => Content::Message(Message::parse(Bytes::from_static(body)).unwrap()),
    };
    let mut request = http::Request::new(());
    (*request.method_mut(), *request.headers_mut()) = (method, headers);
    let mut exchange = Exchange::new(Head::new(request.into_parts().0, peer), content);
    front.call(&mut exchange).await
}

/// How long sessions live.
const TIME_TO_LIVE: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_session_of_a_store_that_says_nothing_is_forgotten_when_it_was_not_used_here() {
    let (connect, mut heard) = agreeable();
    let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    // As a store that others share: nothing ends here.
    let sessions = Sessions::new(Store::Memory(skep_store::Memory::new(Duration::from_hours(9))), Kind::Streamable);
    let front = Streamable::new(Endpoint::new(upstream, sessions.clone(), Duration::from_secs(5), drain), false);
    let (_talk, _reaper) =
        (tokio::spawn(talk), tokio::spawn(reap(sessions.clone(), Some((front.clone(), TIME_TO_LIVE)))));
    let (idle, listening) = (sessions.open(None).await.unwrap(), sessions.open(None).await.unwrap());
    let _stream = called(&front, &listening, Method::GET, b"").await;
    for (session, subscribe) in [
        (&idle, &br#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"of:idle"}}"#[..]),
        (&listening, br#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"of:listening"}}"#),
    ] {
        assert_eq!(called(&front, session, Method::POST, subscribe).await.status(), StatusCode::OK);
        assert_eq!(heard.recv().await.unwrap(), "resources/subscribe");
    }
    let got = tokio::time::timeout(Duration::from_hours(1), heard.recv()).await;
    assert_eq!(got.unwrap().unwrap(), "resources/unsubscribe");
    // Who listens is not forgotten.
    assert!(tokio::time::timeout(Duration::from_hours(1), heard.recv()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_lives_while_it_is_listened_to_and_takes_its_subscriptions_along_when_it_ends() {
    let (connect, mut heard) = agreeable();
    let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let store = Store::Memory(skep_store::Memory::new(TIME_TO_LIVE));
    let sessions = Sessions::new(store, Kind::Streamable);
    let front = Streamable::new(Endpoint::new(upstream, sessions.clone(), Duration::from_secs(5), drain), false);
    let (_talk, _reaper) =
        (tokio::spawn(talk), tokio::spawn(reap(sessions.clone(), Some((front.clone(), TIME_TO_LIVE)))));
    let session = sessions.open(None).await.unwrap();
    let subscribe = br#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#;
    let answer = called(&front, &session, Method::POST, subscribe).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(heard.recv().await.unwrap(), "resources/subscribe");
    let stream = called(&front, &session, Method::GET, b"").await;
    assert_eq!(stream.status(), StatusCode::OK);
    // No client calls or reads; the clock goes on for as long as a task waits.
    assert!(tokio::time::timeout(20 * TIME_TO_LIVE, heard.recv()).await.is_err());
    drop(stream);
    let got = tokio::time::timeout(Duration::from_hours(1), heard.recv()).await;
    assert_eq!(got.unwrap().unwrap(), "resources/unsubscribe");
    assert_eq!(called(&front, &session, Method::GET, b"").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn item_7_an_evicted_session_takes_its_subscriptions_along_at_once() {
    let (connect, mut heard) = agreeable();
    let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let limits = skep_store::SessionLimits::of_total(4 * (skep_store::SESSION_BYTES + 100));
    let store = Store::Memory(skep_store::Memory::within(TIME_TO_LIVE, limits));
    let sessions = Sessions::new(store, Kind::Streamable);
    let front = Streamable::new(Endpoint::new(upstream, sessions.clone(), Duration::from_secs(5), drain), false);
    let (_talk, _reaper) =
        (tokio::spawn(talk), tokio::spawn(reap(sessions.clone(), Some((front.clone(), TIME_TO_LIVE)))));
    let session = sessions.open(None).await.unwrap();
    let subscribe = br#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#;
    assert_eq!(called(&front, &session, Method::POST, subscribe).await.status(), StatusCode::OK);
    assert_eq!(heard.recv().await.unwrap(), "resources/subscribe");
    let since = tokio::time::Instant::now();
    // The session was used, and its owner has room for two.
    let (first, second) = (sessions.open(None).await.unwrap(), sessions.open(None).await.unwrap());
    assert_eq!(called(&front, &first, Method::GET, b"").await.status(), StatusCode::NOT_FOUND, "never used");
    assert_eq!(called(&front, &second, Method::GET, b"").await.status(), StatusCode::OK);
    let _third = sessions.open(None).await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "resources/unsubscribe");
    assert_eq!(called(&front, &session, Method::POST, subscribe).await.status(), StatusCode::NOT_FOUND);
    assert!(since.elapsed() < Duration::from_secs(1), "not only when sessions are looked through");
}

#[tokio::test]
async fn item_7_an_evicted_session_is_closed_at_a_server_that_speaks_http() {
    let (got, mut heard) = mpsc::unbounded_channel();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let target = Target::local(&format!("http://{}", listener.address())).unwrap();
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let count = std::sync::atomic::AtomicUsize::new(0);
    let handler = move |request: http::Request<hyper::body::Incoming>, _peer| {
        let named = request.headers().get(SESSION).map(|name| name.to_str().unwrap().to_owned());
        got.send((request.method().clone(), request.uri().path().to_owned(), named)).unwrap();
        let mut response = Response::new(Body::full(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        let name = format!("session {}", count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        response.headers_mut().insert(SESSION, name.parse().unwrap());
        std::future::ready(response)
    };
    tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain.clone(), handler));
    let limits = skep_store::SessionLimits::of_total(4 * (skep_store::SESSION_BYTES + 400));
    let store = Store::Memory(skep_store::Memory::within(TIME_TO_LIVE, limits));
    let sessions = Sessions::new(store, Kind::Mcp);
    let client = Client::new(skep_net::client::Options::default());
    let options = HttpOptions { store: Some(sessions.store().clone()), ..HttpOptions::default() };
    let upstream = HttpUpstream::new(target, client, options);
    let front = Forward::new(upstream.clone(), sessions.clone(), ForwardOptions::default(), drain);
    let _closer = tokio::spawn(close_ended(sessions, upstream, None));
    let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    for _ in 0..3 {
        let mut request = http::Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, "/its/mcp".parse().unwrap());
        let peer = skep_net::Peer { address: SocketAddr::from(([127, 0, 0, 1], 1)), tls: false };
        let content = Content::Message(Message::parse(Bytes::from_static(initialize)).unwrap());
        let mut exchange = Exchange::new(Head::new(request.into_parts().0, peer), content);
        assert_eq!(front.call(&mut exchange).await.status(), StatusCode::OK);
        assert_eq!(heard.recv().await.unwrap(), (Method::POST, "/its/mcp".to_owned(), None));
    }
    let closed = heard.recv().await.unwrap();
    assert_eq!(closed, (Method::DELETE, "/its/mcp".to_owned(), Some("session 0".to_owned())));
}

/// Item 17-7: another workload may have the address of a pod that is gone.
#[tokio::test]
async fn a_session_is_not_closed_at_a_pod_that_is_no_longer_one_of_the_server() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let listener = Listener::bind(([0, 0, 0, 0], 0).into()).await.unwrap();
    let at = |last| SocketAddr::from(([127, 0, 0, last], listener.address().port()));
    let (here, elsewhere) = (at(1), at(2));
    let target = Target::local(&format!("http://{here}")).unwrap();
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let handler = move |_: http::Request<hyper::body::Incoming>, _peer| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Response::new(Body::empty()))
    };
    tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain.clone(), handler));
    let pods = Pods::new(move || Box::pin(std::future::ready(Ok(vec![here]))));
    let client = Client::new(skep_net::client::Options::default());
    let upstream = HttpUpstream::new(target, client, HttpOptions { pods: Some(pods), ..HttpOptions::default() });
    for (pod, closed) in [(here, 1), (elsewhere, 1), (here, 2)] {
        let mut session = skep_store::Session::new("s", Kind::Mcp, jiff::Timestamp::now(), None);
        session.metadata.insert("skep_path".to_owned(), "/mcp".to_owned());
        session.metadata.insert("backend_pod".to_owned(), pod.to_string());
        upstream.close_at_server(&session).await;
        assert_eq!(count.load(Ordering::SeqCst), closed, "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_pods_is_not_asked_so_that_what_is_known_of_it_stays() {
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let health = Arc::new(Health::new("streamable-http", drain));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base: http::Uri = format!("http://{closed}/").parse().unwrap();
    let interval = Duration::from_secs(10);
    let how = settings::Health { enabled: true, interval, timeout: interval };
    let client = Client::new(skep_net::client::Options::default());
    let (sender, state) = watch::channel(State::Missing);
    tokio::spawn(check_health(client, base, how, false, Some(state), health.clone()));
    let mut changes = health.changes();
    for away in [State::Missing, State::Stopped, State::Starting { ready: 0, wanted: 1 }] {
        health.set(known(&away));
        sender.send_replace(away.clone());
        changes.mark_unchanged();
        assert!(tokio::time::timeout(interval * 60, changes.changed()).await.is_err(), "{:?}", health.known());
        assert_eq!(health.known(), known(&away));
        // As `watch_pods` does for pods that are ready.
        health.set(ServerHealth::Starting("the server has not answered a health check yet".to_owned()));
        sender.send_replace(State::Ready);
        changes.wait_for(|(known, _)| matches!(known, ServerHealth::Unavailable(_))).await.unwrap();
    }
}
