//! The two eras of the protocol, and which of them a request is spoken in.
//!
//! Up to 2025-11-25 a connection begins with `initialize`, and a session remembers what was agreed on: legacy. Since
//! 2026-07-28 there is no session, and every request says in `params._meta` what it needs to say: modern. A request that
//! claims to be modern is either so in every respect or refused; it is never taken for a legacy one by mistake.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::answer;
use crate::id::Id;
use crate::message::{Message, Part};
use crate::raw::Raw;

/// The version that is modern.
pub const MODERN: &str = "2026-07-28";

/// Every version there has been, the oldest first.
pub const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// How a request is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// With sessions, up to 2025-11-25.
    Legacy,
    /// Without, since 2026-07-28.
    Modern,
}

/// A request contradicts itself. To be answered with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The version in the header is not that in the body.
    #[error(
        "the header `MCP-Protocol-Version` says `{header}`, but `io.modelcontextprotocol/protocolVersion` in \
         `params._meta` says `{body}`; send the same version in both"
    )]
    VersionMismatch {
        /// What the header says.
        header: String,
        /// What the body says.
        body: String,
    },
    /// The body claims to be modern but does not say which version it is.
    #[error("`params._meta` must say the version in `io.modelcontextprotocol/protocolVersion`, as a string")]
    NoVersion,
    /// The body says a version that is not known.
    #[error("version `{requested}` is not supported; use `{MODERN}`")]
    Unsupported {
        /// The version.
        requested: String,
    },
    /// The body does not say what the client can do.
    #[error("`params._meta` must have `io.modelcontextprotocol/clientCapabilities`, an object")]
    NoCapabilities,
    /// What the body says about what the client can do is not what it must be.
    #[error("`io.modelcontextprotocol/clientCapabilities` in `params._meta` must be an object")]
    BadCapabilities,
    /// A header that must repeat a part of the body is not there.
    #[error("the header `{name}` is missing; it must say `{body}`, as the body does")]
    HeaderMissing {
        /// The name of the header.
        name: Cow<'static, str>,
        /// What the body says.
        body: String,
    },
    /// A header that repeats a part of the body says something else.
    #[error("the header `{name}` says `{header}`, but the body says `{body}`; send the same in both")]
    HeaderMismatch {
        /// The name of the header.
        name: Cow<'static, str>,
        /// What it says.
        header: String,
        /// What the body says.
        body: String,
    },
    /// A header that repeats a part of the body cannot be read.
    #[error("the header `{name}` cannot be read; send it once, as plain text or as `=?base64?...?=` of UTF-8")]
    HeaderUnreadable {
        /// The name of the header.
        name: Cow<'static, str>,
    },
    /// What a header repeats stands twice in the body, so nobody can say what it is.
    #[error(
        "the argument that the header `{name}` repeats, or an object around it, stands twice in the body; send it once"
    )]
    ArgumentTwice {
        /// The name of the header.
        name: Cow<'static, str>,
    },
}

/// Which era a request is of. `header` is the value of `MCP-Protocol-Version`.
pub fn classify(header: Option<&str>, message: &Message) -> Result<Era, Refusal> {
    let header = header.filter(|header| !header.is_empty());
    if !claims_modern(header, message) {
        return Ok(Era::Legacy);
    }
    let body = message.protocol_version().filter(|version| !version.is_empty());
    // The handshake is legacy, whatever a header says. One whose body says that it is modern is a method that does not exist.
    if message.method() == Some("initialize") && body.as_deref() != Some(MODERN) {
        return Ok(Era::Legacy);
    }
    match (header, body) {
        // The header is what was agreed on; what else `_meta` holds is no claim.
        (Some(header), None) if header != MODERN => Ok(Era::Legacy),
        (_, None) => Err(Refusal::NoVersion),
        (Some(header), Some(body)) if header != body => {
            Err(Refusal::VersionMismatch { header: header.to_owned(), body: body.into_owned() })
        }
        (_, Some(body)) if body != MODERN => Err(Refusal::Unsupported { requested: body.into_owned() }),
        _ => match message.client_capabilities() {
            None | Some(b"null") => Err(Refusal::NoCapabilities),
            Some(value) if value.first() == Some(&b'{') => Ok(Era::Modern),
            Some(_) => Err(Refusal::BadCapabilities),
        },
    }
}

// === impl Refusal ===

impl Refusal {
    /// The code of the error.
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

    /// What clients read beside the code.
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

    /// The answer to the request.
    pub fn answer(&self, id: Option<&Id>) -> Bytes {
        let data = self.data().map(|data| Raw::value(&data));
        answer::error(id, self.code(), &self.to_string(), data.as_ref())
    }

    /// A short, constant word for metrics and logs.
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

/// Whether a request claims to be modern: by its header, or by what no legacy client puts into `_meta`, whatever its
/// value.
fn claims_modern(header: Option<&str>, message: &Message) -> bool {
    let claims = [Part::ProtocolVersion, Part::ClientInfo, Part::ClientCapabilities];
    header == Some(MODERN) || claims.iter().any(|part| message.value(*part).is_some())
}

#[cfg(test)]
mod tests;
