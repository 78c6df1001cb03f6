//! What a request of a server needs that a client declares.

use crate::message::Message;
use crate::raw::Raw;
use crate::value;

/// A capability that a client must have declared for a request of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredCapability {
    /// Its name.
    pub name: &'static str,
    /// What is required of it.
    detail: Option<&'static str>,
}

// === impl RequiredCapability ===

impl RequiredCapability {
    /// Visiting a URL.
    pub const URL: Self = Self { name: "elicitation", detail: Some("url") };

    /// What a request of a legacy server needs. Nothing for requests that need no capability that is known.
    pub fn of(request: &Message) -> Option<Self> {
        let params = request.params().unwrap_or_default();
        let (name, detail) = match request.method()? {
            "elicitation/create" if value::find_text(params, &["mode"]).as_deref() == Some("url") => {
                ("elicitation", Some("url"))
            }
            "elicitation/create" => ("elicitation", None),
            "sampling/createMessage" if value::has(params, &["tools"]) => ("sampling", Some("tools")),
            "sampling/createMessage" => ("sampling", None),
            "roots/list" => ("roots", None),
            _ => return None,
        };
        Some(Self { name, detail })
    }

    /// Whether a client declared it. `declared` are its capabilities. Elicitation without a mode is by a form.
    pub fn is_in(&self, declared: &[u8]) -> bool {
        let has = |path: &[&str]| value::has(declared, path);
        match (self.name, self.detail) {
            (name, Some(detail)) => has(&[name, detail]),
            ("elicitation", None) => {
                has(&["elicitation"]) && (!has(&["elicitation", "url"]) || has(&["elicitation", "form"]))
            }
            (name, None) => has(&[name]),
        }
    }

    /// As a client would declare it.
    pub fn declaration(&self) -> Raw<'static> {
        let inside = self.detail.map(|detail| format!(r#""{detail}":{{}}"#)).unwrap_or_default();
        // INVARIANT: both are names without escapes.
        Raw::parse(&format!(r#"{{"{}":{{{inside}}}}}"#, self.name))
            .map_or_else(|_| Raw::string(self.name), Raw::into_owned)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn required(request: &str) -> Option<RequiredCapability> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,{request}}}"#);
        RequiredCapability::of(&Message::parse(Bytes::from(body)).unwrap())
    }

    #[test]
    fn a_request_needs_what_its_kind_and_its_mode_say() {
        for (request, declaration, covered, uncovered) in [
            (r#""method":"roots/list""#, r#"{"roots":{}}"#, r#"{"roots":{"listChanged":true}}"#, r#"{"roots":null}"#),
            (
                r#""method":"elicitation/create""#,
                r#"{"elicitation":{}}"#,
                r#"{"elicitation":{}}"#,
                r#"{"elicitation":{"url":{}}}"#,
            ),
            (
                r#""method":"elicitation/create","params":{"mode":"url"}"#,
                r#"{"elicitation":{"url":{}}}"#,
                r#"{"elicitation":{"url":{}}}"#,
                r#"{"elicitation":{"form":{}}}"#,
            ),
            (r#""method":"sampling/createMessage""#, r#"{"sampling":{}}"#, r#"{"sampling":{}}"#, "{}"),
            (
                r#""method":"sampling/createMessage","params":{"tools":[]}"#,
                r#"{"sampling":{"tools":{}}}"#,
                r#"{"sampling":{"tools":{}}}"#,
                r#"{"sampling":{}}"#,
            ),
        ] {
            let required = required(request).unwrap();
            assert_eq!(required.declaration().as_str(), declaration);
            assert!(required.is_in(covered.as_bytes()) && !required.is_in(uncovered.as_bytes()), "{request}");
            assert!(required.is_in(required.declaration().as_str().as_bytes()));
        }
        assert_eq!(required(r#""method":"custom/question""#), None);
    }
}
