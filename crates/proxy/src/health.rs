//! `/health`: how the proxy and the server behind it are, as far as is known. The server is not asked: a probe must not wait.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Response, StatusCode};
use serde_json::json as object;
use skep_net::{Body, Drain};
use skep_workload::report::{Problem, UpstreamState};
use tokio::sync::watch;

use crate::downstream::reply::last_moment;
use crate::http::{json, method_not_allowed};

/// What is known of the server behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerHealth {
    /// Nothing yet: it is being started.
    Starting(String),
    /// It answers.
    Available {
        /// How long its last answer took, in milliseconds.
        milliseconds: Option<u64>,
    },
    /// It does not answer.
    Unavailable(String),
    /// It is not checked.
    Unwatched,
}

/// How the proxy and its server are, as last checked.
#[derive(Debug)]
pub struct Health {
    transport: String,
    drain: Drain,
    known: watch::Sender<(ServerHealth, jiff::Timestamp)>,
    /// Why the server cannot be made as it should be, if it cannot. One of an older make may run all the same.
    refusal: watch::Sender<Option<String>>,
    /// Whether the server ever answered.
    answered: AtomicBool,
    /// Whether it is unavailable for a reason that a health check cannot see, such as how its process ended.
    has_cause: AtomicBool,
}

// === impl Health ===

impl Health {
    /// Nothing is known yet.
    pub fn new(transport: &str, drain: Drain) -> Self {
        let known = ServerHealth::Starting("the server is being started".to_owned());
        let known = watch::Sender::new((known, jiff::Timestamp::now()));
        let refusal = watch::Sender::new(None);
        let (answered, has_cause) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { transport: transport.to_owned(), drain, known, refusal, answered, has_cause }
    }

    /// Sets what the supervisor of the server found.
    pub fn set(&self, known: ServerHealth) {
        let has_cause = matches!(known, ServerHealth::Unavailable(_));
        self.replace(known, |_before| Some(has_cause));
    }

    /// Remembers what a health check found. Where it is known why the server cannot answer, that it does not is no news.
    pub fn set_checked(&self, known: ServerHealth) {
        let has_failed = matches!(known, ServerHealth::Unavailable(_));
        self.replace(known, |has_cause| (!has_failed || !has_cause).then_some(false));
    }

    /// Replaces what is known. `change` gets whether there was such a cause and returns whether there is one now; nothing leaves all as it
    /// was.
    fn replace(&self, known: ServerHealth, change: impl FnOnce(bool) -> Option<bool>) {
        if matches!(known, ServerHealth::Available { .. }) {
            self.answered.store(true, Ordering::Relaxed);
        }
        // Both change under the lock of the channel.
        self.known.send_if_modified(|current| {
            let Some(has_cause) = change(self.has_cause.load(Ordering::Relaxed)) else { return false };
            self.has_cause.store(has_cause, Ordering::Relaxed);
            *current = (known, jiff::Timestamp::now());
            true
        });
    }

    /// Remembers why the server cannot be made as it should be, or that it can.
    pub fn refuse(&self, refusal: Option<String>) {
        self.refusal.send_replace(refusal);
    }

    /// Waits until a call that is still in flight must be answered, because the proxy is about to end.
    pub(crate) async fn last_moment(&self) {
        tokio::time::sleep_until(last_moment(self.drain.stopping().await)).await;
    }

    /// What was seen last.
    pub fn known(&self) -> ServerHealth {
        self.known.borrow().0.clone()
    }

    /// What is seen, and when, from now on.
    pub fn changes(&self) -> watch::Receiver<(ServerHealth, jiff::Timestamp)> {
        self.known.subscribe()
    }

    /// Why the server cannot be used though its pods may be ready, as the page says it: it has not answered so far, does not
    /// answer any more, or cannot be changed as it should be. Only what is public.
    pub fn problem(&self) -> Option<Problem> {
        let answered = self.answered.load(Ordering::Relaxed);
        let problem = |state, why: &str| Some(Problem { state, answered, message: ours(why).to_owned() });
        if let Some(refusal) = self.refusal.borrow().as_deref() {
            return problem(UpstreamState::Degraded, refusal);
        }
        match &self.known.borrow().0 {
            ServerHealth::Starting(why) => problem(UpstreamState::Starting, why),
            ServerHealth::Unavailable(why) => problem(UpstreamState::Degraded, why),
            ServerHealth::Available { .. } | ServerHealth::Unwatched => None,
        }
    }

