//! The scan of Cedar policies.
//!
//! INVARIANT: what is a string or a comment here is one for Cedar's lexer, because brackets in them do not count, and a
//! keyword there is one here, though a number runs into it. Where the lexer would give up, so does this.
//!
//! INVARIANT: no text makes Cedar collect errors without end. It goes on behind many of them: an unknown escape is an error
//! with a copy of its whole string, and a missing operand one of two kilobytes. What can stand there thousands of times is
//! refused here, once.

use std::str::Chars;

use crate::{BoundsError, EXPRESSION_DEPTH, Nesting, NestingLimits, POLICY_BYTES, POLICY_CHAIN, POLICY_TOKENS, Token};

/// What begins a token beside names, numbers and strings.
const SIGNS: &str = "()[]{},;.:@+-*/%<>!=?";

/// What makes a string before it an operand, as in `"a".b` and `"a" + 1`. A pattern is none.
const MAKES_AN_OPERAND: &str = ".([+-*/%";

/// The lexical context after the previous token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// A policy begins here.
    Nothing,
    /// An operand, or its name: an identifier here is not a name.
    Operand,
    /// A string with `\*`, behind `like`.
    Pattern,
    /// An operand must follow.
    Opening,
    /// A name must follow, though it looks like a keyword.
    Access,
    /// `like`.
    Like,
    /// An operator, or another sign.
    Operator,
}

/// Checks that a text of Cedar policies can be parsed with a bounded stack and bounded memory.
pub fn cedar(text: &str) -> Result<(), BoundsError> {
    crate::size(text, POLICY_BYTES)?;
    let mut nesting = Nesting::new(NestingLimits { depth: EXPRESSION_DEPTH, chain: POLICY_CHAIN });
    let mut rest = text;
    let mut tokens = 0;
    let mut before = Before::Nothing;
    while let Some((word, behind)) = word(rest, before)? {
        rest = behind;
        tokens += 1;
        if tokens > POLICY_TOKENS {
            return Err(BoundsError::Tokens { most: POLICY_TOKENS });
        }
        let is_end = word == ";" && !nesting.is_inside();
        if is_end && before == Before::Nothing {
            return Err(BoundsError::EmptyPolicy);
        }
        if before == Before::Opening && matches!(word, "," | ":") {
            return Err(BoundsError::NoOperand);
        }
        if before == Before::Pattern && MAKES_AN_OPERAND.contains(word) {
            return Err(BoundsError::Escape('*'));
        }
        nesting.push(before.meaning(word))?;
        before = if is_end { Before::Nothing } else { before.next(word) };
    }
    nesting.finish()
}

// === impl Before ===

impl Before {
    /// What a token is to the depth of the tree.
    fn meaning(self, word: &str) -> Token {
        match word {
            // Keywords can be names of attributes.
            _ if self.is_name(word) => Token::Plain,
            "(" => Token::Open(')'),
            "[" => Token::Open(']'),
            "{" => Token::Open('}'),
            ")" => Token::Close(')'),
            "]" => Token::Close(']'),
            "}" => Token::Close('}'),
            "if" => Token::Choice,
            // Behind an operand only: `then` and `else` can be names of types, too.
            "then" | "else" if self.is_operand() => Token::Join,
            "," | ";" => Token::Comma,
            "||" | "&&" => Token::DeepJoin,
            // `a is T in b` becomes `a is T && a in b`.
            "is" => Token::TypeTest,
            "in" => Token::Within,
            "." | "+" | "-" | "*" | "/" | "%" | "<" | ">" | "!" | "==" | "!=" | "<=" | ">=" | "=" | "has" | "like" => {
                Token::Link
            }
            _ => Token::Plain,
        }
    }

    /// The context after a token.
    fn next(self, word: &str) -> Self {
        match word {
            _ if self.is_name(word) => Self::Operand,
            "(" | "[" | "{" | "," | ":" => Self::Opening,
            "." => Self::Access,
            "like" if self.is_operand() => Self::Like,
            "then" | "else" | "in" | "is" | "has" if self.is_operand() => Self::Operator,
            "if" => Self::Operator,
            ")" | "]" | "}" => Self::Operand,
            _ if self == Self::Like && word.starts_with('"') && word.contains("\\*") => Self::Pattern,
            _ if word.starts_with(|first: char| in_name(first) || first == '"') => Self::Operand,
            _ => Self::Operator,
        }
    }

    /// Whether an identifier is the name of an attribute, even if it is a keyword elsewhere.
    fn is_name(self, word: &str) -> bool {
        self == Self::Access && word.starts_with(in_name)
    }

    const fn is_operand(self) -> bool {
        matches!(self, Self::Operand | Self::Pattern)
    }
}

/// The next token and what stands behind it; nothing at the end.
fn word(text: &str, before: Before) -> Result<Option<(&str, &str)>, BoundsError> {
    let text = after_blanks(text);
    let Some(first) = text.chars().next() else { return Ok(None) };
    let two = text.get(..2).unwrap_or_default();
    let length = match first {
        '"' => string_length(text, before == Before::Like)?,
        // `1is` is a number and a keyword.
        _ if first.is_ascii_digit() => text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len()),
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

/// The length of the string with which a text begins, with its quotes. Only a pattern may have `\*`.
fn string_length(text: &str, is_pattern: bool) -> Result<usize, BoundsError> {
    let inside = text.get(1..).unwrap_or_default();
    let mut rest = inside.chars();
    while let Some(next) = rest.next() {
        match next {
            '"' => return Ok(text.len() - rest.as_str().len()),
            '\r' => return Err(BoundsError::CarriageReturn),
            '\\' => match rest.next() {
                None | Some('\n') => break,
                Some('n' | 'r' | 't' | '\\' | '0' | '\'' | '"') => {}
                Some('*') if is_pattern => {}
                Some('x') if skip_byte(&mut rest).is_some() => {}
                Some('u') if skip_code_point(&mut rest).is_some() => {}
                Some(other) => return Err(BoundsError::Escape(other)),
            },
            _ => {}
        }
    }
    Err(BoundsError::OpenString('"'))
}

/// Passes over the two digits of `\x41`, if they are an ASCII character.
fn skip_byte(rest: &mut Chars<'_>) -> Option<()> {
    let (high, low) = (rest.next()?.to_digit(16)?, rest.next()?.to_digit(16)?);
    (high * 16 + low < 0x80).then_some(())
}

/// Passes over the braces of `\u{1F_600}`, if a character is in them.
fn skip_code_point(rest: &mut Chars<'_>) -> Option<()> {
    let (digits, behind) = rest.as_str().strip_prefix('{')?.split_once('}')?;
    *rest = behind.chars();
    let is_number = digits.starts_with(|first: char| first.is_ascii_hexdigit());
    let digits: String = digits.chars().filter(|digit| *digit != '_').take(7).collect();
    let value = u32::from_str_radix(&digits, 16).ok().filter(|_| is_number && digits.len() <= 6)?;
    char::from_u32(value).map(drop)
}
