//! What a virtual server answers by itself.

use serde_json::json;
use skep_mcp::{Edit, Era, Message, Raw, answer, era, splice, value};
use skep_upstream::{Call, CallError, Replies};

use super::ServerInfo;
use crate::catalogue::Abilities;

/// The newest version that has a handshake.
const LEGACY: &str = "2025-11-25";
/// The error that legacy clients know for a resource that does not exist.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// For how long a client may keep what it was told, in milliseconds: what backends offer may change at any time.
const TIME_TO_LIVE: u32 = 0;

/// A response with a result.
pub(super) fn respond(call: &Call, result: &Raw<'_>) -> Result<Replies, CallError> {
    let id = call.message.id().ok_or(CallError::NotSent)?;
    Message::response(&id, result).map(Replies::ready).ok_or(CallError::NotSent)
}

/// A response with an error.
pub(super) fn refuse(call: &Call, code: i64, text: &str) -> Result<Replies, CallError> {
    refuse_with(call, code, text, None)
}

fn refuse_with(call: &Call, code: i64, text: &str, data: Option<&Raw<'_>>) -> Result<Replies, CallError> {
    let error = answer::error(call.message.id().as_ref(), code, text, data);
    Message::parse(error).map(Replies::ready).map_err(|_malformed| CallError::NotSent)
}

/// A tool that does not exist for this client.
pub(super) fn unknown_tool(call: &Call, name: &str) -> Result<Replies, CallError> {
    match call.era {
        Era::Legacy => {
            let text = format!("tool \"{}\" not found", value::clipped(name));
            refuse(call, answer::INVALID_PARAMS, &text)
        }
        Era::Modern => refuse(call, answer::INVALID_PARAMS, "unknown tool"),
    }
}

/// A resource that does not exist for this client.
pub(super) fn unknown_resource(call: &Call, uri: &str) -> Result<Replies, CallError> {
    let code = match call.era {
        Era::Legacy => RESOURCE_NOT_FOUND,
        Era::Modern => answer::INVALID_PARAMS,
    };
    let data = Raw::value(&json!({ "uri": uri }));
    refuse_with(call, code, &format!("resource `{}` not found", value::clipped(uri)), Some(&data))
}

/// The result of `initialize`: the version that the client asked for where it has a handshake, and the newest one otherwise. What there is to
/// list may change later, so all of it is announced.
pub(super) fn initialized(info: &ServerInfo, requested: Option<&str>) -> Raw<'static> {
    let is_legacy = |version: &&str| *version != era::MODERN && era::VERSIONS.contains(version);
    let version = requested.filter(is_legacy).unwrap_or(LEGACY);
    Raw::value(&json!({
        "protocolVersion": version,
        "capabilities": {
            "completions": {},
            "logging": {},
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "tools": { "listChanged": true },
        },
        "serverInfo": { "name": info.name, "version": info.version },
    }))
}

/// The result of `server/discover`: what there is for this client now.
pub(super) fn discovered(info: &ServerInfo, abilities: Abilities) -> Raw<'static> {
    let mut capabilities = serde_json::Map::new();
    capabilities.insert("completions".to_owned(), json!({}));
    for (is_there, name, capability) in [
        (abilities.tools, "tools", json!({ "listChanged": true })),
        (abilities.prompts, "prompts", json!({ "listChanged": true })),
        (abilities.resources, "resources", json!({ "listChanged": true, "subscribe": abilities.subscriptions })),
    ] {
        if is_there {
            capabilities.insert(name.to_owned(), capability);
        }
    }
    Raw::value(&json!({
        "supportedVersions": [era::MODERN, LEGACY],
        "capabilities": capabilities,
        "resultType": "complete",
        "ttlMs": TIME_TO_LIVE,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": info.name, "version": info.version } },
    }))
}

/// What stands beside a list in a result.
pub(super) fn list_members(info: &ServerInfo, era: Era) -> String {
    match era {
        Era::Legacy => String::new(),
        Era::Modern => {
            format!(r#","resultType":"complete","ttlMs":{TIME_TO_LIVE},"cacheScope":"private","_meta":{}"#, meta(info))
        }
    }
}

/// The result of a completion that has no values.
pub(super) fn nothing_completed(info: &ServerInfo, era: Era) -> Raw<'static> {
    let members = match era {
        Era::Legacy => String::new(),
        Era::Modern => format!(r#","resultType":"complete","_meta":{}"#, meta(info)),
    };
    Raw::trusted(format!(r#"{{"completion":{{"values":[]}}{members}}}"#))
}

/// An empty result.
pub(super) fn empty(call: &Call) -> Result<Replies, CallError> {
    respond(call, &Raw::trusted("{}".to_owned()))
}

/// The `_meta` of a result, which says whose it is.
pub(super) fn meta(info: &ServerInfo) -> String {
    format!(r#"{{"io.modelcontextprotocol/serverInfo":{}}}"#, server_info(info).as_str())
}

/// What a virtual server says of itself.
pub(super) fn server_info(info: &ServerInfo) -> Raw<'static> {
    Raw::value(&json!({ "name": info.name, "version": info.version }))
}

/// A response of a backend that names the virtual server: no backend speaks in its name, or in another's.
pub(super) fn signed(response: Message, info: &ServerInfo) -> Message {
    if response.result().is_none_or(|result| !result.starts_with(b"{")) {
        return response;
    }
    let path = ["result", "_meta", "io.modelcontextprotocol/serverInfo"];
    let signed = splice::apply(&response, &[Edit::set(&path, server_info(info))]);
    signed.unwrap_or(response)
}

/// The result of a composite tool.
pub(super) fn composite(info: &ServerInfo, era: Era, ran: Result<serde_json::Value, String>) -> Raw<'static> {
    let mut result = match ran {
        Ok(output) => json!({
            "content": [{ "type": "text", "text": output.to_string() }],
            "structuredContent": output,
        }),
        Err(error) => json!({
            "content": [{ "type": "text", "text": format!("Workflow execution failed: {error}") }],
            "isError": true,
        }),
    };
    if let (Era::Modern, Some(result)) = (era, result.as_object_mut()) {
        result.insert("resultType".to_owned(), json!("complete"));
        let info = json!({ "name": info.name, "version": info.version });
        result.insert("_meta".to_owned(), json!({ "io.modelcontextprotocol/serverInfo": info }));
    }
    Raw::value(&result)
}
