//! Strings, characters and numbers, as Go writes them.

use crate::tree::Term;

/// Why a number cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    Invalid,
    Imaginary,
}

/// The bytes of a string in double quotes or backquotes, or none if it has an invalid escape.
pub(crate) fn string(text: &str) -> Option<Vec<u8>> {
    if let Some(raw) = text.strip_prefix('`') {
        return Some(raw.strip_suffix('`')?.bytes().filter(|byte| *byte != b'\r').collect());
    }
    let mut rest = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let (unit, behind) = unit(rest, '"')?;
        match unit {
            Unit::Byte(byte) => bytes.push(byte),
            Unit::Character(character) => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
        rest = behind;
    }
    Some(bytes)
}

/// The number of a character in single quotes.
pub(crate) fn character(text: &str) -> Option<i64> {
    let (unit, behind) = unit(text.strip_prefix('\'')?, '\'')?;
    let number = match unit {
        Unit::Byte(byte) => i64::from(byte),
        Unit::Character(character) => i64::from(u32::from(character)),
    };
    (behind == "'").then_some(number)
}

/// A character of a string, or a byte that an escape gives.
enum Unit {
    Byte(u8),
    Character(char),
}

/// The first character or escape of a text, and what stands behind it.
fn unit(text: &str, quote: char) -> Option<(Unit, &str)> {
    let mut characters = text.chars();
    let first = characters.next().filter(|first| *first != quote)?;
    if first != '\\' {
        return Some((Unit::Character(first), characters.as_str()));
    }
    let kind = characters.next()?;
    let rest = characters.as_str();
    let character = |character: char| Some((Unit::Character(character), rest));
    match kind {
        'a' => character('\u{7}'),
        'b' => character('\u{8}'),
        'f' => character('\u{c}'),
        'n' => character('\n'),
        'r' => character('\r'),
        't' => character('\t'),
        'v' => character('\u{b}'),
        '\\' => character('\\'),
        '"' | '\'' if kind == quote => character(kind),
        'x' => {
            let (code, rest) = code(rest, 2, 16)?;
            Some((Unit::Byte(u8::try_from(code).ok()?), rest))
        }
        '0'..='7' => {
            let (code, rest) = code(text.get(1..)?, 3, 8)?;
            Some((Unit::Byte(u8::try_from(code).ok()?), rest))
        }
        'u' | 'U' => {
            let (code, rest) = code(rest, if kind == 'u' { 4 } else { 8 }, 16)?;
            Some((Unit::Character(char::from_u32(code)?), rest))
        }
        _ => None,
    }
}

/// A number of so many digits, and what stands behind it.
fn code(text: &str, digits: usize, radix: u32) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let code =
        digits.chars().try_fold(0_u32, |code, digit| code.checked_mul(radix)?.checked_add(digit.to_digit(radix)?));
    Some((code?, rest))
}

/// The value of a number: an integer, unless it is written as a fraction or with an exponent.
pub(crate) fn number(text: &str) -> Result<Term, NumberError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    if text.ends_with('i') {
        return Err(NumberError::Imaginary);
    }
    let is_hex = |text: &str| text.starts_with("0x") || text.starts_with("0X");
    let has_exponent = text.contains(['p', 'P']);
    let magnitude = separated(unsigned).and_then(|digits| integer(&digits));
    let Some(magnitude) = magnitude else {
        let is_fraction = text.contains(['.', 'e', 'E']) || has_exponent;
        return fraction(unsigned, is_negative).filter(|_| is_fraction).map(Term::Float).ok_or(NumberError::Invalid);
    };
    let value = if is_negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    match i64::try_from(value) {
        // A digit `e` of a hexadecimal number with a sign counts as an exponent, and makes it a fraction.
        Ok(integer) if text.contains(['e', 'E']) && !is_hex(text) => Ok(Term::Float(approximate(i128::from(integer)))),
        Ok(integer) => Ok(Term::Int(integer)),
        Err(_) if text == unsigned => Ok(Term::Overflow(text.into())),
        Err(_) => Err(NumberError::Invalid),
    }
}

/// The nearest fraction to an integer.
#[expect(clippy::cast_precision_loss, reason = "the nearest fraction is wanted")]
pub(crate) fn approximate(integer: i128) -> f64 {
    integer as f64
}

/// A number without the `_` that separate its digits, or none if one of them stands elsewhere.
fn separated(text: &str) -> Option<String> {
    let prefix =
        text.get(..2).filter(|prefix| ["0x", "0o", "0b"].iter().any(|known| prefix.eq_ignore_ascii_case(known)));
    let is_hex = prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    let is_digit = |next: char| next.is_ascii_digit() || (is_hex && next.is_ascii_hexdigit());
    let rest = text.get(prefix.map_or(0, str::len)..)?;
    // A prefix counts as a digit.
    let mut previous = if prefix.is_some() { '0' } else { ' ' };
    for next in rest.chars().chain([' ']) {
        let is_misplaced = (next == '_' && !is_digit(previous)) || (previous == '_' && !is_digit(next));
        if is_misplaced {
            return None;
        }
        previous = next;
    }
    Some(text.replace('_', ""))
}

