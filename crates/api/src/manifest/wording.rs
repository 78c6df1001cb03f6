//! Errors in a YAML text, with what its author must do. The parser's own messages do not say that.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;
use skep_bounds::{MANIFEST_ALIASES, MANIFEST_DEPTH};

use super::ManifestError;

/// The message where the parser's reason would not help the user.
const UNREADABLE: &str = "the text cannot be read from here; check the indentation, the quotes and the brackets";

/// Parts of the parser's messages, and what they come to for the author of the text. The first that fits counts.
const PROBLEMS: &[(&str, &str)] = &[
    ("unclosed bracket '['", "a `[` is not closed; add the `]`"),
    ("unclosed bracket '{'", "a `{` is not closed; add the `}`"),
    ("while parsing a flow sequence", "a `,` or `]` is missing"),
    ("while parsing a flow mapping", "a `,` or `}` is missing"),
    ("unexpected EOF", "the text ends too early"),
    ("unexpected end of", "the text ends too early"),
    ("unclosed quote", "a quote is not closed"),
    ("multiline quoted scalar", "a quote is not closed, or the text between two quotes is not indented"),
    ("unexpected document indicator", "a quote is not closed"),
    ("trailing content after", "there is text after the closing quote; put quotes around the whole value"),
    ("escape", "a `\\` between double quotes starts an escape that does not exist; use single quotes"),
    ("surrogate", "a `\\u` escape between double quotes is not a character"),
    ("tab", "there is a tab; indent with spaces"),
    ("mapping values are not allowed", "a `:` cannot be here; check the indentation, or put quotes around the value"),
    ("block sequence entries are not allowed", "a `- ` cannot be here; check the indentation"),
    ("expected '-' indicator", "a list ends here in the middle; check the indentation"),
    ("simple key", "a key without a `:`; check the indentation, or put quotes around the value"),
    ("expected key", "a key is missing; check the indentation"),
    ("indentation", "the indentation fits nothing above it"),
    ("anchor", "an alias (`*name`) has no anchor (`&name`) before it"),
    ("tag", "a value starts with `!`, which marks a tag; put quotes around it"),
    ("node content", "a value is missing, or starts with a character that needs quotes"),
    ("unexpected character", "a value starts with a character that needs quotes"),
    ("UTF-8", "the text is not UTF-8"),
];

/// The parser's error as ours; `offset` lines of the text come before what was parsed.
pub(super) fn syntax_error(error: &Error, offset: usize) -> ManifestError {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
    let (line, column) = error.location().map_or((1, 1), |place| (number(place.line()), number(place.column())));
    ManifestError::Syntax { line: offset + line, column, problem: problem(error) }
}

fn problem(error: &Error) -> String {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`; keep one"),
        Error::DuplicateMappingKey { .. } => "duplicate key; keep one".to_owned(),
        Error::UnsupportedTag { tag, .. } => format!("the tag `{tag}` is not supported; put quotes around the value"),
        Error::AliasError { error, .. } => problem(error),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => too_deep(),
        Error::Budget { breach: BudgetBreach::Aliases { .. }, .. } => {
            format!("there are more than {MANIFEST_ALIASES} aliases; write the values out")
        }
        Error::Budget {
            breach:
                BudgetBreach::ScalarBytes { .. }
                | BudgetBreach::RecordedAnchorEvents { .. }
                | BudgetBreach::RecordedAnchorBytes { .. },
            ..
        } => "its aliases stand for far more than the text has; write the values out".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the text, with all that its aliases stand for, is too large; split it".to_owned()
        }
        other => {
            let theirs = other.render();
            // The scanner's own limit for brackets, which it may reach before the parser counts them.
            if theirs.contains("recursion limit exceeded") {
                return too_deep();
            }
            let ours = PROBLEMS.iter().find(|(part, _)| theirs.contains(part)).map(|(_, ours)| *ours);
            ours.unwrap_or(UNREADABLE).to_owned()
        }
    }
}

fn too_deep() -> String {
    format!("more than {MANIFEST_DEPTH} lists and objects are nested; flatten it")
}

#[cfg(test)]
mod tests {
    use super::super::documents;

    /// Terms of parsers that users do not know.
    const JARGON: &[&str] = &["EOF", "while parsing", "while scanning", "scalar", "node", "serde", "saphyr", "Error"];

    fn problem(text: &str) -> String {
        documents(text).into_iter().find_map(|document| document.objects.err()).expect(text).to_string()
    }

    #[test]
    fn errors_have_a_remedy_and_no_parser_jargon() {
        for (text, place, message) in [
            ("a: [1, 2", "line 1", "a `[` is not closed"),
            ("a: {b: 1", "line 1", "is not closed"),
            ("a: \"open\nb: 1\n", "line 2", "a quote is not closed"),
            ("a: 1\n\tb: 2\n", "line 1", "there is a tab"),
            ("a: b: c\n", "line 1", "a `:` cannot be here"),
            ("a: 1\na: 2\n", "line 2", "duplicate key `a`"),
            ("a: *gone\n", "line 1", "has no anchor"),
            ("a:\n  - 1\n b: 2\n", "line 3", "check the indentation"),
            ("a: \"\\q\"\n", "line 1", "use single quotes"),
            ("---\na: 1\n---\nb: [\n", "line 4", "a `[` is not closed"),
        ] {
            let problem = problem(text);
            assert!(problem.contains(place) && problem.contains(message), "{text:?}: {problem}");
            assert!(JARGON.iter().all(|word| !problem.contains(word)), "{text:?}: {problem}");
        }
    }
}
