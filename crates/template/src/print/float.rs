//! Fractions in the formats of Go.

use super::pad::{self, Flags};
use crate::error::EvaluationError;
use crate::meter::Sink;

/// More digits than any fraction has. Behind them are zeros.
const MOST_DIGITS: usize = 1_100;
/// How many bits of a fraction are behind its point.
const FRACTION_BITS: u32 = 52;
/// The precision that decides between plain and exponent form if no other is given.
const DEFAULT_PRECISION: usize = 6;

/// Significant digits, and where the point is among them.
struct Decimal {
    negative: bool,
    // INVARIANT: ASCII digits, at least one.
    digits: String,
    /// The number is `0.digits` times ten to this power; one for zero.
    point: i32,
}

/// Writes a fraction, if the verb is for fractions.
pub(super) fn write(sink: &mut Sink<'_>, value: f64, verb: char, flags: &Flags) -> Result<bool, EvaluationError> {
    let precision = flags.precision;
    let text = match verb {
        'v' | 'g' | 'G' => general(value, precision, verb == 'G'),
        'e' | 'E' => exponent(
            &Decimal::rounded(value, precision.unwrap_or(DEFAULT_PRECISION)),
            verb,
            precision.unwrap_or(DEFAULT_PRECISION),
        ),
        'f' | 'F' => fixed(value, precision.unwrap_or(DEFAULT_PRECISION)),
        'b' => binary(value),
        'x' | 'X' => hexadecimal(value, precision, verb == 'X'),
        _ => return Ok(false),
    };
    // Each digit takes a pass over all bits of the number.
    sink.meter().steps(text.len().min(MOST_DIGITS))?;
    let text = if flags.sharp && verb != 'b' { with_point(&text, verb, precision) } else { text };
    pad::number(sink, text, flags)?;
    Ok(true)
}

/// A number as `json` writes it: plain, but for very small and very large ones.
pub(crate) fn shortest(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return value.to_string();
    }
    let decimal = Decimal::shortest(value);
    let text = exponent(&decimal, 'e', decimal.digits.len() - 1);
    // One digit of the exponent is enough, if it is negative.
    text.replace("e-0", "e-")
}

/// `%g`: plain, or with an exponent for small and large numbers.
fn general(value: f64, precision: Option<usize>, upper: bool) -> String {
    let decimal = match precision {
        None => Decimal::shortest(value),
        Some(precision) => Decimal::rounded(value, precision.max(1) - 1).trimmed(),
    };
    let count = decimal.digits.len();
    let limit = match precision {
        None => DEFAULT_PRECISION,
        Some(precision) => {
            let precision = precision.max(1);
            // A point within the digits, or before them.
            let is_within = usize::try_from(decimal.point).map_or(true, |point| point <= count);
            if precision > count && is_within { count } else { precision }
        }
    };
    let power = decimal.point - 1;
    if power < -4 || usize::try_from(power).is_ok_and(|power| power >= limit) {
        return exponent(&decimal, if upper { 'E' } else { 'e' }, count - 1);
    }
    decimal.plain()
}

/// `%e`: one digit, a point, so many digits, an exponent of at least two.
fn exponent(decimal: &Decimal, letter: char, precision: usize) -> String {
    let (first, rest) = decimal.digits.split_at_checked(1).unwrap_or(("0", ""));
    let sign = if decimal.negative { "-" } else { "" };
    let zeros = "0".repeat(precision.saturating_sub(rest.len()));
    let point = if precision > 0 { "." } else { "" };
    let power = decimal.point - 1;
    let direction = if power < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}{zeros}{letter}{direction}{:02}", power.unsigned_abs())
}

/// `%f`: no exponent, so many digits behind the point.
fn fixed(value: f64, precision: usize) -> String {
    let digits = precision.min(MOST_DIGITS);
    format!("{value:.digits$}{}", "0".repeat(precision - digits))
}

/// `%b`: the bits as an integer, and a power of two.
fn binary(value: f64) -> String {
    let (mantissa, power) = parts(value);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{mantissa}p{power:+}")
}

