//! Phase and readiness of a virtual server: from what was wrong with its plan, from its pods, and from what its
//! process says about the servers behind it.

use skep_api::kinds::{DiscoveredBackend, VirtualMCPServer};

use super::references::PASSING;
use crate::plan::Verdict;
use crate::status::Status;
use crate::world::{PodState, World};

/// Adds phase, message and readiness.
pub(super) fn add(status: &mut Status, object: &VirtualMCPServer, failure: Option<&Verdict>, world: &World<'_>) {
    let (phase, message, reason) = match failure {
        Some(Verdict::Refuse(why) | Verdict::Wait(why)) => failed(status, why, world),
        _ => running(object, world),
    };
    status.set("phase", phase).set("message", message.as_str()).condition("Ready", phase == "Ready", &reason, message);
}

/// The condition that says what failed also says, by its reason, whether that is only a matter of time.
fn failed(status: &Status, why: &str, world: &World<'_>) -> (&'static str, String, String) {
    let told = status.conditions().iter().find(|condition| !condition.holds && condition.message == why);
    let reason = match told {
        Some(condition) => condition.reason.as_str(),
        None if world.live.taken.is_empty() => "Failed",
        None => "NameTaken",
    };
    let phase = if PASSING.contains(&reason) { "Pending" } else { "Failed" };
    (phase, why.to_owned(), reason.to_owned())
}

fn running(object: &VirtualMCPServer, world: &World<'_>) -> (&'static str, String, String) {
    let pods = &world.live.pods;
    let ready = pods.iter().any(|pod| pod.state == PodState::Ready);
    let failed = pods.iter().find_map(|pod| match &pod.state {
        PodState::Failed(why) => Some(why.as_str()),
        PodState::Ready | PodState::Pending => None,
    });
    let backends = object.status.as_ref().map(|status| status.discovered_backends.as_slice()).unwrap_or_default();
    let (phase, message, reason) = match (ready, failed) {
        (true, _) => of_backends(backends),
        (false, Some(why)) => ("Failed", format!("Virtual MCP server failed to start: {why}"), "DeploymentFailed"),
        (false, None) if pods.is_empty() => {
            ("Pending", "No pods found for Virtual MCP server".to_owned(), "DeploymentNotReady")
        }
        (false, None) => ("Pending", "Virtual MCP server is starting".to_owned(), "DeploymentNotReady"),
    };
    (phase, message, reason.to_owned())
}

/// A server that does not know the virtual server answers all the same: its callers may sign in by themselves.
fn of_backends(backends: &[DiscoveredBackend]) -> (&'static str, String, &'static str) {
    let is = |backend: &DiscoveredBackend, states: &[&str]| {
        backend.status.as_deref().is_some_and(|status| states.contains(&status))
    };
    let all = backends.len();
    let routable = backends.iter().filter(|backend| is(backend, &["ready", "unauthenticated"])).count();
    let unhealthy = backends.iter().filter(|backend| is(backend, &["degraded", "unavailable"])).count();
    match (routable, unhealthy) {
        _ if routable == all => ("Ready", "Virtual MCP server is running".to_owned(), "DeploymentReady"),
        (0, 0) => {
            let message = format!("Virtual MCP server is running; nothing is known yet of its {all} backends");
            ("Degraded", message, "BackendsUnknown")
        }
        (0, _) => {
            let message = format!("Virtual MCP server is running but all {all} backends are unhealthy");
            ("Degraded", message, "BackendsUnavailable")
        }
        _ => {
            let message = format!("Virtual MCP server is running with {routable}/{all} backends available");
            ("Degraded", message, "BackendsDegraded")
        }
    }
}
