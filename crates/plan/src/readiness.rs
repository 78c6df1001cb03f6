//! Phase, message and readiness of a resource with pods. One function decides ([`Readiness::of`], [`Readiness::refused`]), and every
//! condition about readiness is written from its result ([`Readiness::write`]), so none can contradict another.
//!
//! `Ready` and `Stalled` follow kstatus, by which Flux and others assess objects: `Ready` is true only for the current plan,
//! unknown while it rolls out, and `Stalled` is present only while nothing but a change by people can help. The phase says whether
//! anything serves, as groups and virtual servers route by it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use crate::plan::Verdict;
use crate::resolve::HASHES;
use crate::rollout::{Rollout, Serving, Stage};
use crate::status::{ConditionStatus, Status};
use crate::world::Live;

/// The reason of `Ready` while the pods of the current plan come up.
pub(crate) const ROLLING_OUT: &str = "RollingOut";
/// The reason of `Ready` when they cannot.
pub(crate) const ROLLOUT_STALLED: &str = "RolloutStalled";

/// The condition by which kstatus knows that only people can help.
pub(crate) const STALLED: &str = "Stalled";

/// The messages, reasons and phases of a kind for what all kinds with pods have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadinessTexts {
    /// What it is called at the beginning of a sentence.
    pub(crate) subject: &'static str,
    /// The message while there is no pod.
    pub(crate) no_pods: &'static str,
    /// What comes before the reason of a pod that fails.
    pub(crate) failed: &'static str,
    /// The phase of a workload that is scaled to zero.
    pub(crate) stopped: &'static str,
    /// The reason of `Ready` when it is true.
    pub(crate) ready: &'static str,
    /// The reason of `Ready` when there is no better one.
    pub(crate) not_ready: &'static str,
}

/// What is decided about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    phase: &'static str,
    message: String,
    ready: ConditionStatus,
    reason: String,
    is_stalled: bool,
}

/// What a message says while only pods of an earlier plan serve.
const OLDER_SERVES: &str = "an earlier configuration is still serving";
/// What a message says while pods of an earlier plan serve as well.
const OLDER_BESIDE: &str = "pods of an earlier configuration are still serving beside the current ones";
/// What a message says of the pods of a plan that is refused. They may run exactly what the spec says.
const PODS_SERVE: &str = "the running pods go on serving";

// === impl Readiness ===

impl Readiness {
    /// Decides by the pods of a plan that is applied.
    pub(crate) fn of(rollout: &Rollout, texts: &ReadinessTexts) -> Self {
        let ReadinessTexts { subject, no_pods, failed, stopped, ready, not_ready } = *texts;
        let is_serving = rollout.serving != Serving::Nothing;
        let phase = |otherwise: &'static str| if is_serving { "Ready" } else { otherwise };
        match &rollout.stage {
            Stage::NotApplied => Self::waiting(phase("Pending"), not_ready, no_pods.to_owned()),
            Stage::Stopped => Self::waiting(stopped, not_ready, format!("{subject} is stopped (scaled to zero)")),
            Stage::Unavailable => {
                Self::waiting("Pending", not_ready, format!("{subject} is starting again: no pod is ready"))
            }
            Stage::RollingOut(count) if is_serving => {
                let message = match rollout.serving {
                    Serving::Older => format!("{OLDER_SERVES}; the current one is rolling out: {count}"),
                    _ if rollout.ready_older > 0 => format!("{subject} is rolling out: {count}; {OLDER_BESIDE}"),
                    _ => format!("{subject} is rolling out: {count}"),
                };
                Self::rolling_out("Ready", message)
            }
            Stage::RollingOut(_) => Self::rolling_out("Pending", format!("{subject} is starting")),
            Stage::Paused { deployment, count } => {
                let pause =
                    format!("paused, continue it with `kubectl rollout resume deployment/{deployment}`: {count}");
                let message = match rollout.serving {
                    Serving::Older => format!("{OLDER_SERVES}; the rollout of the current one is {pause}"),
                    _ if rollout.ready_older > 0 => format!("the rollout is {pause}; {OLDER_BESIDE}"),
                    _ => format!("the rollout is {pause}"),
                };
                Self::rolling_out(phase("Pending"), message)
            }
            Stage::Stalled(stall) => {
                let message = match rollout.serving {
                    Serving::Nothing => format!("{failed}: {stall}"),
                    Serving::Older => format!("{OLDER_SERVES}; the rollout of the current one is stalled: {stall}"),
                    Serving::Current if rollout.ready_older > 0 => {
                        format!("{OLDER_BESIDE}; the rollout is stalled: {stall}")
                    }
                    Serving::Current => format!("the rollout is stalled: {stall}"),
                };
                Self::failed(phase("Failed"), ROLLOUT_STALLED, message, stall.is_final)
            }
            Stage::Complete(count) if count.is_partial() => {
                Self::ready(ready, format!("{subject} is running; {count}"))
            }
            Stage::Complete(_) => Self::ready(ready, format!("{subject} is running")),
        }
    }