/// `%x`: hexadecimal digits and a power of two.
fn hexadecimal(value: f64, precision: Option<usize>, upper: bool) -> String {
    let (mut mantissa, mut power) = parts(value);
    power += FRACTION_BITS.cast_signed();
    if mantissa == 0 {
        power = 0;
    } else {
        let shift = mantissa.leading_zeros() - (63 - FRACTION_BITS);
        mantissa <<= shift;
        power -= shift.cast_signed();
    }
    let digits = usize::try_from(FRACTION_BITS / 4).unwrap_or_default();
    if let Some(dropped) = precision.and_then(|precision| digits.checked_sub(precision)) {
        let bits = u32::try_from(dropped * 4).unwrap_or_default();
        mantissa = rounded(mantissa, bits);
        if mantissa >> (FRACTION_BITS + 1) != 0 {
            mantissa >>= 1;
            power += 1;
        }
    }
    let fraction = format!("{:0digits$x}", mantissa & ((1 << FRACTION_BITS) - 1));
    let fraction = match precision {
        None => fraction.trim_end_matches('0').to_owned(),
        Some(precision) => fraction.chars().chain(std::iter::repeat('0')).take(precision).collect(),
    };
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    let direction = if power < 0 { '-' } else { '+' };
    let text = format!("{sign}0x{}{point}{fraction}p{direction}{:02}", mantissa >> FRACTION_BITS, power.unsigned_abs());
    if upper { text.to_uppercase() } else { text }
}

/// The bits of a number as an integer, and the power of two that they are multiplied with.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let mantissa = bits & ((1 << FRACTION_BITS) - 1);
    let exponent = i32::try_from((bits >> FRACTION_BITS) & 0x7ff).unwrap_or_default();
    // Without the bit that is not stored, a number is as small as the smallest that has it.
    let mantissa = if exponent == 0 { mantissa } else { mantissa | (1 << FRACTION_BITS) };
    (mantissa, exponent.max(1) - 1_075)
}

/// A number without its last bits, but with as many zeros: to the nearest, to the even one of two.
fn rounded(number: u64, bits: u32) -> u64 {
    if bits == 0 {
        return number;
    }
    let (rest, half) = (number & ((1 << bits) - 1), 1 << (bits - 1));
    let kept = number >> bits;
    let up = rest > half || (rest == half && kept & 1 == 1);
    (kept + u64::from(up)) << bits
}

/// What `#` does: there is always a point, and `%g` keeps its zeros.
fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let is_hex = matches!(verb, 'x' | 'X');
    let marks: [char; 2] = if is_hex { ['p', 'P'] } else { ['e', 'E'] };
    let (number, tail) = text.split_at(text.find(marks).unwrap_or(text.len()));
    let unsigned = number.trim_start_matches('-');
    let wanted = match verb {
        'v' | 'g' | 'G' | 'x' => precision.unwrap_or(DEFAULT_PRECISION),
        _ => 0,
    };
    // The `x` of the prefix counts like a digit, as it does in Go.
    let mut significant = unsigned.chars().filter(|next| *next != '.').skip_while(|next| *next == '0').count();
    if unsigned == "0" {
        significant += 1;
    }
    let point = if number.contains('.') { "" } else { "." };
    format!("{number}{point}{}{tail}", "0".repeat(wanted.saturating_sub(significant)))
}

// === impl Decimal ===

impl Decimal {
    /// The fewest digits that give the number back.
    fn shortest(value: f64) -> Self {
        Self::read(&format!("{value:e}"))
    }

    /// One digit and so many more.
    fn rounded(value: f64, more: usize) -> Self {
        let more = more.min(MOST_DIGITS);
        Self::read(&format!("{value:.more$e}"))
    }

    /// Reads what the standard library writes with an exponent.
    fn read(text: &str) -> Self {
        let (digits, power) = text.split_once('e').unwrap_or((text, "0"));
        let (negative, digits) = digits.strip_prefix('-').map_or((false, digits), |digits| (true, digits));
        Self { negative, digits: digits.replace('.', ""), point: power.parse::<i32>().unwrap_or_default() + 1 }
    }

    /// Without zeros at the end.
    fn trimmed(mut self) -> Self {
        let length = self.digits.trim_end_matches('0').len().max(1);
        self.digits.truncate(length);
        self
    }

    /// Without an exponent.
    fn plain(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        match usize::try_from(self.point) {
            Ok(point) if point > 0 => match self.digits.split_at_checked(point) {
                Some((whole, "")) => format!("{sign}{whole}"),
                Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
                None => format!("{sign}{}{}", self.digits, "0".repeat(point - self.digits.len())),
            },
            _ => {
                let zeros = usize::try_from(self.point.unsigned_abs()).unwrap_or_default();
                format!("{sign}0.{}{}", "0".repeat(zeros), self.digits)
            }
        }
    }
}
