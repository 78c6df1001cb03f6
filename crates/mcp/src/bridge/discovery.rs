//! What a server says of itself: the result of `server/discover`, and that of `initialize`.

use super::{SERVER_INFO, TASKS, member, unambiguous};
use crate::era::{MODERN, VERSIONS};
use crate::message::{Kind, Message};
use crate::message_error::MessageError;
use crate::raw::Raw;
use crate::splice::{Edit, SpliceError};
use crate::{json, splice};

/// The version that clients get who ask for one that does not exist.
const NEWEST_LEGACY: &str = "2025-11-25";

/// The result of `initialize` for a legacy client, from the response of a modern server to `server/discover`. An error stays one.
pub fn initialize_result(initialize: &Message, discovered: &Message) -> Result<Message, SpliceError> {
    unambiguous(discovered)?;
    let id = initialize.id();
    let named = id.as_ref().map(|id| Edit::set(&["id"], id));
    if only_response(discovered)? == Kind::Error {
        return splice::apply(discovered, named.as_slice());
    }
    let requested = member(initialize.params(), "protocolVersion").and_then(json::string);
    let is_legacy = |version: &str| version != MODERN && VERSIONS.contains(&version);
    let version = requested.filter(|version| is_legacy(version));
    let version = Raw::string(version.as_deref().unwrap_or(NEWEST_LEGACY));
    let capabilities = capabilities(discovered, &["result", "capabilities", "extensions", TASKS]);
    let mut edits: Vec<Edit<'_>> = named.into_iter().collect();
    edits.extend([
        Edit::set(&["result", "protocolVersion"], version),
        Edit::set(&["result", "serverInfo"], server_info(discovered)),
        Edit::set(&["result", "capabilities"], capabilities),
        Edit::remove(&["result", "supportedVersions"]),
        Edit::remove(&["result", "resultType"]),
        Edit::remove(&["result", "ttlMs"]),
        Edit::remove(&["result", "cacheScope"]),
        Edit::remove(&["result", "_meta"]),
    ]);
    splice::apply(discovered, &edits)
}

/// The result of `server/discover` for a modern client, from the response of a legacy server to `initialize`. An error stays one.
pub fn discover_result(discover: &Message, initialized: &Message) -> Result<Message, SpliceError> {
    unambiguous(initialized)?;
    let id = discover.id();
    let named = id.as_ref().map(|id| Edit::set(&["id"], id));
    if only_response(initialized)? == Kind::Error {
        return splice::apply(initialized, named.as_slice());
    }
    let server = server_info(initialized);
    let capabilities = capabilities(initialized, &["result", "capabilities", "tasks"]);
    let mut edits: Vec<Edit<'_>> = named.into_iter().collect();
    edits.extend([
        Edit::set(&["result", "supportedVersions"], supported(initialized)),
        Edit::set(&["result", "capabilities"], capabilities),
        Edit::set(&["result", "resultType"], Raw::string("complete")),
        Edit::set(&["result", "ttlMs"], Raw::value(&0.into())),
        Edit::set(&["result", "cacheScope"], Raw::string("private")),
        Edit::set(&["result", "_meta", SERVER_INFO], server.clone()),
        // Drafts of 2026-07-28 had it here.
        Edit::set(&["result", "serverInfo"], server),
        Edit::remove(&["result", "protocolVersion"]),
    ]);
    splice::apply(initialized, &edits)
}

/// The kind of a response, which is a result or an error.
fn only_response(response: &Message) -> Result<Kind, MessageError> {
    match response.kind() {
        kind @ (Kind::Response | Kind::Error) => Ok(kind),
        Kind::Request | Kind::Notification => Err(MessageError::NoKind),
    }
}

/// Who a server is, as it says in `initialize` or in `server/discover`. A client may insist that it says so.
pub(super) fn server_info(response: &Message) -> Raw<'static> {
    let result = response.result();
    let of_meta = member(result, "_meta").and_then(|meta| member(Some(meta.as_bytes()), SERVER_INFO));
    let info = of_meta.or_else(|| member(result, "serverInfo")).filter(|info| info.starts_with('{'));
    info.and_then(super::owned)
        .unwrap_or_else(|| Raw::value(&serde_json::json!({ "name": "unknown", "version": "unknown" })))
}

/// The capabilities of a server without one that the other era does not have.
fn capabilities(response: &Message, without: &[&str]) -> Raw<'static> {
    let reduced = splice::apply(response, &[Edit::remove(without)]);
    let found = reduced.as_ref().ok().and_then(|reduced| member(reduced.result(), "capabilities"));
    found
        .filter(|value| value.starts_with('{'))
        .and_then(super::owned)
        .unwrap_or_else(|| Raw::value(&serde_json::json!({})))
}

/// The versions that clients can use of a legacy server and a bridge: the modern one, what the server agreed to, and those before it.
fn supported(initialized: &Message) -> Raw<'static> {
    let agreed = member(initialized.result(), "protocolVersion").and_then(json::string);
    let is_served = |version: &&str| *version != MODERN && agreed.as_deref().is_some_and(|agreed| *version <= agreed);
    let legacy = VERSIONS.into_iter().rev().filter(is_served);
    Raw::value(&[MODERN].into_iter().chain(legacy).collect::<serde_json::Value>())
}
