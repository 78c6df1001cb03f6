//! Health checks of a server that speaks HTTP.

use std::sync::Arc;
use std::time::Duration;

use skep_net::{Body, Client};
use skep_upstream::http::unreachable_reason;
use skep_workload::cluster::State;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::health::{Health, ServerHealth};
use crate::settings;

/// How often a server is checked that has not answered so far, at most.
const FIRST_CHECKS: Duration = Duration::from_millis(500);

/// Checks from time to time whether a server answers, and often until it first does. No client waits for it. A server that has no
/// pods yet, or none any more, is not checked: what is known of its pods says more than that no connection is made.
pub(super) async fn check_health(
    client: Client,
    base: http::Uri,
    how: settings::Health,
    stateless: bool,
    mut state: Option<watch::Receiver<State>>,
    health: Arc<Health>,
) {
    let mut patience = Instant::now() + how.interval;
    loop {
        if let Some(state) = &mut state
            && !state.borrow_and_update().serves()
        {
            if state.wait_for(State::serves).await.is_err() {
                return;
            }
            patience = Instant::now() + how.interval;
        }
        let is_new = matches!(health.known(), ServerHealth::Starting(_)) && Instant::now() < patience;
        tokio::time::sleep(if is_new { how.interval.min(FIRST_CHECKS) } else { how.interval }).await;
        let found = check_once(&client, &base, stateless, how.timeout).await;
        let is_asked = state.as_ref().is_none_or(|state| state.borrow().serves());
        if is_asked && !(is_new && matches!(found, ServerHealth::Unavailable(_))) {
            health.set_checked(found);
        }
    }
}

/// What one check finds. Clients may read it, so a reason names no address; those are for the log.
async fn check_once(client: &Client, base: &http::Uri, stateless: bool, timeout: Duration) -> ServerHealth {
    let started = Instant::now();
    let body = if stateless {
        Body::full(&br#"{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}"#[..])
    } else {
        Body::empty()
    };
    let mut request = http::Request::new(body);
    *request.uri_mut() = base.clone();
    if stateless {
        *request.method_mut() = http::Method::POST;
        request.headers_mut().insert(http::header::CONTENT_TYPE, crate::http::JSON);
    }
    match tokio::time::timeout(timeout, client.send(request)).await {
        Err(_elapsed) => ServerHealth::Unavailable(format!("no answer within {timeout:?}")),
        Ok(Err(error)) => {
            tracing::debug!(%error, "health check failed");
            ServerHealth::Unavailable(format!("it cannot be reached: {}", unreachable_reason(&error)))
        }
        Ok(Ok(response)) if response.status().is_server_error() => {
            ServerHealth::Unavailable(format!("it answers {}", response.status()))
        }
        Ok(Ok(_)) => ServerHealth::Available { milliseconds: u64::try_from(started.elapsed().as_millis()).ok() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use http::{Response, StatusCode};
    use skep_net::drain::Grace;
    use skep_net::{Drain, Listener, serve};

    use super::*;

    const HOW: settings::Health =
        settings::Health { enabled: true, interval: Duration::from_millis(20), timeout: Duration::from_secs(20) };

    fn new_health() -> (Arc<Health>, Drain) {
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        (Arc::new(Health::new("streamable-http", drain.clone())), drain)
    }

    async fn until(health: &Health, wanted: impl Fn(&ServerHealth) -> bool) -> ServerHealth {
        let mut changes = health.changes();
        let seen = tokio::time::timeout(HOW.timeout, changes.wait_for(|(known, _)| wanted(known))).await;
        seen.expect("it is seen in time").unwrap().0.clone()
    }

    /// Item 17-22: what a check finds is in the body of a 502, which names no address.
    #[tokio::test]
    async fn the_reason_of_a_check_that_failed_names_no_address() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (base, reason) in [
            (format!("http://{closed}/"), "it cannot be reached: connection refused"),
            ("http://no-such-host.invalid:8080/".to_owned(), "it cannot be reached: its name cannot be resolved"),
        ] {
            let (health, _drain) = new_health();
            let client = Client::new(skep_net::client::Options::default());
            let checks = tokio::spawn(check_health(client, base.parse().unwrap(), HOW, false, None, health.clone()));
            let known = until(&health, |known| matches!(known, ServerHealth::Unavailable(_))).await;
            assert_eq!(known, ServerHealth::Unavailable(reason.to_owned()));
            checks.abort();
        }
    }

    /// Item 17-22: how a process ended says more than that no connection is made.
    #[tokio::test]
    async fn a_check_that_failed_leaves_the_reason_that_the_supervisor_gave() {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let base: http::Uri = format!("http://{}/", listener.address()).parse().unwrap();
        let (status, checks) = (Arc::new(AtomicU16::new(503)), Arc::new(AtomicUsize::new(0)));
        let handler = {
            let (status, checks) = (status.clone(), checks.clone());
            move |_request, _peer| {
                checks.fetch_add(1, Ordering::SeqCst);
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::from_u16(status.load(Ordering::SeqCst)).unwrap();
                std::future::ready(response)
            }
        };
        let (health, drain) = new_health();
        tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain, handler));
        let client = Client::new(skep_net::client::Options::default());
        tokio::spawn(check_health(client, base, HOW, false, None, health.clone()));
        let failed = ServerHealth::Unavailable("it answers 503 Service Unavailable".to_owned());
        until(&health, |known| *known == failed).await;
        let ended = ServerHealth::Unavailable("the server ended: exit status: 3".to_owned());
        health.set(ended.clone());
        let before = checks.load(Ordering::SeqCst);
        while checks.load(Ordering::SeqCst) < before + 3 {
            tokio::time::sleep(HOW.interval).await;
            assert_eq!(health.known(), ended);
        }
        // It answers again, and then it is the checks that say what is wrong with it.
        status.store(200, Ordering::SeqCst);
        until(&health, |known| matches!(known, ServerHealth::Available { .. })).await;
        status.store(503, Ordering::SeqCst);
        until(&health, |known| *known == failed).await;
    }
}
