//! The members of an object in the order of their names, whatever order they are kept in.

use serde_json::{Map, Value as Json};

use crate::error::EvaluationError;
use crate::meter::Meter;

/// All members by name. Each costs a step: they are sorted, and may be kept.
pub(crate) fn sorted<'r>(
    members: &'r Map<String, Json>,
    meter: &mut Meter,
) -> Result<Vec<(&'r str, &'r Json)>, EvaluationError> {
    meter.steps(members.len())?;
    let mut sorted: Vec<(&str, &Json)> = members.iter().map(|(name, member)| (name.as_str(), member)).collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    Ok(sorted)
}
