//! The table of outcomes: what follows from what a webhook did, for both kinds of webhooks and both failure policies.

use skep_mcp::answer::{INTERNAL_ERROR, INVALID_REQUEST};
use skep_mcp::{Message, MessageError};

use crate::config::FailurePolicy;
use crate::patch::PatchError;
use crate::response::Answer;
use crate::service::CallError;

/// The code of an error that says no more than that the message is denied.
const DENIED: i64 = 403;

/// What a webhook is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may change messages.
    Mutating,
    /// It allows or denies messages.
    Validating,
}

/// What follows from the answer of one webhook.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message goes on to the next webhook, changed if there are new bytes.
    Next(Option<bytes::Bytes>),
    /// The same, although the webhook failed.
    Skipped(Cause),
    /// The client is refused.
    Refused(Cause),
}

/// Why a message does not go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Cause {
    /// A webhook denied it.
    Denied {
        /// What it says about it, for the log.
        message: String,
        /// Why, for the log.
        reason: String,
    },
    /// A webhook refused to decide about it.
    Unprocessable,
    /// A webhook failed.
    Failed(CallError),
    /// The patch of a webhook cannot be applied.
    Patch(PatchError),
    /// The webhooks made something else of it than a message.
    InvalidMessage(MessageError),
    /// The webhooks made another message of it.
    OtherMessage,
    /// It is too long for webhooks.
    TooLarge,
}

/// How a client is refused: an HTTP status, and a JSON-RPC error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The code.
    pub code: i64,
    /// The text. It says nothing about the webhook.
    pub message: &'static str,
}

/// What follows from the answer of a webhook to a message.
pub fn decide(kind: Kind, policy: FailurePolicy, answer: Result<Answer, CallError>, message: &Message) -> Outcome {
    let cause = match answer {
        Ok(Answer::Allowed(_)) if kind == Kind::Validating => return Outcome::Next(None),
        Ok(Answer::Allowed(patch)) => {
            match patch.and_then(|patch| patch.map(|patch| patch.apply(message)).transpose()) {
                Ok(patched) => return Outcome::Next(patched),
                Err(error) => Cause::Patch(error),
            }
        }
        Ok(Answer::Denied { message, reason }) => Cause::Denied { message, reason },
        Ok(Answer::Unprocessable) => Cause::Unprocessable,
        Err(error) => Cause::Failed(error),
    };
    let is_failure = matches!(cause, Cause::Failed(_) | Cause::Patch(_));
    if is_failure && policy == FailurePolicy::Ignore { Outcome::Skipped(cause) } else { Outcome::Refused(cause) }
}

/// Checks what mutating webhooks made of a message: it must be a message, and answer to the same id and method.
pub fn check(before: &Message, after: bytes::Bytes) -> Result<Message, Cause> {
    let after = Message::parse(after).map_err(Cause::InvalidMessage)?;
    let is_same = after.kind() == before.kind() && after.id() == before.id() && after.method() == before.method();
    if is_same { Ok(after) } else { Err(Cause::OtherMessage) }
}

// === impl Kind ===

impl Kind {
    /// Its name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }
}

// === impl Cause ===

impl Cause {
    /// What kind of cause it is, without anything that a webhook said.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "denied",
            Self::Unprocessable => "unprocessable",
            Self::Failed(error) => error.category(),
            Self::Patch(_) => "patch",
            Self::InvalidMessage(_) => "invalid_message",
            Self::OtherMessage => "other_message",
            Self::TooLarge => "message_too_large",
        }
    }

    /// How a client is refused for it.
    pub fn refusal(&self, kind: Kind) -> Refusal {
        let (status, message) = match (kind, self) {
            (_, Self::TooLarge) => (413, "Request body exceeds maximum size"),
            (Kind::Validating, _) => (403, "Request denied by policy"),
            (Kind::Mutating, Self::Denied { .. }) => (403, "Request denied by webhook policy"),
            (Kind::Mutating, Self::Unprocessable) => (422, "Request denied by webhook policy"),
            (Kind::Mutating, Self::Failed(_)) => (500, "Webhook error"),
            (Kind::Mutating, Self::Patch(error)) => (500, patch_message(*error)),
            (Kind::Mutating, Self::InvalidMessage(_) | Self::OtherMessage) => {
                (500, "Webhook produced an invalid MCP request")
            }
        };
        let code = match status {
            403 | 422 => DENIED,
            413 => INVALID_REQUEST,
            _ => INTERNAL_ERROR,
        };
        Refusal { status, code, message }
    }
}

