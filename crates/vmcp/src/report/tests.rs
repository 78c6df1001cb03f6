use super::*;
use crate::health::Category;

fn sentence(healths: &[Health]) -> String {
    message(healths.len(), |health| healths.iter().filter(|known| **known == health).count())
}

#[test]
fn all_backends_in_one_sentence_of_the_original() {
    use Health::{Degraded, Healthy, Unauthenticated, Unhealthy, Unknown};
    for (healths, expected) in [
        (&[][..], "Ready, no backends configured"),
        (&[Unknown, Unknown], "Waiting for initial health checks (2 backends configured)"),
        (&[Healthy], "All 1 backend healthy"),
        (&[Healthy, Healthy], "All 2 backends healthy"),
        (&[Healthy, Unauthenticated], "1 backends healthy, 1 require authentication"),
        (&[Unauthenticated, Unauthenticated], "All 2 backends require authentication"),
        (&[Degraded, Unhealthy], "No routable backends (1 degraded, 1 unhealthy, 0 unknown)"),
        (&[Healthy, Unhealthy, Unknown], "1/3 backends routable (0 degraded, 1 unhealthy, 1 unknown)"),
    ] {
        assert_eq!(sentence(healths), expected);
    }
}

#[test]
fn a_backend_in_one_sentence_of_the_original() {
    let known = |health, failures, category| BackendHealth { health, failures, category, ..BackendHealth::default() };
    for (known, expected) in [
        (known(Health::Healthy, 0, None), "Healthy"),
        (known(Health::Unhealthy, 3, Some(Category::Timeout)), "Health check timed out (failures: 3)"),
        (known(Health::Healthy, 1, Some(Category::ConnectionFailed)), "Connection failed"),
        (BackendHealth { recovered_from: 4, ..known(Health::Degraded, 0, None) }, "Recovering from 4 failures"),
        (known(Health::Degraded, 0, None), "Degraded performance"),
        (
            BackendHealth {
                breaker: BreakerState::Open,
                ..known(Health::Unhealthy, 5, Some(Category::BackendUnavailable))
            },
            "Circuit breaker OPEN - Backend unavailable (failures: 5)",
        ),
        (
            BackendHealth { breaker: BreakerState::HalfOpen, ..known(Health::Unhealthy, 0, None) },
            "Circuit breaker testing recovery - Unhealthy",
        ),
    ] {
        assert_eq!(text(&known), expected);
    }
}

const INTERVAL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn nothing_is_written_twice_and_another_replica_has_time_to_see_the_same() {
    let mut turns = Turns::default();
    let status = |count: usize, checked: &str| json!({ "backendCount": count, "discoveredBackends": [{ "name": "a", "lastHealthCheck": checked }] });
    let none = reported(&json!({ "status": { "phase": "Ready" } }));
    assert!(turns.is_due(&none, &status(1, "t1"), INTERVAL), "the first report is written at once");
    turns.written = Some(without(&status(1, "t1"), CHECKED));
    assert!(!turns.is_due(&status(1, "t1"), &status(1, "t2"), INTERVAL), "only the time differs");
    assert!(turns.is_due(&status(1, "t1"), &status(0, "t2"), INTERVAL), "what we wrote is ours to change");
    // However often the replica wakes up, what another one wrote stands for an interval.
    for _ in 0..3 {
        assert!(!turns.is_due(&status(2, "t1"), &status(0, "t2"), INTERVAL), "another replica wrote that just now");
        tokio::time::advance(INTERVAL / 4).await;
    }
    tokio::time::advance(INTERVAL / 4).await;
    assert!(!turns.is_due(&status(3, "t1"), &status(0, "t3"), INTERVAL), "it wrote something else since");
    tokio::time::advance(INTERVAL).await;
    assert!(turns.is_due(&status(3, "t2"), &status(0, "t3"), INTERVAL), "and that still stands");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_see_the_same_do_not_overwrite_each_other() {
    let report = |status: &str, breaker: &str, failures: usize| {
        json!({ "backendCount": 0, "discoveredBackends": [{
            "name": "a", "status": status, "circuitBreakerState": breaker, "lastHealthCheck": format!("t{failures}"),
            "circuitLastChanged": format!("t{failures}"), "consecutiveFailures": failures,
            "message": format!("Connection failed (failures: {failures})"),
        }]})
    };
    let mut turns = Turns { written: Some(without(&report("unavailable", "closed", 3), CHECKED)), ..Turns::default() };
    for failures in 4..8 {
        let current = report("unavailable", "closed", failures);
        assert!(!turns.is_due(&current, &report("unavailable", "closed", 9), INTERVAL), "{failures}");
        tokio::time::advance(INTERVAL).await;
    }
    // What they do see differently is written after an interval, though the other one goes on counting.
    for (ours, failures) in [(report("ready", "closed", 0), 8), (report("unavailable", "open", 9), 10)] {
        assert!(!turns.is_due(&report("unavailable", "closed", failures), &ours, INTERVAL));
        tokio::time::advance(INTERVAL).await;
        assert!(turns.is_due(&report("unavailable", "closed", failures + 1), &ours, INTERVAL));
        turns.foreign = None;
    }
    // What this replica counts is its own to change.
    let current = report("unavailable", "closed", 3);
    assert!(turns.is_due(&current, &report("unavailable", "closed", 4), INTERVAL));
}
