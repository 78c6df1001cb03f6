//! Phase and readiness of a server: from what was wrong with its plan, and from its pods.

use crate::plan::Verdict;
use crate::status::Status;
use crate::world::{PodState, World};

/// Adds phase, message, readiness and the number of ready pods.
pub(super) fn add(status: &mut Status, verdict: &Verdict, world: &World<'_>) {
    let live = world.live;
    let ready = live.pods.iter().filter(|pod| pod.state == PodState::Ready).count();
    let failed = live.pods.iter().find_map(|pod| match &pod.state {
        PodState::Failed(reason) => Some(reason.as_str()),
        _ => None,
    });
    let stopped = live.workload.as_ref().is_some_and(|workload| workload.replicas == 0);
    let (phase, message, holds) = match verdict {
        Verdict::Refuse(why) | Verdict::Wait(why) => ("Failed", why.clone(), false),
        Verdict::Apply if stopped => ("Stopped", "MCP server is stopped (scaled to zero)".to_owned(), false),
        Verdict::Apply if ready > 0 && live.backend.is_none() => {
            ("Pending", "MCP server proxy is running; its workload StatefulSet is on its way".to_owned(), false)
        }
        Verdict::Apply if ready > 0 => ("Ready", "MCP server is running".to_owned(), true),
        Verdict::Apply if failed.is_some() => {
            ("Failed", format!("MCP server pod failed: {}", failed.unwrap_or_default()), false)
        }
        Verdict::Apply if live.pods.is_empty() => ("Pending", "MCP server is being created".to_owned(), false),
        Verdict::Apply => ("Pending", "MCP server is starting".to_owned(), false),
    };
    // A count of zero is left out, as long as there was never a pod to count.
    let count = i64::try_from(ready).unwrap_or(i64::MAX);
    status
        .set("phase", phase)
        .set("message", message.as_str())
        .set("readyReplicas", if live.pods.is_empty() && !stopped { serde_json::Value::Null } else { count.into() })
        .condition("Ready", holds, if holds { "Ready" } else { "NotReady" }, message);
}
