//! How a document is declared: one line a member, which says its type, its key and when it is written.
//!
//! ```text
//! document! {
//!     /// Where sessions are kept.
//!     pub struct SessionRedis {
//!         /// Host and port.
//!         pub address: String = always "address",     // written even when empty
//!         /// Number of the database.
//!         pub db: i32 = if_set "db",                  // left out when 0
//!     }
//! }
//! ```
//!
//! Reading and writing come from that table, with the rules of Go's `encoding/json`: members are written in the order of
//! the table; `null` reads like a member that is not there; of two members with the same key the last one counts. Two
//! rules are our own: a key that is not in the table is kept in `other` and written back at the end, so that an older
//! reader does not lose what a newer writer said, and keys must be spelled exactly (Go also takes `Port` for `port`).

use std::collections::BTreeMap;

use crate::duration::GoDuration;
use crate::json::{Json, JsonError, Members, Number};

/// What a member of a document can be.
pub trait Field: Sized + Default {
    /// Reads it. `null` is what a missing member would be.
    fn read(json: Json) -> Result<Self, DocumentError>;

    /// Writes it.
    fn write(&self) -> Json;

    /// Whether an `if_set` member with this value is left out.
    fn is_empty(&self) -> bool;
}

/// A document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not JSON or YAML at all.
    #[error(transparent)]
    Text(#[from] JsonError),
    /// A member has the wrong type.
    #[error("{} must be {expected}, not {found}", place(path))]
    Type {
        /// Where the member is, such as `webhooks[0].timeout`.
        path: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
}

/// A path as a message names it.
fn place(path: &str) -> String {
    if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") }
}

// === impl DocumentError ===

impl DocumentError {
    /// The error that a value is not what it must be. Where it stands is added on the way out.
    pub(crate) fn expected(expected: &'static str, found: &Json) -> Self {
        let found = match found {
            Json::Number(number) => format!("`{}`", number.as_str()),
            Json::String(text) => format!("`{text}`"),
            other => other.kind().to_owned(),
        };
        Self::Type { path: String::new(), expected, found }
    }

    /// The same error, seen from the object or list that holds the value.
    pub(crate) fn under(self, step: &str) -> Self {
        match self {
            Self::Type { path, expected, found } => {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                Self::Type { path: format!("{step}{dot}{path}"), expected, found }
            }
            text @ Self::Text(_) => text,
        }
    }
}

/// Declares a document. See the top of this file.
macro_rules! document {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $when:ident $key:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// Members that this version does not know, as they came.
            pub other: $crate::json::Members,
        }

        impl $crate::document::Field for $name {
            fn read(json: $crate::json::Json) -> Result<Self, $crate::document::DocumentError> {
                let mut document = Self::default();
                for (key, value) in $crate::document::members(json)? {
                    match key.as_str() {
                        $($key => document.$field = $crate::document::member($key, value)?,)*
                        _ => document.other.insert(key, value),
                    }
                }
                Ok(document)
            }

            fn write(&self) -> $crate::json::Json {
                let mut members = $crate::json::Members::default();
                $($crate::document::$when(&mut members, $key, &self.$field);)*
                for (key, value) in self.other.iter() {
                    members.insert(key, value.clone());
                }
                members.into()
            }

            fn is_empty(&self) -> bool {
                false
            }
        }

        #[cfg(test)]
        impl $crate::document::tests::Sample for $name {
            fn sample(source: &mut $crate::document::tests::Source) -> Self {
                Self {
                    $($field: $crate::document::tests::Sample::sample(source),)*
                    other: $crate::document::tests::Sample::sample(source),
                }
            }
        }
    };
}
pub(crate) use document;

/// The members of an object; `null` has none.
pub(crate) fn members(json: Json) -> Result<Members, DocumentError> {
    match json {
        Json::Object(members) => Ok(members),
        Json::Null => Ok(Members::default()),
        other => Err(DocumentError::expected("an object", &other)),
    }
}

