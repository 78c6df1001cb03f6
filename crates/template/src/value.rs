//! The values of a template while it is rendered.
//!
//! Data are never copied: lists and objects borrow from the JSON that a template is rendered with, or from what `fromJson` made of a
//! text (see [`crate::arena`]).

use std::rc::Rc;

use serde_json::{Map, Number, Value as Json};

use crate::literal::approximate;

/// Integral numbers from here on are written with an exponent, as `json` does.
const LARGEST_PLAIN: f64 = 1e21;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value<'r> {
    /// No value: `nil`, a member that an object does not have, or a null that was taken out of its place.
    Nothing,
    /// A null in its place in data. Unlike of [`Self::Nothing`], its members are an error.
    Null,
    Bool(bool),
    /// An integer of the template: a literal, a length, an index.
    Int(i64),
    /// A byte of a string.
    Byte(u8),
    /// An integral number of data, with all of its digits. In Go it is a `float64`.
    Whole(i128),
    /// Another number.
    Float(f64),
    Text(Text<'r>),
    List(List<'r>),
    Map(&'r Map<String, Json>),
}

/// A string. It can have any bytes, as in Go.
#[derive(Clone, Debug)]
pub(crate) enum Text<'r> {
    Borrowed(&'r [u8]),
    Made(Rc<[u8]>),
}

/// A list, and what `slice` can still make visible of the list that it was taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'r> {
    // INVARIANT: there are at least `length` items.
    items: &'r [Json],
    length: usize,
}

// === impl Value ===

impl<'r> Value<'r> {
    /// A value of data, in its place.
    pub(crate) fn of_json(json: &'r Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::of_number(number),
            Json::String(text) => Self::Text(Text::Borrowed(text.as_bytes())),
            Json::Array(items) => Self::List(List { items, length: items.len() }),
            Json::Object(members) => Self::Map(members),
        }
    }

    fn of_number(number: &Number) -> Self {
        let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        if let Some(integer) = integer {
            return Self::Whole(integer);
        }
        let value = number.as_f64().unwrap_or_default();
        let is_plain =
            value.fract() == 0.0 && value.abs() < LARGEST_PLAIN && !(value == 0.0 && value.is_sign_negative());
        // The shortest digits that give this number back, not all that its bits have.
        let digits = is_plain.then(|| value.to_string().parse().ok()).flatten();
        digits.map_or(Self::Float(value), Self::Whole)
    }

    /// This value taken out of its place.
    pub(crate) fn taken(self) -> Self {
        if matches!(self, Self::Null) { Self::Nothing } else { self }
    }

    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Nothing | Self::Null)
    }

    /// Whether `if` takes it for true: it is neither empty nor zero.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Nothing | Self::Null => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Byte(value) => *value != 0,
            Self::Whole(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.as_bytes().is_empty(),
            Self::List(list) => !list.items().is_empty(),
            Self::Map(members) => !members.is_empty(),
        }
    }

    /// The name of its type in Go.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Nothing | Self::Null => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Byte(_) => "uint8",
            Self::Whole(_) | Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "map[string]interface {}",
        }
    }

    /// Its number as a fraction, if data have it as a number.
    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Whole(value) => Some(approximate(*value)),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }
}

// === impl Text ===

impl Text<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }

    /// A part of it.
    pub(crate) fn part(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Borrowed(bytes) => Self::Borrowed(bytes.get(start..end).unwrap_or_default()),
            Self::Made(bytes) => Self::Made(bytes.get(start..end).unwrap_or_default().into()),
        }
    }
}

// === impl List ===

impl<'r> List<'r> {
    /// What is visible of it.
    pub(crate) fn items(&self) -> &'r [Json] {
        self.items.get(..self.length).unwrap_or_default()
    }

    /// How many items can be made visible.
    pub(crate) fn capacity(&self) -> usize {
        self.items.len()
    }

    /// The items from `start` to `end`, of which `slice` can later go up to `most`.
    pub(crate) fn part(&self, start: usize, end: usize, most: usize) -> Self {
        let items = self.items.get(start..most).unwrap_or_default();
        Self { items, length: end.saturating_sub(start).min(items.len()) }
    }
}
