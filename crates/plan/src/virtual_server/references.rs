//! What a virtual server refers to beside the configurations that all workloads share.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::kinds::{CompositeTool, EmbeddingServerPhase, MCPToolConfigSpec, VirtualMCPServerSpec};
use skep_api::resource::{KindName, Resource};
use skep_api::virtual_config::VirtualConfig;

use super::budget::{ReferenceBudget, Size};
use crate::error::{GARBAGE_COLLECTION, PlanError, UNLISTED};
use crate::resolve::{Resolver, TOOLS, find};
use crate::validate::in_one_line;
use crate::world::{Found, World};
use crate::{composite, names};

const GROUP: &str = "GroupRefValidated";
const COMPOSITES: &str = "CompositeToolRefsValidated";
const EMBEDDING: &str = "EmbeddingServerReady";

/// Reasons for which a virtual server is on its way rather than wrong.
pub(super) const PASSING: &[&str] =
    &["GroupRefNotReady", "EmbeddingServerNotReady", "NoBackends", UNLISTED, GARBAGE_COLLECTION];

/// The kinds of members, and of what says how they are called.
const OF_MEMBERS: &[KindName] =
    &[KindName::MCPServer, KindName::MCPRemoteProxy, KindName::MCPServerEntry, KindName::MCPExternalAuthConfig];

/// Waits while members may be missing from what is known: a configuration without them would take them away from clients.
pub(super) fn members_listed(resolver: &mut Resolver<'_>, world: &World<'_>) {
    let unlisted = OF_MEMBERS.iter().find_map(|kind| Some((kind, world.live.unlisted.get(kind)?)));
    if let Some((kind, why)) = unlisted {
        let message = format!("not all members of the group are known, as {kind}s cannot be listed: {why}");
        resolver.reject("MembersListed", PlanError::not_ready(UNLISTED, message));
    }
}

/// The group whose members are served. Unlike for a member, nothing can be done without it.
pub(super) fn group(resolver: &mut Resolver<'_>, namespace: &str, name: &str, world: &World<'_>) {
    match world.resource(KindName::MCPGroup, namespace, name) {
        Some(Found::Resource(group)) if !group.is_deleting() => {
            resolver.status.condition(GROUP, true, "GroupRefValid", format!("MCPGroup {name} is valid and ready"));
        }
        Some(_) => {
            let message =
                format!("MCPGroup `{name}` is being deleted or cannot be read; name another one in spec.groupRef");
            resolver.reject(GROUP, PlanError::not_ready("GroupRefNotReady", message));
        }
        None => {
            let message =
                format!("MCPGroup `{name}` not found in namespace `{namespace}`; create it, or correct spec.groupRef");
            resolver.reject(GROUP, PlanError::not_ready("GroupRefNotFound", message));
        }
    }
}

/// The composite tools that are defined elsewhere, in the order of the references.
pub(super) fn composite_tools<'a>(
    resolver: &mut Resolver<'_>,
    budget: &mut ReferenceBudget,
    config: Option<&VirtualConfig>,
    namespace: &str,
    world: &'a World<'_>,
) -> Vec<&'a CompositeTool> {
    let mut tools = Vec::new();
    let mut steps = 0;
    let mut names: BTreeSet<&str> =
        config.iter().flat_map(|config| &config.composite_tools).map(|tool| tool.name.as_str()).collect();
    let references = config.map(|config| config.composite_tool_refs.as_slice()).unwrap_or_default();
    for reference in references {
        let kind = KindName::VirtualMCPCompositeToolDefinition;
        let tool = match find(world, kind, namespace, &reference.name).map(AsRef::as_ref) {
            Ok(Resource::VirtualMCPCompositeToolDefinition(object)) => &object.spec,
            Ok(_) => continue,
            Err(error) => {
                let reason = error.reference_reason("CompositeToolRefNotFound", "CompositeToolRefInvalid");
                resolver.reject_as(COMPOSITES, reason, error);
                return Vec::new();
            }
        };
        let mut problems = composite::problems(tool);
        if !names.insert(&tool.name) {
            problems.push(format!("name: another composite tool is called `{}`; give each its own name", tool.name));
        }
        if !problems.is_empty() {
            let message = format!("{kind} `{}`: {}", reference.name, in_one_line(&problems));
            resolver.reject(COMPOSITES, PlanError::invalid("CompositeToolRefInvalid", message));
            return Vec::new();
        }
        if let Err(error) = budget.charge(Size::of(tool)) {
            let message = format!("{kind} `{}`: {error}", reference.name);
            resolver.reject(COMPOSITES, PlanError::invalid("CompositeToolRefInvalid", message));
            return Vec::new();
        }
        tools.push(tool);
        steps += tool.steps.len();
        if let Err(error) = composite::check_count("spec.config.compositeToolRefs", references.len(), steps) {
            resolver.reject_as(COMPOSITES, "CompositeToolRefInvalid", error);
            return Vec::new();
        }
    }
    let message = match references.len() {
        0 => "No composite tool references to validate".to_owned(),
        count => format!("{count} composite tools are defined elsewhere, and valid"),
    };
    resolver.status.condition(COMPOSITES, true, "CompositeToolRefsValid", message);
    tools
}

