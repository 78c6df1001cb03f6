//! What backends offer, also when they are broken or hostile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use skep_mcp::list::List;
use skep_net::Budget;
use skep_upstream::{CallError, ClientContext, Upstream};
use skep_vmcp::backend::Backend;
use skep_vmcp::catalogue::{FetchError, fetch, fetch_within};
use skep_vmcp::health::{Health, MonitorSettings, monitor};
use skep_vmcp::offer::{CatalogueUse, Offer, Viewer};

use crate::rig::{Answers, server, spec};

const TIMEOUT: Duration = Duration::from_secs(30);

fn discovered() -> Value {
    json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {}, "prompts": {} } })
}

/// A server with a tool and a prompt whose prompts cannot be listed from the second time on.
fn failing_later() -> Answers {
    let lists = AtomicUsize::new(0);
    Arc::new(move |_, request| {
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => discovered(),
            "tools/list" => {
                let count = lists.fetch_add(1, Ordering::Relaxed);
                json!({ "tools": [{ "name": format!("tool-{count}") }] })
            }
            "prompts/list" if lists.load(Ordering::Relaxed) < 2 => json!({ "prompts": [{ "name": "prompt" }] }),
            _ => return Some(json!({ "error": { "code": -32603, "message": "broken" } })),
        };
        Some(json!({ "result": result }))
    })
}

#[tokio::test]
async fn a_list_that_fails_stays_as_it_was_and_takes_no_other_with_it() {
    let upstream: Arc<dyn Upstream> = server(failing_later());
    let client = ClientContext::default();
    let first = fetch(&upstream, &client, TIMEOUT).await.unwrap();
    assert_eq!((first.tools.len(), first.prompts.len(), first.stale.len()), (1, 1, 0));
    let second = fetch(&upstream, &client, TIMEOUT).await.unwrap();
    assert_eq!((&*second.tools[0].name, second.prompts.len()), ("tool-1", 0));
    assert_eq!(second.stale, [List::Prompts]);

    let backend = Backend::over(spec("a"), server(failing_later()));
    let offer = backend.offers.to(&backend, Viewer::Anyone, &client, CatalogueUse::List);
    assert_eq!(offer.first().await.unwrap().catalogue.prompts.len(), 1);
    let mut changes = backend.offers.changes();
    changes.borrow_and_update();
    backend.expire();
    changes.changed().await.unwrap();
    let known = offer.known().unwrap().catalogue;
    assert_eq!((&*known.tools[0].name, &*known.prompts[0].name), ("tool-1", "prompt"));
}

