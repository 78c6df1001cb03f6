//! How the pods of a workload stand to the current plan: one classification for every kind that has pods.
//!
//! A pod is *current* if it carries the stamps of this very plan and is of the newest revision of its workload's template;
//! every other pod is *older*. Only current pods can complete a rollout, however healthy the older ones are.
//!
//! Pods that the kubelet rejected or evicted are no pods of the workload any more, and explain why it has none that is ready.

use crate::pod::PodStamps;
use crate::world::{Failure, LivePod, LiveWorkload, PodState, RolloutProgress};

/// What is observed of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// How far the rollout of the current plan is.
    pub(crate) stage: Stage,
    /// Which pods serve.
    pub(crate) serving: Serving,
    /// How many pods are ready, current and older.
    pub(crate) ready: usize,
    /// How many of them are older ones.
    pub(crate) ready_older: usize,
    /// Whether no pod of an earlier plan serves, or can serve again: an older pod that is not ready at the moment may be so at the
    /// next probe.
    pub(crate) is_taken_over: bool,
}

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is applied for this plan, or its controller has made no pod yet.
    NotApplied,
    /// The workload is scaled to zero.
    Stopped,
    /// The pods of this plan come up.
    RollingOut(Count),
    /// The rollout of this plan is paused: no pod of it comes up until the Deployment is resumed.
    Paused {
        /// The name of the Deployment.
        deployment: String,
        /// The pods so far.
        count: Count,
    },
    /// The pods of this plan cannot come up.
    Stalled(Stall),
    /// The pods of this plan serve. Of several replicas some may be missing, once all of them were ready.
    Complete(Count),
    /// The rollout completed, and no pod is ready any more.
    Unavailable,
}

/// How many current pods are ready, and how many there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) ready: usize,
    pub(crate) wanted: i32,
}

/// Why a rollout does not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// The pod that fails; none if no pod can be made.
    pub(crate) pod: Option<String>,
    /// What is wrong with it.
    pub(crate) failure: Failure,
    /// Whether only people can help.
    pub(crate) is_final: bool,
}

/// The current or the older pods of a workload: those that it has, and those that the kubelet rejected or evicted.
#[derive(Debug)]
struct Pods<'a> {
    live: Vec<&'a LivePod>,
    ended: Vec<&'a LivePod>,
}

/// Which pods serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// None.
    Nothing,
    /// Pods of an earlier plan alone.
    Older,
    /// Pods of this plan, perhaps beside older ones.
    Current,
}

/// By what the pods of a plan are known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Planned<'a> {
    /// By the stamps on their template, and by their revision.
    Stamped(&'a PodStamps),
    /// By their revision alone: their template carries no stamps of ours.
    Revision,
    /// The plan is not applied, so no pod is of it.
    Nothing,
}

/// Classifies the pods of a workload. `was_ready` says that the resource was ready in its present generation, and so had all its replicas
/// once.
pub(crate) fn observe(
    workload: Option<&LiveWorkload>,
    pods: &[LivePod],
    planned: Planned<'_>,
    was_ready: bool,
) -> Rollout {
    let (current, older) = split(workload, pods, planned);
    let (mut ready_current, ready_older) = (current.ready(), older.ready());
    if let (Some(workload), Planned::Revision, true) = (workload, planned, pods.is_empty()) {
        // Its pods are not seen, as those of an older proxy that labels them otherwise: its own count says what there is to know.
        ready_current = usize::try_from(workload.ready).unwrap_or_default();
    }
    let serving = match (ready_current, ready_older) {
        (0, 0) => Serving::Nothing,
        (0, _) => Serving::Older,
        _ => Serving::Current,
    };
    let stage = match (workload, planned) {
        (None, _) | (_, Planned::Nothing) => Stage::NotApplied,
        (Some(workload), _) if workload.replicas == 0 => Stage::Stopped,
        (Some(workload), _) => stage(workload, &current, &older, ready_current, was_ready),
    };
    let is_taken_over = older.live.is_empty()
        && match (workload, planned) {
            (None, _) => true,
            // The workload makes pods of an earlier plan.
            (Some(_), Planned::Nothing) => false,
            (Some(workload), _) => is_taken_over(workload, ready_current),
        };
    Rollout { stage, serving, ready: ready_current + ready_older, ready_older, is_taken_over }
}

/// Whether the controller of a workload makes pods of the current plan only. A workload without any pod is not enough: that of an
/// earlier plan may have been evicted, and its ReplicaSet makes another until the rollout has come to its end.
fn is_taken_over(workload: &LiveWorkload, ready: usize) -> bool {
    let progress = &workload.progress;
    let is_new = progress.observed_generation == 0;
    let is_stopped = workload.replicas == 0 && progress.total == 0;
    is_new || (is_all_updated(workload) && (ready > 0 || is_stopped))
}

