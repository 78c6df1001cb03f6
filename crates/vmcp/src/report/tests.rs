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

#[test]
fn nothing_is_written_twice_and_another_replica_has_time_to_see_the_same() {
    let mut writer = Turns::default();
    let status = |count: usize, checked: &str| json!({ "backendCount": count, "discoveredBackends": [{ "name": "a", "lastHealthCheck": checked }] });
    let none = reported(&json!({ "status": { "phase": "Ready" } }));
    assert!(writer.is_due(&none, &status(1, "t1")), "the first report is written at once");
    writer.written = Some(lasting(&status(1, "t1")));
    assert!(!writer.is_due(&status(1, "t1"), &status(1, "t2")), "only the time differs");
    assert!(writer.is_due(&status(1, "t1"), &status(0, "t2")), "what we wrote is ours to change");
    assert!(!writer.is_due(&status(2, "t1"), &status(0, "t2")), "another replica wrote that just now");
    assert!(writer.is_due(&status(2, "t1"), &status(0, "t3")), "and it still stands");
}
