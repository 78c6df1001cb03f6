//! Which role a client gets, by the claims of its token.

use serde_json::{Map, Value};

use super::matcher::{Matcher, MatcherError};

/// Whom a role is for. Exactly one of `claim` and `matcher` is set.
#[derive(Clone, Debug, Default)]
pub struct RoleMapping {
    /// Clients whose role claim has this value.
    pub claim: String,
    /// Clients for whose claims this CEL expression is true.
    pub matcher: String,
    /// The role.
    pub role_arn: String,
    /// The lowest number wins; none comes last.
    pub priority: Option<i64>,
}

/// Roles by claims.
#[derive(Debug)]
pub struct Roles {
    /// In the order in which they are tried.
    mappings: Vec<(Fits, String)>,
    fallback: Option<String>,
    role_claim: String,
}

#[derive(Debug)]
enum Fits {
    Claim(String),
    Matcher(Matcher),
}

/// Why roles cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// A mapping says neither or both.
    #[error("role_mappings[{0}]: set exactly one of claim and matcher")]
    OneOf(usize),
    /// A matcher.
    #[error("role_mappings[{0}].matcher: {1}")]
    Matcher(usize, String),
    /// A role is not one.
    #[error("`{0}` is not the ARN of a role; write it like arn:aws:iam::123456789012:role/name")]
    Arn(String),
    /// No client gets a role.
    #[error("no client gets a role; set fallback_role_arn or at least one of role_mappings")]
    None,
}

// === impl Roles ===

impl Roles {
    /// The roles of a configuration.
    pub fn new(mappings: &[RoleMapping], fallback: &str, role_claim: &str) -> Result<Self, RoleError> {
        if mappings.is_empty() && fallback.is_empty() {
            return Err(RoleError::None);
        }
        let mut order: Vec<(usize, &RoleMapping)> = mappings.iter().enumerate().collect();
        order.sort_by_key(|(index, mapping)| (mapping.priority.is_none(), mapping.priority, *index));
        let mappings = order.into_iter().map(|(index, mapping)| {
            check_arn(&mapping.role_arn)?;
            Ok((Fits::new(index, mapping)?, mapping.role_arn.clone()))
        });
        let fallback = Some(fallback).filter(|fallback| !fallback.is_empty());
        fallback.map_or(Ok(()), check_arn)?;
        Ok(Self {
            mappings: mappings.collect::<Result<_, RoleError>>()?,
            fallback: fallback.map(str::to_owned),
            role_claim: if role_claim.is_empty() { "groups".to_owned() } else { role_claim.to_owned() },
        })
    }

    /// The role of a client, if it has one.
    pub fn choose(&self, claims: &Map<String, Value>) -> Option<&str> {
        let fits = |fits: &Fits| match fits {
            Fits::Claim(value) => has_value(claims.get(&self.role_claim), value),
            Fits::Matcher(matcher) => matcher.is_true(claims),
        };
        let found = self.mappings.iter().find(|(mapping, _)| fits(mapping));
        found.map(|(_, role)| role.as_str()).or(self.fallback.as_deref())
    }
}

// === impl Fits ===

impl Fits {
    fn new(index: usize, mapping: &RoleMapping) -> Result<Self, RoleError> {
        match (mapping.claim.as_str(), mapping.matcher.as_str()) {
            ("", "") => Err(RoleError::OneOf(index)),
            (claim, "") => Ok(Self::Claim(claim.to_owned())),
            ("", matcher) => {
                let refused = |error: MatcherError| RoleError::Matcher(index, error.to_string());
                Matcher::new(matcher).map(Self::Matcher).map_err(refused)
            }
            _ => Err(RoleError::OneOf(index)),
        }
    }
}

fn has_value(claim: Option<&Value>, wanted: &str) -> bool {
    match claim {
        Some(Value::Array(values)) => values.iter().any(|value| value.as_str() == Some(wanted)),
        Some(Value::String(value)) => value == wanted,
        _ => false,
    }
}