fn patch_message(error: PatchError) -> &'static str {
    match error {
        PatchError::UnsupportedType => "Unsupported patch type from webhook",
        PatchError::Malformed => "Malformed patch from webhook",
        PatchError::Invalid => "Invalid patch from webhook",
        PatchError::OutOfScope => "Patch must be scoped to mcp_request",
        PatchError::NotApplicable | PatchError::TooLarge => "Failed to apply patch from webhook",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::Patch;

    fn message() -> Message {
        Message::parse(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#.into()).unwrap()
    }

    fn patch(text: &str) -> Answer {
        Answer::Allowed(Patch::read(text).map(Some))
    }

    /// An answer, and the refusals by a validating and by a mutating webhook; 0 for none.
    type Row = (Result<Answer, CallError>, [(u16, &'static str); 2]);

    fn answers() -> Vec<Row> {
        let denied = Answer::Denied { message: "m".into(), reason: "r".into() };
        let no_fault = (0, "");
        let fault = |text| [no_fault, (500, text)];
        vec![
            (Ok(denied), [(403, "Request denied by policy"), (403, "Request denied by webhook policy")]),
            (Ok(Answer::Unprocessable), [(403, "Request denied by policy"), (422, "Request denied by webhook policy")]),
            (Err(CallError::Timeout), [(403, "Request denied by policy"), (500, "Webhook error")]),
            (Ok(Answer::Allowed(Err(PatchError::UnsupportedType))), fault("Unsupported patch type from webhook")),
            (Ok(Answer::Allowed(Err(PatchError::Malformed))), fault("Malformed patch from webhook")),
            (Ok(Answer::Allowed(Err(PatchError::Invalid))), fault("Invalid patch from webhook")),
            (Ok(Answer::Allowed(Err(PatchError::OutOfScope))), fault("Patch must be scoped to mcp_request")),
            (
                Ok(patch(r#"[{"op":"remove","path":"/mcp_request/params/b"}]"#)),
                fault("Failed to apply patch from webhook"),
            ),
        ]
    }

    #[test]
    fn the_table_holds_for_both_kinds_and_both_policies() {
        for (index, (_, expected)) in answers().into_iter().enumerate() {
            for (kind, (status, text)) in [Kind::Validating, Kind::Mutating].into_iter().zip(expected) {
                for policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
                    let answer = answers().swap_remove(index).0;
                    // A denial is one whatever the policy is.
                    let is_skipped = policy == FailurePolicy::Ignore && index >= 2;
                    let row = format!("{answer:?} {kind:?} {policy:?}");
                    match decide(kind, policy, answer, &message()) {
                        Outcome::Next(None) => assert_eq!(status, 0, "{row}"),
                        Outcome::Skipped(_) => assert!(is_skipped && status != 0, "{row}"),
                        Outcome::Refused(cause) => {
                            let code = if status == 500 { -32603 } else { 403 };
                            assert!(!is_skipped, "{row}");
                            assert_eq!(cause.refusal(kind), Refusal { status, code, message: text }, "{row}");
                        }
                        Outcome::Next(Some(_)) => panic!("{row}"),
                    }
                }
            }
        }
    }

    #[test]
    fn an_allowed_message_goes_on_changed_or_not() {
        let change = || patch(r#"[{"op":"replace","path":"/mcp_request/params/name","value":"b"}]"#);
        let changed = decide(Kind::Mutating, FailurePolicy::Fail, Ok(change()), &message());
        let expected = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b"}}"#;
        assert_eq!(changed, Outcome::Next(Some(expected.into())));
        let validated = decide(Kind::Validating, FailurePolicy::Fail, Ok(change()), &message());
        assert_eq!(validated, Outcome::Next(None), "a validating webhook changes nothing");
        let same = decide(Kind::Mutating, FailurePolicy::Fail, Ok(Answer::Allowed(Ok(None))), &message());
        assert_eq!(same, Outcome::Next(None));
    }

    #[test]
    fn the_result_must_be_the_same_message() {
        let same = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#;
        assert!(check(&message(), same.into()).is_ok());
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call"}"#,
                (500, -32603, "Webhook produced an invalid MCP request"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
                (500, -32603, "Webhook produced an invalid MCP request"),
            ),
            (r#"{"jsonrpc":"2.0","method":"tools/call"}"#, (500, -32603, "Webhook produced an invalid MCP request")),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"x"}"#,
                (500, -32603, "Webhook produced an invalid MCP request"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
                (500, -32603, "Webhook produced an invalid MCP request"),
            ),
        ] {
            let Refusal { status, code, message } = check(&message(), text.into()).unwrap_err().refusal(Kind::Mutating);
            assert_eq!((status, code, message), expected, "{text}");
        }
        let long = Cause::TooLarge.refusal(Kind::Validating);
        assert_eq!(long, Refusal { status: 413, code: -32600, message: "Request body exceeds maximum size" });
    }
}