/// Whether the controller has seen the current template, and counts no pod of another one.
fn is_all_updated(workload: &LiveWorkload) -> bool {
    let progress = &workload.progress;
    is_observed(workload) && progress.updated >= progress.total
}

/// Whether the controller has seen the current spec of its workload.
fn is_observed(workload: &LiveWorkload) -> bool {
    workload.generation > 0 && workload.progress.observed_generation >= workload.generation
}

/// The stage of a workload that should have pods.
fn stage(workload: &LiveWorkload, current: &Pods<'_>, older: &Pods<'_>, ready: usize, was_ready: bool) -> Stage {
    let progress = &workload.progress;
    let is_observed = is_observed(workload);
    let is_all_current = older.live.is_empty() && is_all_updated(workload);
    let count = Count { ready, wanted: workload.replicas };
    let has_all = usize::try_from(workload.replicas).is_ok_and(|wanted| ready >= wanted);
    // That the rollout completed once does not say that it did with as many replicas as there should be now.
    if is_all_current && (has_all || (ready > 0 && was_ready)) {
        return Stage::Complete(count);
    }
    // Older pods that fail are no cause: a Deployment replaces them, and those that block a StatefulSet are deleted ([`blocking`]).
    if let Some((pod, failure)) = current.first_failure() {
        return Stage::Stalled(Stall::of(Some(pod), failure, progress));
    }
    if let Some(stall) = hanging(workload).or_else(|| not_created(workload, current, older)) {
        return Stage::Stalled(stall);
    }
    // A Deployment leaves pods that were evicted behind: once another one is ready, they say nothing.
    // A StatefulSet makes the next pod where the last one was, so an older one may be the only one with a reason.
    let has_none = current.live.is_empty() && is_observed && progress.revision.is_some();
    let ended = current.first_end().or_else(|| older.first_end().filter(|_| has_none));
    if let Some((pod, failure)) = ended.filter(|_| ready == 0) {
        // The controller replaces the pod, and a node with more room may take the next one.
        return Stage::Stalled(Stall { is_final: false, ..Stall::of(Some(pod), failure, progress) });
    }
    if let Some(failure) = progress.failure.as_ref().filter(|_| is_observed) {
        return Stage::Stalled(Stall::of(None, failure, progress));
    }
    match (current.live.is_empty() && older.live.is_empty(), is_all_current && progress.completed) {
        (_, true) => Stage::Unavailable,
        _ if workload.is_paused => Stage::Paused { deployment: workload.name.clone(), count },
        (true, false) => Stage::NotApplied,
        (false, false) => Stage::RollingOut(count),
    }
}

/// A pod of a StatefulSet that does not go: another one has its name, and is made only when it is gone.
fn hanging(workload: &LiveWorkload) -> Option<Stall> {
    let pod = workload.hanging.first().filter(|_| workload.progress.revision.is_some())?;
    let message =
        "it does not terminate, and is replaced only when it is gone; if its node is lost, force its deletion";
    let failure = Failure { reason: Failure::TERMINATING.to_owned(), message: message.to_owned(), is_first: false };
    Some(Stall { pod: Some(pod.clone()), failure, is_final: false })
}

/// A StatefulSet of which no pod was made, though its controller has seen it: a quota or a policy forbids them, and only events say so.
fn not_created(workload: &LiveWorkload, current: &Pods<'_>, older: &Pods<'_>) -> Option<Stall> {
    let progress = &workload.progress;
    let is_tried = is_observed(workload) && progress.revision.is_some() && progress.total == 0;
    let has_none = [current, older].iter().all(|pods| pods.live.is_empty() && pods.ended.is_empty());
    if !is_tried || !has_none {
        return None;
    }
    let message = "no pod was created; see the events of the StatefulSet that is named after this resource";
    let failure = Failure { reason: Failure::NO_PODS.to_owned(), message: message.to_owned(), is_first: false };
    Some(Stall { pod: None, failure, is_final: false })
}

/// The pods of an older revision that fail, and so keep a StatefulSet from rolling out its current template: its controller replaces no
/// pod before all are ready, and those never will be (kubernetes/kubernetes#67250). Deleted, each is made anew from the current one.
/// Nothing before the controller has seen that template, and nothing for a Deployment, which waits for no older pod. Nothing either while
/// a pod of the current template fails, which is what blocks it then: the older ones serve on, and a restart of theirs is not their end.
pub(crate) fn blocking<'a>(workload: Option<&LiveWorkload>, pods: &'a [LivePod]) -> impl Iterator<Item = &'a LivePod> {
    let newest = workload.filter(|workload| is_observed(workload)).and_then(|it| it.progress.revision.clone());
    let is_newest_failing = pods.iter().any(|pod| pod.revision == newest && failure_of(pod).is_some());
    pods.iter().filter(move |pod| {
        let is_older = newest.is_some() && pod.revision.is_some() && pod.revision != newest;
        is_older && !is_newest_failing && failure_of(pod).is_some_and(|(_, failure)| !failure.is_first)
    })
}

