//! The configuration of authorization, version 1: which engine decides, and by which rules.

use serde_json::Value;

use crate::cedar::Cedar;
use crate::pdp::Pdp;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

/// An engine, ready to decide.
#[derive(Debug)]
pub enum Engine {
    /// Cedar, in this process.
    Cedar(Box<Cedar>),
    /// A decision point over HTTP.
    Http(Pdp),
}

// === impl Engine ===

impl Engine {
    /// The engine of a configuration: `{"version": "1.0", "type": "cedarv1", "cedar": {…}}`.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        let text = |name: &str| config.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |name: &str| ConfigError(format!("{name} is missing from the authorization configuration"));
        match text("version").ok_or_else(|| missing("version"))? {
            "1.0" => {}
            other => return Err(ConfigError(format!("version: `{other}` is not supported; write `1.0`"))),
        }
        let part = |name: &str| config.get(name).filter(|part| part.is_object()).ok_or_else(|| missing(name));
        match text("type").ok_or_else(|| missing("type"))? {
            "cedarv1" => Ok(Self::Cedar(Box::new(Cedar::new(part("cedar")?)?))),
            "httpv1" => Ok(Self::Http(Pdp::new(part("pdp")?)?)),
            other => Err(ConfigError(format!("type: `{other}` is not one of: {}", crate::ENGINES.join(", ")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_names_its_version_and_engine() {
        let cedar = json!({"policies": ["permit(principal, action, resource);"]});
        let whole = json!({"version": "1.0", "type": "cedarv1", "cedar": cedar});
        assert!(matches!(Engine::new(&whole), Ok(Engine::Cedar(_))));
        for (config, words) in [
            (json!({}), "version is missing"),
            (json!({"version": "2.0", "type": "cedarv1", "cedar": cedar}), "`2.0` is not supported"),
            (json!({"version": "1.0", "cedar": cedar}), "type is missing"),
            (json!({"version": "1.0", "type": "opa"}), "cedarv1, httpv1"),
            (json!({"version": "1.0", "type": "cedarv1"}), "cedar is missing"),
            (json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": []}}), "policies is missing or empty"),
            (json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": ["permit("]}}), "policies[0]"),
            (
                json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": ["permit(principal, action, resource);"], "group_entity_type": "A::B"}}),
                "without `::`",
            ),
        ] {
            let error = Engine::new(&config).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
