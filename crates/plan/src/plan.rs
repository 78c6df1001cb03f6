//! A plan: what to do about one resource, complete and in order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use skep_api::resource::{KindName, Resource};

use crate::child::Child;
use crate::error::check_names;
use crate::pod::Variable;
use crate::proxy::{ProxyPlan, SecretFile};
use crate::status::Status;
use crate::world::{Live, LivePod, World};
use crate::{
    composite, config, embedding, entry, group, kinds, registry, remote_proxy, rollout, server, virtual_server,
};

/// What to do about one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What may be done with the children.
    pub verdict: Verdict,
    /// The plan of its proxy, of which the children are one rendering; none for a kind without a proxy.
    pub proxy: Option<Box<ProxyPlan>>,
    /// The plan of its process, of which the children are one rendering; none for any kind but a virtual server.
    pub virtual_server: Option<Box<VirtualServerPlan>>,
    /// Finished objects in the order in which they are applied. What is ours and not here is removed.
    pub children: Vec<Child>,
    /// The next status of the resource.
    pub status: Status,
    /// What to do with its finalizer.
    pub finalizer: Finalizer,
    /// Annotations to put on the resource itself.
    pub annotations: Map<String, Value>,
    /// A Secret with random content that must exist.
    pub generated_secret: Option<GeneratedSecret>,
    /// Pods to delete, each by its uid, so that their controller makes others in their place at once.
    pub delete_pods: Vec<LivePod>,
    /// What to do with the StatefulSet that a proxy of the resource made.
    pub backend: BackendAction,
    /// An event to publish on the resource once per generation of its spec.
    pub notice: Option<Notice>,
    /// Whether to reconcile again after a while, though nothing changed.
    pub recheck: bool,
}

/// The process of a virtual server.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualServerPlan {
    /// Its configuration, as `config.yaml`.
    pub config: String,
    /// Its variables, with their sources.
    pub env: Vec<Variable>,
    /// Its files that come from Secrets, which it can read from memory.
    pub files: Vec<SecretFile>,
}

/// A Secret with random content. A plan is deterministic, so the operator generates the content, once: it is
/// created when it is not there, owned by the resource, and never changed. It is made before the children are
/// applied, and only if they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedSecret {
    /// Its name, in the namespace of the resource.
    pub name: String,
    /// The key that holds the content, as the base64 text of the bytes.
    pub key: String,
    /// How many random bytes.
    pub bytes: usize,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What to do with the StatefulSet that a proxy of a resource made ([`crate::kinds::Backend`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendAction {
    /// Nothing.
    Leave,
    /// Make the resource its controller, so that it is garbage collected with the resource.
    Adopt,
    /// Delete it, in case the resource never became its controller.
    Delete,
}

/// A warning about a resource that no condition carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A CamelCase reason.
    pub reason: String,
    /// What the user should know, and do.
    pub message: String,
}

/// What may be done with the children of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Apply them, and remove what is ours and not among them.
    Apply,
    /// Leave everything as it is: something that is referred to is missing or not ready. A watch will wake us.
    Wait(String),
    /// Leave everything as it is: what was written down cannot be. Only a change of it can help.
    Refuse(String),
}

/// What to do with a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// It must be there.
    Hold,
    /// It must go: whatever had to be done before the resource disappears is done, or is done by this plan.
    Release,
    /// There is none.
    None,
}

/// Plans one resource. Total: whatever the resource says, there is a plan.
pub fn plan(me: &Resource, world: &World<'_>) -> Plan {
    let mut plan = plan_of(me, world);
    if plan.verdict == Verdict::Apply && !me.is_deleting() {
        plan.delete_pods.extend(blocking_pods(world.live));
    }
    plan.recheck |= waits_for_name(me, world, &plan.verdict);
    // INVARIANT: the names that are checked for other owners before planning are those of the children.
    debug_assert!(
        holds_declared_children(me, &plan),
        "the children of {} are not those of its row in the table",
        me.kind()
    );
    plan
}

