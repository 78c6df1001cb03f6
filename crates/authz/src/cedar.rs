//! Decisions by Cedar policies.
//!
//! The principal is `Client::"<sub>"` with the claims as attributes and its groups as parents; the action is one of `call_tool`,
//! `get_prompt`, `read_resource` and the lists; the resource is `Tool::`, `Prompt::` or `Resource::"<name>"` below `MCP::"<server>"`, and
//! behind a virtual server below `MCP::"<backend>"` as well.
//! Entities of the configuration that are the principal or the resource of a request keep what they have beside that.

mod claims;
mod evaluation;
mod failure;
mod mentions;
mod values;

use std::collections::{HashMap, HashSet};

use cedar_policy::{Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicyId, PolicySet, RestrictedExpression};
use serde_json::{Map, Value};
use skep_mcp::value::{self, ScalarsError};

pub use self::evaluation::Evaluation;
use self::mentions::Mentions;
use crate::decision::Decision;
use crate::policies::{self, one_line};
use crate::query::{Annotations, Feature, Operation, Query};
use crate::{ConfigError, entities, source};

/// The type of groups, unless the configuration names another one.
const GROUP: &str = "THVGroup";
/// The type of servers.
const SERVER: &str = "MCP";
/// How many arguments of one call become attributes, and how long they are together as JSON, in bytes. Only those count that policies refer
/// to.
const ARGUMENTS: value::ScalarLimit = value::ScalarLimit { members: 1_000, bytes: 64 * 1024 };

/// How Cedar is configured, beside its policies and entities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CedarConfig {
    /// The claim that holds the groups of a caller.
    pub group_claim_name: String,
    /// Another claim that holds groups.
    pub role_claim_name: String,
    /// The entity type of groups.
    pub group_entity_type: String,
    /// Claims whose values are also a set.
    pub multi_valued_claims: Vec<String>,
    /// The upstream provider of an authorization server whose claims decide, instead of those of the client's token.
    pub primary_upstream_provider: String,
}

/// The engine.
#[derive(Debug)]
pub struct Cedar {
    policies: PolicySet,
    entities: Entities,
    /// Attributes and parents of the entities, which a request's own entities take over.
    known: HashMap<EntityUid, (Attributes, HashSet<EntityUid>)>,
    config: CedarConfig,
    types: Types,
    /// What the policies refer to.
    mentions: Mentions,
    /// Where each policy stands in the configuration, by what a decision calls it.
    places: HashMap<String, String>,
}

type Attributes = HashMap<String, RestrictedExpression>;
type Attribute = (String, RestrictedExpression);

/// The types of the entities of a request.
#[derive(Debug)]
struct Types {
    client: EntityTypeName,
    action: EntityTypeName,
    tool: EntityTypeName,
    prompt: EntityTypeName,
    resource: EntityTypeName,
    feature: EntityTypeName,
    server: EntityTypeName,
    group: EntityTypeName,
}

/// A caller as policies see it, for several questions.
#[derive(Debug)]
pub struct Principal {
    uid: EntityUid,
    entity: Entity,
    context: Vec<(String, RestrictedExpression)>,
}

// === impl Cedar ===

