//! Checks of backends, and who is told of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_api::virtual_config::Aggregation;
use skep_net::body::{Limit, collect};
use skep_net::drain::Grace;
use skep_net::{Body, Drain, Listener, serve};
use skep_proxy::router::Pages as _;
use skep_upstream::{Call, CallError, Upstream as _};
use skep_vmcp::aggregate::Rules;
use skep_vmcp::backend::{Backend, BackendSpec};
use skep_vmcp::backends::Backends;
use skep_vmcp::composite::CompositeTools;
use skep_vmcp::health::{BreakerSettings, Health, MonitorSettings, monitor};
use skep_vmcp::pages::{Mode, StatusPages};
use skep_vmcp::upstream::{ServerInfo, VirtualUpstream};
use skep_vmcp::view::{Cursors, Views};

use crate::events::in_the_name_of_clients;
use crate::rig::{Answers, echoing, modern_request, server, spec};

const INTERVAL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_check_that_changes_nothing_is_not_told() {
    let (is_down, checks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let answers = echoing("a", &["echo"]);
    let (down, counted) = (is_down.clone(), checks.clone());
    let upstream = server(Arc::new(move |call, request| {
        if request["method"] == "server/discover" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        if down.load(Ordering::Relaxed) {
            return Some(json!({ "error": { "code": -32603, "message": "down" } }));
        }
        answers(call, request)
    }));
    let backend = Backend::over(spec("a"), upstream);
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let settings = MonitorSettings { interval: INTERVAL, timeout: INTERVAL / 2, threshold: 3, breaker: None };
    let changed = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let _monitor = tokio::spawn(monitor(Arc::downgrade(&backend), settings, changed));

    tokio::time::sleep(INTERVAL * 10).await;
    assert!(checks.load(Ordering::Relaxed) > 5, "{checks:?}");
    assert_eq!((told.load(Ordering::Relaxed), backend.health.known().health), (1, Health::Healthy));
    // How many checks failed is reported, and each one that fails changes that.
    is_down.store(true, Ordering::Relaxed);
    tokio::time::sleep(INTERVAL * 2).await;
    let failures = backend.health.known().failures;
    assert!(failures > 0);
    assert_eq!(told.load(Ordering::Relaxed), 1 + usize::try_from(failures).unwrap());
}

/// A virtual server over backend `a`, whose breaker opens after three failures, and its pages.
fn with_breaker(answers: Answers) -> (Arc<VirtualUpstream>, StatusPages) {
    let breaker = Some(BreakerSettings { failures: 3, timeout: INTERVAL * 2 });
    let settings = MonitorSettings { interval: INTERVAL, timeout: INTERVAL / 3, threshold: 3, breaker };
    let backends = Backends::new(Some(settings));
    let aggregation: Aggregation = serde_json::from_value(json!({ "conflictResolution": "manual" })).unwrap();
    let views = Views::new(Rules::of(&aggregation), CompositeTools::default());
    let upstream = VirtualUpstream::new(ServerInfo::default(), backends.clone(), views, Cursors::new(b"key"));
    backends.replace([("a".into(), Backend::over(spec("a"), server(answers)))].into());
    (upstream, StatusPages::new(backends, Mode::Static, "group".to_owned(), "1"))
}

/// What the pages say of the backend: its health on each of them, and its breaker.
async fn shown(pages: &StatusPages) -> (String, String) {
    let page = async |path: &str| {
        let body = pages.page(&Method::GET, path).unwrap().into_body();
        let limit = Limit { bytes: 1 << 20, idle: INTERVAL, pace: 1 };
        serde_json::from_slice::<Value>(&collect(body, limit).await.unwrap()).unwrap()
    };
    let (status, details) = (page("/status").await, page("/api/backends/health").await);
    let (health, details) = (&status["backends"][0]["health"], &details["backends"]["a"]);
    assert_eq!(*health, details["Status"], "the pages agree");
    (health.as_str().unwrap().to_owned(), details["CircuitState"].as_str().unwrap().to_owned())
}

/// A backend whose lists come at once, and whose tools take this many seconds, or never respond.
fn taking(seconds: &Arc<AtomicUsize>, calls: &Arc<AtomicUsize>) -> Answers {
    let (seconds, calls) = (seconds.clone(), calls.clone());
    Arc::new(move |call, request| {
        if request["method"] == "tools/call" {
            calls.fetch_add(1, Ordering::Relaxed);
            if seconds.load(Ordering::Relaxed) == usize::MAX {
                return None;
            }
        }
        echoing("a", &["echo"])(call, request)
    })
}

async fn call_tool(upstream: &Arc<VirtualUpstream>, seconds: &AtomicUsize) -> Result<(), CallError> {
    // No check is being made while the clock jumps.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let call = modern_request("tools/call", &json!({ "name": "echo" }));
    let mut replies = upstream.clone().call(Call { takes_interim: false, ..call }).await?;
    // The response is there, and what it took is counted when it is read.
    let seconds = seconds.load(Ordering::Relaxed);
    if seconds != usize::MAX {
        tokio::time::advance(Duration::from_secs(seconds as u64)).await;
    }
    replies.response.response().await.map(drop)
}

/// The lists of the backend are fine all the time, and are checked all the time.
#[tokio::test(start_paused = true)]
async fn calls_that_fail_or_are_slow_open_the_breaker_and_one_that_is_fine_closes_it() {
    for bad in [usize::MAX, 16] {
        let (seconds, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (upstream, pages) = with_breaker(taking(&seconds, &calls));
        tokio::time::sleep(INTERVAL).await;
        let is = |health: &str, breaker: &str| (health.to_owned(), breaker.to_owned());
        assert_eq!(shown(&pages).await, is("healthy", "closed"));
        // Slow, but within half of the 30 s that the backend has.
        seconds.store(14, Ordering::Relaxed);
        for _ in 0..5 {
            call_tool(&upstream, &seconds).await.unwrap();
        }
        assert_eq!(shown(&pages).await, is("healthy", "closed"));
        seconds.store(bad, Ordering::Relaxed);
        for _ in 0..3 {
            // A check in between changes nothing.
            tokio::time::sleep(INTERVAL + INTERVAL / 10).await;
            assert_eq!(shown(&pages).await.1, "closed");
            let _failed = call_tool(&upstream, &seconds).await;
        }
        assert_eq!(shown(&pages).await, is("degraded", "open"));
        let before = calls.load(Ordering::Relaxed);
        let refused = call_tool(&upstream, &seconds).await;
        assert!(matches!(refused, Err(CallError::Unavailable(_))), "{refused:?}");
        assert_eq!(calls.load(Ordering::Relaxed), before, "the backend is spared");
        // Its time is over, but the backend is as it was.
        tokio::time::sleep(INTERVAL * 2).await;
        let _failed = call_tool(&upstream, &seconds).await;
        assert_eq!((calls.load(Ordering::Relaxed), shown(&pages).await), (before + 1, is("degraded", "open")));
        seconds.store(0, Ordering::Relaxed);
        tokio::time::sleep(INTERVAL * 2).await;
        call_tool(&upstream, &seconds).await.unwrap();
        assert_eq!(shown(&pages).await, is("healthy", "closed"));
    }
}

/// Serves this status to every request that has no token.
async fn refusing(status: StatusCode) -> (String, Drain) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("http://{}/mcp", listener.address());
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    tokio::spawn(serve(
        listener,
        skep_net::serve::Options::default(),
        drain.clone(),
        move |request, _peer| async move {
            assert!(request.headers().get(http::header::AUTHORIZATION).is_none());
            Response::builder().status(status).body(Body::empty()).unwrap()
        },
    ));
    (url, drain)
}

/// What it offers is not known without a client, but whether it is there is.
#[tokio::test]
async fn a_backend_that_is_called_in_the_name_of_clients_is_checked_without_credentials() {
    let at = |url: &str| {
        let mut spec = BackendSpec { url: url.to_owned(), ..spec("a") };
        in_the_name_of_clients(&mut spec);
        Backend::new(spec).unwrap()
    };
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/mcp", listener.local_addr().unwrap())
    };
    let (unauthorized, _one) = refusing(StatusCode::UNAUTHORIZED).await;
    let (forbidden, _two) = refusing(StatusCode::FORBIDDEN).await;
    for (url, expected) in [(&unauthorized, Health::Healthy), (&forbidden, Health::Healthy), (&gone, Health::Unhealthy)]
    {
        let backend = at(url);
        let timeout = Duration::from_secs(10);
        let settings = MonitorSettings { interval: Duration::from_millis(20), timeout, threshold: 2, breaker: None };
        let _monitor = tokio::spawn(monitor(Arc::downgrade(&backend), settings, || {}));
        let settled = async {
            while backend.health.known().health != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(20), settled).await;
        settled.unwrap_or_else(|_| panic!("{url}: {:?}, expected {expected:?}", backend.health.known()));
    }
}
