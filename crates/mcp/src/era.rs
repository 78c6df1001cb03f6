//! The two eras of the protocol, and the classification of a request as one of them.
//!
//! Legacy, up to 2025-11-25: a connection starts with `initialize`, and a session holds what was negotiated. Modern,
//! since 2026-07-28: there is no session, and every request carries version and capabilities in `params._meta`. A
//! request that claims to be modern is either modern in every respect or rejected; it is never served as legacy by
//! mistake.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::answer;
use crate::id::Id;
use crate::message::{Message, Part};
use crate::raw::Raw;
use crate::value::clipped;

/// The modern protocol version.
pub const MODERN: &str = "2026-07-28";

/// All protocol versions, oldest first.
pub const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// The era of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// With sessions, up to 2025-11-25.
    Legacy,
    /// Without sessions, since 2026-07-28.
    Modern,
}

/// The eras that a method exists in, or that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Eras {
    /// Up to 2025-11-25.
    Legacy,
    /// Since 2026-07-28.
    Modern,
    /// Both.
    Both,
}

/// A request contradicts itself and is rejected with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The version in the header differs from the version in the body.
    #[error(
        "the header `MCP-Protocol-Version` is `{header}`, but `io.modelcontextprotocol/protocolVersion` in \
         `params._meta` is `{body}`; send the same version in both"
    )]
    VersionMismatch {
        /// The version in the header.
        header: String,
        /// The version in the body.
        body: String,
    },
    /// The body claims to be modern but has no version.
    #[error("`params._meta` must contain `io.modelcontextprotocol/protocolVersion`, a string")]
    NoVersion,
    /// The version in the body is not supported.
    #[error("version `{requested}` is not supported; use `{MODERN}`")]
    Unsupported {
        /// The version in the body.
        requested: String,
    },
    /// The body lacks the client capabilities.
    #[error("`params._meta` must have `io.modelcontextprotocol/clientCapabilities`, an object")]
    NoCapabilities,
    /// The client capabilities in the body are not an object.
    #[error("`io.modelcontextprotocol/clientCapabilities` in `params._meta` must be an object")]
    BadCapabilities,
    /// A header that must repeat a part of the body is missing.
    #[error("the header `{name}` is missing; it must be `{body}`, as in the body")]
    HeaderMissing {
        /// The name of the header.
        name: Cow<'static, str>,
        /// The value in the body.
        body: String,
    },
    /// A header that repeats a part of the body has another value.
    #[error("the header `{name}` is `{header}`, but the body has `{body}`; send the same value in both")]
    HeaderMismatch {
        /// The name of the header.
        name: Cow<'static, str>,
        /// The value in the header.
        header: String,
        /// The value in the body.
        body: String,
    },
    /// A header that repeats a part of the body cannot be decoded.
    #[error("the header `{name}` cannot be decoded; send it once, as plain text or as `=?base64?...?=` of UTF-8")]
    HeaderUnreadable {
        /// The name of the header.
        name: Cow<'static, str>,
    },
    /// The argument that a header repeats is duplicated in the body, so its value is ambiguous.
    #[error(
        "the argument that the header `{name}` repeats, or an object around it, is duplicated in the body; send it once"
    )]
    ArgumentTwice {
        /// The name of the header.
        name: Cow<'static, str>,
    },
}

/// Classifies a request. `header` is the value of `MCP-Protocol-Version`.
pub fn classify(header: Option<&str>, message: &Message) -> Result<Era, RequestError> {
    let header = header.filter(|header| !header.is_empty());
    if !claims_modern(header, message) {
        return Ok(Era::Legacy);
    }
    let body = message.protocol_version().filter(|version| !version.is_empty());
    // The handshake is legacy, whatever the header. An `initialize` whose body claims to be modern is an unknown
    // method.
    if message.method() == Some("initialize") && body.as_deref() != Some(MODERN) {
        return Ok(Era::Legacy);
    }
    match (header, body) {
        // The header is the negotiated version; other members of `_meta` are no claim.
        (Some(header), None) if header != MODERN => Ok(Era::Legacy),
        (_, None) => Err(RequestError::NoVersion),
        (Some(header), Some(body)) if header != body => Err(RequestError::VersionMismatch {
            header: clipped(header).into_owned(),
            body: clipped(&body).into_owned(),
        }),
        (_, Some(body)) if body != MODERN => Err(RequestError::Unsupported { requested: clipped(&body).into_owned() }),
        _ => match message.client_capabilities() {
            None | Some(b"null") => Err(RequestError::NoCapabilities),
            Some(value) if value.first() == Some(&b'{') => Ok(Era::Modern),
            Some(_) => Err(RequestError::BadCapabilities),
        },
    }
}

