//! What policies refer to by name. Only that is made of a request: a client's arguments may be thousands, and hints of tools may have to be
//! obtained first.
//!
//! It is read off their words: a name is a word or a text, whatever is around it. Too much is harmless; too little would be a policy that
//! does not apply. There is no recursion, however deep a policy is nested.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::query::HINTS;

/// The prefix of the attributes that arguments become.
const ARGUMENT: &str = "arg_";
/// The variable that has all claims and arguments.
const CONTEXT: &str = "context";

/// The names that policies refer to.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    names: BTreeSet<String>,
    /// The entities that they name, by type and id.
    entities: BTreeSet<(String, String)>,
    /// Whether a policy has the context as a value, and not only attributes of it.
    has_context: bool,
    /// Whether there is a text that cannot be read here, and so may be any name.
    has_unknown: bool,
}

/// A part of a policy.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    /// An identifier, a keyword or a number.
    Word(&'a str),
    /// What stands between quotes, with its escapes.
    Text(&'a str),
    Sign(char),
}

// === impl Mentions ===

impl Mentions {
    /// The names in texts of policies that were parsed.
    pub(super) fn of<'a>(policies: impl Iterator<Item = &'a str>) -> Self {
        let mut mentions = Self::default();
        for policy in policies {
            mentions.add(policy);
        }
        mentions
    }

    fn add(&mut self, policy: &str) {
        let mut rest = policy;
        let mut is_after_context = false;
        // The last word, and how many colons follow it.
        let mut typed = ("", 0);
        while let Some((token, after)) = next(rest) {
            rest = after;
            if let (Token::Text(id), (kind, 2)) = (&token, typed) {
                self.entities.extend(unescaped(id).map(|id| (kind.to_owned(), id.into_owned())));
            }
            typed = match &token {
                Token::Word(word) => (word, 0),
                Token::Sign(':') => (typed.0, typed.1 + 1),
                Token::Text(_) | Token::Sign(_) => ("", 0),
            };
            let is_access = matches!(token, Token::Sign('.' | '[') | Token::Word("has"));
            self.has_context |= is_after_context && !is_access;
            is_after_context = token == Token::Word(CONTEXT);
            match token {
                Token::Word(word) => self.note(word),
                Token::Text(text) => match unescaped(text) {
                    Some(text) => self.note(&text),
                    None => self.has_unknown = true,
                },
                Token::Sign(_) => {}
            }
        }
    }

    fn note(&mut self, name: &str) {
        if !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
    }

    /// The ids of the entities of a type that the policies name, in order.
    pub(super) fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.entities.iter().filter(move |(of, _)| of == kind).map(|(_, id)| id.as_str())
    }

    /// Whether a policy may depend on an attribute.
    pub(super) fn has(&self, attribute: &str) -> bool {
        self.has_context || self.has_unknown || self.names.contains(attribute)
    }

    /// Whether a policy may depend on an argument: on its value, or on its presence.
    pub(super) fn has_argument(&self, name: &str) -> bool {
        self.has(&format!("{ARGUMENT}{name}")) || self.has(&format!("{ARGUMENT}{name}_present"))
    }

    /// Whether a policy may depend on what tools say about themselves. Hints are attributes of the tool, and not of the context.
    pub(super) fn has_hints(&self) -> bool {
        self.has_unknown || HINTS.iter().any(|hint| self.names.contains(*hint))
    }
}

/// The first token of a text, and what follows it.
fn next(text: &str) -> Option<(Token<'_>, &str)> {
    let text = without_blank(text);
    let first = text.chars().next()?;
    let (token, length) = match first {
        '"' => {
            let inner = text.get(1..)?;
            let end = end_of_text(inner);
            (Token::Text(inner.get(..end)?), end + 2)
        }
        letter if is_of_word(letter) => {
            let end = text.find(|letter| !is_of_word(letter)).unwrap_or(text.len());
            (Token::Word(text.get(..end)?), end)
        }
        sign => (Token::Sign(sign), sign.len_utf8()),
    };
    Some((token, text.get(length..).unwrap_or_default()))
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// A text without the white space and the comments that it begins with.
fn without_blank(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with("//") {
        text = text.find(['\n', '\r']).and_then(|end| text.get(end..)).unwrap_or_default().trim_start();
    }
    text
}

/// Where the quote is that ends a text.
fn end_of_text(inner: &str) -> usize {
    let mut is_escaped = false;
    let end = inner.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    end.unwrap_or(inner.len())
}

/// A text without its escapes, if they are those of Cedar.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let (mut plain, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        let escape = if letter == '\\' { letters.next()? } else { '\0' };
        plain.push(match (letter, escape) {
            ('\\', 'n') => '\n',
            ('\\', 'r') => '\r',
            ('\\', 't') => '\t',
            ('\\', '0') => '\0',
            ('\\', '\\' | '\'' | '"' | '*') => escape,
            ('\\', 'x') => code(&[letters.next()?, letters.next()?])?,
            ('\\', 'u') => {
                letters.next().filter(|brace| *brace == '{')?;
                let digits: Vec<char> = letters.by_ref().take_while(|letter| *letter != '}').collect();
                code(&digits)?
            }
            ('\\', _) => return None,
            (letter, _) => letter,
        });
    }
    Some(Cow::Owned(plain))
}

