//! The arguments of a tool in a span: short, and without what looks like a secret.

use serde_json::{Map, Value};

/// How long one value and all of them together may be, in characters.
const VALUE: usize = 100;
const WHOLE: usize = 200;
/// What names of secrets contain.
const SECRETS: [&str; 10] =
    ["password", "token", "secret", "key", "auth", "credential", "api_key", "access_token", "refresh_token", "private"];

/// Arguments as `name=value, …`. Values that are lists or objects are not shown: what is in them cannot be told from a secret.
pub fn redacted(arguments: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in arguments {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(name);
        text.push('=');
        text.push_str(&shown(name, value));
        if text.chars().count() > WHOLE {
            break;
        }
    }
    clipped(&text, WHOLE)
}

fn shown(name: &str, value: &Value) -> String {
    let name = name.to_lowercase();
    if SECRETS.iter().any(|secret| name.contains(secret)) {
        return "[REDACTED]".to_owned();
    }
    match value {
        Value::String(text) => clipped(text, VALUE),
        Value::Array(_) | Value::Object(_) => "[...]".to_owned(),
        scalar => clipped(&scalar.to_string(), VALUE),
    }
}

fn clipped(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> String {
        redacted(value.as_object().unwrap())
    }

    #[test]
    fn secrets_are_not_shown_and_the_rest_is_short() {
        assert_eq!(of(&json!({ "a": "x", "n": 1, "t": true, "z": null })), "a=x, n=1, t=true, z=null");
        for name in ["password", "API_KEY", "userToken", "Authorization", "privateNote", "x-credential"] {
            assert_eq!(of(&json!({ name: "hush" })), format!("{name}=[REDACTED]"));
        }
        assert_eq!(of(&json!({ "nested": { "password": "hush" } })), "nested=[...]");
        assert_eq!(of(&json!({ "a": "é".repeat(150) })), format!("a={}...", "é".repeat(100)));
        let many: Map<String, Value> = (0..100).map(|index| (format!("n{index}"), json!("0123456789"))).collect();
        assert_eq!(redacted(&many).chars().count(), WHOLE + 3);
    }

    proptest! {
        #[test]
        fn no_secret_is_ever_shown(before in "[a-zA-Z_]{0,5}", secret in 0_usize..10, after in "[a-zA-Z_]{0,5}") {
            let name = format!("{before}{}{after}", SECRETS[secret].to_uppercase());
            let shown = of(&json!({ name: "xyzzy" }));
            prop_assert!(!shown.contains("xyzzy"));
        }
    }
}
