//! What callers may do: the engines that authorize a request.
//!
//! ```text
//!   method ─▶ Treatment ─┬─ Allow, Deny
//!                        ├─ Decide ─▶ Query ─▶ Engine (Cedar, HTTP decision point) ─▶ Decision
//!                        └─ Filter ─▶ one Query per element of the response
//! ```
//!
//! [`check`] reports before any request is made whether an engine accepts its configuration. This is the only crate that links Cedar; the
//! operator hands the result to the plan, which links no engine. Nothing here touches the network: a request to a decision point is
//! text, and so is its response ([`pdp`]).
//!
//! [`policies`] and [`entities`] are the only ways by which texts of users reach Cedar's parsers: both check the limits of
//! `skep-bounds` first, because those parsers recurse without a limit of their own.

pub mod cedar;
mod config;
mod decision;
pub mod entities;
pub mod pdp;
pub mod policies;
pub mod query;
pub mod source;

use serde_json::Value;

pub use config::{ConfigError, Engine};
pub use decision::Decision;

/// The engines, by the names that configurations use.
pub const ENGINES: [&str; 2] = ["cedarv1", "httpv1"];

/// Whether an engine accepts its configuration; if not, what is wrong with it and what to do.
pub fn check(engine: &str, config: &Value) -> Result<(), String> {
    match engine {
        "cedarv1" => policies::check(config),
        "httpv1" => http(config),
        other => Err(format!("`{other}` is not an engine; use one of {}", ENGINES.join(", "))),
    }
}

fn http(config: &Value) -> Result<(), String> {
    let address =
        config.get("http").and_then(|http| http.get("url")).or_else(|| config.get("url")).and_then(Value::as_str);
    let address = address.ok_or("http.url is missing: write the URL of the decision point")?;
    let url = url::Url::parse(address).map_err(|error| format!("http.url: `{address}` is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("http.url: `{address}` must start with https:// or http://"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn good_policies_are_accepted() {
        let config = json!({ "policies": ["permit(principal, action == Action::\"call_tool\", resource == Tool::\"greet\");"], "entities_json": "[]" });
        assert_eq!(check("cedarv1", &config), Ok(()));
        assert_eq!(check("httpv1", &json!({ "http": { "url": "https://pdp.example" } })), Ok(()));
    }

    #[test]
    fn bad_ones_are_refused_with_their_place() {
        for (engine, config, words) in [
            ("cedarv1", json!({}), "policies is missing"),
            ("cedarv1", json!({ "policies": ["permit(principal, action, resource);", "permit("] }), "policies[1]"),
            (
                "cedarv1",
                json!({ "policies": ["permit(principal, action, resource);"], "entities_json": "{" }),
                "entities_json",
            ),
            ("httpv1", json!({}), "http.url is missing"),
            ("httpv1", json!({ "http": { "url": "ftp://x" } }), "https://"),
            ("opa", json!({}), "cedarv1, httpv1"),
        ] {
            let problem = check(engine, &config).unwrap_err();
            assert!(problem.contains(words) && problem.lines().count() == 1, "{problem}");
        }
    }
}
