//! One MCP session.

mod json;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// The metadata key of the identity that a session belongs to.
const IDENTITY: &str = "skep_identity";

/// What is known of a session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id in the store: see [`normalised`].
    pub id: String,
    /// Which transport it belongs to.
    pub kind: Kind,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last changed. Looking at it is no change.
    pub updated_at: Timestamp,
    /// A JSON value of the transport's own.
    pub data: Option<Box<RawValue>>,
    /// What the transport remembers of it, such as `backend_url`.
    pub metadata: BTreeMap<String, String>,
    /// Members that another program wrote and we do not know. They are kept as they are.
    unknown: Vec<(String, Box<RawValue>)>,
}

/// The transport that a session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A session of a backend that speaks HTTP itself.
    Mcp,
    /// A session over server-sent events.
    Sse,
    /// A session over streamable HTTP.
    Streamable,
}

impl Session {
    /// A session that begins now. With `bound_to`, it is marked as the property of that identity.
    pub fn new(id: &str, kind: Kind, now: Timestamp, bound_to: Option<&str>) -> Self {
        let identity = bound_to.map(|identity| (IDENTITY.to_owned(), identity.to_owned()));
        Self {
            id: normalised(id).into_owned(),
            kind,
            created_at: now,
            updated_at: now,
            data: None,
            metadata: identity.into_iter().collect(),
            unknown: Vec::new(),
        }
    }

    /// The identity that began the session, if that is known. Whether a caller is that identity is the caller's to judge.
    pub fn bound_to(&self) -> Option<&str> {
        self.metadata.get(IDENTITY).map(String::as_str)
    }
}

/// The id under which a session is stored: ids that are UUIDs stay as they are, every other one is hashed into one.
pub fn normalised(id: &str) -> Cow<'_, str> {
    match Uuid::try_parse(id) {
        Ok(_) => Cow::Borrowed(id),
        Err(_) => Cow::Owned(Uuid::new_v5(&Uuid::NAMESPACE_DNS, id.as_bytes()).to_string()),
    }
}
