//! How deep a matcher goes, found without recursion.
//!
//! The parser of the `cel` crate recurses, and ends the process when there is no stack left: after 14 open brackets on a
//! thread with 2 MiB when it is not optimized, after ten thousand characters of `[[[…` or `a.a.a…` when it is. A matcher may be as
//! long as an object, so any editor of a configuration could stop the operator for all. What is deep is refused before
//! it is parsed.
//!
//! INVARIANT: what is a text or a comment here is one for the parser, too, because brackets in them do not count. The parser
//! drops what it cannot make a token of, quotes included, and goes on behind it. So such things are refused here, and so are
//! numbers that run into an identifier: `1in` is two tokens for the parser.

use crate::nesting::{Nesting, NestingLimits, Token};
use crate::{BoundsError, EXPRESSION_DEPTH, MATCHER_BYTES, MATCHER_CHAIN, MATCHER_MINUS_TOKENS, MATCHER_TOKENS, size};

/// What the tokens before a place say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// An operand: a `-` here subtracts.
    Operand,
    /// This prefix operator.
    Prefix(char),
    /// Anything else: an operand must follow.
    Other,
}

/// Refuses what is too long or too deep, brackets without their other half, what is made of no tokens, and repeated prefix operators.
/// Gives the number of tokens, as far as they cost the parser time.
pub fn cel(text: &str) -> Result<usize, BoundsError> {
    size(text, MATCHER_BYTES)?;
    let mut nesting = Nesting::new(NestingLimits { depth: EXPRESSION_DEPTH, chain: MATCHER_CHAIN });
    let mut before = Before::Other;
    let mut tokens = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (token, behind) = token(rest)?;
        let read = rest.get(..rest.len() - behind.len()).unwrap_or_default();
        rest = behind;
        nesting.push(token)?;
        let next = before.next(read)?;
        tokens += Before::tokens(read, next);
        if tokens > MATCHER_TOKENS {
            return Err(BoundsError::Tokens { most: MATCHER_TOKENS });
        }
        before = next;
    }
    nesting.finish()?;
    Ok(tokens)
}

/// The first token, and what stands behind it.
fn token(text: &str) -> Result<(Token, &str), BoundsError> {
    if let Some(comment) = text.strip_prefix("//") {
        return Ok((Token::Plain, comment.trim_start_matches(|next| next != '\n')));
    }
    let behind_identifier = text.trim_start_matches(in_identifier);
    let identifier = text.strip_suffix(behind_identifier).unwrap_or_default();
    if let Some(inside) = Inside::open(identifier, behind_identifier)? {
        return Ok((Token::Plain, inside.skip()?));
    }
    if identifier.starts_with(|first: char| first.is_ascii_digit()) && !is_number(identifier, behind_identifier) {
        return Err(BoundsError::Unclear(format!(
            "`{identifier}` is a number followed by an identifier; put an operator or a space between"
        )));
    }
    if !identifier.is_empty() {
        return Ok((if identifier == "in" { Token::Within } else { Token::Plain }, behind_identifier));
    }
    if let Some(inside) = text.strip_prefix('`') {
        let (name, behind) = inside.split_once('`').unwrap_or_default();
        let fits = !name.is_empty() && name.chars().all(|next| in_identifier(next) || "./- ".contains(next));
        return fits
            .then_some((Token::Plain, behind))
            .ok_or_else(|| BoundsError::Unclear("a name in backticks is broken; close it".to_owned()));
    }
    for operator in ["&&", "||"] {
        if let Some(behind) = text.strip_prefix(operator) {
            return Ok((Token::Join, behind));
        }
    }
    for operator in ["==", "!=", "<=", ">="] {
        if let Some(behind) = text.strip_prefix(operator) {
            return Ok((Token::Link, behind));
        }
    }
    let mut characters = text.chars();
    let token = match characters.next() {
        Some('(') => Token::Open(')'),
        Some('[') => Token::Open(']'),
        Some('{') => Token::Open('}'),
        Some(end @ (')' | ']' | '}')) => Token::Close(end),
        Some('?') => Token::Choice,
        Some(',') => Token::Comma,
        Some('.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '!') => Token::Link,
        Some(':' | ' ' | '\t' | '\n' | '\r' | '\u{c}') | None => Token::Plain,
        Some(half @ ('=' | '&' | '|')) => {
            return Err(BoundsError::Unclear(format!("`{half}` alone means nothing; write `{half}{half}`")));
        }
        Some(other) => {
            return Err(BoundsError::Unclear(format!(
                "`{other}` means nothing in CEL; remove it, or put it in quotes"
            )));
        }
    };
    Ok((token, characters.as_str()))
}

fn in_identifier(next: char) -> bool {
    next.is_ascii_alphanumeric() || next == '_'
}

/// Whether an identifier that begins with a digit is one number, or the part of one that stands before the sign of its exponent.
fn is_number(identifier: &str, behind: &str) -> bool {
    let is_digit = |next: char| next.is_ascii_digit();
    if let Some(digits) = identifier.strip_prefix("0x") {
        let digits = digits.strip_suffix(['u', 'U']).unwrap_or(digits);
        return !digits.is_empty() && digits.chars().all(|next| next.is_ascii_hexdigit());
    }
    let suffix = identifier.trim_start_matches(is_digit);
    match suffix.strip_prefix(['e', 'E']) {
        None => matches!(suffix, "" | "u" | "U"),
        Some("") => behind.strip_prefix(['+', '-']).is_some_and(|exponent| exponent.starts_with(is_digit)),
        Some(exponent) => exponent.chars().all(is_digit),
    }
}

// === impl Before ===

impl Before {
    /// What a token says of the place behind it.
    ///
    /// The parser visits what stands behind an even number of equal prefix operators twice, so that 31 of them around each
    /// other take it hours; and it takes `!!a` for `!a`.
    fn next(self, read: &str) -> Result<Self, BoundsError> {
        let Some(first) = read.chars().next().filter(|first| !first.is_whitespace() && !read.starts_with("//")) else {
            return Ok(self);
        };
        match first {
            '-' if self == Self::Operand => Ok(Self::Other),
            '!' | '-' if read.len() == 1 => {
                if self == Self::Prefix(first) {
                    return Err(BoundsError::Unclear(format!("`{first}{first}` changes nothing; remove both")));
                }
                Ok(Self::Prefix(first))
            }
            ')' | ']' | '}' | '"' | '\'' | '`' => Ok(Self::Operand),
            _ if in_identifier(first) && read != "in" => Ok(Self::Operand),
            _ => Ok(Self::Other),
        }
    }

    /// How many tokens this one counts for, given what it makes of the place behind it.
    fn tokens(read: &str, next: Self) -> usize {
        match next {
            _ if read.starts_with(char::is_whitespace) || read.starts_with("//") => 0,
            Self::Prefix('-') => MATCHER_MINUS_TOKENS,
            _ => 1,
        }
    }
}

/// A text between quotes, from behind its opening ones.
#[derive(Debug)]
struct Inside<'text> {
    rest: &'text str,
    quotes: &'static str,
    raw: bool,
}