/// Whether a plan waits for the name of a child: no watch shows when an object of another owner goes. One that is refused for another
/// reason waits for a change of what it refers to, or of its own spec, and the names are looked up then.
fn waits_for_name(me: &Resource, world: &World<'_>, verdict: &Verdict) -> bool {
    let conflict = check_names(me, world).err().filter(|_| !world.live.name_conflicts.is_empty());
    conflict.is_some_and(|conflict| conflict.verdict() == *verdict)
}

/// The pods that keep a StatefulSet from its current template: that of an embedding server, or the one that a proxy made.
fn blocking_pods(live: &Live) -> impl Iterator<Item = LivePod> {
    let workload = rollout::blocking(live.workload.as_ref(), &live.pods);
    workload.chain(rollout::blocking(live.backend.as_ref(), &live.backend_pods)).cloned()
}

/// Whether a plan holds no children, as that of a deleted resource, or exactly those that the table of kinds declares.
fn holds_declared_children(me: &Resource, plan: &Plan) -> bool {
    let planned: BTreeSet<_> = plan.children.iter().map(|child| (child.kind(), child.name().to_owned())).collect();
    planned.is_empty() || planned == kinds::children_of(me).collect()
}

fn plan_of(me: &Resource, world: &World<'_>) -> Plan {
    match me {
        Resource::EmbeddingServer(object) => embedding::plan(me, object, world),
        Resource::MCPGroup(_) => group::plan(me, world),
        Resource::MCPRegistry(object) => registry::plan(me, object, world),
        Resource::MCPRemoteProxy(object) => remote_proxy::plan(me, object, world),
        Resource::MCPServer(object) => server::plan(me, object, world),
        Resource::MCPServerEntry(object) => entry::plan(me, object, world),
        Resource::VirtualMCPCompositeToolDefinition(object) => composite::plan(me, object, world),
        Resource::VirtualMCPServer(object) => virtual_server::plan(me, object, world),
        Resource::MCPAuthzConfig(_)
        | Resource::MCPExternalAuthConfig(_)
        | Resource::MCPOIDCConfig(_)
        | Resource::MCPTelemetryConfig(_)
        | Resource::MCPToolConfig(_)
        | Resource::MCPWebhookConfig(_) => config::plan(me, world),
    }
}

// === impl Plan ===

impl Plan {
    /// A plan that makes no children.
    pub(crate) fn without_children(me: &Resource, status: Status) -> Self {
        Self::of_status(me.kind(), status)
    }

    /// The plan of a resource that is being deleted: its children are removed, and its finalizer, if it has one, is released.
    pub(crate) fn terminating(me: &Resource, message: &str) -> Self {
        let mut status = Status::default();
        status.set("phase", "Terminating").set("message", message).condition("Ready", false, "NotReady", message);
        let mut plan = Self::without_children(me, status);
        if plan.finalizer == Finalizer::Hold {
            plan.finalizer = Finalizer::Release;
        }
        plan
    }

    /// A plan of a resource of this kind that makes no children.
    pub(crate) fn of_status(kind: KindName, status: Status) -> Self {
        Self {
            verdict: Verdict::Apply,
            proxy: None,
            virtual_server: None,
            children: Vec::new(),
            status,
            finalizer: kind.finalizer().map_or(Finalizer::None, |_| Finalizer::Hold),
            annotations: Map::new(),
            generated_secret: None,
            delete_pods: Vec::new(),
            backend: BackendAction::Leave,
            notice: None,
            recheck: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::child::ChildKind;
    use crate::validate::testing::{Surroundings, resource};

    /// Every recheck looks up the names of all children: with a spec that is refused anyway, nothing would come of it.
    #[test]
    fn only_a_plan_that_waits_for_a_name_is_rechecked_for_it() {
        let mut surroundings = Surroundings::default();
        surroundings.live.name_conflicts.insert((
            ChildKind::Deployment,
            "s".to_owned(),
            "Deployment `other`".to_owned(),
        ));
        let recheck = |spec: Value| plan(&resource(KindName::MCPServer, "s", &spec), &surroundings.world()).recheck;
        assert!(recheck(json!({ "image": "a" })));
        assert!(!recheck(json!({ "image": "a", "toolConfigRef": { "name": "missing" } })));
        assert!(!recheck(json!({ "image": "a", "resources": { "limits": { "memory": "much" } } })));
    }
}
