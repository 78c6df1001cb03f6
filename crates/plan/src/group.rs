//! `MCPGroup`: lists its members. A member's health never concerns its group.

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};

use crate::key::ObjectKind;
use crate::plan::{Finalizer, Plan};
use crate::status::Status;
use crate::world::World;

/// Plans a group: no children, a status. Nothing blocks its deletion; its members say themselves that it is gone.
pub(crate) fn plan(me: &Resource, world: &World<'_>) -> Plan {
    let members = |kind: KindName| -> Vec<&str> {
        let of_kind = world.users.iter().filter(|key| key.kind == ObjectKind::Kind(kind));
        of_kind.map(|key| key.name.as_str()).collect()
    };
    let (servers, proxies, entries) =
        (members(KindName::MCPServer), members(KindName::MCPRemoteProxy), members(KindName::MCPServerEntry));
    let mut status = Status::default();
    for (names, list, count) in [
        (servers, "servers", "serverCount"),
        (proxies, "remoteProxies", "remoteProxyCount"),
        (entries, "entries", "entryCount"),
    ] {
        // An empty list and its count are left out.
        let some = !names.is_empty();
        status.set(count, if some { json!(names.len()) } else { Value::Null });
        status.set(list, if some { json!(names) } else { Value::Null });
    }
    status.set("phase", "Ready").condition(
        "MCPServersChecked",
        true,
        "ListMCPServersCheckSucceeded",
        "Successfully listed MCPServers, MCPRemoteProxies, and MCPServerEntries in namespace",
    );
    let mut plan = Plan::without_children(me, status);
    if me.is_deleting() {
        plan.finalizer = Finalizer::Release;
    }
    plan
}
