//! Cedar entities as people write them.
//!
//! The original reads them with Go's Cedar, which is more forgiving than Rust's: `parents`, `attrs` and `tags` may be missing
//! or null, unknown members are ignored, names of members may be written in any case, the last of two entities with the
//! same uid counts, an entity may name itself as a parent, and an attribute may refer to one without `__entity`. [`normalise`] gives the strict form of what it accepts.
//!
//! Cedar keeps every ancestor of every entity, and finds them by recursion. So a hierarchy has limits of its own, which
//! are checked by [`hierarchy::check`] before Cedar sees it.

mod hierarchy;

use std::collections::BTreeSet;

use cedar_policy::Entities;
use serde_json::{Map, Value, json};
use skep_bounds::{BoundsError, ENTITIES_BYTES, ENTITY_ANCESTORS, ENTITY_LEVELS, ENTITY_NESTED_VALUES, ENTITY_VALUES};

use crate::policies::one_line;

/// Members of an entity that hold values.
const VALUES: [&str; 2] = ["attrs", "tags"];

/// Entities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EntitiesError {
    /// The text exceeds a limit.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The text is not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A part has another shape than it must have.
    #[error("{place} is not {expected}")]
    Shape {
        /// Where, such as `[0].parents[1]`.
        place: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// An entity is its own ancestor.
    #[error("`{0}` is an ancestor of itself; remove one of the parents in that circle")]
    Cycle(String),
    /// A hierarchy has too many levels.
    #[error("`{0}` has more than {ENTITY_LEVELS} levels of parents; flatten the hierarchy")]
    Levels(String),
    /// A hierarchy has too many ancestors.
    #[error("entities have more than {ENTITY_ANCESTORS} ancestors together; flatten the hierarchy")]
    Ancestors,
    /// Values of attributes are nested too deep for their number.
    #[error(
        "values of attributes are nested too deep: {ENTITY_NESTED_VALUES} are the most if each counts once for every list and object \
         around it; write them flatter"
    )]
    Nested,
    /// Cedar does not accept them.
    #[error("not a list of Cedar entities: {0}")]
    Invalid(String),
}

/// An entity's type and id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Uid {
    kind: String,
    id: String,
}

/// An entity in its strict form.
#[derive(Debug)]
struct Entity {
    uid: Uid,
    /// Each once, in the order of the text, and never itself.
    parents: Vec<Uid>,
    attrs: Map<String, Value>,
    tags: Map<String, Value>,
}

/// Parses a text of entities. The limits are checked first; an empty text means none.
pub fn parse(text: &str) -> Result<Entities, EntitiesError> {
    let entities = normalise(text)?;
    Entities::from_json_value(entities, None).map_err(|error| EntitiesError::Invalid(one_line(&error)))
}

/// The strict form of a text of entities, which every implementation of Cedar reads.
pub fn normalise(text: &str) -> Result<Value, EntitiesError> {
    skep_bounds::size(text, ENTITIES_BYTES)?;
    skep_bounds::json(text)?;
    skep_bounds::json_values(text, ENTITY_VALUES)?;
    if text.trim().is_empty() {
        return Ok(json!([]));
    }
    let list = match serde_json::from_str(text).map_err(|error| EntitiesError::Syntax(error.to_string()))? {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        _ => return Err(shape("the text".to_owned(), "a list of entities between `[` and `]`")),
    };
    let mut entities: Vec<Entity> = Vec::new();
    for (index, value) in list.iter().enumerate().filter(|(_, value)| !value.is_null()) {
        entities.push(Entity::read(value, &format!("[{index}]"))?);
    }
    let entities = last_of_each(entities);
    if entities.iter().map(Entity::nested_values).sum::<usize>() > ENTITY_NESTED_VALUES {
        return Err(EntitiesError::Nested);
    }
    hierarchy::check(&entities)?;
    Ok(entities.into_iter().map(Entity::into_json).collect())
}

/// The last entity of each uid, in the order of the text.
fn last_of_each(mut entities: Vec<Entity>) -> Vec<Entity> {
    let mut seen = BTreeSet::new();
    entities.reverse();
    entities.retain(|entity| seen.insert(entity.uid.clone()));
    entities.reverse();
    entities
}

// === impl Entity ===

