//! The version that the clients of a legacy server agree on with it. One that speaks on stdio is initialized once for all of them.

use std::borrow::Cow;

use skep_mcp::{Edit, Message, Raw, era, splice, value};

use crate::stdio::parameter;

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
    use serde_json::{Value, json};

    use super::*;
    use crate::stdio::tests::{message, request};

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
