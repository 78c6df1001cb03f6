//! Names of environment variables made of other names.

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
    let hash: String = sha256_hex(secret.as_bytes()).chars().take(8).collect();
    format!("BEARER_{}_{}", sanitise(secret), hash.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
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
}
