//! Names stay those of their backends, however these are, and no backend makes the calls of others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use skep_upstream::{CallError, Upstream as _};
use skep_vmcp::health::MonitorSettings;
use tokio::time::Instant;

use crate::rig::{Answers, Rig, echoing, request, responded};

const MONITOR: MonitorSettings = MonitorSettings {
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
    threshold: 3,
    breaker: None,
};

fn rules(strategy: &str) -> Value {
    json!({ "conflictResolution": strategy,
        "conflictResolutionConfig": { "prefixFormat": "{workload}_", "priorityOrder": ["a", "a_b"] } })
}

/// A server that fails whatever it is asked while the switch is on.
fn failing(is_down: &Arc<AtomicBool>, answers: Answers) -> Answers {
    let is_down = is_down.clone();
    Arc::new(move |call, request| {
        if is_down.load(Ordering::Relaxed) {
            return Some(json!({ "error": { "code": -32603, "message": "down" } }));
        }
        answers(call, request)
    })
}

/// A server that answers nothing at all.
fn hanging() -> Answers {
    Arc::new(|_, _| Some(Value::Null))
}

/// A server that lists late what it has.
fn slow(answers: Answers) -> Answers {
    Arc::new(move |call, request| {
        let mut response = answers(call, request)?;
        if request["method"] == "tools/list" {
            response["delay"] = json!(500);
        }
        Some(response)
    })
}

async fn names(rig: &Rig, session: &skep_upstream::SessionId) -> Vec<String> {
    let listed = responded(&rig.upstream, request(session, 1, "tools/list", &json!({}))).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// What a call of a tool comes to: the server, or what was wrong.
async fn called(rig: &Rig, session: &skep_upstream::SessionId, name: &str) -> Result<String, String> {
    let call = request(session, 2, "tools/call", &json!({ "name": name }));
    let mut replies = rig.upstream.clone().call(call).await.map_err(|error: CallError| error.to_string())?;
    let response = replies.response.response().await.unwrap();
    let response: Value = serde_json::from_slice(response.body()).unwrap();
    let server = response["result"]["structuredContent"]["server"].as_str();
    server.map(str::to_owned).ok_or_else(|| response["error"]["message"].to_string())
}

async fn until(rig: &Rig, is_routable: bool) {
    let mut changes = rig.backends.changes();
    while rig.backends.get("a").unwrap().health.is_routable() != is_routable {
        changes.changed().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_that_of_its_backend_while_that_is_down() {
    // `a` + `b_c` and `a_b` + `c` are one name; `x` is a tool of both.
    for (strategy, taken) in [("prefix", "a_b_c"), ("priority", "x"), ("prefixOnConflict", "a_x"), ("manual", "b_c")] {
        let is_down = Arc::new(AtomicBool::new(false));
        let servers =
            [("a", failing(&is_down, echoing("a", &["b_c", "x"]))), ("a_b", echoing("a_b", &["c", "x", "y"]))];
        let rig = Rig::monitored(&servers, &rules(strategy), Some(MONITOR));
        rig.serve(&["a", "a_b"]);
        let session = rig.open("s").await;
        let before = names(&rig, &session).await;
        assert!(before.iter().any(|name| name == taken), "{strategy}: {before:?}");
        assert_eq!(called(&rig, &session, taken).await.as_deref(), Ok("a"), "{strategy}");

        is_down.store(true, Ordering::Relaxed);
        until(&rig, false).await;
        let during = names(&rig, &session).await;
        assert!(!during.is_empty() && during.iter().all(|name| before.contains(name)), "{strategy}: {during:?}");
        for name in &before {
            match called(&rig, &session, name).await {
                Ok(server) => assert!(server == "a_b" && during.contains(name), "{strategy}: {name}"),
                Err(error) => {
                    assert!(error.contains("backend `a`: it failed its health checks"), "{strategy}: {name}: {error}");
                    assert!(!during.contains(name), "{strategy}: {name}");
                }
            }
        }
        assert!(called(&rig, &session, taken).await.is_err(), "{strategy}: the name is not free");

        is_down.store(false, Ordering::Relaxed);
        until(&rig, true).await;
        assert_eq!(names(&rig, &session).await, before, "{strategy}");
        assert_eq!(called(&rig, &session, taken).await.as_deref(), Ok("a"), "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_delays_no_call_of_another() {
    let rig = Rig::new(&[("a", hanging()), ("b", echoing("b", &["echo"]))], &rules("prefix"));
    let (session, start) = (rig.open("s").await, Instant::now());
    // The first call of all: nothing was listed before.
    assert_eq!(called(&rig, &session, "b_echo").await.as_deref(), Ok("b"));
    assert_eq!(start.elapsed(), Duration::ZERO, "what is named is known");
    assert!(called(&rig, &session, "a_echo").await.is_err());
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&start.elapsed()), "it could be its tool");
    let start = Instant::now();
    assert!(called(&rig, &session, "a_echo").await.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO, "nothing is waited for twice");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_delays_the_first_list_and_no_other() {
    let rig = Rig::new(&[("a", hanging()), ("b", echoing("b", &["echo"])), ("c", hanging())], &rules("prefix"));
    rig.serve(&["b"]);
    rig.serve(&["a", "b"]);
    let (session, start) = (rig.open("s").await, Instant::now());
    assert_eq!(names(&rig, &session).await, ["b_echo"]);
    assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&start.elapsed()));
    // Another one joins.
    rig.serve(&["a", "b", "c"]);
    let start = Instant::now();
    assert_eq!(names(&rig, &session).await, ["b_echo"]);
    assert_eq!(called(&rig, &session, "b_echo").await.as_deref(), Ok("b"));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Another backend may come before one that has the name, and its catalogue may be on its way.
#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_backend_that_would_have_the_name() {
    let rig =
        Rig::new(&[("a", slow(echoing("a", &["b_c", "x"]))), ("a_b", echoing("a_b", &["c", "x"]))], &rules("priority"));
    let session = rig.open("s").await;
    assert_eq!(called(&rig, &session, "x").await.as_deref(), Ok("a"), "whichever catalogue arrives first");
}
