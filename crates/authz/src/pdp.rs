//! Requests to a policy decision point over HTTP, and its responses. The middleware sends them.

use serde_json::{Map, Value, json};

use crate::ConfigError;
use crate::query::{Feature, Query};

/// How a decision point is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdp {
    /// Its URL, `/decision` included.
    pub url: String,
    /// How long it may take, in seconds.
    pub timeout: u64,
    /// Whether its certificate is not verified.
    pub insecure_skip_verify: bool,
    include_args: bool,
    include_operation: bool,
    mapping: Mapping,
}

/// How claims are given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    Mpe,
    Standard,
}

// === impl Pdp ===

impl Pdp {
    /// The decision point of a configuration.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        crate::check("httpv1", config).map_err(ConfigError)?;
        let http = config.get("http").unwrap_or(config);
        let url = http.get("url").and_then(Value::as_str).unwrap_or_default().trim_end_matches('/');
        let flag = |name: &str| config.get("context").and_then(|context| context.get(name)) == Some(&Value::Bool(true));
        let mapping = match config.get("claim_mapping").and_then(Value::as_str).unwrap_or_default() {
            "mpe" => Mapping::Mpe,
            "standard" => Mapping::Standard,
            other => return Err(ConfigError(format!("claim_mapping: `{other}` is not one of: mpe, standard"))),
        };
        Ok(Self {
            url: format!("{url}/decision"),
            timeout: http.get("timeout").and_then(Value::as_u64).filter(|seconds| *seconds > 0).unwrap_or(30),
            insecure_skip_verify: http.get("insecure_skip_verify") == Some(&Value::Bool(true)),
            include_args: flag("include_args"),
            include_operation: flag("include_operation"),
            mapping,
        })
    }

    /// Whether it is given the arguments of calls.
    pub fn includes_arguments(&self) -> bool {
        self.include_args
    }

    /// The body of a request. `arguments` are those of a call as its client wrote them, a JSON object; they are not parsed here.
    pub fn question(
        &self,
        claims: &Map<String, Value>,
        query: &Query<'_>,
        arguments: Option<&str>,
        server: &str,
    ) -> String {
        let (feature, operation) = (query.feature.name(), query.operation.name());
        let question = json!({
            "principal": self.mapping.principal(claims),
            "operation": format!("mcp:{feature}:{operation}"),
            "resource": format!("mrn:mcp:{server}:{feature}:{}", query.id),
        });
        with_member(question.to_string(), "context", &self.context(query, arguments))
    }

    fn context(&self, query: &Query<'_>, arguments: Option<&str>) -> String {
        let mut mcp = Map::new();
        if self.include_operation {
            mcp.insert("feature".to_owned(), query.feature.name().into());
            mcp.insert("operation".to_owned(), query.operation.name().into());
            mcp.insert("resource_id".to_owned(), query.id.into());
        }
        let hints: Map<_, _> = query.annotations.known().map(|(name, hint)| (name.to_owned(), hint.into())).collect();
        if query.feature == Feature::Tool && !hints.is_empty() {
            mcp.insert("annotations".to_owned(), Value::Object(hints));
        }
        let arguments = arguments.filter(|_| self.include_args);
        let is_empty = mcp.is_empty() && arguments.is_none();
        let mcp = Value::Object(mcp).to_string();
        match arguments {
            _ if is_empty => "{}".to_owned(),
            None => with_member("{}".to_owned(), "mcp", &mcp),
            Some(arguments) => with_member("{}".to_owned(), "mcp", &with_member(mcp, "args", arguments)),
        }
    }

    /// Whether a response allows the request. Anything but an explicit `true` denies.
    pub fn is_allowed(status: u16, body: &[u8]) -> bool {
        let said: Option<Value> = serde_json::from_slice(body).ok().filter(|_| status == 200);
        said.is_some_and(|said| said.get("allow") == Some(&Value::Bool(true)))
    }
}

/// An object with one more member at its end. The value is JSON.
fn with_member(mut object: String, name: &str, value: &str) -> String {
    object.pop();
    let comma = if object.len() > 1 { "," } else { "" };
    format!("{object}{comma}\"{name}\":{value}}}")
}