impl Cedar {
    /// The engine of a configuration.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        policies::check(config).map_err(ConfigError)?;
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list =
            |name: &str| config.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let settings = CedarConfig {
            group_claim_name: text("group_claim_name"),
            role_claim_name: text("role_claim_name"),
            group_entity_type: text("group_entity_type"),
            multi_valued_claims: list("multi_valued_claims").map(str::to_owned).collect(),
            primary_upstream_provider: text("primary_upstream_provider"),
        };
        let policies = join(list("policies"))?;
        let entities =
            entities::parse(&text("entities_json")).map_err(|error| ConfigError(format!("entities_json: {error}")))?;
        let known = entities.iter().cloned().map(|entity| {
            let (uid, attributes, parents) = entity.into_inner();
            (uid, (attributes, parents))
        });
        let (known, types) = (known.collect(), Types::new(&settings.group_entity_type)?);
        let mentions = Mentions::of(list("policies"));
        let mut cedar = Self { policies, entities, known, config: settings, types, mentions, places: HashMap::new() };
        cedar.places = cedar.located(list("policies"));
        Ok(cedar)
    }

    /// Whether a decision may depend on what a tool says about itself.
    pub fn needs_annotations(&self) -> bool {
        self.mentions.has_hints()
    }

    /// Whether a decision may depend on which of several servers a thing belongs to.
    pub fn needs_backend(&self) -> bool {
        self.mentions.has(SERVER) || self.known.keys().any(|uid| *uid.type_name() == self.types.server)
    }

    /// The arguments of a call, a JSON object, as far as a decision may depend on them.
    pub fn arguments(&self, arguments: &[u8]) -> Result<Map<String, Value>, Decision> {
        let found = value::wanted_scalars(arguments, ARGUMENTS, |name| self.mentions.has_argument(name));
        found.map_err(|error| match error {
            ScalarsError::TooMany | ScalarsError::TooLong => Decision::failed(format!(
                "policies refer to more than {} arguments of the call, or to more than {} bytes of them",
                ARGUMENTS.members, ARGUMENTS.bytes
            )),
            ScalarsError::Malformed(_) | ScalarsError::Unreadable => {
                Decision::failed("the arguments cannot be read, or not in one way only")
            }
        })
    }

    /// A caller as policies see it; nothing if its claims have no subject.
    pub fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, Decision> {
        if !self.config.primary_upstream_provider.is_empty() {
            return Err(Decision::failed("there is no token of the upstream provider whose claims decide"));
        }
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or_else(|| Decision::failed("the claims have no subject"))?;
        let client = uid(&self.types.client, subject);
        let mut context = Vec::new();
        for (name, value) in claims::attributes(claims, &self.config) {
            match values::of_json(&value) {
                Ok(Some(value)) => context.push((name, value)),
                Ok(None) => {}
                // No policy is about it.
                Err(_) if !self.mentions.has(&name) => {}
                Err(error) => return Err(Decision::failed(format!("{} {error}", shown(&name)))),
            }
        }
        let groups = claims::groups(claims, &self.config);
        let parents = groups.into_iter().map(|group| uid(&self.types.group, group)).collect();
        let entity = self.entity(client.clone(), context.iter().cloned().collect(), parents)?;
        Ok(Principal { uid: client, entity, context })
    }

    /// Decides.
    pub fn decide(&self, principal: &Principal, query: &Query<'_>, server: &str) -> Decision {
        self.evaluation(principal, server).decide(query)
    }

    /// Decides about many things that one caller may do, one after the other.
    pub fn evaluation<'a>(&'a self, principal: &'a Principal, server: &'a str) -> Evaluation<'a> {
        Evaluation::new(self, principal, server)
    }

    /// How a policy is called where a decision is explained: by its `@id`, and by its place.
    fn place(&self, policy: &PolicyId) -> String {
        let given = self.policies.annotation(policy, "id").filter(|given| !given.is_empty());
        given.map_or_else(|| policy.to_string(), |given| format!("{policy} ({given})"))
    }

    /// A policy that a decision names, with where it begins: `policy3.1 (its id) at policies[3]:5` for line 5 of that text.
    pub fn explained(&self, policy: &str) -> String {
        self.places.get(policy).map_or_else(|| policy.to_owned(), |place| format!("{policy} at {place}"))
    }

    /// The tools, prompts or resources that policies name.
    pub fn named(&self, feature: Feature) -> impl Iterator<Item = &str> {
        self.mentions.of_type(match feature {
            Feature::Tool => "Tool",
            Feature::Prompt => "Prompt",
            Feature::Resource => "Resource",
        })
    }

    fn located<'a>(&self, texts: impl Iterator<Item = &'a str>) -> HashMap<String, String> {
        let mut places = HashMap::new();
        for (index, text) in texts.enumerate() {
            for (number, policy) in source::split(text).iter().enumerate() {
                let name = self.place(&PolicyId::new(policy_id(index, number)));
                places.insert(name, format!("policies[{index}]:{}", policy.line));
            }
        }
        places
    }

    fn action(&self, query: &Query<'_>) -> Result<Entity, Decision> {
        let id = match (query.operation, query.feature) {
            (Operation::List, Feature::Tool) => "list_tools",
            (Operation::List, Feature::Prompt) => "list_prompts",
            (Operation::List, Feature::Resource) => "list_resources",
            (_, Feature::Tool) => "call_tool",
            (_, Feature::Prompt) => "get_prompt",
            (_, Feature::Resource) => "read_resource",
        };
        let attributes = HashMap::from([("operation".to_owned(), RestrictedExpression::new_string(id.to_owned()))]);
        self.entity(uid(&self.types.action, id), attributes, HashSet::new())
    }

    fn resource(&self, query: &Query<'_>, arguments: &[Attribute], server: &str) -> Result<Entity, Decision> {
        let (name, id) = match (query.operation, query.feature) {
            (Operation::List, feature) => (&self.types.feature, feature.name()),
            (_, Feature::Tool) => (&self.types.tool, query.id),
            (_, Feature::Prompt) => (&self.types.prompt, query.id),
            (_, Feature::Resource) => (&self.types.resource, query.id),
        };
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        // In this order: what a tool or a client writes never displaces what the request is.
        let mut attributes: Attributes = arguments.iter().cloned().collect();
        attributes.extend(hints(query.annotations));
        attributes.insert("name".to_owned(), text(id));
        attributes.insert("operation".to_owned(), text(query.operation.name()));
        attributes.insert("feature".to_owned(), text(query.feature.name()));
        match (query.operation, query.feature) {
            (Operation::List, feature) => attributes.insert("type".to_owned(), text(feature.name())),
            (_, Feature::Resource) => attributes.insert("uri".to_owned(), text(id)),
            _ => None,
        };
        let servers = [Some(server), query.backend].into_iter().flatten();
        let parents = servers.map(|server| uid(&self.types.server, server)).collect();
        self.entity(uid(name, id), attributes, parents)
    }

    /// An entity of a request, with what the configuration says of it. What the request says of it wins.
    fn entity(
        &self,
        uid: EntityUid,
        attributes: Attributes,
        mut parents: HashSet<EntityUid>,
    ) -> Result<Entity, Decision> {
        let attributes = match self.known.get(&uid) {
            None => attributes,
            Some((known, more)) => {
                parents.extend(more.iter().cloned());
                let mut merged = known.clone();
                merged.extend(attributes);
                merged
            }
        };
        parents.remove(&uid);
        Entity::new(uid, attributes, parents).map_err(|_| Decision::failed("a value cannot be an attribute"))
    }
}

