//! What is kept of a client's `initialize`: what a server needs that is re-initialized in the client's name.
//!
//! It counts against the client's share of sessions, and a client that sends long ones must not use up the share of all that come
//! from the same address.

use bytes::Bytes;
use skep_mcp::{Id, Message, Raw, value};

/// Its key in the metadata of a stored session.
pub const INITIALIZE: &str = "init_body";

/// What follows the response to `initialize`.
pub(crate) const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The most that is kept, in bytes. Those of SDKs have a few hundred.
pub const LONGEST: usize = 4 * 1024;

/// What is kept of an `initialize`: all of it, if it is short enough. Of a longer one the protocol version, the capabilities and who the
/// client is, the latter without icons if need be. Nothing if that is too long as well: the session then ends with the
/// server's.
pub fn kept(initialize: &[u8]) -> Option<String> {
    if initialize.len() <= LONGEST {
        return Some(String::from_utf8_lossy(initialize).into_owned());
    }
    let params = value::find(initialize, &["params"])?;
    // What is too long by itself is not put together first.
    let part = |path: &[&'static str]| match (value::find(params.as_bytes(), path), path.last()) {
        (Some(value), Some(name)) if value.len() <= LONGEST => Ok(Some((*name, value.to_owned()))),
        (Some(_), _) => Err(TooLongError),
        (None, _) => Ok(None),
    };
    let rest = [part(&["protocolVersion"]).ok()?, part(&["capabilities"]).ok()?];
    let whole = || part(&["clientInfo"]);
    let named = || {
        let parts = [part(&["clientInfo", "name"])?, part(&["clientInfo", "version"])?];
        Ok(Some(("clientInfo", object(parts.into_iter().flatten()))))
    };
    [whole(), named()].into_iter().filter_map(Result::ok).find_map(|client| {
        let params = object(rest.iter().cloned().chain([client]).flatten());
        let short = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        (short.len() <= LONGEST).then_some(short)
    })
}

/// What is kept of an `initialize`, as a message of its own. One of which nothing is kept declares nothing.
pub fn short(initialize: &Message) -> Message {
    let parsed = |text: String| Message::parse(text.into()).ok();
    kept(initialize.body()).and_then(parsed).or_else(|| bare(initialize)).unwrap_or_else(|| initialize.clone())
}

/// The least that an `initialize` can say.
fn bare(initialize: &Message) -> Option<Message> {
    let version = initialize.params().and_then(|params| value::find_text(params, &["protocolVersion"]));
    let version = version.filter(|version| version.len() <= 64).unwrap_or("2025-11-25".into());
    let params = format!(
        r#"{{"protocolVersion":{},"capabilities":{{}},"clientInfo":{{"name":"skep","version":"{}"}}}}"#,
        Raw::string(&version).as_str(),
        env!("CARGO_PKG_VERSION")
    );
    let id = Id::number(1);
    Message::parse(Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#)))
        .ok()
}

/// A part is too long to be kept.
struct TooLongError;

/// A JSON object of members that are JSON. Their names have no letters that need escapes.
fn object(members: impl Iterator<Item = (impl std::fmt::Display, String)>) -> String {
    let members: Vec<String> = members.map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn initialize(capabilities: &Value, client: &Value) -> String {
        let params = json!({ "capabilities": capabilities, "clientInfo": client, "protocolVersion": "2025-11-25" });
        json!({ "jsonrpc": "2.0", "id": "mine", "method": "initialize", "params": params }).to_string()
    }

    #[test]
    fn a_short_handshake_is_kept_as_it_is() {
        let exact = r#"{"id":1e0, "jsonrpc":"2.0","method":"initialize","params":{"x":1.50}}"#;
        assert_eq!(kept(exact.as_bytes()).as_deref(), Some(exact));
        let longest = format!("{exact}{}", " ".repeat(LONGEST - exact.len()));
        assert_eq!(kept(longest.as_bytes()), Some(longest));
    }

    #[test]
    fn of_a_long_handshake_is_kept_what_a_server_needs_within_the_limit() {
        let long = "x".repeat(60 * 1024);
        let client = |extra: &str| json!({ "name": "c", "version": "1", "icons": extra });
        for (capabilities, client, expected) in [
            // What is beside the parts that are needed goes.
            (json!({ "roots": {} }), client("short"), Some(client("short"))),
            (json!({ "roots": {} }), client(&long), Some(json!({ "name": "c", "version": "1" }))),
            (json!({ "experimental": { "x": long } }), client("short"), None),
            (json!({}), json!({ "name": long, "version": "1" }), None),
        ] {
            let mut sent: Value = serde_json::from_str(&initialize(&capabilities, &client)).unwrap();
            sent["params"]["_meta"] = json!({ "x": long });
            let kept = kept(sent.to_string().as_bytes());
            assert!(kept.as_ref().is_none_or(|kept| kept.len() <= LONGEST));
            let kept = kept.map(|kept| serde_json::from_str::<Value>(&kept).unwrap());
            let params = expected.map(
                |client| json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client }),
            );
            assert_eq!(
                kept.map(|kept| (kept["method"].clone(), kept["params"].clone())),
                params.map(|params| (json!("initialize"), params))
            );
        }
        assert_eq!(kept("x".repeat(LONGEST + 1).as_bytes()), None);
    }
}
