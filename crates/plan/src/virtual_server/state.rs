//! Phase and readiness of a virtual server: from what was wrong with its plan, from its pods, and from what its
//! process says about its backends.

use skep_api::kinds::{DiscoveredBackend, VirtualMCPServer};

use super::references::PASSING;
use crate::proxy::Outcome;
use crate::readiness::{Readiness, ReadinessTexts, keep_hashes, was_ready};
use crate::rollout::{Serving, observe};
use crate::status::Status;
use crate::world::World;

const TEXTS: ReadinessTexts = ReadinessTexts {
    subject: "Virtual MCP server",
    no_pods: "No pods found for Virtual MCP server",
    failed: "Virtual MCP server failed to start",
    stopped: "Pending",
    ready: "DeploymentReady",
    not_ready: "DeploymentNotReady",
};

/// The conditions about what the process says of its backends. The process writes two fields, and no condition: an array has one writer.
pub(super) fn report_backends(status: &mut Status, object: &VirtualMCPServer) {
    const DISCOVERED: &str = "BackendsDiscovered";
    let known = object.status.as_ref();
    let Some(known) = known.filter(|known| known.backend_count.is_some() || !known.discovered_backends.is_empty())
    else {
        status.keep_condition(DISCOVERED);
        return;
    };
    let all = known.discovered_backends.len();
    let message = match all {
        0 => "No backends configured".to_owned(),
        1 => "Discovered 1 backend".to_owned(),
        all => format!("Discovered {all} backends"),
    };
    status.condition(DISCOVERED, true, "BackendsDiscovered", message);
    let is_degraded = |backend: &&DiscoveredBackend| backend.status.as_deref() == Some("degraded");
    let degraded = known.discovered_backends.iter().filter(is_degraded).count();
    if degraded > 0 {
        status.condition("Degraded", true, "BackendsDegraded", format!("{degraded} backends degraded"));
    }
}

/// Adds phase, message and readiness.
pub(super) fn add(status: &mut Status, object: &VirtualMCPServer, outcome: &Outcome, world: &World<'_>) {
    let (live, stamps) = (world.live, outcome.stamps());
    let known = object.status.as_ref();
    let was_ready = was_ready(&object.metadata, known.map(|status| status.conditions.as_slice()));
    let rollout = observe(live.workload.as_ref(), &live.pods, stamps.as_ref().into(), was_ready);
    let is_serving = rollout.serving != Serving::Nothing;
    let reason = refusal_reason(status, outcome);
    let phase = if PASSING.contains(&reason.as_str()) { "Pending" } else { "Failed" };
    let readiness = Readiness::refused(&outcome.verdict(), &reason, phase, is_serving)
        .unwrap_or_else(|| Readiness::of(&rollout, &TEXTS));
    let backends = known.map(|status| status.discovered_backends.as_slice()).unwrap_or_default();
    match degraded(backends).filter(|_| is_serving) {
        Some((reason, message)) if readiness.is_ready() => Readiness::waiting("Degraded", reason, message),
        Some(_) => readiness.in_phase("Degraded"),
        None => readiness,
    }
    .write(status);
    keep_hashes(status, &rollout);
}

/// The condition that says what failed also says, by its reason, whether that is only a matter of time.
fn refusal_reason(status: &Status, outcome: &Outcome) -> String {
    let Some(error) = &outcome.error else { return String::new() };
    let message = error.to_string();
    let reported = status.conditions().iter().find(|condition| condition.is_false() && condition.message == message);
    reported.map_or(error.reason(), |condition| condition.reason.as_str()).to_owned()
}

/// Why a virtual server is degraded, if it is. A server that refuses the virtual server's credentials is up all the same: its clients may
/// authenticate by themselves.
fn degraded(backends: &[DiscoveredBackend]) -> Option<(&'static str, String)> {
    let is = |backend: &DiscoveredBackend, states: &[&str]| {
        backend.status.as_deref().is_some_and(|status| states.contains(&status))
    };
    let all = backends.len();
    let routable = backends.iter().filter(|backend| is(backend, &["ready", "unauthenticated"])).count();
    let unhealthy = backends.iter().filter(|backend| is(backend, &["degraded", "unavailable"])).count();
    match (routable, unhealthy) {
        _ if routable == all => None,
        (0, 0) => {
            let message = format!("Virtual MCP server is running; nothing is known yet of its {all} backends");
            Some(("BackendsUnknown", message))
        }
        (0, _) => {
            let message = format!("Virtual MCP server is running but all {all} backends are unhealthy");
            Some(("BackendsUnavailable", message))
        }
        _ => {
            let message = format!("Virtual MCP server is running with {routable}/{all} backends available");
            Some(("BackendsDegraded", message))
        }
    }
}