// === impl Mapping ===

impl Mapping {
    fn principal(self, claims: &Map<String, Value>) -> Value {
        let claim = |name: &str| claims.get(name).filter(|claim| !claim.is_null()).cloned();
        let scopes = claim("scopes").or_else(|| claim("scope"));
        let named = match self {
            Self::Mpe => vec![
                ("sub", claim("sub")),
                ("mroles", claim("roles")),
                ("mgroups", claim("groups")),
                ("scopes", scopes),
                ("mclearance", claim("clearance")),
                ("mannotations", Some(claim("annotations").unwrap_or_else(|| json!({})))),
            ],
            Self::Standard => {
                vec![("sub", claim("sub")), ("roles", claim("roles")), ("groups", claim("groups")), ("scopes", scopes)]
            }
        };
        Value::Object(named.into_iter().filter_map(|(name, claim)| Some((name.to_owned(), claim?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Annotations;

    fn question(config: &Value) -> Value {
        let annotations = Annotations { read_only: Some(true), ..Annotations::default() };
        let query = Query::of_element(Feature::Tool, "weather", annotations);
        let claims = json!({"sub": "ada", "roles": ["dev"], "groups": ["g"], "scope": "a b", "clearance": 3});
        let pdp = Pdp::new(config).unwrap();
        let question = pdp.question(claims.as_object().unwrap(), &query, Some(r#"{"city": "Bern", "n": 1.50}"#), "srv");
        assert_eq!(question.contains(r#""args":{"city": "Bern", "n": 1.50}"#), pdp.includes_arguments(), "{question}");
        serde_json::from_str(&question).unwrap()
    }

    #[test]
    fn a_question_has_the_shape_of_both_mappings() {
        let http = json!({"url": "https://pdp.example/"});
        let full =
            json!({"http": http, "claim_mapping": "mpe", "context": {"include_args": true, "include_operation": true}});
        let expected = json!({
            "principal": {"sub": "ada", "mroles": ["dev"], "mgroups": ["g"], "scopes": "a b", "mclearance": 3, "mannotations": {}},
            "operation": "mcp:tool:call",
            "resource": "mrn:mcp:srv:tool:weather",
            "context": {"mcp": {"feature": "tool", "operation": "call", "resource_id": "weather", "args": {"city": "Bern", "n": 1.5},
                "annotations": {"readOnlyHint": true}}},
        });
        assert_eq!(question(&full), expected);
        let plain = question(&json!({"http": http, "claim_mapping": "standard"}));
        assert_eq!(plain["principal"], json!({"sub": "ada", "roles": ["dev"], "groups": ["g"], "scopes": "a b"}));
        assert_eq!(plain["context"], json!({"mcp": {"annotations": {"readOnlyHint": true}}}));
        let prompt = Query::of_element(Feature::Prompt, "p", Annotations::default());
        let bare = Pdp::new(&json!({"http": http, "claim_mapping": "standard"})).unwrap();
        let bare: Value = serde_json::from_str(&bare.question(&Map::new(), &prompt, None, "srv")).unwrap();
        assert_eq!(bare["context"], json!({}));
        assert_eq!(
            Pdp::new(&json!({"http": http, "claim_mapping": "mpe"})).unwrap().url,
            "https://pdp.example/decision"
        );
    }

    #[test]
    fn only_a_clear_yes_allows() {
        assert!(Pdp::is_allowed(200, br#"{"allow":true}"#));
        for (status, body) in [
            (200, r#"{"allow":false}"#),
            (200, r#"{"allow":"true"}"#),
            (200, "{}"),
            (200, "x"),
            (500, r#"{"allow":true}"#),
            (204, ""),
        ] {
            assert!(!Pdp::is_allowed(status, body.as_bytes()), "{status} {body}");
        }
    }

    #[test]
    fn claims_need_a_mapping() {
        let error = Pdp::new(&json!({"http": {"url": "https://a"}})).unwrap_err().to_string();
        assert!(error.contains("mpe, standard"), "{error}");
    }
}
