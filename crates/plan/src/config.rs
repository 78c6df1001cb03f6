//! The six kinds that only configure others: one path, and a table of how they differ.
//!
//! The status of each has its validity, its hash and its users. It is the only writer of that status: a
//! workload that uses a configuration reads its spec, validates it with the same function, and leaves the object alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_api::status::WorkloadRef;

use crate::key::{Key, ObjectKind};
use crate::plan::{Finalizer, Plan};
use crate::status::Status;
use crate::validate::{config_hash, in_one_line, synthesizes_identity, validate};
use crate::world::{Live, World};

/// How many users a message names.
const NAMED: usize = 10;

/// Plans a configuration: no children, a status.
pub(crate) fn plan(me: &Resource, world: &World<'_>) -> Plan {
    let users = workloads(world.users);
    let mut status = Status::default();
    status.set("referencingWorkloads", listed(&users));
    match validate(me, world) {
        Ok(()) => {
            status.set("configHash", config_hash(me));
            status.condition("Valid", true, valid_reason(me.kind()), "Spec validation passed");
        }
        // The hash stays at the last good spec: it is what the workloads still run with.
        Err(invalid) => {
            status.condition("Valid", false, invalid.reason(), invalid.to_string());
        }
    }
    if let Resource::MCPExternalAuthConfig(object) = me
        && let Some(server) = &object.spec.embedded_auth_server
    {
        if synthesizes_identity(server) {
            let message = "an upstream provider has no user info endpoint: identities are synthesized from its tokens";
            status.condition("IdentitySynthesized", true, "OAuth2UpstreamWithoutUserInfo", message);
        } else {
            let message = "every upstream provider has a user info endpoint";
            status.condition("IdentitySynthesized", false, "AllUpstreamsHaveUserInfo", message);
        }
    }
    let mut plan = Plan::without_children(me, status);
    if me.is_deleting() {
        plan_deletion(&mut plan, world.users, world.live);
    }
    plan
}

/// Releases the finalizer of a configuration that is being deleted, unless a workload uses it, or may use it: then a condition says which.
pub(crate) fn plan_deletion(plan: &mut Plan, users: &BTreeSet<Key>, live: &Live) {
    let (users, possible) = (workloads(users), &live.possible_users);
    if users.is_empty() && possible.is_empty() {
        plan.finalizer = Finalizer::Release;
        return;
    }
    plan.recheck = true;
    if users.is_empty() {
        let reasons: Vec<String> = possible.iter().cloned().collect();
        let message = format!("not all users are known: {}", in_one_line(&reasons));
        plan.status.condition("DeletionBlocked", true, "UsersUnknown", message);
    } else {
        let message = format!("still used by {}; remove the reference there first", named(&users));
        plan.status.condition("DeletionBlocked", true, "ReferencedByWorkloads", message);
    }
}

/// The workloads among the users of a configuration, sorted by kind and name.
fn workloads(users: &BTreeSet<Key>) -> Vec<WorkloadRef> {
    let workload = |key: &Key| match key.kind {
        ObjectKind::Kind(kind) if !kind.is_config() => {
            Some(WorkloadRef { kind: kind.as_str().into(), name: key.name.clone() })
        }
        _ => None,
    };
    let mut users: Vec<WorkloadRef> = users.iter().filter_map(workload).collect();
    users.sort();
    users
}

/// The list in the status. It is keyed by name, so of two workloads of one name only the first is listed; a deletion that is
/// blocked names both.
fn listed(users: &[WorkloadRef]) -> Value {
    let mut names = BTreeSet::new();
    let listed: Vec<&WorkloadRef> = users.iter().filter(|user| names.insert(user.name.as_str())).collect();
    if listed.is_empty() { Value::Null } else { json!(listed) }
}

/// The users in a message: the first of them, and how many more there are. A condition takes 32 KiB.
fn named(users: &[WorkloadRef]) -> String {
    let names: Vec<String> = users.iter().take(NAMED).map(|user| format!("{} `{}`", user.kind, user.name)).collect();
    let more = users.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// What each kind calls a valid spec.
const fn valid_reason(kind: KindName) -> &'static str {
    match kind {
        KindName::MCPOIDCConfig | KindName::MCPAuthzConfig => "ConfigValid",
        _ => "ValidationSucceeded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::testing::{Surroundings, deleted};

    fn users(kind: &str, count: usize) -> Vec<WorkloadRef> {
        (0..count).map(|number| WorkloadRef { kind: kind.into(), name: format!("user-{number:05}") }).collect()
    }

    #[test]
    fn a_deletion_stays_blocked_while_a_user_may_be_unknown() {
        let me = deleted(KindName::MCPToolConfig, "c", &json!({}));
        let mut surroundings = Surroundings::default();
        assert_eq!(plan(&me, &surroundings.world()).finalizer, Finalizer::Release);
        surroundings.live.possible_users.insert("MCPServer `s` cannot be read and may refer to it".to_owned());
        let blocked = plan(&me, &surroundings.world());
        assert_eq!((blocked.finalizer, blocked.recheck), (Finalizer::Hold, true));
        let condition = blocked.status.find("DeletionBlocked").unwrap();
        assert_eq!((condition.is_true(), condition.reason.as_str()), (true, "UsersUnknown"));
        assert!(condition.message.contains("MCPServer `s` cannot be read"), "{condition:?}");
    }

    #[test]
    fn a_message_names_few_users_and_counts_the_others() {
        assert_eq!(named(&users("MCPServer", 2)), "MCPServer `user-00000`, MCPServer `user-00001`");
        let many = named(&users("MCPServer", 10_000));
        assert!(many.ends_with("`user-00009` and 9990 more"), "{many}");
    }

    #[test]
    fn of_two_users_of_one_name_the_first_is_listed() {
        let all = [users("MCPRemoteProxy", 2), users("MCPServer", 3)].concat();
        let listed = listed(&all);
        let kinds: Vec<&Value> = listed.as_array().unwrap().iter().map(|one| &one["kind"]).collect();
        assert_eq!(kinds, ["MCPRemoteProxy", "MCPRemoteProxy", "MCPServer"]);
        assert_eq!(super::listed(&[]), Value::Null);
    }
}
