//! The words of tools and of searches for them, as the index has them: in lower case, by their stems.

use std::collections::BTreeSet;

use super::stem::stem;

/// Words that say nothing about a tool, because they are in the schema or in the description of most.
const STOP: [&str; 27] = [
    "name",
    "description",
    "schema",
    "input",
    "output",
    "type",
    "properties",
    "required",
    "title",
    "id",
    "tool",
    "server",
    "meta",
    "data",
    "content",
    "text",
    "value",
    "field",
    "column",
    "table",
    "index",
    "key",
    "primary",
    "tools",
    "keys",
    "values",
    "fields",
];
/// How much of a text is read, and the longest word in it, in bytes.
const TEXT: usize = 16 * 1024;
const WORD: usize = 64;
/// How many different words a search has.
const TERMS: usize = 64;

/// The stems of a text, each as often as it occurs. A word in camel case counts as a whole and by its parts.
pub(super) fn stems(text: &str) -> Vec<String> {
    words(text).map(|word| stem(&word).into_owned()).collect()
}

/// What a search looks for: the stems of its keywords, or else of its description, without the words that say nothing. Where nothing else is
/// left, those count.
pub(super) fn terms(description: &str, keywords: &[String]) -> BTreeSet<String> {
    let of = |texts: &[&str]| -> Vec<String> { texts.iter().flat_map(|text| words(text)).collect() };
    let keywords: Vec<&str> = keywords.iter().map(String::as_str).collect();
    let given = of(&keywords);
    let all = if given.is_empty() { of(&[description]) } else { given };
    let telling: Vec<&String> = all.iter().filter(|word| !STOP.contains(&word.as_str())).collect();
    let chosen = if telling.is_empty() { all.iter().collect() } else { telling };
    let mut terms = BTreeSet::new();
    for word in chosen {
        if terms.len() == TERMS {
            break;
        }
        terms.insert(stem(word).into_owned());
    }
    terms
}

/// The words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let text = text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default();
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).flat_map(|word| {
        let parts = parts(word);
        let parts = if parts.len() > 1 { parts } else { Vec::new() };
        std::iter::once(word).chain(parts).map(|word| {
            let word = word.get(..word.floor_char_boundary(WORD)).unwrap_or_default();
            word.to_lowercase()
        })
    })
}

/// The parts of a word in camel case.
fn parts(word: &str) -> Vec<&str> {
    let (mut parts, mut start, mut was_lower) = (Vec::new(), 0, false);
    for (place, character) in word.char_indices() {
        if character.is_uppercase() && was_lower {
            parts.extend(word.get(start..place));
            start = place;
        }
        was_lower = character.is_lowercase() || character.is_numeric();
    }
    parts.extend(word.get(start..));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(stems("github_createIssue"), ["github", "createissu", "creat", "issu"]);
        assert_eq!(stems("get-file.contents v2"), ["get", "file", "content", "v2"]);
        assert_eq!(stems("Überprüfe ISSUES"), ["überprüfe", "issu"]);
        assert_eq!(stems(" -- "), Vec::<String>::new());
    }

    #[test]
    fn keywords_win_over_the_description_and_words_that_say_nothing_are_left_out() {
        let texts = |terms: BTreeSet<String>| terms.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(texts(terms("the name of an open issue", &[])), "an issu of open the");
        assert_eq!(texts(terms("anything", &["Issues".to_owned(), "pull requests".to_owned()])), "issu pull request");
        assert_eq!(texts(terms("table", &[])), "tabl", "there is nothing else to look for");
        assert_eq!(texts(terms("fallback words", &[" ".to_owned()])), "fallback word");
    }

    #[test]
    fn a_search_and_a_text_are_bounded() {
        let many = (0..10_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
        assert_eq!(terms(&many, &[]).len(), TERMS);
        assert!(stems(&many).len() < TEXT);
        assert_eq!(stems(&"a".repeat(1_000)), ["a".repeat(WORD)]);
    }
}
