//! Failures of an evaluation, as far as they may be told: which policy, and what kind of failure. Cedar's own texts quote claims and arguments.

use std::fmt::Display;

use cedar_policy::{AuthorizationError, EvaluationError};

/// A failure without the values that caused it. `place` is that of a policy.
pub(super) fn describe(error: &AuthorizationError, place: impl Fn(&cedar_policy::PolicyId) -> String) -> String {
    match error {
        AuthorizationError::PolicyEvaluationError(error) => at(place(error.policy_id()), error.inner()),
    }
}

fn at(place: impl Display, error: &EvaluationError) -> String {
    format!("{place} cannot be evaluated: {}", kind(error))
}

/// What kind of failure it is, and what to do.
fn kind(error: &EvaluationError) -> &'static str {
    match error {
        EvaluationError::EntityDoesNotExist(_) => "it refers to an entity that does not exist",
        EvaluationError::EntityAttrDoesNotExist(_) | EvaluationError::RecordAttrDoesNotExist(_) => {
            "it refers to an attribute that does not exist; guard it with `has`"
        }
        EvaluationError::FailedExtensionFunctionLookup(_) => "it calls a function that does not exist",
        EvaluationError::TypeError(_) => "a value has another type than it expects",
        EvaluationError::WrongNumArguments(_) => "it calls a function with too many or too few values",
        EvaluationError::IntegerOverflow(_) => "a number overflows",
        EvaluationError::FailedExtensionFunctionExecution(_) => "a function does not accept a value",
        EvaluationError::RecursionLimit(_) => "it is nested too deep",
        _ => "it has no value",
    }
}
