//! What a virtual server says about its backends: in the status of its VirtualMCPServer, or in its log.
//!
//! ```text
//!   Backends ─▶ Report (pure) ─▶ the difference to the status ─▶ merge patch of `discoveredBackends` and `backendCount`
//! ```
//!
//! The operator makes phase and conditions of these two fields: `status.conditions` is an array and has one writer. Nothing is written while nothing
//! changed, so the time of the last check is that of the last report. Each replica watches the backends itself; where another one wrote something
//! else, a replica waits one interval before it writes, by when both mostly see the same. What each replica counts for itself, such as failures in
//! a row, is no difference to what another one wrote: the replicas would overwrite each other for ever.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::kinds::{CircuitState, DiscoveredBackend};
use skep_api::resource::KindName;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backend::Backend;
use crate::backends::{BackendSet, Backends};
use crate::discover::{Cluster, Watched, resource_of};
use crate::health::{BackendHealth, BreakerState, Health, jittered};
use crate::pages::revision;

/// How long the first checks are waited for.
const FIRST: Duration = Duration::from_secs(10);
/// Changes that follow each other within this time are reported together.
const DEBOUNCE: Duration = Duration::from_secs(2);
/// The member of a backend that changes without anything having changed.
const CHECKED: &[&str] = &["lastHealthCheck"];
/// The members of a backend that two replicas which see the same do not agree on: each counts, and knows the time, for itself.
const OF_REPLICA: &[&str] = &["lastHealthCheck", "circuitLastChanged", "consecutiveFailures", "message"];

/// What is known of the backends, for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Each of them, sorted by name.
    pub backends: Vec<DiscoveredBackend>,
    /// How many can be called: also those that want the credentials of a client.
    pub routable: usize,
    /// All of it in one sentence.
    pub message: String,
}

/// Writes reports to the status of a VirtualMCPServer.
struct Writer {
    api: Api<Watched>,
    name: String,
    /// How long the report of another replica stands before it is replaced.
    interval: Duration,
    turns: Turns,
}

/// Whose turn it is to write.
#[derive(Debug, Default)]
struct Turns {
    /// What this replica wrote last.
    written: Option<Value>,
    /// What another replica wrote, without what is its own, and when that was seen for the first time.
    foreign: Option<(Value, Instant)>,
}

// === impl Report ===

impl Report {
    /// What is known of these backends now.
    pub fn of(backends: &BackendSet) -> Self {
        let rows: Vec<DiscoveredBackend> = backends.values().map(row).collect();
        let healths: Vec<Health> = backends.values().map(|backend| backend.health.known().health).collect();
        let count = |health: Health| healths.iter().filter(|known| **known == health).count();
        let routable = count(Health::Healthy) + count(Health::Unauthenticated);
        Self { message: message(healths.len(), count), backends: rows, routable }
    }

    /// It as the members of a status that it stands in.
    fn status(&self) -> Value {
        json!({ "discoveredBackends": self.backends, "backendCount": self.routable })
    }
}

/// All backends in one sentence.
fn message(total: usize, count: impl Fn(Health) -> usize) -> String {
    let (healthy, wanting) = (count(Health::Healthy), count(Health::Unauthenticated));
    let (degraded, unhealthy, unknown) = (count(Health::Degraded), count(Health::Unhealthy), count(Health::Unknown));
    let noun = if total == 1 { "backend" } else { "backends" };
    let routable = healthy + wanting;
    if total == 0 {
        return "Ready, no backends configured".to_owned();
    }
    if unknown == total {
        return format!("Waiting for initial health checks ({total} {noun} configured)");
    }
    if healthy == total {
        return format!("All {total} {noun} healthy");
    }
    if wanting == total {
        return format!("All {total} {noun} require authentication");
    }
    if routable == total {
        return format!("{healthy} backends healthy, {wanting} require authentication");
    }
    let others = format!("({degraded} degraded, {unhealthy} unhealthy, {unknown} unknown)");
    if routable == 0 {
        return format!("No routable backends {others}");
    }
    format!("{routable}/{total} backends routable {others}")
}

fn row(backend: &Arc<Backend>) -> DiscoveredBackend {
    let known = backend.health.known();
    let (breaker, changed) = (circuit(known.breaker), known.breaker_changed.map(Time));
    DiscoveredBackend {
        name: backend.name().to_string(),
        url: Some(backend.spec.url.clone()),
        status: Some(known.health.as_status().to_owned()),
        auth_config_ref: backend.spec.auth_config_ref.clone(),
        auth_type: Some(backend.spec.auth_type.clone()),
        last_health_check: known.checked.map(Time),
        message: Some(text(&known)),
        circuit_breaker_state: backend.health.has_breaker().then_some(breaker),
        circuit_last_changed: changed,
        consecutive_failures: (known.failures > 0).then(|| i64::from(known.failures)),
        mcp_revision: revision(backend).map(str::to_owned),
    }
}

fn circuit(state: BreakerState) -> CircuitState {
    match state {
        BreakerState::Closed => CircuitState::Closed,
        BreakerState::Open => CircuitState::Open,
        BreakerState::HalfOpen => CircuitState::HalfOpen,
    }
}