    /// Ends once something else may be known than when this was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let (mut known, mut refusal) = (self.known.subscribe(), self.refusal.subscribe());
        async move {
            tokio::select! {
                _ = known.changed() => {}
                _ = refusal.changed() => {}
            }
        }
    }

    /// The page. It is 200 unless the proxy is about to end: a server that does not answer is no reason to end its proxy.
    pub(crate) fn page(&self, method: &Method) -> Response<Body> {
        if method != Method::GET && method != Method::HEAD {
            return method_not_allowed("GET, HEAD");
        }
        let (known, seen) = self.known.borrow().clone();
        let refusal = self.refusal.borrow().clone();
        let is_ending = !self.drain.is_ready();
        let seen = rfc3339(seen);
        let (status, server) = match known {
            ServerHealth::Unwatched => ("healthy", None),
            ServerHealth::Available { milliseconds } => {
                let mut server = object!({ "available": true, "last_checked": seen });
                if let (Some(milliseconds), Some(server)) = (milliseconds, server.as_object_mut()) {
                    server.insert("response_time_ms".to_owned(), milliseconds.into());
                }
                ("healthy", Some(server))
            }
            ServerHealth::Starting(why) => {
                ("starting", Some(object!({ "available": false, "error": ours(&why), "last_checked": seen })))
            }
            ServerHealth::Unavailable(why) => {
                ("degraded", Some(object!({ "available": false, "error": ours(&why), "last_checked": seen })))
            }
        };
        let (status, server) = match (refusal, server) {
            (Some(refusal), Some(mut server)) => {
                if let Some(server) = server.as_object_mut() {
                    server.insert("error".to_owned(), refusal.into());
                }
                ("degraded", Some(server))
            }
            (_, server) => (status, server),
        };
        let status = if is_ending { "ending" } else { status };
        let mut page = serde_json::Map::from_iter([
            ("status".to_owned(), status.into()),
            ("timestamp".to_owned(), rfc3339(jiff::Timestamp::now()).into()),
            ("transport".to_owned(), self.transport.clone().into()),
        ]);
        page.extend(server.map(|server| ("mcp".to_owned(), server)));
        let code = if is_ending { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        json(code, serde_json::Value::Object(page).to_string().into())
    }
}

/// The public part of a reason: the server's own log comes after its first line.
fn ours(why: &str) -> &str {
    why.lines().next().unwrap_or_default()
}

fn rfc3339(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use skep_net::drain::Grace;

    use super::*;

    async fn page(health: &Health, method: &Method) -> (u16, Value) {
        let (parts, body) = health.page(method).into_parts();
        let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[tokio::test]
    async fn the_page_says_what_is_known_and_fails_only_when_the_proxy_ends() {
        let drain = Drain::new(Grace { linger: std::time::Duration::ZERO, finish: std::time::Duration::ZERO });
        let health = Health::new("sse", drain.clone());
        let unwell = |why: &str| object!({ "available": false, "error": why });
        for (known, status, server) in [
            (health.known(), "starting", unwell("the server is being started")),
            (
                ServerHealth::Available { milliseconds: Some(7) },
                "healthy",
                object!({ "available": true, "response_time_ms": 7 }),
            ),
            (ServerHealth::Available { milliseconds: None }, "healthy", object!({ "available": true })),
            (ServerHealth::Unavailable("it fell".to_owned()), "degraded", unwell("it fell")),
            (ServerHealth::Unavailable("it fell\nsecret of its own".to_owned()), "degraded", unwell("it fell")),
            (ServerHealth::Unwatched, "healthy", Value::Null),
        ] {
            health.set(known);
            let (code, mut page) = page(&health, &Method::GET).await;
            assert_eq!((code, &page["status"], &page["transport"]), (200, &object!(status), &object!("sse")));
            assert!(page["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
            if let Some(seen) = page["mcp"].as_object_mut() {
                let checked = seen.remove("last_checked").unwrap();
                assert!(checked.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
            }
            assert_eq!(page["mcp"], server);
        }
        for (known, is_available) in
            [(ServerHealth::Available { milliseconds: None }, true), (ServerHealth::Starting("soon".to_owned()), false)]
        {
            health.set(known);
            health.refuse(Some("its memory is negative".to_owned()));
            let (code, page_now) = page(&health, &Method::GET).await;
            assert_eq!((code, &page_now["status"]), (200, &object!("degraded")));
            assert_eq!(
                (&page_now["mcp"]["available"], &page_now["mcp"]["error"]),
                (&object!(is_available), &object!("its memory is negative"))
            );
            health.refuse(None);
            assert_ne!(page(&health, &Method::GET).await.1["status"], "degraded");
        }
        for (known, problem) in [
            (ServerHealth::Starting("soon".to_owned()), Some((UpstreamState::Starting, "soon"))),
            (ServerHealth::Unavailable("it fell\nsecret".to_owned()), Some((UpstreamState::Degraded, "it fell"))),
            (ServerHealth::Available { milliseconds: None }, None),
            (ServerHealth::Unwatched, None),
        ] {
            health.set(known.clone());
            let found = health.problem().map(|found| (found.state, found.message));
            assert_eq!(found, problem.map(|(state, why)| (state, why.to_owned())), "{known:?}");
            assert!(health.problem().is_none_or(|found| found.answered), "it answered before");
        }
        let silent = Health::new("sse", drain.clone());
        silent.set(ServerHealth::Unavailable("it fell".to_owned()));
        assert!(!silent.problem().unwrap().answered, "it never answered");
        assert_eq!(page(&health, &Method::HEAD).await.0, 200);
        assert_eq!(page(&health, &Method::POST).await.0, 405);
        drain.start();
        let (code, page) = page(&health, &Method::GET).await;
        assert_eq!((code, &page["status"]), (503, &object!("ending")));
    }
}
