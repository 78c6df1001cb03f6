//! Who acts for whom: the `act` claim of a token (RFC 8693), as audit events and webhooks show it.

use serde_json::{Map, Value, json};

/// How many actors are read of a token, at most.
pub const DEEPEST: usize = 10;

/// The chain of actors of a token, the current one first. Access decisions may use only that one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    /// The actors.
    pub chain: Vec<Actor>,
    /// How many more there are.
    pub omitted: usize,
    /// Why the rest of the claim cannot be read.
    pub malformed: Option<&'static str>,
}

/// One actor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// Who vouches for it.
    pub issuer: String,
    /// Who it is.
    pub subject: String,
}

// === impl Delegation ===

impl Delegation {
    /// The actors of a token, if it has any. A malformed claim never fails authentication: it is recorded.
    pub fn of(claims: &Map<String, Value>, depth: usize) -> Option<Self> {
        let mut next = claims.get("act");
        next?;
        let mut delegation = Self::default();
        let depth = depth.min(DEEPEST);
        while let Some(actor) = next {
            let Value::Object(actor) = actor else {
                let is_first = delegation.chain.is_empty() && delegation.omitted == 0;
                delegation.malformed = Some(if is_first { "act_not_object" } else { "nested_act_not_object" });
                break;
            };
            next = actor.get("act");
            if delegation.chain.len() >= depth {
                delegation.omitted += 1;
                continue;
            }
            match (text(actor, "iss"), text(actor, "sub")) {
                (Ok(issuer), Ok(subject)) => delegation.chain.push(Actor { issuer, subject }),
                (Err(()), _) => return Some(Self { malformed: Some("iss_not_string"), ..delegation }),
                (_, Err(())) => return Some(Self { malformed: Some("sub_not_string"), ..delegation }),
            }
        }
        Some(delegation)
    }

    /// As JSON, for audit events and webhooks.
    pub fn to_json(&self) -> Value {
        let chain = self.chain.iter().map(|Actor { issuer, subject }| {
            let parts = [("iss", issuer), ("sub", subject)].into_iter().filter(|(_, text)| !text.is_empty());
            Value::Object(parts.map(|(name, text)| (name.to_owned(), Value::from(text.as_str()))).collect())
        });
        let mut form = Map::from_iter([("chain".to_owned(), chain.collect())]);
        if self.omitted > 0 {
            form.insert("truncated".to_owned(), json!(true));
            form.insert("omitted".to_owned(), json!(self.omitted));
        }
        if let Some(reason) = self.malformed {
            form.insert("malformed".to_owned(), json!(true));
            form.insert("malformedReason".to_owned(), json!(reason));
        }
        Value::Object(form)
    }
}

fn text(actor: &Map<String, Value>, name: &str) -> Result<String, ()> {
    match actor.get(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &Value) -> Option<Value> {
        Delegation::of(claims.as_object().unwrap(), DEEPEST).map(|delegation| delegation.to_json())
    }

    #[test]
    fn a_chain_of_actors_is_read_and_what_is_malformed_is_recorded() {
        for (act, form) in [
            (json!({"sub": "agent"}), json!({"chain": [{"sub": "agent"}]})),
            (
                json!({"sub": "a", "iss": "i", "act": {"sub": "b"}}),
                json!({"chain": [{"iss": "i", "sub": "a"}, {"sub": "b"}]}),
            ),
            (json!("agent"), json!({"chain": [], "malformed": true, "malformedReason": "act_not_object"})),
            (
                json!({"sub": "a", "act": 1}),
                json!({"chain": [{"sub": "a"}], "malformed": true, "malformedReason": "nested_act_not_object"}),
            ),
            (json!({"sub": 1}), json!({"chain": [], "malformed": true, "malformedReason": "sub_not_string"})),
            (json!({"iss": 1}), json!({"chain": [], "malformed": true, "malformedReason": "iss_not_string"})),
        ] {
            assert_eq!(of(&json!({ "act": act })), Some(form), "{act}");
        }
        assert_eq!(of(&json!({"sub": "a"})), None);
    }

    #[test]
    fn a_long_chain_is_cut() {
        let deep = (0..13).fold(json!({"sub": "first"}), |inner, _| json!({"sub": "a", "act": inner}));
        let form = of(&json!({ "act": deep })).unwrap();
        assert_eq!(form["chain"].as_array().unwrap().len(), DEEPEST);
        assert_eq!((&form["truncated"], &form["omitted"]), (&json!(true), &json!(4)));
    }
}