/// The MCPToolConfigs of the aggregation, by name. Nothing is said where there is none.
pub(super) fn tool_configs<'a>(
    resolver: &mut Resolver<'_>,
    budget: &mut ReferenceBudget,
    config: Option<&VirtualConfig>,
    namespace: &str,
    world: &'a World<'_>,
) -> BTreeMap<String, &'a MCPToolConfigSpec> {
    let mut tools = BTreeMap::new();
    // Each reference copies the whole configuration into the document.
    let mut sizes: BTreeMap<&str, Size> = BTreeMap::new();
    let entries = config.and_then(|config| config.aggregation.as_ref()).map(|one| one.tools.as_slice());
    for reference in entries.unwrap_or_default().iter().filter_map(|entry| entry.tool_config_ref.as_ref()) {
        if !tools.contains_key(&reference.name) {
            match find(world, KindName::MCPToolConfig, namespace, &reference.name).map(AsRef::as_ref) {
                Ok(Resource::MCPToolConfig(object)) => {
                    tools.insert(reference.name.clone(), &object.spec);
                    sizes.insert(&reference.name, Size::of(&object.spec));
                }
                Ok(_) => continue,
                Err(error) => {
                    let reason = error.reference_reason(TOOLS.missing, TOOLS.invalid);
                    resolver.reject_as(TOOLS.condition, reason, error);
                    return tools;
                }
            }
        }
        let size = sizes.get(reference.name.as_str()).copied().unwrap_or_default();
        if let Err(error) = budget.charge(size) {
            let message = format!("spec.config.aggregation.tools: MCPToolConfig `{}`: {error}", reference.name);
            resolver.reject(TOOLS.condition, PlanError::invalid(TOOLS.invalid, message));
            return tools;
        }
    }
    if !tools.is_empty() {
        resolver.status.condition(
            TOOLS.condition,
            true,
            TOOLS.good,
            format!("{} MCPToolConfigs are valid", tools.len()),
        );
    }
    tools
}

/// The URL of the EmbeddingServer, if it exists. Whether it is ready is checked later, by [`embedding_readiness`].
pub(super) fn embedding_server(
    resolver: &mut Resolver<'_>,
    spec: &VirtualMCPServerSpec,
    namespace: &str,
    world: &World<'_>,
) -> Option<String> {
    let name = &spec.embedding_server_ref.as_ref()?.name;
    match find(world, KindName::EmbeddingServer, namespace, name).map(AsRef::as_ref) {
        Ok(Resource::EmbeddingServer(object)) => {
            Some(format!("http://{}:{}", names::host(name, namespace), object.spec.port))
        }
        Ok(_) => None,
        Err(error) => {
            let reason = error.reference_reason("EmbeddingServerNotFound", "EmbeddingServerNotFound");
            resolver.reject_as(EMBEDDING, reason, error);
            None
        }
    }
}

/// Whether the EmbeddingServer answers.
pub(super) fn embedding_readiness(
    resolver: &mut Resolver<'_>,
    spec: &VirtualMCPServerSpec,
    namespace: &str,
    world: &World<'_>,
) {
    let Some(name) = spec.embedding_server_ref.as_ref().map(|reference| &reference.name) else { return };
    let Some(Found::Resource(server)) = world.resource(KindName::EmbeddingServer, namespace, name) else { return };
    let Resource::EmbeddingServer(object) = server.as_ref() else { return };
    let status = object.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).is_none_or(|ready| ready > 0);
    match status.and_then(|status| status.phase) {
        Some(EmbeddingServerPhase::Ready) if ready => {
            resolver.status.condition(
                EMBEDDING,
                true,
                "EmbeddingServerReady",
                format!("EmbeddingServer {name} is ready"),
            );
        }
        Some(EmbeddingServerPhase::Failed) => {
            let message = format!("EmbeddingServer `{name}` cannot run; its own conditions say why");
            resolver.reject(EMBEDDING, PlanError::not_ready("EmbeddingServerFailed", message));
        }
        _ => {
            let message = "Waiting for EmbeddingServer to become ready";
            resolver.reject(EMBEDDING, PlanError::not_ready("EmbeddingServerNotReady", message));
        }
    }
}
