//! Source text without what no rule is about: comments and tests. An approximation that relies on rustfmt, which puts
//! the closing brace of a module where its `mod` began.

/// Whether a file holds only tests or test support.
pub(super) fn is_for_tests(path: &str) -> bool {
    let supports_tests = ["crates/testkit/", "crates/e2e/", "xtask/"];
    supports_tests.iter().any(|place| path.starts_with(place))
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
}

/// The lines of a file with their numbers, comments and test modules taken out.
pub(super) fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(line, &mut lines);
        } else {
            kept.push((index + 1, without_comment(line)));
        }
    }
    kept
}

/// Skips the item under an attribute: to its closing brace, or only its line when it ends there.
fn skip_item<'a>(attribute: &str, lines: &mut impl Iterator<Item = (usize, &'a str)>) {
    let indent: String = attribute.chars().take_while(|character| character.is_whitespace()).collect();
    let end = format!("{indent}}}");
    let Some((_, item)) = lines.next() else { return };
    if item.trim_end().ends_with('{') {
        for (_, line) in lines {
            if line == end {
                return;
            }
        }
    }
}

/// A line up to its comment. Slashes inside a text, as in `https://`, have no space before them.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    line.split_once(" // ").map_or(line, |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_test_modules_are_taken_out() {
        let text = "//! about\nuse a; // why\n#[cfg(test)]\nmod tests;\nfn f() {}\n#[cfg(test)]\nmod more {\n    fn g() \
                    {\n    }\n}\nlet u = \"https://x\";\n";
        let kept: Vec<_> = lines(text).into_iter().filter(|(_, line)| !line.is_empty()).collect();
        assert_eq!(kept, [(2, "use a;"), (5, "fn f() {}"), (11, "let u = \"https://x\";")]);
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        assert!(is_for_tests("crates/api/tests/it/main.rs"));
        assert!(is_for_tests("crates/api/src/status/tests.rs"));
        assert!(is_for_tests("crates/testkit/src/lib.rs"));
        assert!(!is_for_tests("crates/api/src/lib.rs"));
    }
}
