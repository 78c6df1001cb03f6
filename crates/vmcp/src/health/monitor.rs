//! Checking backends: each one by itself, at its own times, with a little jitter so that many are not checked at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use skep_upstream::ClientContext;
use tokio::time::Instant;

use super::breaker::{BreakerSettings, Permit};
use super::state::{BackendHealth, Finding};
use crate::backend::Backend;
use crate::catalogue::fetch;
use crate::credentials::Strategy;
use crate::pages::revision;

/// A backend that takes longer for a check is degraded.
const SLOW: Duration = Duration::from_secs(5);
/// The part of an interval by which checks are moved at random: a tenth.
const JITTER: u32 = 10;

/// How backends are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorSettings {
    /// How often.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// How many failures in a row make a backend unhealthy.
    pub threshold: u32,
    /// The breaker, if there is one.
    pub breaker: Option<BreakerSettings>,
}

/// What a report says of a backend, but for the time of the last check.
#[derive(PartialEq)]
struct Reported {
    health: BackendHealth,
    is_checked: bool,
    revision: Option<&'static str>,
}

/// Checks a backend until it is gone. `changed` is called when what is reported of it changes, and not after a check that found the same.
pub async fn monitor(backend: Weak<Backend>, settings: MonitorSettings, changed: impl Fn() + Send) {
    if let Some(backend) = backend.upgrade() {
        backend.health.begin_monitoring(settings.breaker);
    }
    loop {
        {
            let Some(backend) = backend.upgrade() else { return };
            let before = Reported::of(&backend);
            if let Some(permit) = backend.health.permit_check() {
                check(&backend, settings, &permit).await;
            }
            if Reported::of(&backend) != before {
                changed();
            }
        }
        tokio::time::sleep(jittered(settings.interval)).await;
    }
}

// === impl Reported ===

impl Reported {
    fn of(backend: &Backend) -> Self {
        let known = backend.health.known();
        let is_checked = known.checked.is_some();
        Self { health: BackendHealth { checked: None, ..known }, is_checked, revision: revision(backend) }
    }
}

/// A check is a request of what the backend offers. Where that is the same for all clients, it is the refresh of their catalogue, or joins the
/// one in flight; one that fails says nothing about what is offered, and the last good catalogue stays. A backend that is called in the name
/// of clients is checked without credentials: that it refuses them says that it is there.
async fn check(backend: &Arc<Backend>, settings: MonitorSettings, permit: &Permit) {
    let started = Instant::now();
    let fetched = if backend.spec.strategy.is_of_client() {
        fetch(&backend.checked, &ClientContext::default(), settings.timeout).await.map(drop)
    } else {
        backend.offers.check(backend, settings.timeout).await
    };
    let is_slow = started.elapsed() > SLOW;
    let is_configured = !matches!(backend.spec.strategy, Strategy::None);
    let finding = Finding::of(&fetched, is_slow, is_configured);
    if backend.health.settle(finding, permit, settings.threshold) {
        let health = backend.health.known().health.as_str();
        tracing::info!(backend = &*backend.spec.name, health, "backend health changed");
    }
}

/// An interval that is moved at random, so that many do not come together.
pub(crate) fn jittered(interval: Duration) -> Duration {
    let part = interval / JITTER;
    let random = u32::from(uuid::Uuid::new_v4().as_bytes().first().copied().unwrap_or_default());
    interval.saturating_sub(part / 2) + part * random / 256
}
