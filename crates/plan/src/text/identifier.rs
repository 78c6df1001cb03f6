//! Names of environment variables made of other names.

/// A text as a part of an environment variable's name: in capitals, and `_` for what such a name cannot hold.
pub fn sanitise(text: &str) -> String {
    let safe = |character: char| match character.to_ascii_uppercase() {
        safe @ ('A'..='Z' | '0'..='9' | '_') => safe,
        _ => '_',
    };
    text.chars().map(safe).collect()
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
}
