//! The members of a group for a process that finds its backends by itself. Both this and the document of an inline virtual server are made
//! from the same [`Member`]s and [`Converter`], so a server is called alike however it is found.
//!
//! ```text
//!   members, their configs ─▶ materials: which keys of which Secrets and ConfigMaps ─▶ (read by the process)
//!                          ─▶ discovered: each member, or why it is left out
//! ```

use std::collections::{BTreeMap, BTreeSet};

use skep_api::reference::Target;
use skep_api::resource::{KindName, Resource};
use skep_api::virtual_config::{OutgoingStrategy, StaticBackend};
use skep_bounds::BACKENDS;

use super::budget::ReferenceBudget;
use super::members::{Member, Variable, members};
use super::outgoing::Converter;
use crate::error::{MissingKey, PlanError};
use crate::key::{Key, ObjectKind};
use crate::world::{Found, World};

/// A member of a group, as the process calls it.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredMember {
    /// Where it is and how it speaks.
    pub backend: StaticBackend,
    /// The credentials that it asks for; or why that cannot be resolved, which concerns it only where its own strategy is chosen. Where it
    /// says nothing, the configuration of the virtual server does.
    pub strategy: Result<Option<OutgoingStrategy>, PlanError>,
    /// The MCPExternalAuthConfig that says so.
    pub auth_config_ref: Option<String>,
    /// The variables that its own strategy is read from.
    pub strategy_variables: BTreeMap<String, Variable>,
    /// The variables that the headers of an entry are read from. They belong to this member alone, as those of its strategy do.
    pub variables: BTreeMap<String, Variable>,
    /// The ConfigMap with the certificate authorities to trust for it, and the key.
    pub ca_bundle: Option<(String, String)>,
}

/// Whether the group is there. Without it there are no members, whatever names it.
pub fn has_group(world: &World<'_>, namespace: &str, group: &str) -> bool {
    let found = world.resource(KindName::MCPGroup, namespace, group);
    matches!(found, Some(Found::Resource(found)) if !found.is_deleting())
}

/// The keys of Secrets and ConfigMaps that the members of a group are called with: all that a process has to read.
pub fn materials(world: &World<'_>, namespace: &str, group: &str) -> BTreeMap<Key, BTreeSet<String>> {
    let mut needed: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    if !has_group(world, namespace, group) {
        return needed;
    }
    for member in members(world, namespace, group).into_iter().take(BACKENDS) {
        let mut references = member.inputs();
        let config = member.external_auth();
        let config = config.and_then(|name| world.resource(KindName::MCPExternalAuthConfig, namespace, name));
        if let Some(Found::Resource(config)) = config {
            references.extend(config.references());
        }
        for reference in references {
            let (kind, key) = match reference.to {
                Target::Secret { key } => (ObjectKind::Secret, key),
                Target::ConfigMap { key } | Target::Document { key } => (ObjectKind::ConfigMap, key),
                Target::Kind(_) => continue,
            };
            let object = Key { kind, namespace: namespace.to_owned(), name: reference.name };
            needed.entry(object).or_default().insert(key);
        }
    }
    needed
}

/// The members of a group by their names: as they are called, or why one is left out. No member affects another one, and none is called with
/// other credentials than its own.
pub fn discovered(
    world: &World<'_>,
    namespace: &str,
    group: &str,
) -> BTreeMap<String, Result<DiscoveredMember, PlanError>> {
    if !has_group(world, namespace, group) {
        return BTreeMap::new();
    }
    let mut budget = ReferenceBudget::default();
    let mut converter = Converter::new(world, namespace, None, &mut budget);
    let all = members(world, namespace, group).into_iter().enumerate().map(|(index, member)| {
        let made = if index < BACKENDS {
            made(member, group, world, &mut converter)
        } else {
            let problem = format!("a virtual server serves at most {BACKENDS} members of a group; split the group");
            Err(PlanError::InvalidSpec(problem))
        };
        (member.name().to_owned(), made)
    });
    all.collect()
}

fn made(
    member: Member<'_>,
    group: &str,
    world: &World<'_>,
    converter: &mut Converter<'_, '_>,
) -> Result<DiscoveredMember, PlanError> {
    if !member.has_url() {
        return Err(PlanError::InvalidSpec("it has no URL yet; its own conditions say why".to_owned()));
    }
    let backend = member.backend(group, world)?;
    let mut strategy_variables = BTreeMap::new();
    let strategy = member.external_auth().map(|name| converter.strategy(name)).transpose();
    let strategy = strategy.map(|strategy| {
        strategy.map(|strategy| {
            let secrets = strategy.secrets.into_iter();
            strategy_variables.extend(secrets.map(|(name, secret)| (name, Variable::Secret(secret.name, secret.key))));
            strategy.document
        })
    });
    let ca_bundle = member.ca_bundle().map(|(map, key)| (map.to_owned(), key.to_owned()));
    if let Some((map, key)) = &ca_bundle {
        MissingKey::check("spec.caBundleRef", (ObjectKind::ConfigMap, map, key), member.namespace(), world)
            .map_err(PlanError::MissingKey)?;
    }
    let auth_config_ref = member.external_auth().map(str::to_owned);
    let variables = member.headers();
    Ok(DiscoveredMember { backend, strategy, auth_config_ref, strategy_variables, variables, ca_bundle })
}

/// Whether a resource matters to a process that serves this group: it is a member, the group, or a configuration that members may name.
pub fn concerns(resource: &Resource, group: &str) -> bool {
    match resource {
        Resource::MCPGroup(_) => resource.name() == group,
        Resource::MCPServer(object) => object.spec.group_ref.as_ref().is_some_and(|one| one.name == group),
        Resource::MCPRemoteProxy(object) => object.spec.group_ref.as_ref().is_some_and(|one| one.name == group),
        Resource::MCPServerEntry(object) => object.spec.group_ref.name == group,
        Resource::MCPExternalAuthConfig(_) => true,
        _ => false,
    }
}
