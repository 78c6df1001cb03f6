//! The references between resources: one list of edges, read in both directions.
//!
//! Every edge comes from a resource's own `references()`, or is one that the plan implies; nothing here knows a kind's fields. Forward,
//! the edges say what a plan may see; backward, which resources a change queues.
//!
//! ```text
//!   MCPServer ──▶ MCPOIDCConfig ──▶ Secret           a changed Secret queues the config and every server that uses it
//!       └──────▶ MCPGroup ◀── VirtualMCPServer       a changed member queues the virtual servers of its group
//! ```

use std::collections::{BTreeSet, HashMap};

use skep_api::reference::Reference;
use skep_api::resource::Resource;
use skep_bounds::CONTENT_REFERENCES;
use skep_plan::inputs::{count_contents, implied};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::kinds::{self, Grouping};
use skep_plan::world::DefaultRedis;

/// The edges between all resources that are known.
#[derive(Debug, Default)]
pub struct Graph {
    default_redis: Option<DefaultRedis>,
    forward: HashMap<Key, BTreeSet<Key>>,
    backward: HashMap<Key, BTreeSet<Key>>,
}

impl Graph {
    /// A graph of resources whose sessions are kept in this Redis where they name none.
    pub fn new(default_redis: Option<DefaultRedis>) -> Self {
        Self { default_redis, ..Self::default() }
    }

    /// Replaces the edges that start at a resource. Returns where they led before and where they lead now.
    pub fn set(&mut self, from: &Key, resource: Option<&Resource>) -> BTreeSet<Key> {
        let targets: BTreeSet<Key> = resource
            .map(|resource| {
                let references = self.references(resource);
                let targets = references.iter().map(|one| Key::target(one, &from.namespace));
                // Nothing is read for a resource that refers to too many Secrets and ConfigMaps, nor for those that refer to it.
                let exceeds = count_contents(resource) > CONTENT_REFERENCES;
                targets.filter(|key| !exceeds || matches!(key.kind, ObjectKind::Kind(_))).collect()
            })
            .unwrap_or_default();
        let mut touched = self.forward.remove(from).unwrap_or_default();
        for target in touched.iter().filter(|target| !targets.contains(*target)) {
            if let Some(users) = self.backward.get_mut(target) {
                users.remove(from);
                if users.is_empty() {
                    self.backward.remove(target);
                }
            }
        }
        for target in &targets {
            self.backward.entry(target.clone()).or_default().insert(from.clone());
        }
        touched.extend(targets.iter().cloned());
        if !targets.is_empty() {
            self.forward.insert(from.clone(), targets);
        }
        touched
    }

    /// What a resource refers to, implied references included.
    pub fn references(&self, resource: &Resource) -> Vec<Reference> {
        let mut references = resource.references();
        references.extend(implied(resource, self.default_redis.as_ref()));
        references
    }

    /// Where the edges of a resource lead.
    pub fn targets(&self, from: &Key) -> BTreeSet<Key> {
        self.forward.get(from).cloned().unwrap_or_default()
    }

    /// The resources that refer to an object.
    pub fn users(&self, of: &Key) -> BTreeSet<Key> {
        self.backward.get(of).cloned().unwrap_or_default()
    }

    /// How many refer to an object.
    pub fn user_count(&self, of: &Key) -> usize {
        self.backward.get(of).map_or(0, BTreeSet::len)
    }

    /// Whether any resource refers to an object.
    pub fn is_used(&self, key: &Key) -> bool {
        self.backward.contains_key(key)
    }

    /// The resources that a change of an object queues: all that refer to it, however indirectly.
    pub fn dependants(&self, of: &Key) -> BTreeSet<Key> {
        let mut seen = BTreeSet::new();
        let mut next = vec![of.clone()];
        while let Some(key) = next.pop() {
            let groups = self.forward.get(&key).into_iter().flatten().filter(|target| is_group(target));
            let users = groups.flat_map(|group| self.backward.get(group).into_iter().flatten());
            let observers = users.filter(|user| sees_members(user));
            for user in self.backward.get(&key).into_iter().flatten().chain(observers) {
                if seen.insert(user.clone()) {
                    next.push(user.clone());
                }
            }
        }
        seen.remove(of);
        seen
    }

    /// Everything that a plan of a resource may see: what it refers to, however indirectly, and for a virtual server the
    /// members of its group with all that they refer to.
    pub fn surroundings(&self, of: &Key) -> BTreeSet<Key> {
        let mut seen = BTreeSet::new();
        let mut next = vec![of.clone()];
        while let Some(key) = next.pop() {
            let members = sees_members(of) && is_group(&key);
            let members = members.then(|| self.backward.get(&key)).flatten();
            for target in self.forward.get(&key).into_iter().flatten().chain(members.into_iter().flatten()) {
                if seen.insert(target.clone()) {
                    next.push(target.clone());
                }
            }
        }
        seen.remove(of);
        seen
    }
}