/// A server whose one tool is named by a version, and takes half a second to list it.
fn versioned(version: &Arc<AtomicUsize>, lists: &Arc<AtomicUsize>) -> Answers {
    let (version, lists) = (version.clone(), lists.clone());
    Arc::new(move |_, request| {
        let discovers = request["method"] == "server/discover";
        if discovers {
            return Some(json!({ "result": { "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } } }));
        }
        lists.fetch_add(1, Ordering::Relaxed);
        let tool = json!({ "name": format!("tool-{}", version.load(Ordering::Relaxed)) });
        Some(json!({ "result": { "tools": [tool] }, "delay": 500 }))
    })
}

fn tool_of(offer: &Offer) -> Option<String> {
    offer.known().map(|known| known.catalogue.tools[0].name.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_fetch_is_not_lost() {
    let (version, lists) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let backend = Backend::over(spec("a"), server(versioned(&version, &lists)));
    let offer = backend.offers.to(&backend, Viewer::Anyone, &ClientContext::default(), CatalogueUse::List);
    let mut changes = backend.offers.changes();
    while lists.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    // It has read its list, and reports a change before the response is complete.
    version.store(2, Ordering::Relaxed);
    backend.expire();
    changes.changed().await.unwrap();
    assert_eq!(tool_of(&offer).as_deref(), Some("tool-1"), "the first response is better than none");
    let repeated = tokio::time::timeout(TIMEOUT, changes.changed()).await;
    assert!(repeated.is_ok(), "the change is not lost");
    assert_eq!(tool_of(&offer).as_deref(), Some("tool-2"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(lists.load(Ordering::Relaxed), 2, "it is listed once more, and no more than that");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_reports_changes_without_end_is_listed_once_a_second() {
    let (version, lists) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let backend = Backend::over(spec("a"), server(versioned(&version, &lists)));
    for _ in 0..100 {
        backend.expire();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((2..10).contains(&lists.load(Ordering::Relaxed)), "{lists:?}");
}

/// A check and a refresh are one fetch, so neither overwrites what the other one has read later.
#[tokio::test(start_paused = true)]
async fn a_check_joins_the_fetch_that_is_in_flight() {
    let (version, lists) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let backend = Backend::over(spec("a"), server(versioned(&version, &lists)));
    let offer = backend.offers.to(&backend, Viewer::Anyone, &ClientContext::default(), CatalogueUse::List);
    let settings = MonitorSettings { interval: TIMEOUT, timeout: TIMEOUT / 3, threshold: 3, breaker: None };
    let _monitor = tokio::spawn(monitor(Arc::downgrade(&backend), settings, || {}));
    while backend.health.known().checked.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((backend.health.known().health, lists.load(Ordering::Relaxed)), (Health::Healthy, 1));
    assert_eq!(tool_of(&offer).as_deref(), Some("tool-1"));
}

#[tokio::test]
async fn a_backend_of_which_nothing_can_be_listed_failed() {
    let upstream: Arc<dyn Upstream> = server(Arc::new(|_, request| {
        let result = (request["method"] == "server/discover").then(discovered);
        Some(result.map_or_else(
            || json!({ "error": { "code": -32603, "message": "" } }),
            |result| json!({ "result": result }),
        ))
    }));
    let failed = fetch(&upstream, &ClientContext::default(), TIMEOUT).await;
    assert!(matches!(failed, Err(FetchError::Refused { code: -32603, .. })), "{failed:?}");
}

/// One that never ends is cut when it is too much, and not only once it is all here.
#[tokio::test]
async fn pages_are_requested_only_as_long_as_there_is_room_for_them() {
    let pages = Arc::new(AtomicUsize::new(0));
    let count = pages.clone();
    let upstream: Arc<dyn Upstream> = server(Arc::new(move |_, request| {
        let result = if request["method"] == "server/discover" {
            json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
        } else {
            let page = count.fetch_add(1, Ordering::Relaxed);
            let tool = json!({ "name": format!("t{page}"), "description": "x".repeat(4 * 1024 * 1024) });
            json!({ "tools": [tool], "nextCursor": page.to_string() })
        };
        Some(json!({ "result": result }))
    }));
    let failed = fetch(&upstream, &ClientContext::default(), TIMEOUT).await;
    assert_eq!(failed, Err(FetchError::TooMuch));
    assert_eq!(pages.load(Ordering::Relaxed), 8, "32 MiB are kept, and each page has a little more than 4 MiB");
}

#[tokio::test]
async fn what_is_fetched_at_the_same_time_is_bounded() {
    let upstream: Arc<dyn Upstream> = server(Arc::new(move |_, request| {
        let cursor = request["params"]["cursor"].as_str().map_or(0, |page| page.parse::<usize>().unwrap());
        let tool = json!({ "name": format!("t{cursor}"), "description": "x".repeat(100 * 1024) });
        let result = match request["method"].as_str().unwrap() {
            "tools/list" if cursor < 9 => json!({ "tools": [tool], "nextCursor": (cursor + 1).to_string() }),
            "tools/list" => json!({ "tools": [tool] }),
            _ => json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }),
        };
        Some(json!({ "result": result }))
    }));
    for (limit, has_room) in [(512 * 1024, false), (4 * 1024 * 1024, true)] {
        let budget = Budget::new(limit);
        let fetched = fetch_within(&budget, &upstream, &ClientContext::default(), TIMEOUT).await;
        match fetched {
            Ok(catalogue) => assert_eq!((catalogue.tools.len(), has_room), (10, true)),
            Err(error) => assert!(!has_room && matches!(error, FetchError::Call(CallError::Busy(_))), "{error:?}"),
        }
        assert_eq!(budget.held(), 0, "what was fetched counts elsewhere");
    }
}

#[tokio::test]
async fn a_backend_that_answers_garbage_is_malformed_and_nothing_more() {
    for (method, result) in [("server/discover", json!([1])), ("tools/list", json!({ "tools": "many" }))] {
        let upstream: Arc<dyn Upstream> = server(Arc::new(move |_, request| {
            let result =
                if request["method"] == method { result.clone() } else { json!({ "capabilities": { "tools": {} } }) };
            Some(json!({ "result": result }))
        }));
        let failed = fetch(&upstream, &ClientContext::default(), TIMEOUT).await;
        assert!(failed.is_err() || failed.as_ref().is_ok_and(|found| found.tools.is_empty()), "{method}: {failed:?}");
    }
}
