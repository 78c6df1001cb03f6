//! What a webhook answers.

use serde::Deserialize;
use serde_json::value::RawValue;
use skep_bounds::{PATCH_VALUES, count_json_values};

use crate::patch::{Patch, PatchError};
use crate::{VALUE_BYTES, VERSION};

/// The answer of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The message may go on, changed if there is a patch.
    Allowed(Result<Option<Patch>, PatchError>),
    /// It may not. The texts are for the log.
    Denied {
        /// What the webhook says about it.
        message: String,
        /// Why.
        reason: String,
    },
    /// The webhook refused to decide about it: status 422.
    Unprocessable,
}

/// Why a response cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// It is not the JSON of the protocol.
    #[error("the response is not JSON of the protocol, or is nested too deep")]
    NotJson,
    /// It answers another call.
    #[error("the response has another `uid` than the request")]
    OtherUid,
    /// It is of another protocol.
    #[error("the response has a `version` other than `{VERSION}`")]
    OtherVersion,
}

/// The body of a response. A member that occurs twice is an error; unknown ones are ignored.
#[derive(Deserialize)]
struct Body<'a> {
    version: Option<String>,
    uid: Option<String>,
    allowed: Option<bool>,
    message: Option<String>,
    reason: Option<String>,
    patch_type: Option<String>,
    #[serde(borrow)]
    patch: Option<&'a RawValue>,
}

// === impl Answer ===

impl Answer {
    /// Reads the body of a response to the call with a uid. Without `allowed`, it is a denial.
    pub fn read(body: &[u8], uid: &str) -> Result<Self, ResponseError> {
        let text = std::str::from_utf8(body).map_err(|_| ResponseError::NotJson)?;
        skep_bounds::json(text).map_err(|_| ResponseError::NotJson)?;
        let body: Body<'_> = serde_json::from_str(text).map_err(|_| ResponseError::NotJson)?;
        let differs = |given: &Option<String>, expected: &str| {
            given.as_deref().is_some_and(|given| !given.is_empty() && given != expected)
        };
        if differs(&body.uid, uid) {
            return Err(ResponseError::OtherUid);
        }
        if differs(&body.version, VERSION) {
            return Err(ResponseError::OtherVersion);
        }
        if body.allowed != Some(true) {
            let (message, reason) = (body.message.unwrap_or_default(), body.reason.unwrap_or_default());
            return Ok(Self::Denied { message, reason });
        }
        Ok(Self::Allowed(patch(body.patch_type.as_deref().unwrap_or_default(), body.patch)))
    }
}

/// The patch of a response. Without a type, or empty, it changes nothing.
fn patch(kind: &str, patch: Option<&RawValue>) -> Result<Option<Patch>, PatchError> {
    let Some(patch) = patch.filter(|_| !kind.is_empty()) else { return Ok(None) };
    if kind != "json_patch" {
        return Err(PatchError::UnsupportedType);
    }
    Patch::read(patch.get()).map(|patch| Some(patch).filter(|patch| !patch.is_empty()))
}

/// How many bytes [`Answer::read`] takes for the body of a response, at most: its texts, and the tree of its patch.
pub fn memory(body: &[u8]) -> usize {
    let values = std::str::from_utf8(body).map_or(0, count_json_values);
    body.len() + values.min(PATCH_VALUES) * VALUE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Answer, ResponseError> {
        Answer::read(text.as_bytes(), "u-1")
    }

    #[test]
    fn only_allowed_true_allows() {
        let allowed = Ok(Answer::Allowed(Ok(None)));
        for text in [
            r#"{"allowed":true}"#,
            r#"{"version":"v0.1.0","uid":"u-1","allowed":true,"code":7,"message":"m","reason":"r","details":{"a":[1]}}"#,
            r#"{"uid":"","version":null,"allowed":true,"patch_type":"","patch":[{"op":"x"}]}"#,
            r#"{"allowed":true,"patch_type":"json_patch","patch":[]}"#,
            r#"{"allowed":true,"patch_type":"json_patch","patch":null}"#,
            r#"{"allowed":true,"patch_type":"json_patch"}"#,
            r#"{"allowed":true,"patch":[{"op":"x"}]}"#,
        ] {
            assert_eq!(read(text), allowed, "{text}");
        }
        for text in [r#"{"allowed":false,"message":"m","reason":"r"}"#, r#"{"message":"m","reason":"r"}"#] {
            assert_eq!(read(text), Ok(Answer::Denied { message: "m".into(), reason: "r".into() }), "{text}");
        }
        assert!(matches!(read(r#"{"Allowed":true}"#), Ok(Answer::Denied { .. })));
    }

    #[test]
    fn a_response_that_is_not_of_the_protocol_is_no_answer() {
        let deep = format!(r#"{{"allowed":true,"details":{}{}}}"#, "[".repeat(100), "]".repeat(100));
        for text in [
            "",
            "yes",
            "[]",
            "null",
            r#"{"allowed":"true"}"#,
            r#"{"allowed":1}"#,
            r#"{"allowed":false,"allowed":true}"#,
            r#"{"allowed":true} {"allowed":false}"#,
            r#"{"allowed":true,"message":7}"#,
            &deep,
        ] {
            assert_eq!(read(text), Err(ResponseError::NotJson), "{text}");
        }
        assert_eq!(Answer::read(b"{\"allowed\":true,\"x\":\"\xff\"}", ""), Err(ResponseError::NotJson));
        assert_eq!(read(r#"{"allowed":true,"uid":"u-2"}"#), Err(ResponseError::OtherUid));
        assert_eq!(read(r#"{"allowed":true,"version":"v2"}"#), Err(ResponseError::OtherVersion));
    }

    #[test]
    fn a_patch_is_read_with_its_faults() {
        let patch = |kind: &str, patch: &str| {
            let text = format!(r#"{{"allowed":true,"patch_type":"{kind}","patch":{patch}}}"#);
            match read(&text) {
                Ok(Answer::Allowed(patch)) => patch.map(|patch| patch.is_some()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(patch("json_patch", r#"[{"op":"remove","path":"/mcp_request/params/a"}]"#), Ok(true));
        assert_eq!(patch("merge_patch", "{}"), Err(PatchError::UnsupportedType));
        assert_eq!(patch("json_patch", r#""W10=""#), Err(PatchError::Malformed));
        assert_eq!(patch("json_patch", "{}"), Err(PatchError::Malformed));
        assert_eq!(patch("json_patch", r#"[{"op":"remove","path":"/principal"}]"#), Err(PatchError::OutOfScope));
    }
}
