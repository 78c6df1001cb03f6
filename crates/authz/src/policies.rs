//! Cedar policies as configurations hold them: a list of texts, and the entities beside it.

use std::fmt::Write as _;

use cedar_policy::PolicySet;
use serde_json::Value;
use skep_bounds::{BoundsError, POLICY_COUNT, POLICY_SET_BYTES};

use crate::entities;

/// The longest error of a parser that is reported, in characters. It can repeat the whole policy.
const LONGEST_ERROR: usize = 300;

/// A policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It exceeds a limit.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// It is not Cedar.
    #[error("not valid Cedar: {0}")]
    Syntax(String),
}

/// Parses one text of policies. The limits are checked first.
pub fn parse(text: &str) -> Result<PolicySet, PolicyError> {
    skep_bounds::cedar(text)?;
    text.parse::<PolicySet>().map_err(|errors| PolicyError::Syntax(one_line(&errors)))
}

/// Whether a configuration of Cedar is accepted; if not, what is wrong with it and where.
pub(crate) fn check(config: &Value) -> Result<(), String> {
    let policies = config.get("policies").and_then(Value::as_array).filter(|policies| !policies.is_empty());
    let policies = policies
        .ok_or("policies is missing or empty: what no policy permits is refused, so this would refuse everything")?;
    if policies.len() > POLICY_COUNT {
        return Err(format!(
            "there are {} policies, and {POLICY_COUNT} are the most; join some, or give servers policies of their own",
            policies.len()
        ));
    }
    let total: usize = policies.iter().filter_map(Value::as_str).map(str::len).sum();
    if total > POLICY_SET_BYTES {
        return Err(format!(
            "policies have {total} bytes together, and {POLICY_SET_BYTES} are the most; remove some, or give servers \
             policies of their own"
        ));
    }
    for (index, policy) in policies.iter().enumerate() {
        let text = policy.as_str().ok_or_else(|| format!("policies[{index}] is not a text"))?;
        // One at a time, so that the memory of one is free for the next.
        parse(text).map(drop).map_err(|error| match error {
            PolicyError::Bounds(error) => format!("policies[{index}]: {error}"),
            PolicyError::Syntax(_) => format!("policies[{index}] is {error}"),
        })?;
    }
    let text = match config.get("entities_json") {
        None | Some(Value::Null) => return Ok(()),
        Some(entities) => {
            entities.as_str().ok_or("entities_json is not a text; write the JSON array between quotes")?
        }
    };
    entities::parse(text).map(drop).map_err(|error| format!("entities_json: {error}"))
}

/// An error and its causes on one line, clipped.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let _infallible = write!(text, ": {next}");
        cause = next.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
