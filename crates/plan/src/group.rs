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
    let kinds = [KindName::MCPServer, KindName::MCPRemoteProxy, KindName::MCPServerEntry];
    let unlisted = kinds.iter().find_map(|kind| Some((kind, world.live.unlisted.get(kind)?)));
    let (holds, reason, message) = match unlisted {
        None => {
            let message = "Successfully listed MCPServers, MCPRemoteProxies, and MCPServerEntries in namespace";
            (true, "ListMCPServersCheckSucceeded", message.to_owned())
        }
        Some((kind, why)) => (
            false,
            "ListMCPServersCheckFailed",
            format!("not all members are known, as {kind}s cannot be listed: {why}"),
        ),
    };
    status.set("phase", "Ready").condition("MCPServersChecked", holds, reason, message);
    let mut plan = Plan::without_children(me, status);
    if me.is_deleting() {
        plan.finalizer = Finalizer::Release;
    }
    plan
}
