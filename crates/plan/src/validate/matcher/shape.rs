//! How deep a matcher goes, found without recursion.
//!
//! The parser of the `cel` crate recurses, and ends the process when there is no stack left: after 14 open brackets on a
//! thread with 2 MiB when it is not optimized, after ten thousand characters of `[[[…` or `a.a.a…` when it is. A matcher may be as
//! long as an object, so whoever may write a configuration would stop the operator for all. What is deep is refused before
//! it is parsed.
//!
//! INVARIANT: what is a text here is one for the parser, too, because brackets in texts do not count. The parser drops
//! what it cannot make a token of, quotes included, and goes on behind it. So such things are refused here.

/// How many brackets and choices (`? :`) may stand inside each other.
const DEEPEST: usize = 32;
/// How many operators and selections may hang on each other, as in `a.b.c + d`.
const LONGEST_CHAIN: usize = 256;

/// A piece of a matcher, as far as its depth depends on it.
#[derive(Clone, Copy, Debug)]
enum Token {
    /// Opens a bracket that the given character closes.
    Open(char),
    Close(char),
    /// The condition of a choice has ended.
    Choice,
    /// Begins another argument or element.
    Comma,
    /// Joins conditions. Of many the parser makes a tree that is not deep.
    Join,
    /// Hangs on what stands before it.
    Link,
    /// A name, a number, a text, or nothing at all.
    Plain,
}

/// What is open at a place: the inside of one bracket, or the whole matcher.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// What closes it; nothing closes the whole.
    end: Option<char>,
    /// How many choices are open in it.
    choices: usize,
    /// How many operators hang on each other in it.
    links: usize,
}

/// Refuses what is too deep, brackets without their other half, and what is made of no tokens.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut levels = vec![Level::default()];
    let mut rest = text;
    while !rest.is_empty() {
        let (token, behind) = token(rest)?;
        rest = behind;
        step(&mut levels, token)?;
        let depth: usize = levels.iter().map(|level| level.choices + 1).sum();
        if depth > DEEPEST + 1 {
            return Err(format!("more than {DEEPEST} brackets and choices stand inside each other; write it flatter"));
        }
        let links: usize = levels.iter().map(|level| level.links).sum();
        if links > LONGEST_CHAIN {
            return Err(format!("more than {LONGEST_CHAIN} operators hang on each other; write it shorter"));
        }
    }
    match levels.last().and_then(|level| level.end) {
        Some(end) => Err(format!("a bracket is not closed; `{end}` is missing")),
        None => Ok(()),
    }
}

fn step(levels: &mut Vec<Level>, token: Token) -> Result<(), String> {
    let Some(level) = levels.last_mut() else { return Ok(()) };
    match token {
        Token::Open(end) => {
            level.links += 1;
            levels.push(Level { end: Some(end), ..Level::default() });
        }
        Token::Close(end) if level.end == Some(end) => drop(levels.pop()),
        Token::Close(end) => {
            return Err(format!("`{end}` closes nothing that is open; remove it, or open its bracket"));
        }
        Token::Choice => level.choices += 1,
        Token::Comma => (level.choices, level.links) = (0, 0),
        Token::Join => level.links = 0,
        Token::Link => level.links += 1,
        Token::Plain => {}
    }
    Ok(())
}

/// The first token, and what stands behind it.
fn token(text: &str) -> Result<(Token, &str), String> {
    if let Some(comment) = text.strip_prefix("//") {
        return Ok((Token::Plain, comment.trim_start_matches(|next| !matches!(next, '\n' | '\r'))));
    }
    let behind_word = text.trim_start_matches(in_word);
    let word = text.strip_suffix(behind_word).unwrap_or_default();
    if let Some(inside) = Inside::open(word, behind_word)? {
        return Ok((Token::Plain, inside.skip()?));
    }
    if !word.is_empty() {
        return Ok((Token::Plain, behind_word));
    }
    if let Some(inside) = text.strip_prefix('`') {
        let (name, behind) = inside.split_once('`').unwrap_or_default();
        let fits = !name.is_empty() && name.chars().all(|next| in_word(next) || "./- ".contains(next));
        return fits
            .then_some((Token::Plain, behind))
            .ok_or_else(|| "a name in backticks is broken; close it".to_owned());
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
        Some(half @ ('=' | '&' | '|')) => return Err(format!("`{half}` alone means nothing; write `{half}{half}`")),
        Some(other) => return Err(format!("`{other}` means nothing in CEL; remove it, or put it in quotes")),
    };
    Ok((token, characters.as_str()))
}

fn in_word(next: char) -> bool {
    next.is_ascii_alphanumeric() || next == '_'
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
    fn open(prefix: &str, quoted: &'text str) -> Result<Option<Self>, String> {
        for quotes in ["\"\"\"", "'''", "\"", "'"] {
            let Some(rest) = quoted.strip_prefix(quotes) else { continue };
            let raw = match prefix {
                "" | "b" | "B" => false,
                "r" | "R" | "br" | "bR" | "Br" | "BR" => true,
                word => {
                    return Err(format!("`{word}` and a text stand side by side; put an operator or a space between"));
                }
            };
            return Ok(Some(Self { rest, quotes, raw }));
        }
        Ok(None)
    }

    /// What stands behind the text.
    fn skip(self) -> Result<&'text str, String> {
        let Self { mut rest, quotes, raw } = self;
        let many_lines = quotes.len() > 1;
        loop {
            if let Some(behind) = rest.strip_prefix(quotes) {
                return Ok(behind);
            }
            let next = rest.chars().next().filter(|next| many_lines || !matches!(next, '\n' | '\r'));
            let Some(next) = next else { return Err(format!("a text is not closed; `{quotes}` is missing")) };
            let length = if next == '\\' && !raw { escape(rest)? } else { next.len_utf8() };
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// How long the escape is with which this begins.
fn escape(rest: &str) -> Result<usize, String> {
    let kind = rest.chars().nth(1).unwrap_or(' ');
    let (behind, digits, radix) = match kind {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '`' | '?' | '\\' => (2, 0, 16),
        'x' | 'X' => (2, 2, 16),
        'u' => (2, 4, 16),
        'U' => (2, 8, 16),
        '0'..='3' => (1, 3, 8),
        _ => return Err(format!("`\\{kind}` in a text stands for nothing; for a backslash write `\\\\`")),
    };
    let number = rest.get(behind..behind + digits);
    if number.is_some_and(|number| number.chars().all(|digit| digit.is_digit(radix))) {
        return Ok(behind + digits);
    }
    Err(format!("`\\{kind}` in a text needs {digits} digits behind it"))
}