// === impl Types ===

impl Types {
    fn new(group: &str) -> Result<Self, ConfigError> {
        let named = |name: &str| {
            let parsed = name.parse::<EntityTypeName>();
            parsed.map_err(|error| {
                ConfigError(format!("group_entity_type: `{name}` is not an entity type: {}", one_line(&error)))
            })
        };
        if group.contains("::") {
            return Err(ConfigError(format!("group_entity_type: `{group}` must be a plain name without `::`")));
        }
        Ok(Self {
            client: named("Client")?,
            action: named("Action")?,
            tool: named("Tool")?,
            prompt: named("Prompt")?,
            resource: named("Resource")?,
            feature: named("FeatureType")?,
            server: named(SERVER)?,
            group: named(if group.is_empty() { GROUP } else { group })?,
        })
    }
}

/// All policies as one set. The id of a policy is its place: `policy3`, or `policy3.1` for the second one of a text.
fn join<'a>(texts: impl Iterator<Item = &'a str>) -> Result<PolicySet, ConfigError> {
    let mut set = PolicySet::new();
    for (index, text) in texts.enumerate() {
        let parsed = policies::parse(text).map_err(|error| ConfigError(format!("policies[{index}] is {error}")))?;
        let mut policies: Vec<_> = parsed.policies().cloned().collect();
        // By their numbers: `policy10` comes after `policy9`.
        policies.sort_by_key(|policy| (policy.id().to_string().len(), policy.id().to_string()));
        for (number, policy) in policies.into_iter().enumerate() {
            let added = set.add(policy.new_id(PolicyId::new(policy_id(index, number))));
            added.map_err(|error| ConfigError(format!("policies[{index}]: {}", one_line(&error))))?;
        }
    }
    Ok(set)
}

/// The id of a policy: the place of its text in the list, and its own place in the text.
fn policy_id(index: usize, number: usize) -> String {
    if number == 0 { format!("policy{index}") } else { format!("policy{index}.{number}") }
}

fn hints(annotations: Annotations) -> impl Iterator<Item = (String, RestrictedExpression)> {
    annotations.known().map(|(name, hint)| (name.to_owned(), RestrictedExpression::new_bool(hint)))
}

fn uid(name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
}

/// The name of an attribute, as far as it may be in a reason.
fn shown(name: &str) -> String {
    format!("`{}`", value::clipped(name))
}

#[cfg(test)]
mod tests;
