//! Integers in the bases of Go's verbs, and as characters.

use super::pad::{self, Flags};
use super::quote;
use crate::error::EvaluationError;
use crate::meter::Sink;

/// An integer: one of the template, or a byte of a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Integer {
    pub(crate) magnitude: u64,
    pub(crate) negative: bool,
    pub(crate) is_byte: bool,
}

// === impl Integer ===

impl Integer {
    /// Writes it, if the verb is for integers.
    pub(crate) fn write(self, sink: &mut Sink<'_>, verb: char, flags: &Flags) -> Result<bool, EvaluationError> {
        let magnitude = self.magnitude;
        let sharp = flags.sharp;
        match verb {
            // Bytes are hexadecimal in the syntax of Go.
            'v' if flags.go_syntax && self.is_byte => self.digits(sink, &format!("{magnitude:x}"), "0x", flags)?,
            'v' | 'd' => self.digits(sink, &magnitude.to_string(), "", flags)?,
            'b' => self.digits(sink, &format!("{magnitude:b}"), if sharp { "0b" } else { "" }, flags)?,
            'o' | 'O' => self.octal(sink, verb == 'O', flags)?,
            'x' => self.digits(sink, &format!("{magnitude:x}"), if sharp { "0x" } else { "" }, flags)?,
            'X' => self.digits(sink, &format!("{magnitude:X}"), if sharp { "0X" } else { "" }, flags)?,
            'c' => pad::text(sink, self.character().encode_utf8(&mut [0; 4]).as_bytes(), flags)?,
            'q' => quote::character(sink, self.character(), flags)?,
            'U' => self.code_point(sink, flags)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The character with this number, or the one that stands for none.
    fn character(self) -> char {
        let code = if self.negative { None } else { u32::try_from(self.magnitude).ok() };
        code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// Writes digits behind zeros, prefix and sign.
    fn digits(self, sink: &mut Sink<'_>, digits: &str, prefix: &str, flags: &Flags) -> Result<(), EvaluationError> {
        let Some(zeros) = self.zeros(digits.len(), flags) else { return pad::with_spaces(sink, b"", flags) };
        self.padded(sink, digits, zeros, prefix, flags)
    }

    /// As [`Self::digits`], with the prefix of octal numbers: a zero that may be there already, and `0o` with the verb `O`.
    fn octal(self, sink: &mut Sink<'_>, with_letter: bool, flags: &Flags) -> Result<(), EvaluationError> {
        let digits = format!("{:o}", self.magnitude);
        let Some(zeros) = self.zeros(digits.len(), flags) else { return pad::with_spaces(sink, b"", flags) };
        let has_zero = zeros > 0 || digits == "0";
        let prefix = match (with_letter, flags.sharp && !has_zero) {
            (false, false) => "",
            (false, true) => "0",
            (true, false) => "0o",
            (true, true) => "0o0",
        };
        self.padded(sink, &digits, zeros, prefix, flags)
    }

    /// How many zeros stand before the digits, or nothing if nothing is written at all.
    fn zeros(self, digits: usize, flags: &Flags) -> Option<usize> {
        let wanted = match (flags.precision, flags.width) {
            (Some(0), _) if self.magnitude == 0 => return None,
            (Some(precision), _) => precision,
            (None, Some(width)) if flags.zero && !flags.minus => {
                width.saturating_sub(usize::from(self.negative || flags.plus || flags.space))
            }
            _ => 0,
        };
        Some(wanted.saturating_sub(digits))
    }

    fn padded(
        self,
        sink: &mut Sink<'_>,
        digits: &str,
        zeros: usize,
        prefix: &str,
        flags: &Flags,
    ) -> Result<(), EvaluationError> {
        let sign = match (self.negative, flags.plus, flags.space) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        };
        let length = sign.len() + prefix.len() + zeros + digits.len();
        let missing = flags.width.unwrap_or_default().saturating_sub(length);
        sink.repeat(b' ', if flags.minus { 0 } else { missing })?;
        sink.write(sign)?;
        sink.write(prefix)?;
        sink.repeat(b'0', zeros)?;
        sink.write(digits)?;
        sink.repeat(b' ', if flags.minus { missing } else { 0 })
    }

    /// Writes `U+0041`, with the character if `#` is set.
    fn code_point(self, sink: &mut Sink<'_>, flags: &Flags) -> Result<(), EvaluationError> {
        let code = if self.negative { self.magnitude.wrapping_neg() } else { self.magnitude };
        let digits = format!("{code:X}");
        let zeros = flags.precision.unwrap_or_default().max(4).saturating_sub(digits.len());
        let character = u32::try_from(code).ok().and_then(char::from_u32).filter(|next| quote::is_printable(*next));
        let shown = character.filter(|_| flags.sharp).map(|next| format!(" '{next}'")).unwrap_or_default();
        let length = "U+".len() + zeros + digits.len() + shown.chars().count();
        let missing = flags.width.unwrap_or_default().saturating_sub(length);
        sink.repeat(b' ', if flags.minus { 0 } else { missing })?;
        sink.write("U+")?;
        sink.repeat(b'0', zeros)?;
        sink.write(digits)?;
        sink.write(shown)?;
        sink.repeat(b' ', if flags.minus { missing } else { 0 })
    }
}
