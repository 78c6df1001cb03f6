//! Where policies stand in a text of Cedar, for explanations of decisions.

/// One policy of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePolicy<'a> {
    /// The line that it begins on, from 1.
    pub line: usize,
    /// Its text, with its annotations and without the comments before it.
    pub text: &'a str,
}

/// The policies of a text, in order. Each ends with a semicolon outside of strings and comments; what comes after the last one is one
/// more, for the parser to refuse, unless it is empty.
pub fn split(text: &str) -> Vec<SourcePolicy<'_>> {
    let mut policies = Vec::new();
    let mut rest = skip_blank(text, 0);
    while rest < text.len() {
        let end = end_of_policy(text, rest);
        policies
            .push(SourcePolicy { line: line_of(text, rest), text: text.get(rest..end).unwrap_or_default().trim_end() });
        rest = skip_blank(text, end);
    }
    policies
}

/// The line of a text, from 1, on which a policy of a list begins, if its first line stands in it as such or as JSON. `after` is the line
/// of the policy before it.
pub fn find(text: &str, policy: &str, after: usize) -> Option<usize> {
    let first = policy.lines().map(str::trim).find(|line| !line.is_empty())?;
    let quoted = serde_json::Value::from(first).to_string();
    let quoted = quoted.trim_matches('"');
    let mut lines = text.lines().enumerate().skip(after.saturating_sub(1));
    lines.find(|(_, line)| line.contains(first) || line.contains(quoted)).map(|(index, _)| index + 1)
}

/// The end of the policy that begins at `start`, after its semicolon.
fn end_of_policy(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b';' => return at + 1,
            b'"' => at = end_of_string(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = end_of_line(bytes, at),
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], quote: usize) -> usize {
    let mut at = quote + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_line(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| start + length)
}

/// The first character from `start` on that is neither white space nor a part of a comment.
fn skip_blank(text: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        at += rest.len() - rest.trim_start().len();
        if !text.get(at..).unwrap_or_default().starts_with("//") {
            return at;
        }
        at = end_of_line(text.as_bytes(), at);
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn policies_end_with_semicolons_outside_of_strings_and_comments() {
        let text = "// first; comment\n\n@id(\"a;b\")\npermit(principal, action, resource) // ; not here\n  when { \"\\\";\" == \"\" };\
                    forbid(principal,action,resource);\n//end\n permit(";
        let policies = split(text);
        assert_eq!(policies.iter().map(|policy| policy.line).collect::<Vec<_>>(), [3, 5, 7]);
        assert!(policies[0].text.starts_with("@id") && policies[0].text.ends_with("};"));
        assert_eq!((policies[1].text, policies[2].text), ("forbid(principal,action,resource);", "permit("));
        assert!(split("").is_empty() && split(" \n// only a comment").is_empty());
    }

    #[test]
    fn policies_of_lists_are_found_as_they_are_written() {
        let yaml = "policies:\n- |\n  permit(principal, action, resource);\n- 'forbid(principal == Client::\"a\", action, resource);'\n";
        assert_eq!(find(yaml, "permit(principal, action, resource);\n", 0), Some(3));
        let json = "{\"policies\": [\n\"forbid(principal == Client::\\\"a\\\", action, resource);\"]}";
        for text in [yaml, json] {
            assert!(find(text, "forbid(principal == Client::\"a\", action, resource);", 0).is_some(), "{text}");
        }
        assert_eq!(find("a\nb\na\n", "a", 3), Some(3));
        assert_eq!(find(yaml, "absent", 0), None);
        assert_eq!(find(yaml, " \n", 0), None);
    }

    proptest! {
        #[test]
        fn any_text_is_split_into_pieces_of_it(text in "[a-z;\"\\\\/\n ü]{0,60}") {
            for policy in split(&text) {
                prop_assert!(!policy.text.is_empty() && text.contains(policy.text));
                prop_assert!(text.lines().nth(policy.line - 1).is_some_and(|line| line.contains(policy.text.lines().next().unwrap_or_default())));
            }
        }

        #[test]
        fn every_policy_of_a_set_is_found(count in 1..20usize, comment in "(//[a-z;\"]{0,9}\n){0,2}") {
            let text = format!("{comment}permit(principal, action, resource) when {{ \";//\" != \"\" }};\n").repeat(count);
            let policies = split(&text);
            prop_assert_eq!(policies.len(), count);
            for policy in policies {
                prop_assert_eq!(crate::policies::parse(policy.text).unwrap().policies().count(), 1);
            }
        }
    }
}
