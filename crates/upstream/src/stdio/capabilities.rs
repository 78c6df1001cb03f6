//! What clients can be asked for. The server is initialized with everything that the proxy can relay; a client that did not declare
//! a capability is never sent a request that needs it: the proxy refuses on its behalf, as the client itself would.

use skep_mcp::{Message, answer, value};

/// The client capabilities that the proxy relays, as JSON: what it declares to every server. The last one costs nothing to relay:
/// it is about resources that clients read.
pub(crate) const RELAYED: &str = r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}},"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}}}"#;

/// What a client can be asked for, as it declared itself.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability that clients declare or do not")]
pub(crate) struct ClientCapabilities {
    pub(super) roots: bool,
    pub(super) sampling: bool,
    /// Sampling in which the model may use tools.
    pub(super) sampling_tools: bool,
    /// Elicitation by a form.
    pub(super) elicitation: bool,
    /// Elicitation by a URL.
    pub(super) elicitation_url: bool,
}

/// Why refusing a request of the server on behalf of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RelayError {
    pub(super) code: i64,
    pub(super) why: &'static str,
}

impl ClientCapabilities {
    /// What the `initialize` of a client declares. No more is kept of it.
    pub(crate) fn of(initialize: &Message) -> Self {
        let declared =
            initialize.params().and_then(|params| value::find(params, &["capabilities"])).unwrap_or_default();
        let has = |path: &[&str]| value::has(declared.as_bytes(), path);
        let by_url = has(&["elicitation", "url"]);
        Self {
            roots: has(&["roots"]),
            sampling: has(&["sampling"]),
            sampling_tools: has(&["sampling", "tools"]),
            // Without a mode it means forms: before 2025-11-25 there was nothing else.
            elicitation: has(&["elicitation"]) && (!by_url || has(&["elicitation", "form"])),
            elicitation_url: by_url,
        }
    }

    /// Why the client cannot answer a request of the server. Nothing if it can, or if the request needs no capability.
    pub(super) fn refuse(self, request: &Message) -> Option<RelayError> {
        let missing = |why| Some(RelayError { code: answer::METHOD_NOT_FOUND, why });
        let unfit = |why| Some(RelayError { code: answer::INVALID_PARAMS, why });
        match request.method()? {
            "roots/list" if !self.roots => missing("the client has no roots"),
            "sampling/createMessage" if !self.sampling => missing("the client does not support sampling"),
            "sampling/createMessage" if !self.sampling_tools && has_param(request, "tools") => {
                unfit("the client does not support tools in sampling")
            }
            "elicitation/create" if !self.elicitation && !self.elicitation_url => {
                missing("the client does not support elicitation")
            }
            "elicitation/create" => match super::upstream::parameter(request, "mode").as_deref() {
                Some("url") if !self.elicitation_url => unfit("the client does not support elicitation by URL"),
                None | Some("form") if !self.elicitation => unfit("the client does not support elicitation by form"),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the client declared the capability that a request of the server needs. Where it needs none that is known, no client did.
    pub(super) fn covers(self, request: &Message) -> bool {
        let needs_one =
            matches!(request.method(), Some("roots/list" | "sampling/createMessage" | "elicitation/create"));
        needs_one && self.refuse(request).is_none()
    }
}

fn has_param(request: &Message, name: &str) -> bool {
    request.params().is_some_and(|params| value::has(params, &[name]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::upstream::tests::request;
    use super::*;

    fn of(capabilities: &Value) -> ClientCapabilities {
        ClientCapabilities::of(&request(&json!(1), "initialize", &json!({ "capabilities": capabilities })))
    }

    #[test]
    fn a_request_is_refused_for_a_client_that_did_not_declare_what_it_needs() {
        let form = json!({ "message": "name?" });
        let url = json!({ "mode": "url", "url": "https://a" });
        let plain = json!({ "messages": [] });
        let tools = json!({ "messages": [], "tools": [{}] });
        for (capabilities, method, params, code) in [
            (json!({}), "elicitation/create", &form, Some(-32601)),
            (json!({ "elicitation": null }), "elicitation/create", &form, Some(-32601)),
            (json!({ "elicitation": {} }), "elicitation/create", &form, None),
            (json!({ "elicitation": {} }), "elicitation/create", &url, Some(-32602)),
            (json!({ "elicitation": { "url": {} } }), "elicitation/create", &form, Some(-32602)),
            (json!({ "elicitation": { "url": {} } }), "elicitation/create", &url, None),
            (json!({ "elicitation": { "url": {}, "form": {} } }), "elicitation/create", &form, None),
            (json!({}), "sampling/createMessage", &plain, Some(-32601)),
            (json!({ "sampling": {} }), "sampling/createMessage", &plain, None),
            (json!({ "sampling": {} }), "sampling/createMessage", &tools, Some(-32602)),
            (json!({ "sampling": { "tools": {} } }), "sampling/createMessage", &tools, None),
            (json!({}), "roots/list", &json!({}), Some(-32601)),
            (json!({ "roots": {} }), "roots/list", &json!({}), None),
            (json!({}), "custom/question", &json!({}), None),
        ] {
            let refused = of(&capabilities).refuse(&request(&json!(2), method, params));
            assert_eq!(refused.map(|refused| refused.code), code, "{capabilities} {method} {params}");
        }
    }

    #[test]
    fn what_is_declared_to_servers_covers_every_request_that_is_relayed() {
        let all = of(&serde_json::from_str(RELAYED).unwrap());
        for (method, params) in [
            ("roots/list", json!({})),
            ("sampling/createMessage", json!({ "tools": [] })),
            ("elicitation/create", json!({})),
            ("elicitation/create", json!({ "mode": "url" })),
        ] {
            assert!(all.covers(&request(&json!(1), method, &params)), "{method}");
            assert!(!ClientCapabilities::default().covers(&request(&json!(1), method, &params)), "{method}");
        }
        assert!(!all.covers(&request(&json!(1), "custom/question", &json!({}))));
    }
}