/// The era of a request without a message: what its `MCP-Protocol-Version` claims, since there is nothing to compare that with.
pub fn of_header(header: Option<&str>) -> Era {
    if header == Some(MODERN) { Era::Modern } else { Era::Legacy }
}

// === impl Eras ===

impl Eras {
    /// Whether an era is one of them.
    pub fn contains(self, era: Era) -> bool {
        match self {
            Self::Both => true,
            Self::Legacy => era == Era::Legacy,
            Self::Modern => era == Era::Modern,
        }
    }
}

impl From<Era> for Eras {
    fn from(era: Era) -> Self {
        match era {
            Era::Legacy => Self::Legacy,
            Era::Modern => Self::Modern,
        }
    }
}

// === impl RequestError ===

impl RequestError {
    /// The JSON-RPC error code.
    pub fn code(&self) -> i64 {
        match self {
            Self::VersionMismatch { .. }
            | Self::HeaderMismatch { .. }
            | Self::HeaderMissing { .. }
            | Self::HeaderUnreadable { .. }
            | Self::ArgumentTwice { .. } => answer::HEADER_MISMATCH,
            Self::NoVersion | Self::NoCapabilities => answer::INVALID_PARAMS,
            Self::Unsupported { .. } => answer::UNSUPPORTED_VERSION,
            Self::BadCapabilities => answer::MISSING_CAPABILITY,
        }
    }

    /// The `data` member of the error.
    pub fn data(&self) -> Option<Value> {
        match self {
            Self::VersionMismatch { header, body } => Some(json!({ "body": body, "header": header })),
            Self::NoVersion | Self::NoCapabilities => None,
            Self::Unsupported { requested } => Some(json!({ "requested": requested, "supported": [MODERN] })),
            Self::BadCapabilities => Some(json!({ "requiredCapabilities": {} })),
            Self::HeaderMissing { name, body } => Some(json!({ "bodyValue": body, "header": name })),
            Self::HeaderMismatch { name, header, body } => {
                Some(json!({ "bodyValue": body, "header": name, "headerValue": header }))
            }
            Self::HeaderUnreadable { name } | Self::ArgumentTwice { name } => Some(json!({ "header": name })),
        }
    }

    /// The error response to the request.
    pub fn answer(&self, id: Option<&Id>) -> Bytes {
        let data = self.data().map(|data| Raw::value(&data));
        answer::error(id, self.code(), &self.to_string(), data.as_ref())
    }

    /// A short, constant name for metrics and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::NoVersion => "no_version",
            Self::Unsupported { .. } => "unsupported_version",
            Self::NoCapabilities => "no_capabilities",
            Self::BadCapabilities => "bad_capabilities",
            Self::HeaderMissing { .. } => "header_missing",
            Self::HeaderMismatch { .. } => "header_mismatch",
            Self::HeaderUnreadable { .. } => "header_unreadable",
            Self::ArgumentTwice { .. } => "argument_twice",
        }
    }
}

/// Whether a request claims to be modern: by its header, or by a `_meta` member that no legacy client sends, whatever
/// its value.
fn claims_modern(header: Option<&str>, message: &Message) -> bool {
    let claims = [Part::ProtocolVersion, Part::ClientInfo, Part::ClientCapabilities];
    of_header(header) == Era::Modern || claims.iter().any(|part| message.value(*part).is_some())
}

#[cfg(test)]
mod tests;
