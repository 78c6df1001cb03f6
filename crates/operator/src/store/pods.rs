//! What is worth remembering of a pod: whose it is, which template it was made from, and how it is.
//!
//! How it is must not flap: a container in a crash loop runs, ends and waits in turn, and is the same failure all the while. One without
//! a readiness probe even counts as ready from the moment it runs, so it is believed only once it has run for a while.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::kinds::{self, Backend, PodOwner};
use skep_plan::pod::PodStamps;
use skep_plan::world::{Failure, LivePod, PodState};

use super::PodId;

/// The reason of a container that ends again and again, whatever it is doing at the moment.
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// The reason of a container whose image cannot be pulled. The kubelet alternates between two reasons.
const IMAGE_PULL: &str = "ImagePullBackOff";
/// Reasons of a waiting container from which it does not come back by itself.
const HOPELESS: &[&str] = &[
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "InvalidImageName",
    "RunContainerError",
];
/// How long a container without a readiness probe must have run to count as ready.
const SETTLES_AFTER: SignedDuration = SignedDuration::from_secs(2);
/// The same for one that ended before. The shortest back-off of a kubelet is 10 s.
const SETTLES_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// The longest time of that kind: a container that runs for longer serves, however it ends.
const SETTLES_AT_LAST_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// A run of this length ends a crash loop: the kubelet resets its back-off after it.
const BACKOFF_RESETS_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// A container that was started again so long after its end was backed off: for 10 s at least, as reported in whole seconds.
const BACKED_OFF_AFTER: SignedDuration = SignedDuration::from_secs(9);
/// How long after its grace period a pod that is deleted is still taken for one that is on its way.
const HANGS_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How much of the termination message of a container is reported, in characters.
const LONGEST_MESSAGE: usize = 1024;

/// What is remembered of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace and name.
    pub id: PodId,
    /// Its uid.
    pub uid: String,
    /// The resource that it runs for.
    pub owner: Key,
    /// Whether it is a pod of the StatefulSet that the proxy of an MCPServer made.
    pub is_backend: bool,
    /// Whether its controller gives the pod that replaces it the same name.
    pub keeps_name: bool,
    /// How it is; nothing for one that is being deleted or has ended: its controller replaces it, and counts it no more.
    pub state: Option<PodState>,
    /// From when on it is still there though it was to be gone long before, if it is being deleted.
    pub hangs_from: Option<Timestamp>,
    /// Why the kubelet rejected or evicted it, if it did.
    pub end: Option<Failure>,
    /// Whether it does not count as ready yet though its container says so.
    pub settling: Option<Settling>,
    /// What its template was stamped with.
    pub stamps: PodStamps,
    /// The revision of its template, as its controller calls it.
    pub revision: Option<String>,
    /// When it was made.
    pub created: String,
}

/// A pod that says it is ready and is not believed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// When its container was started, by the clock of its node.
    started: Timestamp,
    /// How long the container must have run.
    after: SignedDuration,
    /// How it counts meanwhile.
    meanwhile: PodState,
    /// Until when.
    pub until: Timestamp,
}

// === impl Settling ===

impl Settling {
    /// The same as it is observed at `now`: it lasts no longer from the first time on that it is observed, whatever the clock of the
    /// node says.
    pub(super) fn observed(mut self, before: Option<&Self>, now: Timestamp) -> Self {
        let is_same = |before: &&Self| (before.started, before.after) == (self.started, self.after);
        self.until = match before.filter(is_same) {
            Some(before) => before.until,
            None => now.checked_add(self.after).map_or(self.until, |latest| self.until.min(latest)),
        };
        self
    }
}

// === impl PodFacts ===