impl Entity {
    fn read(value: &Value, place: &str) -> Result<Self, EntitiesError> {
        let entity = value.as_object().ok_or_else(|| shape(place.to_owned(), "an entity, an object with a `uid`"))?;
        let uid = Uid::read(member(entity, "uid"), || format!("{place}.uid"))?;
        let parents = match member(entity, "parents") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(parents)) => {
                let read = parents
                    .iter()
                    .enumerate()
                    .map(|(index, parent)| Uid::read(Some(parent), || format!("{place}.parents[{index}]")));
                let mut seen = BTreeSet::from([uid.clone()]);
                let is_new = |parent: &Uid| seen.insert(parent.clone());
                read.collect::<Result<Vec<_>, _>>()?.into_iter().filter(is_new).collect()
            }
            Some(_) => return Err(shape(format!("{place}.parents"), "a list of entities")),
        };
        let [attrs, tags] = VALUES.map(|name| match member(entity, name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(values)) => {
                Ok(values.iter().map(|(name, value)| (name.clone(), strict(value))).collect())
            }
            Some(_) => Err(shape(format!("{place}.{name}"), "an object")),
        });
        Ok(Self { uid, parents, attrs: attrs?, tags: tags? })
    }

    /// How many values its attributes and tags have, each counted once for every list and object around it.
    fn nested_values(&self) -> usize {
        self.attrs.values().chain(self.tags.values()).map(|value| nested_values(value, 1)).sum()
    }

    fn into_json(self) -> Value {
        let parents: Vec<Value> = self.parents.into_iter().map(Uid::into_json).collect();
        json!({ "uid": self.uid.into_json(), "parents": parents, "attrs": self.attrs, "tags": self.tags })
    }
}

// === impl Uid ===

impl Uid {
    fn read(value: Option<&Value>, place: impl Fn() -> String) -> Result<Self, EntitiesError> {
        const EXPECTED: &str = "an entity; write `{\"type\": \"Group\", \"id\": \"admins\"}`";
        let wrong = || shape(place(), EXPECTED);
        let uid = value.and_then(Value::as_object).ok_or_else(wrong)?;
        if let Some(Value::Object(inner)) = member(uid, "__entity") {
            return Self::of(inner).ok_or_else(wrong);
        }
        Self::implicit(uid).ok_or_else(wrong)
    }

    /// The entity of `{"__entity": {"type": …, "id": …}}`.
    fn explicit(value: &Map<String, Value>) -> Option<Self> {
        member(value, "__entity").and_then(Value::as_object).and_then(Self::of)
    }

    /// The entity of `{"type": …, "id": …}`. Other members do not count.
    fn implicit(value: &Map<String, Value>) -> Option<Self> {
        let is_whole = member(value, "type").is_some() && member(value, "id").is_some();
        Self::of(value).filter(|_| is_whole)
    }

    /// Type and id, each a text. A missing one is empty.
    fn of(uid: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| match member(uid, name) {
            None => Some(String::new()),
            Some(value) => value.as_str().map(str::to_owned),
        };
        Some(Self { kind: text("type")?, id: text("id")? })
    }

    fn into_json(self) -> Value {
        json!({ "type": self.kind, "id": self.id })
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}::{:?}", self.kind, self.id)
    }
}

/// A value of an attribute, in which entities and extension values have no unknown members. An object with a `type` and an `id`
/// that are texts is an entity to Go's Cedar, and a record to Rust's.
///
/// INVARIANT: it is not deeper than `JSON_DEPTH`, so recursion ends.
fn strict(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(strict).collect(),
        Value::Object(members) => {
            if let Some(uid) = Uid::explicit(members).or_else(|| Uid::implicit(members)) {
                return json!({ "__entity": uid.into_json() });
            }
            if let Some(Value::Object(call)) = member(members, "__extn") {
                let part = |name: &str| member(call, name).cloned().unwrap_or_default();
                return json!({ "__extn": { "fn": part("fn"), "arg": part("arg") } });
            }
            Value::Object(members.iter().map(|(name, value)| (name.clone(), strict(value))).collect())
        }
        other => other.clone(),
    }
}

/// How many values a value at a level has, itself included, each counted as often as its level says.
///
/// INVARIANT: it is not deeper than `JSON_DEPTH`, so recursion ends.
fn nested_values(value: &Value, level: usize) -> usize {
    let inner = |value: &Value| nested_values(value, level + 1);
    level
        + match value {
            Value::Array(items) => items.iter().map(inner).sum(),
            Value::Object(members) => members.values().map(inner).sum(),
            _ => 0,
        }
}

/// A member of an object, whose name may be written in another case.
fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| object.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

fn shape(place: String, expected: &'static str) -> EntitiesError {
    EntitiesError::Shape { place, expected }
}
