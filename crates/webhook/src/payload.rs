//! The body of a request to a webhook. Its members are in the order of the protocol.

use serde_json::{Map, Value, json};
use skep_auth::Caller;
use skep_auth::delegation::{DEEPEST, Delegation};
use skep_mcp::{Message, Raw};

use crate::VERSION;

/// The facts about a message that a webhook gets.
#[derive(Debug)]
pub struct Payload<'a> {
    /// Identifies the call.
    pub uid: &'a str,
    /// The time of the call, as RFC 3339.
    pub timestamp: &'a str,
    /// The identity of the client, as [`principal`] writes it.
    pub principal: &'a Value,
    /// The message.
    pub message: &'a Message,
    /// Where it was received.
    pub context: &'a Context,
}

/// Where a message was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The MCP server.
    pub server_name: String,
    /// The address that it came from.
    pub source_ip: String,
    /// How the MCP server is spoken to.
    pub transport: String,
}

impl Payload<'_> {
    /// The bytes. The message is in it as the client sent it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = |text: &str| Raw::string(text).as_str().to_owned();
        let Self { uid, timestamp, principal, message, context } = self;
        let head = format!(
            r#"{{"version":{},"uid":{},"timestamp":{},"principal":{principal},"mcp_request":"#,
            text(VERSION),
            text(uid),
            text(timestamp)
        );
        let tail = format!(
            r#","context":{{"server_name":{},"source_ip":{},"transport":{}}}}}"#,
            text(&context.server_name),
            text(&context.source_ip),
            text(&context.transport)
        );
        [head.as_bytes(), message.body(), tail.as_bytes()].concat()
    }
}

/// The identity of the client that sent a message. It has no token, and `null` stands for a client without an identity.
pub fn principal(caller: Option<&Caller>) -> Value {
    let Some(caller) = caller else { return Value::Null };
    let subject = &*caller.identity.subject;
    let mut principal = Map::new();
    principal.insert("sub".to_owned(), subject.into());
    principal.insert("platform_user_id".to_owned(), subject.into());
    for name in ["name", "email"] {
        let claim = caller.claims.get(name).and_then(Value::as_str).filter(|claim| !claim.is_empty());
        principal.extend(claim.map(|claim| (name.to_owned(), claim.into())));
    }
    if !caller.claims.is_empty() {
        principal.insert("claims".to_owned(), json!(*caller.claims));
    }
    let delegation = Delegation::of(&caller.claims, DEEPEST);
    principal.extend(delegation.map(|delegation| ("delegation".to_owned(), delegation.to_json())));
    Value::Object(principal)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skep_auth::Identity;

    use super::*;

    fn caller(claims: &Value) -> Caller {
        let identity = Identity { issuer: "https://idp".into(), subject: "ada".into(), name: "Ada".into() };
        let claims = Arc::new(claims.as_object().unwrap().clone());
        Caller { identity, claims, token: Some(skep_auth::Secret::new("t0ken")) }
    }

    #[test]
    fn the_members_are_in_the_order_of_the_protocol_and_the_message_keeps_its_bytes() {
        let body = r#"{ "jsonrpc":"2.0","id":12345678901234567890123,"method":"tools/call","params":{"name":"<a>"} }"#;
        let message = Message::parse(body.into()).unwrap();
        let context = Context { server_name: "s\"1".into(), source_ip: "[::1]:7".into(), transport: "stdio".into() };
        let payload = Payload {
            uid: "u",
            timestamp: "2026-01-02T03:04:05.6Z",
            principal: &Value::Null,
            message: &message,
            context: &context,
        };
        let expected = format!(
            r#"{{"version":"v0.1.0","uid":"u","timestamp":"2026-01-02T03:04:05.6Z","principal":null,"mcp_request":{body},"context":{{"server_name":"s\"1","source_ip":"[::1]:7","transport":"stdio"}}}}"#
        );
        assert_eq!(String::from_utf8(payload.to_bytes()).unwrap(), expected);
        serde_json::from_slice::<Value>(&payload.to_bytes()).unwrap();
    }

    #[test]
    fn a_principal_has_what_the_issuer_claims_and_no_token() {
        let claims = json!({"sub": "ada", "email": "ada@example.com", "act": {"sub": "agent"}});
        let given = principal(Some(&caller(&claims)));
        let expected = json!({"sub": "ada", "platform_user_id": "ada", "email": "ada@example.com", "claims": claims,
            "delegation": {"chain": [{"sub": "agent"}]}});
        assert_eq!(given, expected);
        assert!(!given.to_string().contains("t0ken"));
        assert_eq!(principal(None), Value::Null);
    }
}