impl PodFacts {
    /// What a plan sees of it now, and when that changes by itself. Nothing for a pod that is on its way out.
    pub fn live(&self, now: Timestamp) -> Option<(LivePod, Option<Timestamp>)> {
        let settling = self.settling.as_ref().filter(|settling| now < settling.until);
        let state = settling.map_or(self.state.clone()?, |settling| settling.meanwhile.clone());
        Some((self.in_state(state), settling.map(|settling| settling.until)))
    }

    /// What a plan sees of a pod that the kubelet rejected or evicted.
    pub fn ended(&self) -> Option<LivePod> {
        self.end.clone().map(|end| self.in_state(PodState::Failed(end)))
    }

    /// Whether it counts as ready now.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.live(now).is_some_and(|(pod, _)| pod.state == PodState::Ready)
    }

    /// Whether it was made from the same template of the same workload.
    pub fn is_sibling(&self, other: &Self) -> bool {
        self.is_backend == other.is_backend && self.stamps == other.stamps && self.revision == other.revision
    }

    fn in_state(&self, state: PodState) -> LivePod {
        LivePod {
            name: self.id.name.clone(),
            uid: self.uid.clone(),
            state,
            stamps: self.stamps.clone(),
            revision: self.revision.clone(),
            created: self.created.clone(),
        }
    }
}

/// What is worth remembering of a pod; nothing if it runs for none of our resources.
pub fn pod_facts(pod: &Pod) -> Option<PodFacts> {
    let metadata = &pod.metadata;
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let (owner, is_backend) = owner(pod)?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended = metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded"));
    let state = (!has_ended).then(|| pod_state(pod));
    let settling = settling(pod).filter(|_| state == Some(PodState::Ready));
    // A kubelet that rejects or evicts a pod says why. One that ends a pod because it is deleted does not.
    let said = |status: &PodStatus| Some(failure(status.reason.as_deref()?, status.message.as_deref()));
    let end = pod.status.as_ref().filter(|_| phase == Some("Failed")).and_then(said);
    let annotations = metadata.annotations.as_ref();
    let keeps_name = controller(pod).is_some_and(|owner| owner.kind == "StatefulSet");
    Some(PodFacts {
        id: PodId { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? },
        uid: metadata.uid.clone().unwrap_or_default(),
        owner,
        is_backend,
        keeps_name,
        state,
        hangs_from: hangs_from(pod),
        end,
        settling,
        stamps: PodStamps::of(|name| annotations.and_then(|all| all.get(name)).map(String::as_str)),
        // The label that its controller writes: the other one may stand in a user's template.
        revision: label(if keeps_name { "controller-revision-hash" } else { "pod-template-hash" }).cloned(),
        created: metadata.creation_timestamp.as_ref().map(|at| at.0.to_string()).unwrap_or_default(),
    })
}

/// From when on a pod that is being deleted is overdue. The timestamp of its deletion is the end of its grace period.
fn hangs_from(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_add(HANGS_AFTER).ok()
}

/// The resource that a pod runs for, and whether as its backend.
fn owner(pod: &Pod) -> Option<(Key, bool)> {
    let metadata = &pod.metadata;
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let namespace = metadata.namespace.as_deref()?;
    // All labels may be a user's own where we do not set them: on the pods of a backend, and some on those of an EmbeddingServer or
    // MCPRegistry. Who made the pod is not.
    let controller = controller(pod);
    let set = controller.filter(|owner| owner.kind == Backend::KIND.as_str()).map(|owner| owner.name.as_str());
    if let Some(name) = label(Backend::OWNER_LABEL).filter(|name| set == Some(name)) {
        return Some((Backend::owner(namespace, name)?, true));
    }
    let owner = kinds::pod_owners(label).into_iter().find(|owner| is_made_by(controller, owner))?;
    Some((Key::resource(owner.kind, namespace, &owner.name), false))
}

