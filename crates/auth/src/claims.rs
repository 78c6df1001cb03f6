//! The claims of a token, and what is expected of them.

use serde_json::{Map, Value};

/// By how much the clocks of the issuer and of this machine may differ, in seconds.
pub const LEEWAY: i64 = 30;
/// The claim that names the upstream tokens of a session. Policies and webhooks do not see it.
const TOKEN_SESSION: &str = "tsid";
/// What the subjects of all ServiceAccounts of Kubernetes begin with. The namespace and the name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Scopes of OpenID Connect that request an identity. Issuers do not repeat them in access tokens, so they are not required there.
const IDENTITY_SCOPES: &[&str] = &["openid", "profile", "email", "address", "phone", "offline_access"];

/// What an issuer says about a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(Map<String, Value>);

/// What a token must say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectations {
    /// Its issuer; empty is any.
    pub issuer: String,
    /// One of its audiences; empty is any.
    pub audience: String,
    /// Its subject, where only one is let in.
    pub subject: Option<String>,
    /// The namespace whose ServiceAccounts are let in, where no others are.
    pub namespace: Option<String>,
    /// The scopes that it must have.
    pub scopes: Vec<String>,
}

/// What is wrong with the claims of a token. The texts are part of the contract with clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Another issuer.
    #[error("invalid issuer")]
    Issuer,
    /// Another audience.
    #[error("invalid audience")]
    Audience,
    /// Expired, or without an expiry.
    #[error("token expired")]
    Expired,
    /// Not valid yet.
    #[error("token is not valid yet")]
    NotYetValid,
    /// No subject.
    #[error("Invalid authentication claims")]
    Subject,
    /// Not the subject that is let in.
    #[error("invalid subject")]
    OtherSubject,
    /// A scope is missing.
    #[error("the token lacks scope `{0}`")]
    Scope(String),
}

// === impl Claims ===

impl Claims {
    /// The claims of a JSON object.
    pub fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// One claim.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// When the token expires, in seconds since 1970. Some issuers write numbers as texts.
    pub fn expiry(&self) -> Option<i64> {
        self.0.get("exp").and_then(seconds)
    }

    /// The claims that the rest of the chain may see.
    pub(crate) fn into_public(mut self) -> Map<String, Value> {
        self.0.remove(TOKEN_SESSION);
        self.0
    }

    /// Checks all that is expected of a token but its scopes, and returns its subject.
    pub fn check(&self, expected: &Expectations, now: i64) -> Result<&str, ClaimError> {
        let issuer = self.0.get("iss").and_then(Value::as_str).unwrap_or_default();
        if !expected.issuer.is_empty() && issuer.trim() != expected.issuer.trim() {
            return Err(ClaimError::Issuer);
        }
        if !expected.audience.is_empty() && !self.has_audience(&expected.audience) {
            return Err(ClaimError::Audience);
        }
        if self.expiry().is_none_or(|expiry| expiry.saturating_add(LEEWAY) <= now) {
            return Err(ClaimError::Expired);
        }
        let not_before = self.0.get("nbf").map(|not_before| seconds(not_before).unwrap_or(i64::MAX));
        if not_before.is_some_and(|not_before| not_before.saturating_sub(LEEWAY) > now) {
            return Err(ClaimError::NotYetValid);
        }
        let subject = self.0.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or(ClaimError::Subject)?;
        let is_expected = expected.subject.as_deref().is_none_or(|expected| expected == subject)
            && expected.namespace.as_deref().is_none_or(|namespace| is_account_of(subject, namespace));
        if is_expected { Ok(subject) } else { Err(ClaimError::OtherSubject) }
    }

    /// Checks that the token has every scope. Without a claim about scopes, it has none.
    pub fn check_scopes(&self, expected: &Expectations) -> Result<(), ClaimError> {
        let required = expected.scopes.iter().filter(|scope| !IDENTITY_SCOPES.contains(&scope.as_str()));
        for scope in required {
            if !["scope", "scp"].iter().any(|claim| self.0.get(*claim).is_some_and(|given| has_scope(given, scope))) {
                return Err(ClaimError::Scope(scope.clone()));
            }
        }
        Ok(())
    }

    fn has_audience(&self, audience: &str) -> bool {
        match self.0.get("aud") {
            Some(Value::String(given)) => given == audience,
            Some(Value::Array(given)) => given.iter().any(|given| given == audience),
            _ => false,
        }
    }
}

/// Whether a subject is a ServiceAccount of a namespace.
fn is_account_of(subject: &str, namespace: &str) -> bool {
    let account = subject.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    account.is_some_and(|(of, name)| of == namespace && !name.is_empty() && !name.contains(':'))
}

fn has_scope(given: &Value, scope: &str) -> bool {
    match given {
        Value::String(given) => given.split_ascii_whitespace().any(|given| given == scope),
        Value::Array(given) => given.iter().any(|given| given == scope),
        _ => false,
    }
}