fn code(digits: &[char]) -> Option<char> {
    let digits: String = digits.iter().filter(|digit| **digit != '_').collect();
    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(condition: &str) -> Mentions {
        let policy = format!("permit(principal, action, resource) when {{ {condition} }};");
        assert!(crate::policies::parse(&policy).is_ok(), "{condition}");
        Mentions::of([policy.as_str()].into_iter())
    }

    #[test]
    fn entities_are_found_however_they_are_written() {
        let policy = r#"@id("Tool::\"no\"") permit(principal, action, resource == Tool :: "b") // Tool::"no"
            when { resource in [Tool::"\u{61}", Tool
            ::"c d"] || principal == Client::"ada" || resource.name == "Tool::" };"#;
        assert!(crate::policies::parse(policy).is_ok());
        let mentions = Mentions::of([policy].into_iter());
        assert_eq!(mentions.of_type("Tool").collect::<Vec<_>>(), ["a", "b", "c d"]);
        assert_eq!(mentions.of_type("Client").collect::<Vec<_>>(), ["ada"]);
        assert_eq!(mentions.of_type("Prompt").count(), 0);
    }

    #[test]
    fn attributes_are_found_however_they_are_written() {
        for condition in [
            "context.arg_x == 1",
            "context has arg_x",
            "context // why?\n\n has arg_x",
            r#"context["arg_x"] == 1"#,
            r#"context [ "\u{61}rg_x" ] == 1"#,
            r#"context["\x61rg\u{5_f}x"] == 1"#,
            r#"context has "arg_x""#,
            "resource.arg_x == 1",
            "resource has arg_x.y",
            "if resource has arg_x then true else false",
            "[1].contains(resource.arg_x)",
            "{a: context.arg_x}.a == 1",
            r#"resource.name == "\"//" && resource.arg_x like "a\*""#,
            "decimal(resource.arg_x) == decimal(\"1.0\")",
            "(if true then resource else principal).arg_x == 1",
        ] {
            let mentions = of(condition);
            assert!(mentions.has("arg_x") && mentions.has_argument("x"), "{condition}");
            assert!(!mentions.has("arg_z") && !mentions.has_argument("z"), "{condition}");
        }
        assert!(of("context.arg_list_present").has_argument("list"));
        assert!(!of("true // context.arg_x\n && true").has("arg_x"));
    }

    #[test]
    fn a_context_that_is_a_value_is_all_of_its_attributes() {
        for condition in [
            "context == {a: 1}",
            "[context].contains({a: 1})",
            "(if true then context else {}) has arg_x",
            "{a: context}.a has arg_x",
            "(context).arg_x == 1",
            "context // .\n == {}",
        ] {
            assert!(of(condition).has("arg_z") && !of(condition).has_hints(), "{condition}");
        }
        assert!(!of("resource == Tool::\"a\" && principal == Client::\"b\" && context has a").has("arg_z"));
    }

    #[test]
    fn hints_are_found() {
        assert!(of("resource has destructiveHint && resource.destructiveHint").has_hints());
        assert!(of(r#"resource has "destructive\u{48}int""#).has_hints());
        assert!(of("principal.friend.openWorldHint").has_hints());
        assert!(!of(r#"resource.name == "destructive" || context == {}"#).has_hints());
    }

    #[test]
    fn a_text_that_cannot_be_read_may_be_any_name() {
        for text in [r#"permit("\q")"#, r#"permit("\u{110000}")"#, r#"permit("\u{d800}")"#, r#"permit("\x6")"#] {
            let mentions = Mentions::of([text].into_iter());
            assert!(mentions.has("arg_z") && mentions.has_hints(), "{text}");
        }
        for odd in ["", "\"", "//", "\"\\", "é\"é", "context"] {
            drop(Mentions::of([odd].into_iter()));
        }
    }
}
