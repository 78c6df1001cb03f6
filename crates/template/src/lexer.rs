//! From the text of a template to tokens: texts, delimiters, and what stands in actions.
//!
//! Space that a trim marker removes and comments are gone after this. Of the space in an action only one fact is kept: whether it
//! stands before a token. The grammar needs it, because `.a.b` is one value and `.a .b` are two.

use crate::error::{ParseError, Position, SyntaxError, quoted};

/// What separates tokens in an action, and what a trim marker removes.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A piece of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: TokenKind,
    /// As it is written.
    pub(crate) text: &'t str,
    pub(crate) at: Position,
    /// Whether there is space before it, in an action.
    pub(crate) spaced: bool,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Text between actions.
    Text,
    /// `{{`, with its trim marker.
    Open,
    /// `}}`, with its trim marker.
    Close,
    /// A keyword, the name of a function, `true` or `false`.
    Word,
    /// `.name`
    Field,
    /// `$` or `$name`
    Variable,
    /// `.`
    Dot,
    /// A number.
    Number,
    /// A character in single quotes.
    Character,
    /// A string in double quotes.
    String,
    /// A string in backquotes.
    RawString,
    /// `:=`
    Declare,
    /// `=`
    Assign,
    /// `|`
    Pipe,
    /// `,`
    Comma,
    /// `(`
    OpenParenthesis,
    /// `)`
    CloseParenthesis,
    /// The end of the template.
    End,
}

/// Splits a template into tokens, of which the last one is its end.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { rest: text, at: Position { line: 1, column: 1 }, tokens: Vec::new(), parentheses: 0 };
    while lexer.rest.contains(OPEN) {
        lexer.text();
        lexer.action_or_comment()?;
    }
    lexer.push(TokenKind::Text, lexer.rest.len(), false);
    lexer.push(TokenKind::End, 0, false);
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    /// Where the rest begins.
    at: Position,
    tokens: Vec<Token<'t>>,
    /// How many parentheses of the action are open.
    parentheses: usize,
}

// === impl Lexer ===

