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

/// The state of a session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id in the store: see [`normalised`].
    pub id: String,
    /// The transport that it belongs to.
    pub kind: Kind,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed. Reading is no change.
    pub updated_at: Timestamp,
    /// A JSON value that the transport defines.
    pub data: Option<Box<RawValue>>,
    /// The transport's metadata, such as `backend_url`.
    pub metadata: BTreeMap<String, String>,
    /// Unknown members that another program wrote. They are preserved.
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
    /// A session that starts now. With `bound_to`, it is bound to that identity.
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

    /// The identity that the session is bound to, if any. Whether a client has that identity is for the caller to
    /// check.
    pub fn bound_to(&self) -> Option<&str> {
        self.metadata.get(IDENTITY).map(String::as_str)
    }
}

/// The id under which a session is stored: UUIDs are kept, every other id is hashed into one.
pub fn normalised(id: &str) -> Cow<'_, str> {
    match Uuid::try_parse(id) {
        Ok(_) => Cow::Borrowed(id),
        Err(_) => Cow::Owned(Uuid::new_v5(&Uuid::NAMESPACE_DNS, id.as_bytes()).to_string()),
    }
}
