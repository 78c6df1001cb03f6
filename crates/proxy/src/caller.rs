//! Who sends a request, as far as the authentication middleware found out.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

/// The issuer of identities of clients that do not authenticate. Every other issuer is a URL.
pub(crate) const LOCAL_ISSUER: &str = "toolhive-local";

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
    /// The user who runs this process, for whom all clients are taken where authentication is not configured.
    pub(crate) fn local() -> Self {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "local".to_owned());
        Self::from(Identity {
            issuer: LOCAL_ISSUER.into(),
            name: format!("Local User: {user}").into(),
            subject: user.into(),
        })
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
    /// Whether it tells one client from another. Without authentication, all clients have the same.
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
        let caller = Caller { token: Some(Secret::new("xyzzy")), ..Caller::local() };
        assert!(!format!("{caller:?}").contains("xyzzy"));
        assert_eq!(caller.token.unwrap().expose(), "xyzzy");
    }

    #[test]
    fn the_claims_of_a_local_user_are_its_identity() {
        let Caller { identity, claims, token } = Caller::local();
        assert_eq!(claims.get("sub").and_then(Value::as_str), Some(&*identity.subject));
        assert_eq!(claims.get("iss").and_then(Value::as_str), Some("toolhive-local"));
        assert!(token.is_none() && !identity.is_authenticated());
    }
}