/// An integer without sign, in the base that its prefix names.
fn integer(digits: &str) -> Option<u64> {
    let prefixed = |prefix: &str| {
        let (found, rest) = digits.split_at_checked(prefix.len())?;
        found.eq_ignore_ascii_case(prefix).then_some(rest)
    };
    let (digits, radix) = if let Some(rest) = prefixed("0x") {
        (rest, 16)
    } else if let Some(rest) = prefixed("0o") {
        (rest, 8)
    } else if let Some(rest) = prefixed("0b") {
        (rest, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    // `from_str_radix` takes a sign as well.
    digits.chars().all(|digit| digit.is_digit(radix)).then(|| u64::from_str_radix(digits, radix).ok())?
}

/// A fraction without sign.
fn fraction(text: &str, is_negative: bool) -> Option<f64> {
    let digits = separated(text)?;
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(rest) => hexadecimal_fraction(rest)?,
        None => digits
            .parse::<f64>()
            .ok()
            .filter(|_| digits.starts_with(|first: char| first.is_ascii_digit() || first == '.'))?,
    };
    let value = if is_negative { -value } else { value };
    value.is_finite().then_some(value)
}

/// A fraction such as `1.8p-1`: hexadecimal digits, and a power of two.
fn hexadecimal_fraction(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let exponent = exponent.parse::<i32>().ok()?.clamp(-100_000, 100_000);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let (mut mantissa, mut shift) = (0_u64, exponent);
    let count = whole.len() + part.len();
    for (index, digit) in whole.chars().chain(part.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_part = index >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            shift -= if is_part { 4 } else { 0 };
        } else {
            // Digits beyond the precision only decide how the last bit is rounded.
            mantissa |= u64::from(digit != 0);
            shift += if is_part { 0 } else { 4 };
        }
    }
    // Two steps, so that a power beyond the range of a fraction does not hide a small mantissa.
    let half = shift / 2;
    let value = approximate(i128::from(mantissa)) * 2_f64.powi(half) * 2_f64.powi(shift - half);
    (count > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> String {
        match number(text) {
            Ok(Term::Int(value)) => format!("int {value}"),
            Ok(Term::Float(value)) => format!("float {value:?}"),
            Ok(Term::Overflow(_)) => "overflow".to_owned(),
            Ok(_) => "another term".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn numbers_are_written_as_in_go() {
        let cases = [
            ("0", "int 0"),
            ("+5", "int 5"),
            ("-9223372036854775808", "int -9223372036854775808"),
            ("9223372036854775808", "overflow"),
            ("-9223372036854775809", "Invalid"),
            ("18446744073709551616", "Invalid"),
            ("0755", "int 493"),
            ("089", "Invalid"),
            ("089.5", "float 89.5"),
            ("0x1F", "int 31"),
            ("0X_1f", "int 31"),
            ("0b101", "int 5"),
            ("0o17", "int 15"),
            ("0x", "Invalid"),
            ("1_000", "int 1000"),
            ("1__000", "Invalid"),
            ("_1", "Invalid"),
            ("1_", "Invalid"),
            ("1_0.2_5", "float 10.25"),
            ("1_.5", "Invalid"),
            ("1.", "float 1.0"),
            (".5", "float 0.5"),
            ("-.5e1", "float -5.0"),
            ("1e", "Invalid"),
            ("1e999", "Invalid"),
            ("1e-999", "float 0.0"),
            ("0x1e", "int 30"),
            ("-0x1e", "float -30.0"),
            ("0x1p4", "float 16.0"),
            ("0x1.8p-1", "float 0.75"),
            ("0x.8p1", "float 1.0"),
            ("0x1.8", "Invalid"),
            ("0xp1", "Invalid"),
            ("0x1p99999", "Invalid"),
            ("0x123456789abcdef01234p0", "float 8.596805828370696e22"),
            ("2i", "Imaginary"),
            ("-", "Invalid"),
            ("infinity", "Invalid"),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn strings_and_characters_know_the_escapes_of_go() {
        assert_eq!(
            string(r#""a\x41\101é\u00e9\U0001F600\"\\\a\b\f\n\r\t\v""#).unwrap(),
            "aAAéé😀\"\\\u{7}\u{8}\u{c}\n\r\t\u{b}".as_bytes()
        );
        assert_eq!(string(r#""\xff""#).unwrap(), [0xff]);
        assert_eq!(string("`a\\n\r\nb`").unwrap(), b"a\\n\nb");
        for wrong in [r#""\'""#, r#""\400""#, r#""\x4""#, r#""\ud800""#, r#""\U00110000""#, r#""\q""#, r#""\8""#] {
            assert_eq!(string(wrong), None, "{wrong}");
        }
        assert_eq!(character("'a'"), Some(97));
        assert_eq!(character(r"'\''"), Some(39));
        assert_eq!(character(r"'\xff'"), Some(255));
        assert_eq!(character("'é'"), Some(233));
        for wrong in ["''", "'ab'", r#"'\"'"#, "'"] {
            assert_eq!(character(wrong), None, "{wrong}");
        }
    }
}
