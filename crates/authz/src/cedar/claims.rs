//! What the claims of a caller mean to policies: attributes, groups and sets.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::CedarConfig;

/// The claims that hold groups where the configuration names none, in order.
const GROUP_CLAIMS: [&str; 3] = ["groups", "roles", "cognito:groups"];

/// The groups of a caller, each once, in order.
pub(super) fn groups<'a>(claims: &'a Map<String, Value>, config: &CedarConfig) -> Vec<&'a str> {
    let by_group = match config.group_claim_name.as_str() {
        "" => GROUP_CLAIMS.into_iter().find_map(|name| claims.get(name).filter(|claim| !claim.is_null())),
        name => find(claims, name),
    };
    let by_role = Some(config.role_claim_name.as_str()).filter(|name| !name.is_empty());
    let by_role = by_role.and_then(|name| find(claims, name));
    let names = by_group.into_iter().chain(by_role).filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// A claim by its name, or else by a path of names with dots between them.
fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let mut names = name.split('.');
    let first = claims.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// The claims as attributes of the caller and of the context: `claim_<name>`, and for those with several values `claimset_<name>`.
pub(super) fn attributes(claims: &Map<String, Value>, config: &CedarConfig) -> Vec<(String, Value)> {
    let mut attributes: Vec<_> = claims.iter().map(|(name, value)| (format!("claim_{name}"), value.clone())).collect();
    for name in &config.multi_valued_claims {
        let Some(values) = claims.get(name).and_then(several) else { continue };
        let joined = Value::from(values.join(" "));
        match attributes.iter_mut().find(|(attribute, _)| attribute.strip_prefix("claim_") == Some(name)) {
            Some((_, value)) => *value = joined,
            None => attributes.push((format!("claim_{name}"), joined)),
        }
        attributes.push((format!("claimset_{name}"), Value::from(values)));
    }
    attributes
}

fn several(claim: &Value) -> Option<Vec<String>> {
    match claim {
        Value::String(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
        Value::Array(values) => Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(group: &str, role: &str) -> CedarConfig {
        CedarConfig { group_claim_name: group.into(), role_claim_name: role.into(), ..CedarConfig::default() }
    }

    #[test]
    fn groups_come_from_the_claims_that_usually_hold_them_or_from_the_named_ones() {
        for (claims, group, role, found) in [
            (json!({"groups": ["a", "b", "a"]}), "", "", &["a", "b"][..]),
            (json!({"roles": ["r"], "groups": null}), "", "", &["r"]),
            (json!({"cognito:groups": ["c"]}), "", "", &["c"]),
            // An empty list is an answer.
            (json!({"groups": [], "roles": ["r"]}), "", "", &[]),
            (json!({"groups": "a", "roles": ["r"]}), "", "", &[]),
            (json!({"groups": ["a"], "teams": ["t"]}), "teams", "", &["t"]),
            (json!({"https://x.example/groups": ["t"]}), "https://x.example/groups", "", &["t"]),
            (json!({"realm_access": {"roles": ["r"]}}), "realm_access.roles", "", &["r"]),
            (
                json!({"realm_access.roles": ["flat"], "realm_access": {"roles": ["r"]}}),
                "realm_access.roles",
                "",
                &["flat"],
            ),
            (json!({"groups": ["a", "x"], "realm": {"roles": ["r", "x"]}}), "", "realm.roles", &["a", "x", "r"]),
            (json!({"groups": ["a"]}), "missing", "", &[]),
        ] {
            assert_eq!(groups(claims.as_object().unwrap(), &config(group, role)), found, "{claims}");
        }
    }

    #[test]
    fn a_claim_with_several_values_is_a_text_and_a_set() {
        let config = CedarConfig { multi_valued_claims: vec!["scope".into(), "aud".into()], ..CedarConfig::default() };
        let claims = json!({"scope": "a  b", "aud": ["x", "y"], "sub": "ada"});
        let attributes: Map<_, _> = attributes(claims.as_object().unwrap(), &config).into_iter().collect();
        let expected = json!({"claim_scope": "a b", "claimset_scope": ["a", "b"], "claim_aud": "x y",
            "claimset_aud": ["x", "y"], "claim_sub": "ada"});
        assert_eq!(Value::Object(attributes), expected);
    }
}