/// Whether a pod was made by the workload that its labels name: by a StatefulSet, or by a ReplicaSet of a Deployment. Of a pod that no
/// controller made, its labels are all there is to know.
fn is_made_by(controller: Option<&OwnerReference>, owner: &PodOwner) -> bool {
    let Some(OwnerReference { kind: made_by, name, .. }) = controller else { return true };
    let workload = &owner.workload_name;
    match owner.workload {
        ChildKind::StatefulSet => made_by == "StatefulSet" && name == workload,
        // A ReplicaSet is called after its Deployment and the hash of its template.
        _ => {
            made_by == "ReplicaSet" && (name == workload || name.rsplit_once('-').is_some_and(|(of, _)| of == workload))
        }
    }
}

/// The controller that made a pod.
fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn pod_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Pending };
    let condition = |name: &str| status.conditions.iter().flatten().find(|one| one.type_ == name);
    if condition("Ready").is_some_and(|one| one.status == "True") {
        return PodState::Ready;
    }
    let unready_since = condition("Ready").and_then(|one| one.last_transition_time.as_ref());
    let failed = |(one, may_exit): (&ContainerStatus, bool)| container_failure(one, may_exit, unready_since);
    if let Some(failure) = containers(pod, status).find_map(failed) {
        return PodState::Failed(failure);
    }
    match condition("PodScheduled").filter(|one| one.status == "False") {
        Some(one) if one.reason.as_deref() == Some(Failure::UNSCHEDULABLE) => {
            PodState::Failed(failure(Failure::UNSCHEDULABLE, one.message.as_deref()))
        }
        _ => PodState::Pending,
    }
}

/// The containers of a pod, and which of them may exit: init containers that are no sidecars.
fn containers<'a>(pod: &'a Pod, status: &'a PodStatus) -> impl Iterator<Item = (&'a ContainerStatus, bool)> {
    let declared = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let is_sidecar = |one: &Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars: Vec<&str> = declared.filter(|one| is_sidecar(one)).map(|one| one.name.as_str()).collect();
    let init = status.init_container_statuses.iter().flatten();
    init.map(move |one| (one, !sidecars.contains(&one.name.as_str())))
        .chain(status.container_statuses.iter().flatten().map(|one| (one, false)))
}

/// Why a container that is not ready does not become so by itself. `unready_since` says since when its pod is not ready. One that
/// may not exit has failed when it did, whatever its exit code is.
fn container_failure(container: &ContainerStatus, may_exit: bool, unready_since: Option<&Time>) -> Option<Failure> {
    let state = container.state.as_ref();
    let ended = |state: Option<&ContainerState>| state.and_then(|state| state.terminated.clone());
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let message = waiting.and_then(|waiting| waiting.message.as_deref());
    match reason {
        "ErrImagePull" | IMAGE_PULL => return Some(failure(IMAGE_PULL, message.map(pull_problem))),
        reason if HOPELESS.contains(&reason) => return Some(failure(reason, message)),
        _ => {}
    }
    let running = state.and_then(|state| state.running.as_ref()).and_then(|running| running.started_at.as_ref());
    // One that became ready in its present run and is not ready now has got over its last end, however it ended.
    let was_ready_since = running.zip(unready_since).is_some_and(|(started, since)| started.0 < since.0);
    let last = ended(state).or_else(|| ended(container.last_state.as_ref()).filter(|_| !was_ready_since));
    match last {
        Some(end) if !may_exit || end.exit_code != 0 || reason == CRASH_LOOP => Some(crash(container, &end)),
        None if reason == CRASH_LOOP => Some(failure(CRASH_LOOP, None)),
        _ => None,
    }
}

/// A container that ended: what it said itself, else how it ended. The reason is that of a crash loop from the first end on, so that it
/// does not change with the second; only then it is final.
fn crash(status: &ContainerStatus, end: &ContainerStateTerminated) -> Failure {
    let container = &status.name;
    let said = end.message.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let how = match end.reason.as_deref().filter(|reason| !matches!(*reason, "Error" | "Completed" | "")) {
        Some(reason) => format!("container `{container}` ended: {reason} (exit code {})", end.exit_code),
        None => format!("container `{container}` ended with exit code {}", end.exit_code),
    };
    let failure = failure(CRASH_LOOP, Some(&said.map_or(how.clone(), |said| format!("{how}: {said}"))));
    Failure { is_first: !is_loop(status, end), ..failure }
}

