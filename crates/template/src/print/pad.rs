//! The flags of a directive, and padding to a width.

use crate::error::EvaluationError;
use crate::meter::Sink;
use crate::utf8::runes;

/// What stands between `%` and the verb.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
pub(crate) struct Flags {
    pub(crate) width: Option<usize>,
    pub(crate) precision: Option<usize>,
    /// `-`
    pub(crate) minus: bool,
    /// `+`
    pub(crate) plus: bool,
    /// `#`
    pub(crate) sharp: bool,
    /// A space.
    pub(crate) space: bool,
    /// `0`
    pub(crate) zero: bool,
    /// `%#v`
    pub(crate) go_syntax: bool,
}

/// Writes a text with the padding around it.
pub(crate) fn text(sink: &mut Sink<'_>, text: &[u8], flags: &Flags) -> Result<(), EvaluationError> {
    let missing = flags.width.unwrap_or_default();
    let missing = if missing == 0 { 0 } else { missing.saturating_sub(runes(text).count()) };
    if flags.minus {
        sink.write(text)?;
        return sink.repeat(b' ', missing);
    }
    sink.repeat(if flags.zero { b'0' } else { b' ' }, missing)?;
    sink.write(text)
}

/// As [`text`], but never with zeros.
pub(crate) fn with_spaces(sink: &mut Sink<'_>, text: &[u8], flags: &Flags) -> Result<(), EvaluationError> {
    self::text(sink, text, &Flags { zero: false, ..*flags })
}

/// Writes the digits of a number with its sign, of which `-` is there already.
pub(crate) fn number(sink: &mut Sink<'_>, digits: String, flags: &Flags) -> Result<(), EvaluationError> {
    let is_signed = digits.starts_with('-') || flags.plus || flags.space;
    let sign = if flags.plus { "+" } else { " " };
    let signed = if is_signed && !digits.starts_with('-') { format!("{sign}{digits}") } else { digits };
    let missing = flags.width.unwrap_or_default().saturating_sub(signed.len());
    match signed.split_at_checked(1) {
        // Zeros stand behind the sign.
        Some((sign, unsigned)) if is_signed && flags.zero && !flags.minus => {
            sink.write(sign)?;
            sink.repeat(b'0', missing)?;
            sink.write(unsigned)
        }
        _ => text(sink, signed.as_bytes(), flags),
    }
}

/// As many characters of a text as the precision allows.
pub(crate) fn cut<'b>(text: &'b [u8], flags: &Flags) -> &'b [u8] {
    let Some(most) = flags.precision else { return text };
    let length = runes(text).take(most).map(|rune| rune.map_or(1, char::len_utf8)).sum();
    text.get(..length).unwrap_or(text)
}

/// Writes the bytes of a string as hexadecimal digits.
pub(crate) fn hexadecimal(
    sink: &mut Sink<'_>,
    bytes: &[u8],
    upper: bool,
    flags: &Flags,
) -> Result<(), EvaluationError> {
    let bytes = flags.precision.and_then(|most| bytes.get(..most)).unwrap_or(bytes);
    let padding = if flags.zero && !flags.minus { b'0' } else { b' ' };
    let (prefix, each) = match (flags.sharp, flags.space) {
        (false, false) => (0, 2),
        (true, false) => (2, 2),
        (false, true) => (0, 3),
        (true, true) => (0, 5),
    };
    let width = if bytes.is_empty() { 0 } else { prefix + bytes.len() * each - usize::from(flags.space) };
    let missing = flags.width.unwrap_or_default().saturating_sub(width);
    if bytes.is_empty() {
        return sink.repeat(padding, missing);
    }
    if !flags.minus {
        sink.repeat(padding, missing)?;
    }
    let radix = if upper { "0X" } else { "0x" };
    for (index, byte) in bytes.iter().enumerate() {
        if flags.space && index > 0 {
            sink.write(" ")?;
        }
        if flags.sharp && (index == 0 || flags.space) {
            sink.write(radix)?;
        }
        sink.hexadecimal(*byte, upper)?;
    }
    sink.repeat(padding, if flags.minus { missing } else { 0 })
}
