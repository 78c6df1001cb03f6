//! What middleware notes about a request for the audit log and for traces. No client sees it.

/// Why a middleware answered a request itself. It travels with the response, whose status says how the request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerReason(pub(crate) String);

/// The webhooks that changed the message of an exchange, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MutatedBy(pub(crate) Vec<String>);

/// What a client asked for, where a middleware made another message of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedAs {
    /// The method.
    pub(crate) method: &'static str,
    /// The tool.
    pub(crate) name: &'static str,
}

/// What a rate limit decided about the message of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimitDecision {
    /// Whether the request goes on.
    pub(crate) is_allowed: bool,
    /// The scope of the bucket that is empty, or `none`.
    pub(crate) rejected_by: &'static str,
    /// Whether it goes on because it could not be counted.
    pub(crate) fail_open: bool,
}