// === impl Inside ===

impl<'text> Inside<'text> {
    /// The text whose quotes stand behind `prefix`, if it is one.
    fn open(prefix: &str, quoted: &'text str) -> Result<Option<Self>, BoundsError> {
        for quotes in ["\"\"\"", "'''", "\"", "'"] {
            let Some(rest) = quoted.strip_prefix(quotes) else { continue };
            let raw = match prefix {
                "" | "b" | "B" => false,
                "r" | "R" | "br" | "bR" | "Br" | "BR" => true,
                identifier => {
                    return Err(BoundsError::Unclear(format!(
                        "`{identifier}` is followed by a string; put an operator or a space between"
                    )));
                }
            };
            return Ok(Some(Self { rest, quotes, raw }));
        }
        Ok(None)
    }

    /// What stands behind the text.
    fn skip(self) -> Result<&'text str, BoundsError> {
        let Self { mut rest, quotes, raw } = self;
        let many_lines = quotes.len() > 1;
        loop {
            if let Some(behind) = rest.strip_prefix(quotes) {
                return Ok(behind);
            }
            let next = rest.chars().next().filter(|next| many_lines || !matches!(next, '\n' | '\r'));
            let Some(next) = next else {
                return Err(BoundsError::Unclear(format!("a text is not closed; `{quotes}` is missing")));
            };
            let length = if next == '\\' && !raw { escape(rest)? } else { next.len_utf8() };
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// How long the escape is with which this begins.
fn escape(rest: &str) -> Result<usize, BoundsError> {
    let kind = rest.chars().nth(1).unwrap_or(' ');
    let (behind, digits, radix) = match kind {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '`' | '?' | '\\' => (2, 0, 16),
        'x' | 'X' => (2, 2, 16),
        'u' => (2, 4, 16),
        'U' => (2, 8, 16),
        '0'..='3' => (1, 3, 8),
        _ => {
            return Err(BoundsError::Unclear(format!(
                "`\\{kind}` in a text stands for nothing; for a backslash write `\\\\`"
            )));
        }
    };
    let number = rest.get(behind..behind + digits);
    if number.is_some_and(|number| number.chars().all(|digit| digit.is_digit(radix))) {
        return Ok(behind + digits);
    }
    Err(BoundsError::Unclear(format!("`\\{kind}` in a text needs {digits} digits behind it")))
}
