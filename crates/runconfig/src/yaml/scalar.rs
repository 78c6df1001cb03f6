//! How a text is written so that it is read back as that text: bare, quoted, or as a block of lines.

use std::fmt::Write as _;

/// The ways of writing a text, from the plainest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Bare,
    Single,
    Double,
    Block,
}

/// Scalars that some YAML parsers read as another type than a string, in any letter case.
const AMBIGUOUS: &[&str] =
    &["", "~", "null", "true", "false", "y", "yes", "on", "n", "no", "off", ".nan", ".inf", "+.inf", "-.inf", "<<"];

/// Characters that mean something when a text begins with them.
const INDICATORS: &[char] = &['#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`'];

/// How a text is best written where a block is possible.
pub(super) fn style(text: &str) -> Style {
    if text.contains('\n') {
        return if fits_block(text) { Style::Block } else { Style::Double };
    }
    if AMBIGUOUS.iter().any(|scalar| scalar.eq_ignore_ascii_case(text)) || is_number_like(text) || is_date_like(text) {
        return Style::Double;
    }
    if text.chars().any(is_special) {
        return Style::Double;
    }
    if needs_quotes(text) { Style::Single } else { Style::Bare }
}

/// A text on one line: the name of a member, or a value.
pub(super) fn key(text: &str) -> String {
    match style(text) {
        Style::Bare => text.to_owned(),
        Style::Single => format!("'{}'", text.replace('\'', "''")),
        Style::Double | Style::Block => double(text),
    }
}

/// A block cannot show special characters or spaces at the end of a line, and must not seem to be empty.
fn fits_block(text: &str) -> bool {
    let is_odd = |character: char| character != '\n' && character != '\t' && is_special(character);
    !text.chars().any(is_odd) && !text.contains(" \n") && !text.ends_with(' ') && !text.trim().is_empty()
}

/// Characters that only double quotes can show.
fn is_special(character: char) -> bool {
    !matches!(character, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Whether a text without special characters would be taken for structure, or lose its spaces.
fn needs_quotes(text: &str) -> bool {
    text.starts_with(' ')
        || text.ends_with([' ', ':'])
        || text.starts_with(INDICATORS)
        || text.starts_with("---")
        || text.starts_with("...")
        || text.contains(": ")
        || text.contains(" #")
        || matches!(text, "-" | "?")
        || ["- ", "? "].iter().any(|start| text.starts_with(start))
}

/// Whether a text begins like a number and has nothing in it that no number has.
fn is_number_like(text: &str) -> bool {
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return false;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).replace('_', "");
    let is_all = |text: &str, is: fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    for (prefix, is_digit) in [
        ("0x", (|c| c.is_ascii_hexdigit()) as fn(char) -> bool),
        ("0o", |c| ('0'..='7').contains(&c)),
        ("0b", |c| matches!(c, '0' | '1')),
    ] {
        let upper = prefix.to_ascii_uppercase();
        let rest = digits.strip_prefix(prefix).or_else(|| digits.strip_prefix(&upper));
        if rest.is_some_and(|rest| is_all(rest, is_digit)) {
            return true;
        }
    }
    is_decimal(&digits) || is_sexagesimal(&digits)
}

/// `12`, `1.5`, `.5`, `1.`, `1e6`
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(left, right)| (left, Some(right)));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    is_digits(whole)
        && is_digits(part)
        && !(whole.is_empty() && part.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && is_digits(exponent))
}

/// `1:30`, which older YAML reads as ninety
fn is_sexagesimal(text: &str) -> bool {
    let (clock, _) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_part = |text: &str| is_digits(text) && text.parse::<u64>().is_ok_and(|part| part < 60) && text.len() <= 2;
    clock.split_once(':').is_some_and(|(first, rest)| is_digits(first) && rest.split(':').all(is_part))
}

/// `2026-01-31`, with or without a time behind it
fn is_date_like(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let lengths: Vec<usize> = date.split('-').map(str::len).collect();
    matches!(lengths.as_slice(), [4, 1..=2, 1..=2]) && date.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
}

fn double(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        let short = match character {
            '"' => '"',
            '\\' => '\\',
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ if is_special(character) => {
                let code = u32::from(character);
                // Writing to a `String` cannot fail.
                let _ = match code {
                    ..=0xff => write!(quoted, "\\x{code:02X}"),
                    0x100..=0xffff => write!(quoted, "\\u{code:04X}"),
                    _ => write!(quoted, "\\U{code:08X}"),
                };
                continue;
            }
            _ => {
                quoted.push(character);
                continue;
            }
        };
        quoted.push('\\');
        quoted.push(short);
    }
    quoted.push('"');
    quoted
}
