//! Phase and readiness of a server: from what was wrong with its plan, from the pods of its proxy, and from its backend.

use skep_api::kinds::MCPServer;

use crate::pod::PodStamps;
use crate::proxy::Outcome;
use crate::readiness::{Readiness, ReadinessTexts, keep_hashes, was_ready};
use crate::rollout::{Planned, Rollout, Serving, Stage, observe};
use crate::status::Status;
use crate::world::{Live, LiveWorkload, PodState, UpstreamReport, UpstreamState, World};

const TEXTS: ReadinessTexts = ReadinessTexts {
    subject: "MCP server",
    no_pods: "MCP server is being created",
    failed: "MCP server pod failed",
    stopped: "Stopped",
    ready: "Ready",
    not_ready: "NotReady",
};

/// Adds phase, message, readiness and the number of ready pods.
pub(super) fn add(status: &mut Status, object: &MCPServer, outcome: &Outcome, world: &World<'_>) {
    let live = world.live;
    let stamps = outcome.stamps();
    let was_ready = was_ready(&object.metadata, object.status.as_ref().map(|status| status.conditions.as_slice()));
    let proxy = observe(live.workload.as_ref(), &live.pods, stamps.as_ref().into(), was_ready);
    let generation = stamps.as_ref().and_then(PodStamps::generation);
    let is_served = proxy.serving != Serving::Nothing && live.backend.as_ref().is_some_and(|backend| backend.ready > 0);
    let reason = outcome.refusal_reason(TEXTS.not_ready);
    let refused = Readiness::refused(&outcome.verdict(), reason, "Failed", is_served);
    let readiness = refused.unwrap_or_else(|| of_both(&proxy, generation, was_ready, live));
    readiness.write(status);
    keep_hashes(status, &proxy);
    // A count of zero is left out, as long as there was never a pod to count.
    let is_counted = !live.pods.is_empty() || proxy.stage == Stage::Stopped;
    let count = i64::try_from(proxy.ready).unwrap_or(i64::MAX);
    status.set("readyReplicas", if is_counted { count.into() } else { serde_json::Value::Null });
}

/// The proxy comes first: while it is not of this plan, its backend cannot be. Nothing serves without a backend, so the phase follows
/// both.
fn of_both(proxy: &Rollout, generation: Option<i64>, was_ready: bool, live: &Live) -> Readiness {
    let of_proxy = Readiness::of(proxy, &TEXTS);
    if proxy.serving == Serving::Nothing {
        return of_proxy;
    }
    let Some(backend) = &live.backend else {
        if let Some(report) = current_report(live.unmade.as_ref(), live) {
            return of_report(report, false, live);
        }
        let message = "MCP server proxy is running; its workload StatefulSet is being created".to_owned();
        return Readiness::waiting("Pending", TEXTS.not_ready, message);
    };
    let of_backend = of_backend(backend, generation, was_ready, live);
    if of_proxy.is_ready() {
        return of_backend;
    }
    if backend.ready > 0 { of_proxy } else { of_proxy.in_phase(of_backend.phase()) }
}

/// The backend is ready when all pods of its current revision are, for the generation of this plan, and its proxy reaches it.
fn of_backend(backend: &LiveWorkload, generation: Option<i64>, was_ready: bool, live: &Live) -> Readiness {
    let is_serving = backend.ready > 0;
    let phase = |otherwise: &'static str| if is_serving { "Ready" } else { otherwise };
    let rollout = observe(Some(backend), &live.backend_pods, Planned::Revision, was_ready);
    let stamps = backend.generation_stamp.zip(generation);
    let is_outdated = stamps.is_some_and(|(live, planned)| live < planned);
    // No proxy applies a StatefulSet over a greater generation than its own.
    if let Some((live, planned)) = stamps.filter(|(live, planned)| live > planned) {
        let message = format!(
            "the backend is of generation {live}, which is greater than {planned}, so that no proxy applies the current configuration \
             to it; delete its StatefulSet, which the proxy then creates anew"
        );
        return Readiness::failed(phase("Failed"), "BackendGenerationConflict", message, true);
    }
    let upstream = current_report(backend.upstream.as_ref(), live);
    match (&rollout.stage, upstream) {
        (Stage::Stopped, _) => {
            let message = format!("{} is stopped (its backend is scaled to zero)", TEXTS.subject);
            Readiness::waiting("Stopped", "BackendScaledToZero", message)
        }
        (Stage::Stalled(stall), _) if !is_outdated => {
            let message = format!("backend {stall}");
            Readiness::failed(phase("Failed"), &stall.failure.reason, message, stall.is_final)
        }
        (_, Some(report)) => of_report(report, is_serving, live),
        (Stage::Complete(count), None) if is_serving && !is_outdated => {
            let partial = if count.is_partial() { format!("; {count}") } else { String::new() };
            Readiness::ready(TEXTS.ready, format!("{} is running{partial}", TEXTS.subject))
        }
        _ if is_serving => Readiness::rolling_out("Ready", "the backend is rolling out".to_owned()),
        _ => Readiness::rolling_out("Pending", "the backend is starting".to_owned()),
    }
}

/// A report of a proxy that runs: one of a pod that is gone says nothing.
fn current_report<'a>(report: Option<&'a UpstreamReport>, live: &Live) -> Option<&'a UpstreamReport> {
    report.filter(|report| live.pods.iter().any(|pod| pod.name == report.pod))
}

/// The proxy of the backend cannot use it, and knows why, whether its pods are ready or not. A server that never answered does not serve,
/// unless another proxy reaches it; one that did is expected back.
fn of_report(report: &UpstreamReport, is_serving: bool, live: &Live) -> Readiness {
    let UpstreamReport { state, answered, message, .. } = report;
    let is_reached = live.pods.iter().any(|pod| pod.name != report.pod && pod.state == PodState::Ready);
    let phase = |otherwise: &'static str| match (is_serving, *answered) {
        (true, answered) if answered || is_reached => "Ready",
        (false, true) => "Pending",
        _ => otherwise,
    };
    match state {
        UpstreamState::Starting => {
            Readiness::rolling_out(phase("Pending"), format!("the backend is starting: {message}"))
        }
        UpstreamState::Degraded => {
            let message = format!("the backend is not usable: {message}");
            Readiness::failed(phase("Failed"), "UpstreamDegraded", message, false)
        }
    }
}