/// `arn:(aws|aws-cn|aws-us-gov):iam::<12 digits>:role/<name>`.
fn check_arn(arn: &str) -> Result<(), RoleError> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let is_name = |name: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-/".contains(&byte);
        !name.is_empty() && name.bytes().all(is_allowed)
    };
    let is_arn = match *parts {
        ["arn", "aws" | "aws-cn" | "aws-us-gov", "iam", "", account, role] => {
            account.len() == 12
                && account.bytes().all(|byte| byte.is_ascii_digit())
                && role.strip_prefix("role/").is_some_and(is_name)
        }
        _ => false,
    };
    if is_arn { Ok(()) } else { Err(RoleError::Arn(arn.to_owned())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arn(name: &str) -> String {
        format!("arn:aws:iam::123456789012:role/{name}")
    }

    fn mapping(claim: &str, matcher: &str, role: &str, priority: Option<i64>) -> RoleMapping {
        RoleMapping { claim: claim.into(), matcher: matcher.into(), role_arn: arn(role), priority }
    }

    fn chosen(roles: &Roles, claims: Value) -> Option<String> {
        let Value::Object(claims) = claims else { panic!("{claims}") };
        roles.choose(&claims).map(|role| role.rsplit('/').next().unwrap().to_owned())
    }

    #[test]
    fn the_lowest_priority_wins_then_the_order_then_the_fallback() {
        let mappings = [
            mapping("all", "", "last", None),
            mapping("ops", "", "second", Some(5)),
            mapping("", "claims.email.endsWith('@example.com')", "mail", Some(1)),
            mapping("ops", "", "third", Some(5)),
        ];
        let roles = Roles::new(&mappings, &arn("fallback"), "").unwrap();
        let ops = json!({ "groups": ["ops", "all"] });
        assert_eq!(chosen(&roles, ops).as_deref(), Some("second"));
        let mail = json!({ "groups": ["ops"], "email": "a@example.com" });
        assert_eq!(chosen(&roles, mail).as_deref(), Some("mail"));
        assert_eq!(chosen(&roles, json!({ "groups": "all" })).as_deref(), Some("last"));
        // A matcher that fails at run time, here for want of the claim, is skipped.
        for claims in [json!({}), json!({ "groups": [1, null, {}] }), json!({ "groups": 7, "email": 7 })] {
            assert_eq!(chosen(&roles, claims).as_deref(), Some("fallback"));
        }
        let strict = Roles::new(&mappings, "", "teams").unwrap();
        assert_eq!(chosen(&strict, json!({ "groups": ["ops"] })), None);
        assert_eq!(chosen(&strict, json!({ "teams": ["ops"] })).as_deref(), Some("second"));
    }

    #[test]
    fn values_of_claims_are_never_a_part_of_an_expression() {
        let matcher = mapping("", "claims.role == 'admin'", "admin", None);
        let roles = Roles::new(&[matcher, mapping("x' || true || '", "", "odd", None)], "", "").unwrap();
        for value in ["admin' || true || '", "' || true", "\\' || true", "claims.role"] {
            assert_eq!(chosen(&roles, json!({ "role": value, "groups": [value] })), None, "{value}");
        }
        assert_eq!(chosen(&roles, json!({ "role": "admin" })).as_deref(), Some("admin"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (mappings, fallback, problem) in [
            (vec![], "", "no client gets a role"),
            (vec![mapping("", "", "r", None)], "", "role_mappings[0]: set exactly one"),
            (vec![mapping("a", "true", "r", None)], "", "set exactly one"),
            (vec![mapping("a", "", "r", None), mapping("", "claims.", "r", None)], "", "role_mappings[1].matcher"),
            (vec![mapping("", &"(".repeat(9000), "r", None)], "", "stand inside each other"),
            (vec![mapping("a", "", "sp ace", None)], "", "is not the ARN of a role"),
            (vec![], "arn:aws:iam::12345678901:role/x", "is not the ARN"),
            (vec![], "arn:aws:iam::123456789012:user/x", "is not the ARN"),
            (vec![], "arn:gcp:iam::123456789012:role/x", "is not the ARN"),
        ] {
            let error = Roles::new(&mappings, fallback, "").unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        for partition in ["aws", "aws-cn", "aws-us-gov"] {
            let arn = format!("arn:{partition}:iam::123456789012:role/path/to/a_role+=,.@-");
            assert!(Roles::new(&[], &arn, "").is_ok());
        }
    }
}
