//! JSON that remembers the order of its members and the digits of its numbers.
//!
//! Documents are compared and hashed by their bytes, so their order must not depend on how a build is put together:
//! `serde_json::Map` is sorted or not by a feature that any crate can switch on. Here it never is. The rule is Go's,
//! whose programs read and write the same documents: a struct's members come in the order of its fields, a map's
//! members are sorted, and what is passed through keeps its order.
//!
//! Two objects are equal when their members are equal and in the same order.

mod number;
mod of;
mod read;
mod write;

use std::collections::BTreeMap;

pub use number::Number;
pub use write::sorted;

/// The deepest nesting that is read; no configuration is deeper.
const MOST_LEVELS: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Json {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as its digits.
    Number(Number),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// An object.
    Object(Members),
}

/// The members of an object, in order. A name occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<(String, Json)>);

/// Something is not JSON, or not the JSON that was expected.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// The text is not YAML.
    #[error("not valid YAML: {0}")]
    Yaml(String),
    /// The value is nested too deeply.
    #[error("nested more than {MOST_LEVELS} levels deep; flatten it")]
    TooDeep,
    /// JSON cannot say this.
    #[error("cannot be written as JSON: {0}")]
    Unwritable(String),
    /// The value does not have the expected shape.
    #[error("not of the expected shape: {0}")]
    Shape(String),
}

// === impl Json ===

impl Json {
    /// What a value is called in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// The member of this name, if this is an object that has one.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(name),
            _ => None,
        }
    }

    /// The text, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Reads the value as a type of the caller.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(&self.to_compact()).map_err(|error| JsonError::Shape(error.to_string()))
    }
}

/// A map has no order of its own, so its members are sorted.
impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(bool) => Self::Bool(*bool),
            serde_json::Value::Number(number) => Self::from(number),
            serde_json::Value::String(text) => Self::String(text.clone()),
            serde_json::Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(map) => {
                let sorted: BTreeMap<_, _> = map.iter().collect();
                Self::Object(sorted.into_iter().map(|(name, value)| (name.clone(), Self::from(value))).collect())
            }
        }
    }
}

impl From<&serde_json::Number> for Json {
    fn from(number: &serde_json::Number) -> Self {
        let whole = number.as_i64().map(Number::from).or_else(|| number.as_u64().map(Number::from));
        whole.or_else(|| number.as_f64().and_then(Number::from_f64)).map_or(Self::Null, Self::Number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Json {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<Members> for Json {
    fn from(members: Members) -> Self {
        Self::Object(members)
    }
}

// === impl Members ===

impl Members {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find_map(|(other, value)| (other == name).then_some(value))
    }

    /// The value under a name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Json> {
        self.0.iter_mut().find_map(|(other, value)| (other == name).then_some(value))
    }

    /// Puts a value under a name: in the place of the one that was there, otherwise at the end.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Json>) {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(place) => *place = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes the value under a name out.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// Brings the members into an order: those named here first and as named, then the others sorted by name.
    pub fn arrange(&mut self, first: &[&str]) {
        let rank = |name: &str| first.iter().position(|other| *other == name).unwrap_or(first.len());
        self.0.sort_by(|(left, _), (right, _)| (rank(left), left).cmp(&(rank(right), right)));
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members in order, their values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Json)> {
        self.0.iter_mut().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of members with the same name the last one wins, in the place of the first.
impl FromIterator<(String, Json)> for Members {
    fn from_iter<I: IntoIterator<Item = (String, Json)>>(members: I) -> Self {
        let mut places = BTreeMap::new();
        let mut kept: Vec<(String, Json)> = Vec::new();
        for (name, value) in members {
            let place = *places.entry(name.clone()).or_insert(kept.len());
            match kept.get_mut(place) {
                Some(member) => member.1 = value,
                None => kept.push((name, value)),
            }
        }
        Self(kept)
    }
}

impl IntoIterator for Members {
    type Item = (String, Json);
    type IntoIter = std::vec::IntoIter<(String, Json)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests;
