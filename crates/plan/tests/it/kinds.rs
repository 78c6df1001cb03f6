//! The table of kinds says what plans do.

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::kinds::{self, Backend};
use skep_plan::plan::Verdict;
use skep_plan::world::Live;

use crate::laws::{planned, resource, world_objects};

/// A resource of every kind that owns children, as small as it can be, and one with everything that changes which children it has.
fn owners() -> Vec<Resource> {
    let inline = json!({ "type": "inline", "inline": { "policies": ["permit(principal, action, resource);"] } });
    let registry = json!({ "configYAML": "sources: []\nregistries: []\n" });
    let of = |kind, spec: Value| resource(kind, "x", 1, &spec);
    vec![
        of(KindName::EmbeddingServer, json!({ "model": "m", "image": "i" })),
        of(KindName::MCPRegistry, registry),
        of(KindName::MCPRemoteProxy, json!({ "remoteUrl": "https://example.com/mcp" })),
        of(
            KindName::MCPRemoteProxy,
            json!({ "remoteUrl": "https://example.com/mcp", "serviceAccount": "own", "authzConfig": inline }),
        ),
        of(KindName::MCPServer, json!({ "image": "i" })),
        of(KindName::MCPServer, json!({ "image": "i", "serviceAccount": "own", "authzConfig": inline })),
        of(KindName::VirtualMCPServer, json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } })),
        of(
            KindName::VirtualMCPServer,
            json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" }, "serviceAccount": "own" }),
        ),
    ]
}

#[test]
fn every_plan_holds_exactly_the_children_that_the_table_declares() {
    for me in owners() {
        let plan = planned(&me, &world_objects(), &Live::default());
        assert_eq!(plan.verdict, Verdict::Apply, "{}", me.kind());
        let mut children: Vec<_> = plan.children.iter().map(|child| (child.kind(), child.name().to_owned())).collect();
        let mut declared: Vec<_> = kinds::children_of(&me).collect();
        children.sort();
        declared.sort();
        assert_eq!(children, declared, "{}", me.kind());
    }
}

#[test]
fn pods_are_selected_and_known_by_the_labels_that_plans_give_them() {
    for me in owners() {
        let plan = planned(&me, &world_objects(), &Live::default());
        let workload = plan.children.iter().find(|child| child.kind().has_generation()).unwrap();
        let labels = &workload.body()["spec"]["template"]["metadata"]["labels"];
        let pods = kinds::entry(me.kind()).pods.unwrap();
        assert_eq!(labels[pods.selector.0], pods.selector.1, "{}", me.kind());
        let owners = kinds::pod_owners(|name| labels.get(name).and_then(Value::as_str));
        let owner = owners.iter().find(|owner| owner.kind == me.kind()).unwrap();
        assert_eq!((owner.name.as_str(), owner.workload), (me.name(), workload.kind()));
        assert_eq!(owner.workload_name, workload.name());
    }
}

#[test]
fn a_kind_owns_children_exactly_if_it_has_pods() {
    for kind in KindName::ALL {
        let entry = kinds::entry(*kind);
        assert_eq!(entry.owns.is_empty(), entry.pods.is_none(), "{kind}");
        assert!(!entry.has_backend || !entry.prunes(Backend::KIND), "{kind}");
    }
}

#[test]
fn selectors_of_pods_leave_no_kind_out_and_backends_to_their_own() {
    let selectors = kinds::pod_selectors();
    for pods in KindName::ALL.iter().filter_map(|kind| kinds::entry(*kind).pods) {
        assert!(selectors[pods.watch].contains(pods.selector.1), "{selectors:?}");
    }
    let expected = "toolhive=true,toolhive-name,app notin (mcpremoteproxy,mcpserver,virtualmcpserver)";
    assert_eq!(Backend::pod_selector(), expected);
}