fn is_group(key: &Key) -> bool {
    grouping(key) == Grouping::Group
}

fn sees_members(key: &Key) -> bool {
    grouping(key) == Grouping::SeesMembers
}

const fn grouping(key: &Key) -> Grouping {
    match key.kind {
        ObjectKind::Kind(kind) => kinds::entry(kind).group,
        ObjectKind::Secret | ObjectKind::ConfigMap => Grouping::None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skep_api::resource::KindName;

    use super::*;

    fn resource(kind: KindName, name: &str, spec: &Value) -> Resource {
        let object = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
        Resource::from_value(kind, object).unwrap()
    }

    fn key(kind: KindName, name: &str) -> Key {
        Key::resource(kind, "ns", name)
    }

    fn secret(name: &str) -> Key {
        Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: name.into() }
    }

    fn graph(resources: &[Resource]) -> Graph {
        let mut graph = Graph::default();
        for resource in resources {
            graph.set(&Key::of(resource), Some(resource));
        }
        graph
    }

    fn oidc(name: &str) -> Resource {
        let spec = json!({ "type": "inline", "inline": { "issuer": "https://i", "clientSecretRef": { "name": "s", "key": "k" } } });
        resource(KindName::MCPOIDCConfig, name, &spec)
    }

    fn server(name: &str, oidc: &str) -> Resource {
        resource(
            KindName::MCPServer,
            name,
            &json!({ "image": "i", "oidcConfigRef": { "name": oidc, "audience": "a" }, "groupRef": { "name": "g" } }),
        )
    }

    #[test]
    fn a_change_queues_all_that_refer_to_it_however_indirectly() {
        let virtual_server = resource(
            KindName::VirtualMCPServer,
            "v",
            &json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } }),
        );
        let graph = graph(&[oidc("c"), server("a", "c"), server("b", "other"), virtual_server]);
        let expected = BTreeSet::from([
            key(KindName::MCPOIDCConfig, "c"),
            key(KindName::MCPServer, "a"),
            key(KindName::VirtualMCPServer, "v"),
        ]);
        assert_eq!(graph.dependants(&secret("s")), expected);
        assert!(graph.dependants(&secret("unknown")).is_empty());
    }

    #[test]
    fn a_virtual_server_sees_the_members_of_its_group_and_what_they_refer_to() {
        let virtual_server = resource(
            KindName::VirtualMCPServer,
            "v",
            &json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } }),
        );
        let graph = graph(&[oidc("c"), server("a", "c"), virtual_server]);
        let seen = graph.surroundings(&key(KindName::VirtualMCPServer, "v"));
        for expected in [
            key(KindName::MCPGroup, "g"),
            key(KindName::MCPServer, "a"),
            key(KindName::MCPOIDCConfig, "c"),
            secret("s"),
        ] {
            assert!(seen.contains(&expected), "{expected}");
        }
        assert!(!graph.surroundings(&key(KindName::MCPServer, "a")).contains(&key(KindName::VirtualMCPServer, "v")));
    }

    #[test]
    fn edges_that_are_gone_leave_nothing_behind() {
        let mut graph = graph(&[server("a", "c")]);
        let touched = graph.set(&key(KindName::MCPServer, "a"), Some(&server("a", "d")));
        assert!(
            touched.contains(&key(KindName::MCPOIDCConfig, "c"))
                && touched.contains(&key(KindName::MCPOIDCConfig, "d"))
        );
        assert!(!graph.is_used(&key(KindName::MCPOIDCConfig, "c")));
        graph.set(&key(KindName::MCPServer, "a"), None);
        assert!(graph.forward.is_empty() && graph.backward.is_empty());
    }

    #[test]
    fn of_a_resource_with_too_many_secrets_none_is_read() {
        let server = |count: usize| {
            let secret = |number: usize| json!({ "name": format!("s{number}"), "key": "k", "targetEnvName": "E" });
            let secrets: Vec<_> = (0..count).map(secret).collect();
            resource(
                KindName::MCPServer,
                "a",
                &json!({ "image": "i", "secrets": secrets, "toolConfigRef": { "name": "t" } }),
            )
        };
        let mut graph = Graph::default();
        graph.set(&key(KindName::MCPServer, "a"), Some(&server(CONTENT_REFERENCES)));
        assert_eq!(graph.targets(&key(KindName::MCPServer, "a")).len(), CONTENT_REFERENCES + 1);
        graph.set(&key(KindName::MCPServer, "a"), Some(&server(6_000)));
        assert_eq!(graph.targets(&key(KindName::MCPServer, "a")), [key(KindName::MCPToolConfig, "t")].into());
    }
}
