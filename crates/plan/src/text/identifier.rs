//! Names of environment variables made of other names.

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::sha256_hex;

/// A text as a part of an environment variable's name: in capitals, and `_` for what such a name cannot hold.
pub fn sanitise(text: &str) -> String {
    let safe = |character: char| match character.to_ascii_uppercase() {
        safe @ ('A'..='Z' | '0'..='9' | '_') => safe,
        _ => '_',
    };
    text.chars().map(safe).collect()
}

/// The name under which a proxy finds a token that is kept in a Secret: behind `TOOLHIVE_SECRET_`, it is a variable.
///
/// It is the Secret's own name, as in the original, where that can stand in a variable. Any other name becomes one that can, with a
/// hash of itself behind it: `my-token` and `my.token` stay different variables.
pub fn secret_identifier(secret: &str) -> String {
    if secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return secret.to_owned();
    }
    format!("BEARER_{}_{}", sanitise(secret), short_hash(secret))
}

/// Texts as parts of names of variables, each its own: sanitised, and with a hash of itself behind it where that is also what becomes of
/// another. So `x-a` and `x_a` stay two variables, and a text that shares its name with none has the name of the original.
pub fn distinct_identifiers<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let texts: BTreeSet<&str> = texts.into_iter().collect();
    let mut sharing = BTreeMap::<String, usize>::new();
    for text in &texts {
        *sharing.entry(sanitise(text)).or_default() += 1;
    }
    let mut taken: BTreeSet<String> = sharing.keys().cloned().collect();
    let mut own = |text: &str, safe: String| {
        // Another text may be written like one with its hash: its hash is of something else then.
        let mut hashed = text.to_owned();
        loop {
            let identifier = format!("{safe}_{}", short_hash(&hashed));
            if taken.insert(identifier.clone()) {
                return identifier;
            }
            hashed.push('\0');
        }
    };
    let identifier = |text: &'a str| {
        let safe = sanitise(text);
        let is_shared = sharing.get(&safe).is_some_and(|count| *count > 1);
        (text, if is_shared { own(text, safe) } else { safe })
    };
    texts.into_iter().map(identifier).collect()
}

/// The start of a hash, in capitals.
fn short_hash(text: &str) -> String {
    sha256_hex(text.as_bytes()).chars().take(8).collect::<String>().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_become_safe_in_the_environment() {
        assert_eq!(sanitise("my-config.v1"), "MY_CONFIG_V1");
        assert_eq!(sanitise("WEBHOOK_a b_é"), "WEBHOOK_A_B__");
        assert_eq!(sanitise("x-key"), "X_KEY");
    }

    /// Item 17-14: the variable of a bearer token is one that a shell takes, whatever its Secret is called.
    #[test]
    fn the_identifier_of_a_secret_is_a_posix_name_and_its_own() {
        assert_eq!(secret_identifier("remote"), "remote");
        assert_eq!(secret_identifier("token2"), "token2");
        let names = ["my-token", "my.token", "my--token", "a.b-c", "bearer-my-token", "0-a"];
        let identifiers: std::collections::BTreeSet<String> = names.into_iter().map(secret_identifier).collect();
        assert_eq!(identifiers.len(), names.len());
        for identifier in identifiers {
            assert!(identifier.starts_with("BEARER_"), "{identifier}");
            let is_posix = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(identifier.bytes().all(is_posix), "{identifier}");
        }
    }

    #[test]
    fn only_names_that_collide_get_a_hash() {
        let identifiers = distinct_identifiers(["x-a", "x_a", "X-B"]);
        assert_eq!(identifiers["X-B"], "X_B");
        assert!(identifiers["x-a"].starts_with("X_A_") && identifiers["x_a"].starts_with("X_A_"), "{identifiers:?}");
        // One that is written like another with its hash takes nothing from it.
        let crafted = format!("x-a-{}", short_hash("x-a"));
        let identifiers = distinct_identifiers(["x-a", "x_a", &crafted]);
        assert_eq!(identifiers.values().collect::<BTreeSet<_>>().len(), 3, "{identifiers:?}");
    }

    proptest! {
        #[test]
        fn no_two_texts_have_one_identifier(texts in prop::collection::btree_set("[xX][-_.a]{0,3}", 0..20)) {
            let identifiers = distinct_identifiers(texts.iter().map(String::as_str));
            prop_assert_eq!(identifiers.values().collect::<BTreeSet<_>>().len(), texts.len());
            for (text, identifier) in identifiers {
                let is_posix = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
                prop_assert!(identifier.starts_with(&sanitise(text)) && identifier.bytes().all(is_posix));
            }
        }
    }
}
