//! The scan of Cedar policies.
//!
//! INVARIANT: what is a string or a comment here is one for Cedar's lexer, because brackets in them do not count. Where
//! the lexer would give up, so does this.

use crate::{BoundsError, EXPRESSION_DEPTH, Nesting, NestingLimits, POLICY_BYTES, POLICY_CHAIN, POLICY_TOKENS, Token};

/// What begins a token beside names, numbers and strings.
const SIGNS: &str = "()[]{},;.:@+-*/%<>!=?";

/// Checks that a text of Cedar policies can be parsed with a bounded stack and bounded memory.
pub fn cedar(text: &str) -> Result<(), BoundsError> {
    crate::size(text, POLICY_BYTES)?;
    let mut nesting = Nesting::new(NestingLimits { depth: EXPRESSION_DEPTH, chain: POLICY_CHAIN });
    let mut rest = text;
    let mut tokens = 0;
    let mut is_empty = true;
    let mut is_attribute = false;
    while let Some((word, behind)) = word(rest)? {
        rest = behind;
        tokens += 1;
        if tokens > POLICY_TOKENS {
            return Err(BoundsError::Tokens { most: POLICY_TOKENS });
        }
        let is_end = word == ";" && !nesting.is_inside();
        if is_end && is_empty {
            // Each would be an error of its own, of two kilobytes.
            return Err(BoundsError::EmptyPolicy);
        }
        is_empty = is_end;
        // Keywords can be names of attributes.
        nesting.push(if is_attribute { Token::Plain } else { meaning(word) })?;
        is_attribute = word == ".";
    }
    nesting.finish()
}

fn meaning(word: &str) -> Token {
    match word {
        "(" => Token::Open(')'),
        "[" => Token::Open(']'),
        "{" => Token::Open('}'),
        ")" => Token::Close(')'),
        "]" => Token::Close(']'),
        "}" => Token::Close('}'),
        "if" => Token::Choice,
        "," | ";" => Token::Comma,
        "||" | "&&" => Token::DeepJoin,
        // `a is T in b` becomes `a is T && a in b`.
        "is" => Token::Double,
        "." | "+" | "-" | "*" | "/" | "%" | "<" | ">" | "!" | "==" | "!=" | "<=" | ">=" | "=" | "in" | "has"
        | "like" => Token::Link,
        _ => Token::Plain,
    }
}

/// The next token and what stands behind it; nothing at the end.
fn word(text: &str) -> Result<Option<(&str, &str)>, BoundsError> {
    let text = after_blanks(text);
    let Some(first) = text.chars().next() else { return Ok(None) };
    let two = text.get(..2).unwrap_or_default();
    let length = match first {
        '"' => string_length(text)?,
        _ if in_name(first) => text.find(|next| !in_name(next)).unwrap_or(text.len()),
        _ if matches!(two, "||" | "&&" | "==" | "!=" | "<=" | ">=" | "::") => 2,
        _ if SIGNS.contains(first) => 1,
        other => return Err(BoundsError::Character(other)),
    };
    Ok(text.split_at_checked(length))
}

/// What stands behind white space and comments.
fn after_blanks(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix("//") {
        rest = comment.trim_start_matches(|next| !matches!(next, '\n' | '\r')).trim_start();
    }
    rest
}

fn in_name(next: char) -> bool {
    next.is_ascii_alphanumeric() || next == '_'
}

/// The length of the string with which a text begins, with its quotes.
fn string_length(text: &str) -> Result<usize, BoundsError> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, next)) = characters.next() {
        match next {
            '"' => return Ok(at + 1),
            // A backslash escapes any character but the end of a line.
            '\\' if characters.next().is_none_or(|(_, escaped)| escaped == '\n') => break,
            _ => {}
        }
    }
    Err(BoundsError::OpenString('"'))
}