/// A time, which issuers write as a whole number, as one with a fraction, or as a text.
#[expect(clippy::cast_possible_truncation, reason = "a fraction of a second does not matter, and casts saturate")]
fn seconds(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        let Value::Object(claims) = value else { panic!("an object") };
        Claims::new(claims)
    }

    fn expected() -> Expectations {
        Expectations { issuer: "https://idp".into(), audience: "mcp".into(), ..Expectations::default() }
    }

    #[test]
    fn a_token_must_be_of_the_issuer_for_the_audience_and_valid_now() {
        let valid = json!({"iss": "https://idp", "aud": "mcp", "sub": "ada", "exp": 1000, "nbf": 900});
        let changed = |name: &str, value: Value| {
            let mut changed = valid.clone();
            changed[name] = value;
            changed
        };
        let cases = [
            (valid.clone(), Ok("ada")),
            (changed("aud", json!(["other", "mcp"])), Ok("ada")),
            (changed("iss", json!(" https://idp ")), Ok("ada")),
            (changed("exp", json!("1000")), Ok("ada")),
            (changed("exp", json!(1000.5)), Ok("ada")),
            (changed("iss", json!("https://idp/")), Err(ClaimError::Issuer)),
            (changed("iss", json!(1)), Err(ClaimError::Issuer)),
            (changed("aud", json!("MCP")), Err(ClaimError::Audience)),
            (changed("aud", json!(["mcp2"])), Err(ClaimError::Audience)),
            (changed("aud", json!({"mcp": 1})), Err(ClaimError::Audience)),
            (changed("exp", json!(null)), Err(ClaimError::Expired)),
            (changed("exp", json!("soon")), Err(ClaimError::Expired)),
            (changed("exp", json!(920)), Err(ClaimError::Expired)),
            (changed("exp", json!(-1e300)), Err(ClaimError::Expired)),
            (changed("nbf", json!(981)), Err(ClaimError::NotYetValid)),
            (changed("nbf", json!("never")), Err(ClaimError::NotYetValid)),
            (changed("sub", json!("")), Err(ClaimError::Subject)),
            (changed("sub", json!(7)), Err(ClaimError::Subject)),
        ];
        for (given, outcome) in cases {
            assert_eq!(claims(given.clone()).check(&expected(), 950), outcome, "{given}");
        }
    }

    #[test]
    fn the_clocks_may_differ_by_the_leeway_and_no_more() {
        let token = claims(json!({"iss": "https://idp", "aud": "mcp", "sub": "ada", "exp": 1000, "nbf": 900}));
        for (now, outcome) in [
            (900 - LEEWAY, Ok("ada")),
            (900 - LEEWAY - 1, Err(ClaimError::NotYetValid)),
            (1000 + LEEWAY - 1, Ok("ada")),
            (1000 + LEEWAY, Err(ClaimError::Expired)),
        ] {
            assert_eq!(token.check(&expected(), now), outcome, "{now}");
        }
    }

    #[test]
    fn only_one_subject_may_be_let_in() {
        let account = "system:serviceaccount:tools:client";
        let expected = Expectations { subject: Some(account.into()), ..Expectations::default() };
        let of = |subject: &str| claims(json!({"sub": subject, "exp": 10}));
        assert_eq!(of(account).check(&expected, 0), Ok(account));
        assert_eq!(of("system:serviceaccount:tools:client2").check(&expected, 0), Err(ClaimError::OtherSubject));
    }

    #[test]
    fn only_service_accounts_of_one_namespace_may_be_let_in() {
        let expected = Expectations { namespace: Some("tools".into()), ..Expectations::default() };
        let is_let_in = |subject: &str| claims(json!({"sub": subject, "exp": 10})).check(&expected, 0).is_ok();
        assert!(is_let_in("system:serviceaccount:tools:client") && is_let_in("system:serviceaccount:tools:default"));
        for other in [
            "system:serviceaccount:tools2:client",
            "system:serviceaccount:other:tools",
            "system:serviceaccount:tools",
            "system:serviceaccount:tools:",
            "system:serviceaccount:tools:a:b",
            "system:serviceaccount::client",
            "System:serviceaccount:tools:client",
            "tools:client",
            "ada",
        ] {
            assert!(!is_let_in(other), "{other}");
        }
    }

    #[test]
    fn every_scope_is_required_but_those_of_an_identity() {
        let expected = Expectations {
            scopes: ["openid", "mcp:read", "mcp:call"].map(str::to_owned).into(),
            ..Expectations::default()
        };
        let missing = |name: &str| Err(ClaimError::Scope(name.to_owned()));
        for (given, outcome) in [
            (json!({"scope": "mcp:call mcp:read"}), Ok(())),
            (json!({"scp": ["mcp:call", "mcp:read"]}), Ok(())),
            (json!({"scope": "mcp:call", "scp": ["mcp:read"]}), Ok(())),
            (json!({"scope": "mcp:readonly mcp:call"}), missing("mcp:read")),
            (json!({"scope": ["mcp:read"]}), missing("mcp:call")),
            (json!({}), missing("mcp:read")),
        ] {
            assert_eq!(claims(given.clone()).check_scopes(&expected), outcome, "{given}");
        }
    }
}
