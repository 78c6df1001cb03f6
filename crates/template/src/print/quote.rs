//! Strings and characters in quotes, as Go writes them.

use super::pad::{self, Flags};
use crate::error::EvaluationError;
use crate::meter::Sink;
use crate::utf8::{Span, runes, spans};

/// Writes a string in double quotes.
pub(crate) fn string(sink: &mut Sink<'_>, text: &[u8]) -> Result<(), EvaluationError> {
    quoted(sink, text, false)
}

/// Writes a string as `%q` does: in backquotes if `#` is set and that is possible, in ASCII if `+` is set.
pub(super) fn padded(sink: &mut Sink<'_>, text: &[u8], flags: &Flags) -> Result<(), EvaluationError> {
    let text = pad::cut(text, flags);
    let quoted = sink.meter().text(|sink| {
        if !flags.sharp || !fits_backquotes(text) {
            return self::quoted(sink, text, flags.plus);
        }
        sink.write("`")?;
        sink.write(text)?;
        sink.write("`")
    })?;
    pad::text(sink, quoted.as_bytes(), flags)
}

/// Writes a character in single quotes.
pub(super) fn character(sink: &mut Sink<'_>, character: char, flags: &Flags) -> Result<(), EvaluationError> {
    let quoted = sink.meter().text(|sink| {
        sink.write("'")?;
        if is_plain(character, '\'', flags.plus) {
            sink.character(character)?;
        } else {
            escaped(sink, character)?;
        }
        sink.write("'")
    })?;
    pad::text(sink, quoted.as_bytes(), flags)
}

fn quoted(sink: &mut Sink<'_>, text: &[u8], ascii: bool) -> Result<(), EvaluationError> {
    sink.write("\"")?;
    for span in spans(text, |next| is_plain(next, '"', ascii)) {
        match span {
            Span::Plain(text) => sink.write(text)?,
            Span::Special(character) => escaped(sink, character)?,
            Span::Byte(byte) => sink.write(format!("\\x{byte:02x}"))?,
        }
    }
    sink.write("\"")
}

/// Whether a character can stand in these quotes as it is.
fn is_plain(character: char, quote: char, ascii: bool) -> bool {
    character != '\\' && character != quote && (character.is_ascii() || !ascii) && is_printable(character)
}

/// Writes the escape of a character.
fn escaped(sink: &mut Sink<'_>, character: char) -> Result<(), EvaluationError> {
    let code = u32::from(character);
    match character {
        '\\' | '"' | '\'' => {
            sink.write("\\")?;
            sink.character(character)
        }
        '\u{7}' => sink.write("\\a"),
        '\u{8}' => sink.write("\\b"),
        '\u{c}' => sink.write("\\f"),
        '\n' => sink.write("\\n"),
        '\r' => sink.write("\\r"),
        '\t' => sink.write("\\t"),
        '\u{b}' => sink.write("\\v"),
        _ if code < 0x20 || code == 0x7f => sink.write(format!("\\x{code:02x}")),
        _ if code < 0x1_0000 => sink.write(format!("\\u{code:04x}")),
        _ => sink.write(format!("\\U{code:08x}")),
    }
}

/// Whether a character is seen: a letter, mark, number, sign or symbol, or the space of ASCII. What Unicode added after the version
/// that Go knows counts as well.
pub(crate) fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // The standard library escapes what is not printable. At the beginning of a text it escapes marks as well.
    let mut behind = String::from("a");
    behind.push(character);
    character.escape_debug().len() == 1 || behind.escape_debug().count() == 2
}

/// Whether a text can stand in backquotes.
fn fits_backquotes(text: &[u8]) -> bool {
    let fits = |next: char| next == '\t' || !(next.is_ascii_control() || matches!(next, '`' | '\u{feff}'));
    runes(text).all(|rune| rune.is_ok_and(fits))
}
