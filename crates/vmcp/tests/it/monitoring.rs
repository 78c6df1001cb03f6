//! Checks of backends, and who is told of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use skep_vmcp::backend::Backend;
use skep_vmcp::health::{Health, MonitorSettings, monitor};

use crate::rig::{echoing, server, spec};

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
