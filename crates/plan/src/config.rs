//! The six kinds that only configure others: one path, and a table of how they differ.
//!
//! Each says in its status whether it is valid, what its hash is, and who uses it. It is the only writer of that status: a
//! workload that uses a configuration reads its spec, judges it with the same function, and leaves the object alone.

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_api::status::WorkloadRef;

use crate::key::{Key, ObjectKind};
use crate::plan::{Finalizer, Plan};
use crate::status::Status;
use crate::validate::{config_hash, synthesizes_identity, validate};
use crate::world::World;

/// Plans a configuration: no children, a status.
pub(crate) fn plan(me: &Resource, world: &World<'_>) -> Plan {
    let users = users(world);
    let mut status = Status::default();
    status.set("referencingWorkloads", listed(&users));
    match validate(me, world) {
        Ok(()) => {
            status.set("configHash", config_hash(me));
            status.condition("Valid", true, valid_reason(me.kind()), "Spec validation passed");
        }
        // The hash stays at the last good spec: it is what the workloads still run with.
        Err(invalid) => {
            status.condition("Valid", false, invalid.reason, invalid.message);
        }
    }
    if let Resource::MCPExternalAuthConfig(object) = me
        && let Some(server) = &object.spec.embedded_auth_server
    {
        if synthesizes_identity(server) {
            let message =
                "an upstream provider has no user info endpoint: who a caller is will be made up from its token";
            status.condition("IdentitySynthesized", true, "OAuth2UpstreamWithoutUserInfo", message);
        } else {
            let message = "every upstream provider says who a caller is";
            status.condition("IdentitySynthesized", false, "AllUpstreamsHaveUserInfo", message);
        }
    }
    let mut plan = Plan::without_children(me, status);
    if me.is_deleting() {
        if users.is_empty() {
            plan.finalizer = Finalizer::Release;
        } else {
            let names: Vec<String> = users.iter().map(|user| format!("{} `{}`", user.kind, user.name)).collect();
            let message = format!("still used by {}; remove the reference there first", names.join(", "));
            plan.status.condition("DeletionBlocked", true, "ReferencedByWorkloads", message);
            plan.recheck = true;
        }
    }
    plan
}

/// The workloads that use a configuration, sorted by kind and name.
fn users(world: &World<'_>) -> Vec<WorkloadRef> {
    let workload = |key: &Key| match key.kind {
        ObjectKind::Kind(kind) if !kind.is_config() => {
            Some(WorkloadRef { kind: kind.as_str().into(), name: key.name.clone() })
        }
        _ => None,
    };
    let mut users: Vec<WorkloadRef> = world.users.iter().filter_map(workload).collect();
    users.sort();
    users
}

/// The list in the status. It is keyed by name, so of two workloads of one name only the first is listed; all of them are
/// named when a deletion is blocked.
fn listed(users: &[WorkloadRef]) -> Value {
    let mut listed: Vec<&WorkloadRef> = Vec::new();
    for user in users {
        if !listed.iter().any(|known| known.name == user.name) {
            listed.push(user);
        }
    }
    if listed.is_empty() { Value::Null } else { json!(listed) }
}

/// What each kind calls a valid spec.
const fn valid_reason(kind: KindName) -> &'static str {
    match kind {
        KindName::MCPOIDCConfig | KindName::MCPAuthzConfig => "ConfigValid",
        _ => "ValidationSucceeded",
    }
}