/// Splits pods into current and older ones.
fn split<'a>(workload: Option<&'a LiveWorkload>, pods: &'a [LivePod], planned: Planned<'_>) -> (Pods<'a>, Pods<'a>) {
    let ended = workload.map(|workload| workload.ended.as_slice()).unwrap_or_default();
    let is_stamped = |pod: &&LivePod| match planned {
        Planned::Stamped(stamps) => pod.stamps == *stamps,
        Planned::Revision => true,
        Planned::Nothing => false,
    };
    let progress = workload.map(|workload| &workload.progress);
    let named = progress.and_then(|progress| progress.revision.as_deref());
    // A Deployment does not name its newest revision. While it has pods of several, the youngest pod is of the newest one.
    let is_mixed = progress.is_some_and(|progress| progress.updated < progress.total);
    let stamped = ended.iter().chain(pods).filter(is_stamped);
    let youngest = stamped.max_by_key(|pod| pod.created.as_str()).and_then(|pod| pod.revision.as_deref());
    let is_of = |revision: Option<&str>, pod: &LivePod| match (revision, pod.revision.as_deref()) {
        (Some(newest), Some(own)) => newest == own,
        _ => true,
    };
    let is_current = |pod: &&LivePod| is_stamped(pod) && is_of(named.or(youngest.filter(|_| is_mixed)), pod);
    let (current, older) = pods.iter().partition(is_current);
    // The counts do not include pods that ended: those of an earlier template may be left behind by a rollout that is complete.
    let is_current = |pod: &&LivePod| is_stamped(pod) && is_of(named.or(youngest), pod);
    let (current_ended, older_ended) = ended.iter().partition(is_current);
    (Pods { live: current, ended: current_ended }, Pods { live: older, ended: older_ended })
}

// === impl Pods ===

impl Pods<'_> {
    fn ready(&self) -> usize {
        self.live.iter().filter(|pod| pod.state == PodState::Ready).count()
    }

    fn first_failure(&self) -> Option<(&str, &Failure)> {
        self.live.iter().find_map(|pod| failure_of(pod))
    }

    /// Why the oldest of those ended that the kubelet rejected or evicted. The controller makes new ones as long as it goes on: the
    /// oldest stays the same.
    fn first_end(&self) -> Option<(&str, &Failure)> {
        let oldest = self.ended.iter().min_by_key(|pod| (pod.created.as_str(), pod.name.as_str()))?;
        failure_of(oldest)
    }
}

/// The name of a pod that fails, and why it does.
fn failure_of(pod: &LivePod) -> Option<(&str, &Failure)> {
    match &pod.state {
        PodState::Failed(failure) => Some((&pod.name, failure)),
        PodState::Ready | PodState::Pending => None,
    }
}

// === impl Planned ===

impl<'a> From<Option<&'a PodStamps>> for Planned<'a> {
    fn from(stamps: Option<&'a PodStamps>) -> Self {
        stamps.map_or(Self::Nothing, Self::Stamped)
    }
}

// === impl Stall ===

impl Stall {
    /// A node that is added may take a pod that no node has room for now. Whatever else may heal by itself, as a Secret or an image that
    /// comes a moment after the pod that needs it, has the time that the workload itself gives its rollout: a Deployment has a deadline
    /// for its progress, a StatefulSet waits for ever.
    fn of(pod: Option<&str>, failure: &Failure, progress: &RolloutProgress) -> Self {
        let is_in_time = !progress.is_overdue && !failure.is_final();
        let is_final = !is_in_time && failure.reason != Failure::UNSCHEDULABLE;
        Self { pod: pod.map(str::to_owned), failure: failure.clone(), is_final }
    }
}

impl std::fmt::Display for Stall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pod {
            Some(pod) => write!(formatter, "pod `{pod}`: {}", self.failure),
            None => self.failure.fmt(formatter),
        }
    }
}

// === impl Count ===

impl Count {
    /// Whether some replicas are missing.
    pub(crate) fn is_partial(self) -> bool {
        usize::try_from(self.wanted).is_ok_and(|wanted| self.ready < wanted)
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} of {} pods are ready", self.ready, self.wanted)
    }
}

#[cfg(test)]
mod tests;
