//! Requests of one era and a server of the other. A server on stdio keeps to the era that it is opened in, for all of its clients,
//! so a request of the other era never reaches it. The client is answered so that it continues in the server's era.
//!
//! What makes clients fall back from 2026-07-28 to `initialize`, as their SDKs have it: every error of `server/discover` but the
//! codes that only modern servers use (-32020 to -32022). rmcp in particular takes -32022 as a final answer, whatever versions it
//! lists. So a probe is answered with -32601; requests that were sent without one get -32022 with the versions that are served.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use skep_mcp::{Edit, Era, Eras, Id, Message, Raw, answer, era, splice, value};

use crate::stdio::parameter;

/// A request that is not of the server's era, and how it is answered.
#[derive(Debug, PartialEq, Eq)]
pub struct EraMismatch {
    /// The status, where it has one of its own.
    pub status: StatusCode,
    /// The JSON-RPC error.
    pub body: Bytes,
}

/// How a request is refused that the server would not serve in its era. `negotiated` is the version that a legacy server agreed to.
pub(crate) fn mismatch(server: Eras, request: Era, message: &Message, negotiated: Option<&str>) -> Option<EraMismatch> {
    let id = message.id();
    match (server, request, message.method()?) {
        (Eras::Legacy, Era::Modern, "server/discover") => {
            let text = "server/discover: this server is initialized in an earlier protocol version; send `initialize`";
            let body = answer::error(id.as_ref(), answer::METHOD_NOT_FOUND, text, None);
            Some(EraMismatch { status: StatusCode::NOT_FOUND, body })
        }
        (Eras::Legacy, Era::Modern, _) => Some(unsupported(id.as_ref(), era::MODERN, &served(negotiated))),
        (Eras::Modern, Era::Legacy, "initialize") => {
            let requested = parameter(message, "protocolVersion").unwrap_or_default();
            Some(unsupported(id.as_ref(), &value::clipped(&requested), &[era::MODERN]))
        }
        _ => None,
    }
}

fn unsupported(id: Option<&Id>, requested: &str, supported: &[&str]) -> EraMismatch {
    let text = format!("version `{requested}` is not supported by this server; use one of: {}", supported.join(", "));
    let data = Raw::value(&json!({ "requested": requested, "supported": supported }));
    let body = answer::error(id, answer::UNSUPPORTED_VERSION, &text, Some(&data));
    EraMismatch { status: StatusCode::BAD_REQUEST, body }
}

/// The versions that clients of a legacy server can use: the one that it agreed to, and those before it.
fn served(negotiated: Option<&str>) -> Vec<&'static str> {
    let legacy = era::VERSIONS.into_iter().filter(|version| *version != era::MODERN);
    let served: Vec<_> = legacy.clone().filter(|version| negotiated.is_none_or(|most| *version <= most)).collect();
    if served.is_empty() { legacy.collect() } else { served }
}

/// The server's answer to `initialize` as one client gets it: with its own id, and in the version that it asked for where that is an
/// earlier one than the server agreed to. Clients disconnect from a server that answers with a version they do not know.
pub(crate) fn answer_to(initialize: &Message, answered: &Message) -> Option<Message> {
    let id = initialize.id()?;
    let negotiated = protocol_version(answered);
    let requested = parameter(initialize, "protocolVersion");
    let is_earlier = |requested: &str| {
        era::VERSIONS.contains(&requested) && negotiated.as_deref().is_some_and(|negotiated| requested < negotiated)
    };
    let version = requested.filter(|requested| is_earlier(requested)).map(|version| Raw::string(&version));
    let mut edits = vec![Edit::set(&["id"], &id)];
    edits.extend(version.map(|version| Edit::set(&["result", "protocolVersion"], version)));
    splice::apply(answered, &edits).ok()
}

/// The version that a server agreed to in its answer to `initialize`.
pub(crate) fn protocol_version(answer: &Message) -> Option<String> {
    value::find_text(answer.result()?, &["protocolVersion"]).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::stdio::tests::{message, request};

    fn read(mismatch: Option<EraMismatch>) -> (u16, Value) {
        let mismatch = mismatch.unwrap();
        (mismatch.status.as_u16(), serde_json::from_slice(&mismatch.body).unwrap())
    }

    #[test]
    fn a_request_of_the_other_era_is_answered_so_that_its_client_falls_back() {
        let ask = |method: &str| request(&json!(7), method, &json!({ "protocolVersion": "2025-06-18" }));
        let (status, probe) = read(mismatch(Eras::Legacy, Era::Modern, &ask("server/discover"), Some("2025-11-25")));
        assert_eq!((status, &probe["id"], &probe["error"]["code"]), (404, &json!(7), &json!(-32601)));
        let (status, call) = read(mismatch(Eras::Legacy, Era::Modern, &ask("tools/call"), Some("2025-06-18")));
        let data = json!({ "requested": "2026-07-28", "supported": ["2024-11-05", "2025-03-26", "2025-06-18"] });
        assert_eq!((status, &call["error"]["code"], &call["error"]["data"]), (400, &json!(-32022), &data));
        let (status, handshake) = read(mismatch(Eras::Modern, Era::Legacy, &ask("initialize"), None));
        let data = json!({ "requested": "2025-06-18", "supported": ["2026-07-28"] });
        assert_eq!((status, &handshake["error"]["code"], &handshake["error"]["data"]), (400, &json!(-32022), &data));
        for (server, era, method) in [
            (Eras::Legacy, Era::Legacy, "initialize"),
            (Eras::Legacy, Era::Legacy, "server/discover"),
            (Eras::Modern, Era::Modern, "server/discover"),
            (Eras::Both, Era::Modern, "server/discover"),
            (Eras::Both, Era::Legacy, "initialize"),
            // What the server itself refuses is its own to say.
            (Eras::Modern, Era::Legacy, "tools/call"),
        ] {
            assert_eq!(mismatch(server, era, &ask(method), None), None, "{server:?} {era:?} {method}");
        }
    }

    #[test]
    fn an_unknown_version_leaves_all_legacy_ones() {
        assert_eq!(served(Some("1999-01-01")).len(), 4);
        assert_eq!(served(None), ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]);
    }

    #[test]
    fn each_client_gets_the_version_that_it_asked_for_if_the_server_is_past_it() {
        for (requested, negotiated, agreed) in [
            (json!("2025-03-26"), json!("2025-11-25"), json!("2025-03-26")),
            (json!("2025-11-25"), json!("2025-06-18"), json!("2025-06-18")),
            (json!("2025-06-18"), json!("2025-06-18"), json!("2025-06-18")),
            // One that never was is no version to agree on.
            (json!("2025-01-01"), json!("2025-11-25"), json!("2025-11-25")),
            (json!(null), json!("2025-11-25"), json!("2025-11-25")),
        ] {
            let asked = request(&json!("mine"), "initialize", &json!({ "protocolVersion": requested }));
            let result = json!({ "protocolVersion": negotiated, "kept": 1e2 });
            let answered = message(&json!({ "jsonrpc": "2.0", "id": 1, "result": result }));
            let response: Value = serde_json::from_slice(answer_to(&asked, &answered).unwrap().body()).unwrap();
            assert_eq!((&response["id"], &response["result"]["protocolVersion"]), (&json!("mine"), &agreed));
            assert_eq!(response["result"]["kept"], json!(1e2));
        }
    }
}