/// Whether a container ends again and again: the kubelet backs off, or did so before the present run, or it ended at least twice. An end
/// after a run that reset the back-off begins anew: the container was ready in between.
fn is_loop(status: &ContainerStatus, end: &ContainerStateTerminated) -> bool {
    let state = status.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.as_deref());
    let has_ended = state.is_some_and(|state| state.terminated.is_some());
    let ends = status.restart_count + i32::from(has_ended);
    let started = state.and_then(|state| state.running.as_ref()).and_then(|running| running.started_at.as_ref());
    let pause = started.zip(end.finished_at.as_ref()).map(|(start, end)| start.0.duration_since(end.0));
    let is_backing_off = waiting == Some(CRASH_LOOP) || pause.is_some_and(|pause| pause >= BACKED_OFF_AFTER);
    is_backing_off || (ends >= 2 && run_length(end) < BACKOFF_RESETS_AFTER)
}

/// How long a container ran before it ended.
fn run_length(end: &ContainerStateTerminated) -> SignedDuration {
    let run = end.started_at.as_ref().zip(end.finished_at.as_ref());
    run.map(|(started, finished)| finished.0.duration_since(started.0)).unwrap_or_default()
}

/// The part of a kubelet's message that says what is wrong. While it backs off, it repeats what it said when it tried.
fn pull_problem(message: &str) -> &str {
    message.split_once("ErrImagePull: ").map_or(message, |(_, problem)| problem)
}

/// A failure as a condition takes it: a message of one line, clipped, and a CamelCase reason.
fn failure(reason: &str, message: Option<&str>) -> Failure {
    let is_word = reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.chars().all(|one| one.is_ascii_alphanumeric());
    let reason = if is_word { reason } else { "PodFailed" }.to_owned();
    let message: Vec<&str> = message.unwrap_or_default().split_whitespace().collect();
    Failure { reason, message: message.join(" ").chars().take(LONGEST_MESSAGE).collect(), is_first: false }
}

/// Until when a pod that says it is ready is not believed, and how it counts meanwhile: one of its containers has no readiness probe
/// and was started only just now.
fn settling(pod: &Pod) -> Option<Settling> {
    let spec = pod.spec.as_ref()?;
    let is_probed = |name: &str| {
        spec.containers.iter().any(|container| container.name == name && container.readiness_probe.is_some())
    };
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let settle = |container: &ContainerStatus| {
        let started = container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let (after, meanwhile) = match last {
            Some(end) => (settles_again_after(container, end), PodState::Failed(crash(container, end))),
            None => (SETTLES_AFTER, PodState::Pending),
        };
        Some(Settling { started, after, meanwhile, until: started.checked_add(after).ok()? })
    };
    containers.filter(|container| !is_probed(&container.name)).filter_map(settle).max_by_key(|settling| settling.until)
}

/// How long a container that ended before must have run to count as ready. One in a crash loop must outlive its previous run, or it
/// would count as ready in every run until it ends again. One end is not a crash loop, and neither is one after a run that reset the kubelet's
/// back-off, by which a loop is over.
fn settles_again_after(container: &ContainerStatus, end: &ContainerStateTerminated) -> SignedDuration {
    let previous = run_length(end);
    if container.restart_count <= 1 || previous >= BACKOFF_RESETS_AFTER {
        return SETTLES_AGAIN_AFTER;
    }
    previous.saturating_add(SETTLES_AGAIN_AFTER).clamp(SETTLES_AGAIN_AFTER, SETTLES_AT_LAST_AFTER)
}

#[cfg(test)]
mod tests;