    /// Decides for a plan that is not applied; nothing for one that is. `phase` is the one of a resource for which nothing serves.
    pub(crate) fn refused(verdict: &Verdict, reason: &str, phase: &'static str, is_serving: bool) -> Option<Self> {
        let (why, is_final) = match verdict {
            Verdict::Apply => return None,
            Verdict::Wait(why) => (why, false),
            Verdict::Refuse(why) => (why, true),
        };
        Some(if is_serving {
            Self::failed("Ready", reason, format!("{why}; {PODS_SERVE}"), is_final)
        } else {
            Self::failed(phase, reason, why.clone(), is_final)
        })
    }

    /// Ready, which only a resource in phase `Ready` can be.
    pub(crate) fn ready(reason: &str, message: String) -> Self {
        Self { phase: "Ready", message, ready: ConditionStatus::True, reason: reason.to_owned(), is_stalled: false }
    }

    /// On the way to ready.
    pub(crate) fn rolling_out(phase: &'static str, message: String) -> Self {
        let (ready, reason) = (ConditionStatus::Unknown, ROLLING_OUT.to_owned());
        Self { phase, message, ready, reason, is_stalled: false }
    }

    /// Not ready, and nothing is wrong.
    pub(crate) fn waiting(phase: &'static str, reason: &str, message: String) -> Self {
        Self { phase, message, ready: ConditionStatus::False, reason: reason.to_owned(), is_stalled: false }
    }

    /// Not ready because something is wrong; `is_final` if only people can help.
    pub(crate) fn failed(phase: &'static str, reason: &str, message: String, is_final: bool) -> Self {
        Self { phase, message, ready: ConditionStatus::False, reason: reason.to_owned(), is_stalled: is_final }
    }

    /// Whether the pods of the current plan serve, all of them.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready == ConditionStatus::True
    }

    /// The phase.
    pub(crate) fn phase(&self) -> &'static str {
        self.phase
    }

    /// The same in another phase, as far as it is not ready.
    pub(crate) fn in_phase(self, phase: &'static str) -> Self {
        if self.is_ready() { self } else { Self { phase, ..self } }
    }

    /// Adds phase, message, `Ready` and, where it applies, `Stalled`.
    pub(crate) fn write(self, status: &mut Status) {
        status.set("phase", self.phase).set("message", self.message.as_str());
        if self.is_stalled {
            status.condition(STALLED, true, &self.reason, self.message.as_str());
        }
        status.condition("Ready", self.ready, &self.reason, self.message);
    }
}

/// Whether a resource was ready when its status was written last, in the generation that it has now. An edit in between may have asked
/// for more replicas.
pub(crate) fn was_ready(metadata: &ObjectMeta, conditions: Option<&[Condition]>) -> bool {
    let is_ready = |known: &Condition| known.type_ == "Ready" && known.status == "True";
    let is_present = |known: &Condition| known.observed_generation == metadata.generation;
    conditions.into_iter().flatten().any(|known| is_ready(known) && is_present(known))
}

/// Leaves the hashes of configurations as they are until no pod of an earlier plan can serve: those are what runs.
pub(crate) fn keep_hashes(status: &mut Status, rollout: &Rollout) {
    if !rollout.is_taken_over {
        for hash in HASHES {
            status.keep_field(hash);
        }
    }
}

/// Says where clients reach a resource: only where there is, or will be, a Service that answers to it.
pub(crate) fn set_url(status: &mut Status, url: String, verdict: &Verdict, service: &str, live: &Live) {
    match verdict {
        Verdict::Apply => status.set("url", url),
        // The Service is as an earlier plan made it, and so is its address.
        _ if live.services.contains(service) => status.keep_field("url"),
        _ => status.set("url", serde_json::Value::Null),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn that_a_resource_was_ready_before_an_edit_says_nothing_of_it_now() {
        let ready: Condition = serde_json::from_value(json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 2,
        }))
        .unwrap();
        let at = |generation: i64| ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
        assert!(was_ready(&at(2), Some(std::slice::from_ref(&ready))));
        assert!(!was_ready(&at(3), Some(&[ready])));
    }
}
