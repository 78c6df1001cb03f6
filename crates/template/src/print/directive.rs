//! `printf`: a format with directives, and its arguments.
//!
//! A directive that does not fit is no error: as in Go, the text says what is wrong with it, such as `%!d(string=a)`.

use super::pad::Flags;
use super::{NIL, argument, typed};
use crate::error::EvaluationError;
use crate::meter::Sink;
use crate::utf8::runes;
use crate::value::Value;

/// Widths and precisions beyond this are not used.
const MOST: i64 = 1_000_000;

/// Writes arguments in a format.
pub(crate) fn printf(sink: &mut Sink<'_>, format: &[u8], values: &[Value<'_>]) -> Result<(), EvaluationError> {
    sink.meter().bytes(format.len())?;
    let mut printer = Printer { format, at: 0, values, next: 0, reordered: false };
    while let Some(rest) = format.get(printer.at..).filter(|rest| !rest.is_empty()) {
        let text = rest.split(|byte| *byte == b'%').next().unwrap_or_default();
        sink.write(text)?;
        printer.at += text.len();
        if printer.accept(b'%') {
            printer.directive(sink)?;
        }
    }
    printer.rest(sink)
}

struct Printer<'p, 'r> {
    format: &'p [u8],
    /// How much of the format is read.
    at: usize,
    values: &'p [Value<'r>],
    /// The argument of the next directive.
    next: usize,
    /// Whether a directive has chosen its argument.
    reordered: bool,
}

/// What the brackets of a directive say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// There are no brackets.
    None,
    /// They choose an argument.
    Valid,
    /// They hold a number, but there is no such argument.
    OutOfRange,
    /// They hold no number.
    Invalid,
}

// === impl Printer ===

impl Printer<'_, '_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Reads a directive behind its `%`, and writes what it stands for.
    fn directive(&mut self, sink: &mut Sink<'_>) -> Result<(), EvaluationError> {
        let mut flags = self.flags();
        let mut choice = self.choice(sink)?;
        let mut is_valid = choice.is_valid();
        if self.accept(b'*') {
            let width = self.number_argument();
            if width.is_none() {
                sink.write("%!(BADWIDTH)")?;
            }
            let is_negative = width.is_some_and(|width| width < 0);
            flags.minus |= is_negative;
            flags.zero &= !is_negative;
            flags.width = width.and_then(|width| usize::try_from(width.unsigned_abs()).ok());
            choice = Choice::None;
        } else {
            flags.width = self.number(self.format.len());
            is_valid &= !(choice.is_number() && flags.width.is_some());
        }
        if self.peek() == Some(b'.') && self.at + 1 < self.format.len() {
            self.at += 1;
            is_valid &= !choice.is_number();
            choice = self.choice(sink)?;
            is_valid &= choice.is_valid();
            if self.accept(b'*') {
                let precision = self.number_argument();
                flags.precision = precision.and_then(|precision| usize::try_from(precision).ok());
                if flags.precision.is_none() {
                    sink.write("%!(BADPREC)")?;
                }
                choice = Choice::None;
            } else {
                flags.precision = Some(self.number(self.format.len()).unwrap_or_default());
            }
        }
        if !choice.is_number() {
            is_valid &= self.choice(sink)?.is_valid();
        }
        self.verb(sink, flags, is_valid)
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        loop {
            match self.peek() {
                Some(b'#') => flags.sharp = true,
                Some(b'0') => flags.zero = true,
                Some(b'+') => flags.plus = true,
                Some(b'-') => flags.minus = true,
                Some(b' ') => flags.space = true,
                _ => return flags,
            }
            self.at += 1;
        }
    }

    /// Writes the next argument as the verb says.
    fn verb(&mut self, sink: &mut Sink<'_>, mut flags: Flags, is_valid: bool) -> Result<(), EvaluationError> {
        let rest = self.format.get(self.at..).unwrap_or_default();
        // A character takes four bytes at most.
        let rune = runes(rest.get(..4).unwrap_or(rest)).next();
        let Some(rune) = rune else { return sink.write("%!(NOVERB)") };
        self.at += rune.map_or(1, char::len_utf8);
        let verb = rune.unwrap_or(char::REPLACEMENT_CHARACTER);
        if verb == '%' {
            return sink.write("%");
        }
        let value = self.values.get(self.next).filter(|_| is_valid);
        let Some(value) = value else {
            sink.write("%!")?;
            sink.character(verb)?;
            return sink.write(if is_valid { "(MISSING)" } else { "(BADINDEX)" });
        };
        self.next += 1;
        if matches!(verb, 'v' | 'w') {
            flags = Flags { go_syntax: flags.sharp, sharp: false, plus: false, ..flags };
        }
        argument(sink, value, verb, &flags)
    }

    /// Writes the arguments that no directive used.
    fn rest(&self, sink: &mut Sink<'_>) -> Result<(), EvaluationError> {
        let unused = self.values.get(self.next..).unwrap_or_default();
        if self.reordered || unused.is_empty() {
            return Ok(());
        }
        sink.write("%!(EXTRA ")?;
        for (index, value) in unused.iter().enumerate() {
            if index > 0 {
                sink.write(", ")?;
            }
            if value.is_nil() {
                sink.write(NIL)?;
            } else {
                typed(sink, value, &Flags::default())?;
            }
        }
        sink.write(")")
    }

    /// A number up to some place of the format. A number that is far too large takes the rest of the format.
    fn number(&mut self, end: usize) -> Option<usize> {
        let mut number = None;
        while let Some(digit) = self.peek().filter(|digit| self.at < end && digit.is_ascii_digit()) {
            let before = number.unwrap_or(0_usize);
            if i64::try_from(before).is_ok_and(|before| before > MOST) {
                self.at = end;
                return None;
            }
            number = Some(before * 10 + usize::from(digit - b'0'));
            self.at += 1;
        }
        number
    }

    /// The next argument as a width or precision.
    fn number_argument(&mut self) -> Option<i64> {
        let number = match self.values.get(self.next)? {
            Value::Int(number) => Some(*number),
            Value::Byte(number) => Some(i64::from(*number)),
            _ => None,
        };
        self.next += 1;
        number.filter(|number| (-MOST..=MOST).contains(number))
    }

    /// Reads brackets, if there are any: the number of the next argument.
    fn choice(&mut self, sink: &mut Sink<'_>) -> Result<Choice, EvaluationError> {
        if self.peek() != Some(b'[') {
            return Ok(Choice::None);
        }
        self.reordered = true;
        let rest = self.format.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b']').filter(|_| rest.len() >= "[n]".len());
        // What is read here may be read again.
        sink.meter().bytes(length.unwrap_or(rest.len()))?;
        let Some(length) = length else {
            self.at += 1;
            return Ok(Choice::Invalid);
        };
        let end = self.at + length;
        self.at += 1;
        let number = self.number(end).filter(|_| self.at == end);
        self.at = end + 1;
        let Some(number) = number else { return Ok(Choice::Invalid) };
        match number.checked_sub(1).filter(|index| *index < self.values.len()) {
            Some(index) => {
                self.next = index;
                Ok(Choice::Valid)
            }
            None => Ok(Choice::OutOfRange),
        }
    }
}

// === impl Choice ===

impl Choice {
    /// Whether there is no choice, or one of an argument that exists.
    fn is_valid(self) -> bool {
        matches!(self, Self::None | Self::Valid)
    }

    /// Whether the brackets hold a number.
    fn is_number(self) -> bool {
        matches!(self, Self::Valid | Self::OutOfRange)
    }
}
