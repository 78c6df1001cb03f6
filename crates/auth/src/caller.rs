//! Who sends a request, as far as authentication established it.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::claims::Claims;

/// The issuer of identities of clients that do not authenticate. Every other issuer is a URL.
pub const LOCAL_ISSUER: &str = "toolhive-local";
/// The subject of clients that do not authenticate, where no local user stands for them.
pub const ANONYMOUS: &str = "anonymous";
/// The lifetime in the claims of an identity without an issuer, in seconds.
const LIFETIME: i64 = 24 * 60 * 60;

/// The client of a request: who it is, what its issuer claims about it, and the token that it sent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who it is.
    pub identity: Identity,
    /// The claims of its token, which policies are evaluated on.
    pub claims: Arc<Map<String, Value>>,
    /// Its token, for middleware that exchanges it or forwards it.
    pub token: Option<Secret>,
}

/// The identity of a client, to which its sessions are bound. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who vouches for the identity.
    pub issuer: Arc<str>,
    /// The client, as the issuer identifies it.
    pub subject: Arc<str>,
    /// A display name.
    pub name: Arc<str>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

// === impl Caller ===

impl Caller {
    /// The user who runs this process: the identity of every client where authentication is not configured.
    pub fn local(user: &str, now: i64) -> Self {
        Self::unauthenticated(user, &format!("Local User: {user}"), now)
    }

    /// A client without an identity of its own.
    pub fn anonymous(now: i64) -> Self {
        Self::unauthenticated(ANONYMOUS, "Anonymous User", now)
    }

    fn unauthenticated(subject: &str, name: &str, now: i64) -> Self {
        let claims = json!({
            "sub": subject, "iss": LOCAL_ISSUER, "aud": "toolhive", "exp": now.saturating_add(LIFETIME), "iat": now, "nbf": now,
            "email": format!("{subject}@localhost"), "name": name,
        });
        let claims = if let Value::Object(claims) = claims { claims } else { Map::new() };
        let identity = Identity { issuer: LOCAL_ISSUER.into(), subject: subject.into(), name: name.into() };
        Self { identity, claims: Arc::new(claims), token: None }
    }

    /// The client that a validated token stands for. `issuer` is the configured one, for tokens that do not name theirs.
    pub(crate) fn of_token(claims: Claims, subject: &str, issuer: &str, token: &str) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = ["name", "preferred_username", "email"].into_iter().find_map(text).unwrap_or_default();
        let identity = Identity {
            issuer: text("iss").unwrap_or(issuer).trim().into(),
            subject: subject.into(),
            name: name.into(),
        };
        Self { identity, claims: Arc::new(claims.into_public()), token: Some(Secret::new(token)) }
    }
}

/// A caller of whom its issuer claims no more than its identity.
impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        let claims = [("iss", &identity.issuer), ("sub", &identity.subject), ("name", &identity.name)];
        let claims = claims.map(|(name, value)| (name.to_owned(), Value::from(&**value)));
        Self { identity, claims: Arc::new(claims.into_iter().collect()), token: None }
    }
}

// === impl Identity ===

impl Identity {
    /// Whether it distinguishes clients. Without authentication, all clients have the same.
    pub fn is_authenticated(&self) -> bool {
        &*self.issuer != LOCAL_ISSUER
    }

    /// What a session is bound to.
    pub fn key(&self) -> String {
        format!("{} {}", self.issuer, self.subject)
    }

    /// Whether something is bound to this identity by that key.
    pub fn has_key(&self, key: &str) -> bool {
        let subject = key.strip_prefix(&*self.issuer).and_then(|rest| rest.strip_prefix(' '));
        subject == Some(&*self.subject)
    }
}

// === impl Secret ===

impl Secret {
    /// A secret.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, to be sent to its recipient.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let caller = Caller { token: Some(Secret::new("xyzzy")), ..Caller::local("ada", 0) };
        assert!(!format!("{caller:?}").contains("xyzzy"));
        assert_eq!(caller.token.unwrap().expose(), "xyzzy");
    }

    #[test]
    fn local_and_anonymous_identities_have_the_claims_of_the_specification() {
        let claims = |caller: Caller| Value::Object(Arc::unwrap_or_clone(caller.claims));
        let local = json!({
            "sub": "ada", "iss": "toolhive-local", "aud": "toolhive", "exp": 86_500, "iat": 100, "nbf": 100,
            "email": "ada@localhost", "name": "Local User: ada",
        });
        assert_eq!(claims(Caller::local("ada", 100)), local);
        let anonymous = Caller::anonymous(100);
        assert!(!anonymous.identity.is_authenticated() && anonymous.token.is_none());
        let anonymous = claims(anonymous);
        assert_eq!((&anonymous["sub"], &anonymous["name"]), (&json!("anonymous"), &json!("Anonymous User")));
        assert_eq!(anonymous["email"], "anonymous@localhost");
    }

    #[test]
    fn different_identities_have_different_keys() {
        let identity =
            |issuer: &str, subject: &str| Identity { issuer: issuer.into(), subject: subject.into(), name: "".into() };
        assert!(identity("https://a", "b c").has_key(&identity("https://a", "b c").key()));
        assert!(!identity("https://a", "c").has_key(&identity("https://a", "b c").key()));
    }
}