/// Reads the member under a key.
pub(crate) fn member<T: Field>(key: &str, value: Json) -> Result<T, DocumentError> {
    T::read(value).map_err(|error| error.under(key))
}

/// Writes a member whatever it holds.
pub(crate) fn always<T: Field>(members: &mut Members, key: &str, value: &T) {
    members.insert(key, value.write());
}

/// Writes a member that holds something.
pub(crate) fn if_set<T: Field>(members: &mut Members, key: &str, value: &T) {
    if !value.is_empty() {
        members.insert(key, value.write());
    }
}

// === impl Field ===

impl Field for String {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::String(text) => Ok(text),
            Json::Null => Ok(Self::new()),
            other => Err(DocumentError::expected("a string", &other)),
        }
    }

    fn write(&self) -> Json {
        Json::from(self.as_str())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Field for bool {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::Bool(bool) => Ok(bool),
            Json::Null => Ok(false),
            other => Err(DocumentError::expected("true or false", &other)),
        }
    }

    fn write(&self) -> Json {
        Json::Bool(*self)
    }

    fn is_empty(&self) -> bool {
        !*self
    }
}

impl Field for i64 {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match &json {
            Json::Null => Ok(0),
            Json::Number(number) => {
                number.as_i64().ok_or_else(|| DocumentError::expected("a whole number of 64 bits", &json))
            }
            other => Err(DocumentError::expected("a whole number", other)),
        }
    }

    fn write(&self) -> Json {
        Json::Number(Number::from(*self))
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl Field for i32 {
    fn read(json: Json) -> Result<Self, DocumentError> {
        let number = i64::read(json)?;
        let too_large = |_| DocumentError::expected("a whole number of 32 bits", &Json::from(number));
        Self::try_from(number).map_err(too_large)
    }

    fn write(&self) -> Json {
        i64::from(*self).write()
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

/// Written as nanoseconds; a text such as `5s` is read as well.
impl Field for GoDuration {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::String(text) => {
                let advice = "a duration such as `5s`, or a number of nanoseconds";
                text.parse().map_err(|_| DocumentError::expected(advice, &Json::String(text)))
            }
            other => Ok(Self { nanoseconds: i64::read(other)? }),
        }
    }

    fn write(&self) -> Json {
        self.nanoseconds.write()
    }

    fn is_empty(&self) -> bool {
        self.nanoseconds == 0
    }
}

/// Passed through unchanged.
impl Field for Json {
    fn read(json: Json) -> Result<Self, DocumentError> {
        Ok(json)
    }

    fn write(&self) -> Json {
        self.clone()
    }

    fn is_empty(&self) -> bool {
        *self == Self::Null
    }
}

impl<T: Field> Field for Option<T> {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::Null => Ok(None),
            json => T::read(json).map(Some),
        }
    }

    fn write(&self) -> Json {
        self.as_ref().map_or(Json::Null, Field::write)
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(json: Json) -> Result<Self, DocumentError> {
        match json {
            Json::Array(items) => {
                let at = |index: usize| move |error: DocumentError| error.under(&format!("[{index}]"));
                items.into_iter().enumerate().map(|(index, item)| T::read(item).map_err(at(index))).collect()
            }
            Json::Null => Ok(Self::new()),
            other => Err(DocumentError::expected("a list", &other)),
        }
    }

    fn write(&self) -> Json {
        Json::Array(self.iter().map(Field::write).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// A Go map: its members are sorted.
impl<T: Field> Field for BTreeMap<String, T> {
    fn read(json: Json) -> Result<Self, DocumentError> {
        let read = |(key, value): (String, Json)| member(&key, value).map(|value| (key, value));
        members(json)?.into_iter().map(read).collect()
    }

    fn write(&self) -> Json {
        Json::Object(self.iter().map(|(key, value)| (key.clone(), value.write())).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests;