impl<'t> Lexer<'t> {
    /// Passes over so many bytes, and returns them.
    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        for next in taken.chars() {
            if next == '\n' {
                self.at = Position { line: self.at.line.saturating_add(1), column: 1 };
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        self.rest = rest;
        taken
    }

    /// The next bytes are a token. There is no empty text.
    fn push(&mut self, kind: TokenKind, length: usize, spaced: bool) {
        let at = self.at;
        let text = self.take(length);
        if kind != TokenKind::Text || !text.is_empty() {
            self.tokens.push(Token { kind, text, at, spaced });
        }
    }

    /// The text before the next `{{`, without what the trim marker behind it removes.
    fn text(&mut self) {
        let (text, behind) = self.rest.split_once(OPEN).unwrap_or((self.rest, ""));
        let kept = if is_trimmed(behind) { text.trim_end_matches(SPACES) } else { text };
        self.push(TokenKind::Text, kept.len(), false);
        self.take(text.len() - kept.len());
    }

    fn action_or_comment(&mut self) -> Result<(), ParseError> {
        let marker = self.rest.strip_prefix(OPEN).is_some_and(is_trimmed);
        let length = OPEN.len() + if marker { "- ".len() } else { 0 };
        if self.rest.get(length..).is_some_and(|inside| inside.starts_with("/*")) {
            return self.comment(length);
        }
        self.push(TokenKind::Open, length, false);
        let opened = self.tokens.last().map_or(self.at, |token| token.at);
        self.parentheses = 0;
        loop {
            let space = self.rest.len() - self.rest.trim_start_matches(SPACES).len();
            self.take(space);
            if self.rest.is_empty() {
                return Err(opened.syntax(SyntaxError::OpenAction));
            }
            if let Some(close) = closing(self.rest, space > 0) {
                if self.parentheses > 0 {
                    return Err(self.at.syntax(SyntaxError::OpenParenthesis));
                }
                self.push(TokenKind::Close, close.length, space > 0);
                self.trim(close.trims);
                return Ok(());
            }
            self.token(space > 0)?;
        }
    }

    /// Passes over a comment, whose delimiter has this length.
    fn comment(&mut self, length: usize) -> Result<(), ParseError> {
        let opened = self.at;
        self.take(length + "/*".len());
        let (text, _) = self.rest.split_once("*/").ok_or_else(|| opened.syntax(SyntaxError::OpenComment))?;
        self.take(text.len() + "*/".len());
        let spaced = self.rest.strip_prefix(SPACES);
        let close = closing(self.rest, false).or_else(|| closing(spaced?, true).filter(|close| close.trims));
        let close = close.ok_or_else(|| self.at.syntax(SyntaxError::AfterComment))?;
        self.take(close.length + usize::from(close.trims));
        self.trim(close.trims);
        Ok(())
    }

    /// Passes over what a trim marker removes.
    fn trim(&mut self, trims: bool) {
        if trims {
            self.take(self.rest.len() - self.rest.trim_start_matches(SPACES).len());
        }
    }

    /// The next token of an action.
    fn token(&mut self, spaced: bool) -> Result<(), ParseError> {
        let mut characters = self.rest.chars();
        let (Some(first), second) = (characters.next(), characters.next()) else { return Ok(()) };
        let (kind, length) = match first {
            '.' if second.is_some_and(|next| next.is_ascii_digit()) => (TokenKind::Number, self.number()?),
            '+' | '-' | '0'..='9' => (TokenKind::Number, self.number()?),
            '.' => self.name(TokenKind::Field, TokenKind::Dot)?,
            '$' => self.name(TokenKind::Variable, TokenKind::Variable)?,
            '=' => (TokenKind::Assign, 1),
            ':' if second == Some('=') => (TokenKind::Declare, ":=".len()),
            '|' => (TokenKind::Pipe, 1),
            ',' => (TokenKind::Comma, 1),
            '"' => (TokenKind::String, self.string(first)?),
            '\'' => (TokenKind::Character, self.string(first)?),
            '`' => (TokenKind::RawString, self.string(first)?),
            '(' => {
                self.parentheses += 1;
                (TokenKind::OpenParenthesis, 1)
            }
            ')' => {
                self.parentheses =
                    self.parentheses.checked_sub(1).ok_or_else(|| self.at.syntax(SyntaxError::NotOpen))?;
                (TokenKind::CloseParenthesis, 1)
            }
            _ if is_of_name(first) => self.name(TokenKind::Word, TokenKind::Word)?,
            _ => return Err(self.at.syntax(SyntaxError::Character(first))),
        };
        self.push(kind, length, spaced);
        Ok(())
    }

    /// A name, after its `.` or `$` if it has one; `bare` is what this sign is alone.
    fn name(&self, kind: TokenKind, bare: TokenKind) -> Result<(TokenKind, usize), ParseError> {
        let sign = usize::from(kind != TokenKind::Word);
        let name = self.rest.get(sign..).unwrap_or_default();
        let behind = name.trim_start_matches(is_of_name);
        let length = sign + name.len() - behind.len();
        match behind.chars().next() {
            Some(found) if !ends_name(found) && !behind.starts_with(CLOSE) => {
                let name = quoted(self.rest.get(..length).unwrap_or_default());
                Err(self.at.syntax(SyntaxError::AfterName { name, found }))
            }
            _ => Ok((if length == sign { bare } else { kind }, length)),
        }
    }

    /// The length of a number. Whether it is one is found out when it is read.
    fn number(&self) -> Result<usize, ParseError> {
        let unsigned = self.rest.trim_start_matches(['+', '-']);
        let radix = unsigned.get(..2).unwrap_or_default();
        let is_hex = radix.eq_ignore_ascii_case("0x");
        let mut previous = None;
        let is_part = |next: char| {
            let exponent = if is_hex { ['p', 'P'] } else { ['e', 'E'] };
            let signs = previous.is_some_and(|previous| exponent.contains(&previous));
            previous = Some(next);
            is_of_name(next) || next == '.' || (matches!(next, '+' | '-') && signs)
        };
        let behind = unsigned.trim_start_matches(is_part);
        let length = self.rest.len() - behind.len();
        let signs = self.rest.len() - unsigned.len();
        if signs > 1 || behind.starts_with(['+', '-']) {
            let text = self.rest.split(SPACES).next().unwrap_or_default();
            return Err(self.at.syntax(SyntaxError::Number(quoted(text))));
        }
        Ok(length)
    }

    /// The length of a string with its quotes. Only `"` and `'` know escapes, and end on their line.
    fn string(&self, quote: char) -> Result<usize, ParseError> {
        let (mut escaped, is_raw) = (true, quote == '`');
        for (index, next) in self.rest.char_indices() {
            match next {
                // The first one opens the string.
                _ if escaped && (is_raw || next != '\n') => escaped = false,
                '\n' if !is_raw => break,
                '\\' if !is_raw => escaped = true,
                _ if next == quote => return Ok(index + 1),
                _ => {}
            }
        }
        Err(self.at.syntax(SyntaxError::OpenString(quote)))
    }
}

/// How an action ends.
#[derive(Clone, Copy)]
struct Closing {
    length: usize,
    trims: bool,
}

/// The delimiter with which a text begins, if it does. A trim marker needs space before it.
fn closing(text: &str, spaced: bool) -> Option<Closing> {
    if text.starts_with(CLOSE) {
        return Some(Closing { length: CLOSE.len(), trims: false });
    }
    let is_marked = spaced && text.strip_prefix('-').is_some_and(|behind| behind.starts_with(CLOSE));
    is_marked.then_some(Closing { length: "-".len() + CLOSE.len(), trims: true })
}

/// Whether what stands behind `{{` begins with a trim marker.
fn is_trimmed(behind: &str) -> bool {
    behind.strip_prefix('-').is_some_and(|behind| behind.starts_with(SPACES))
}

fn is_of_name(next: char) -> bool {
    next == '_' || next.is_alphanumeric()
}

/// What may stand directly behind a name.
fn ends_name(next: char) -> bool {
    SPACES.contains(&next) || matches!(next, '.' | ',' | '|' | ':' | '(' | ')')
}