/// How a backend is, in one sentence.
fn text(known: &BackendHealth) -> String {
    let mut text = match known.breaker {
        BreakerState::Closed => String::new(),
        BreakerState::Open => "Circuit breaker OPEN - ".to_owned(),
        BreakerState::HalfOpen => "Circuit breaker testing recovery - ".to_owned(),
    };
    if let Some(category) = known.category {
        text.push_str(category.text());
        if known.failures > 1 {
            // Writing to a text does not fail.
            let _written = write!(text, " (failures: {})", known.failures);
        }
        return text;
    }
    match known.health {
        Health::Healthy => text.push_str("Healthy"),
        Health::Degraded if known.recovered_from > 0 => {
            let _written = write!(text, "Recovering from {} failures", known.recovered_from);
        }
        Health::Degraded => text.push_str("Degraded performance"),
        Health::Unhealthy => text.push_str("Unhealthy"),
        Health::Unauthenticated => {
            text.push_str("Authentication misconfigured (backend requires auth, none configured)");
        }
        Health::Unknown => text.push_str("Unknown"),
    }
    text
}

/// Reports until its task ends: to the status of the VirtualMCPServer that the cluster names, else to the log.
pub(crate) fn spawn(tasks: &mut JoinSet<()>, cluster: Option<&Cluster>, backends: Arc<Backends>, interval: Duration) {
    let writer = cluster.and_then(|cluster| {
        let kind = resource_of(KindName::VirtualMCPServer);
        let api = Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind);
        Some(Writer { api, name: cluster.name.clone()?, interval, turns: Turns::default() })
    });
    tasks.spawn(report(backends, writer, interval).in_current_span());
}

async fn report(backends: Arc<Backends>, mut writer: Option<Writer>, interval: Duration) {
    let mut changes = backends.changes();
    first_checks(&backends).await;
    let mut message = None;
    loop {
        changes.borrow_and_update();
        let report = Report::of(&backends.all());
        if message.as_ref() != Some(&report.message) {
            tracing::info!(routable = report.routable, status = report.message, "backends reported");
            message = Some(report.message.clone());
        }
        if let Some(writer) = &mut writer
            && let Err(error) = writer.write(&report).await
        {
            tracing::warn!(%error, "status not written");
        }
        tokio::select! {
            outcome = changes.changed() => {
                if outcome.is_err() {
                    return;
                }
                tokio::time::sleep(DEBOUNCE).await;
            }
            () = tokio::time::sleep(jittered(interval)) => {}
        }
    }
}

/// Waits until every backend was checked once, or was given time enough for it.
async fn first_checks(backends: &Backends) {
    let (mut changes, until) = (backends.changes(), Instant::now() + FIRST);
    loop {
        let all = backends.all();
        if !all.is_empty() && all.values().all(|backend| backend.health.known().checked.is_some()) {
            return;
        }
        if !matches!(tokio::time::timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
            return;
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Writes what differs from the status, if anything does.
    async fn write(&mut self, report: &Report) -> Result<(), kube::Error> {
        let Some(current) = self.api.get_opt(&self.name).await? else { return Ok(()) };
        let (current, ours) = (reported(&current.into_value()), report.status());
        if !self.turns.is_due(&current, &ours, self.interval) {
            return Ok(());
        }
        let patch = json!({ "status": ours });
        self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.turns = Turns { written: Some(without(&ours, CHECKED)), foreign: None };
        Ok(())
    }
}

// === impl Turns ===

impl Turns {
    /// Whether our report is to be written over what is there.
    fn is_due(&mut self, current: &Value, ours: &Value, interval: Duration) -> bool {
        // What this replica wrote, or none did, is replaced at once.
        let standing = without(current, CHECKED);
        let is_own = self.written.as_ref() == Some(&standing);
        let is_first = current.get("backendCount").is_none_or(Value::is_null);
        if is_own || is_first {
            self.foreign = None;
            return standing != without(ours, CHECKED);
        }
        // What another replica wrote is replaced when it says something else, and still stands after an interval.
        let foreign = without(current, OF_REPLICA);
        if foreign == without(ours, OF_REPLICA) {
            self.foreign = None;
            return false;
        }
        let known = self.foreign.take().filter(|(known, _)| *known == foreign);
        let (_, since) = self.foreign.insert(known.unwrap_or_else(|| (foreign, Instant::now())));
        since.elapsed() >= interval
    }
}

/// The members of a status that a report stands in.
fn reported(resource: &Value) -> Value {
    let status = resource.get("status");
    let member = |name: &str| status.and_then(|status| status.get(name)).cloned().unwrap_or_default();
    let backends = match member("discoveredBackends") {
        Value::Null => json!([]),
        backends => backends,
    };
    json!({ "discoveredBackends": backends, "backendCount": member("backendCount") })
}

/// A report without these members of its backends.
fn without(report: &Value, members: &[&str]) -> Value {
    let mut report = report.clone();
    for row in report.get_mut("discoveredBackends").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(row) = row.as_object_mut() {
            row.retain(|name, _| !members.contains(&name.as_str()));
        }
    }
    report
}

#[cfg(test)]
mod tests;
