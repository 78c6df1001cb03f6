//! JSON-RPC responses that Skep itself writes, as bytes: errors and results.
//!
//! Members are sorted. A response without a request id has no `id` member, which is not the same as `null`.

use bytes::Bytes;

use crate::id::Id;
use crate::message_error::MessageError;
use crate::raw::Raw;

/// Parse error: the bytes are not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// Invalid request: the JSON is not a request that can be served.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i64 = -32602;
/// Internal error: the fault is in Skep.
pub const INTERNAL_ERROR: i64 = -32603;
/// The request timed out at the server, or was cancelled.
pub const TIMEOUT: i64 = -32000;
/// The session does not exist.
pub const SESSION_NOT_FOUND: i64 = -32001;
/// A header and the body disagree.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client does not declare a capability that the request needs.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The protocol version is not supported.
pub const UNSUPPORTED_VERSION: i64 = -32022;

const BATCH: &str = "JSON-RPC batch requests are not supported (batching was removed in MCP revision 2025-06-18)";

/// An error response.
pub fn error(id: Option<&Id>, code: i64, message: &str, data: Option<&Raw<'_>>) -> Bytes {
    let data = data.map(|data| format!(r#""data":{},"#, data.as_str())).unwrap_or_default();
    let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
    let message = Raw::string(message);
    format!(r#"{{"error":{{"code":{code},{data}"message":{}}},{id}"jsonrpc":"2.0"}}"#, message.as_str()).into()
}

/// A success response.
pub fn result(id: &Id, result: &Raw<'_>) -> Bytes {
    format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{}}}"#, result.as_str()).into()
}

/// A success response with an empty result.
pub fn empty_result(id: &Id) -> Bytes {
    format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{{}}}}"#).into()
}

/// The response to a malformed message.
pub fn malformed(why: MessageError) -> Bytes {
    match why {
        MessageError::Batch => batch_refused(),
        MessageError::NotUtf8 | MessageError::Syntax { .. } => error(None, PARSE_ERROR, &why.to_string(), None),
        _ => error(None, INVALID_REQUEST, &why.to_string(), None),
    }
}

/// The response to a batch.
pub fn batch_refused() -> Bytes {
    error(None, INVALID_REQUEST, BATCH, None)
}

/// The response to a request from an origin that is not allowed.
pub fn origin_not_allowed() -> Bytes {
    error(None, INVALID_REQUEST, "Origin not allowed", None)
}

/// The response for a session that is unknown or has expired.
pub fn session_not_found(id: Option<&Id>) -> Bytes {
    error(id, SESSION_NOT_FOUND, "Session not found", None)
}

/// The response for a tool that does not exist for this client.
pub fn tool_not_found(id: Option<&Id>) -> Bytes {
    error(id, INVALID_PARAMS, "tool not found", None)
}

/// The response to a request that timed out.
pub fn timeout(id: Option<&Id>) -> Bytes {
    error(id, TIMEOUT, "Timeout", None)
}

/// The response to a request that failed in Skep.
pub fn internal(id: Option<&Id>) -> Bytes {
    error(id, INTERNAL_ERROR, "Internal error", None)
}

/// The response in the place of one that could not be evaluated, in the words of the original.
pub fn withheld(id: Option<&Id>) -> Bytes {
    error(id, INTERNAL_ERROR, "internal error", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_exact_to_the_byte() {
        let id = Id::parse("12345678901234567890123").unwrap();
        for (answer, text) in [
            (
                session_not_found(Some(&Id::string("a"))),
                r#"{"error":{"code":-32001,"message":"Session not found"},"id":"a","jsonrpc":"2.0"}"#,
            ),
            (session_not_found(None), r#"{"error":{"code":-32001,"message":"Session not found"},"jsonrpc":"2.0"}"#),
            (origin_not_allowed(), r#"{"error":{"code":-32600,"message":"Origin not allowed"},"jsonrpc":"2.0"}"#),
            (
                batch_refused(),
                r#"{"error":{"code":-32600,"message":"JSON-RPC batch requests are not supported (batching was removed in MCP revision 2025-06-18)"},"jsonrpc":"2.0"}"#,
            ),
            (
                tool_not_found(Some(&id)),
                r#"{"error":{"code":-32602,"message":"tool not found"},"id":12345678901234567890123,"jsonrpc":"2.0"}"#,
            ),
            (timeout(Some(&Id::number(0))), r#"{"error":{"code":-32000,"message":"Timeout"},"id":0,"jsonrpc":"2.0"}"#),
            (
                internal(Some(&Id::number(1))),
                r#"{"error":{"code":-32603,"message":"Internal error"},"id":1,"jsonrpc":"2.0"}"#,
            ),
            (
                error(None, 429, "a \"b\"", Some(&Raw::parse(r#"{"z":1,"a":1e400}"#).unwrap())),
                r#"{"error":{"code":429,"data":{"z":1,"a":1e400},"message":"a \"b\""},"jsonrpc":"2.0"}"#,
            ),
            (
                result(&id, &Raw::parse("[1.0]").unwrap()),
                r#"{"id":12345678901234567890123,"jsonrpc":"2.0","result":[1.0]}"#,
            ),
            (empty_result(&Id::number(2)), r#"{"id":2,"jsonrpc":"2.0","result":{}}"#),
        ] {
            assert_eq!(answer, text);
        }
    }

    #[test]
    fn the_response_to_a_malformed_message_says_why() {
        assert_eq!(malformed(MessageError::Batch), batch_refused());
        assert_eq!(
            malformed(MessageError::Syntax { at: 7 }),
            r#"{"error":{"code":-32700,"message":"not one JSON value; see byte 7"},"jsonrpc":"2.0"}"#
        );
        assert_eq!(
            malformed(MessageError::Version),
            r#"{"error":{"code":-32600,"message":"`jsonrpc` must be \"2.0\""},"jsonrpc":"2.0"}"#
        );
    }
}
