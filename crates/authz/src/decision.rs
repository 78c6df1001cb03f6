//! The decision about a query, and its reasons.

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// The determining policies, by place. Empty if no policy applied.
    pub policies: Vec<String>,
    /// Errors of the evaluation, which deny.
    pub errors: Vec<String>,
}

// === impl Decision ===

impl Decision {
    /// Denied because of a failure.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { errors: vec![error.into()], ..Self::default() }
    }

    /// Why, on one line, for logs and audit events. It has no claims and no arguments in it.
    pub fn reason(&self) -> String {
        match (self.is_allowed, &*self.policies, &*self.errors) {
            (_, _, [error, ..]) => format!("denied: {error}"),
            (true, policies, _) => format!("permitted by {}", policies.join(", ")),
            (false, [], _) => "denied: no policy permits it".to_owned(),
            (false, policies, _) => format!("forbidden by {}", policies.join(", ")),
        }
    }
}
