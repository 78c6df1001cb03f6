//! Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.

use std::str::FromStr;

/// An amount. Two texts for the same amount are equal: `1` and `1000m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    /// In billionths, which is as fine as quantities get; a smaller part is rounded away from zero.
    billionths: i128,
}

/// A text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity; write a number with a unit or none, such as `500m`, `2`, `256Mi` or `1.5Gi`")]
pub struct QuantityError(pub String);

/// Units by powers of ten.
const DECIMAL: &[(&str, i32)] =
    &[("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Units by powers of two.
const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// What a unit multiplies by.
#[derive(Clone, Copy)]
struct Factor {
    ten: i32,
    two: u32,
}

/// No exponent beyond this makes a difference: the amount is then more, or less, than can be counted.
const LARGEST_EXPONENT: i32 = 100;
/// How many digits behind the point count; the others only round up.
const FRACTION_DIGITS: usize = 18;

// === impl Quantity ===

impl Quantity {
    /// The amount in billionths.
    pub fn billionths(self) -> i128 {
        self.billionths
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let refused = || QuantityError(text.to_owned());
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(unsigned.len());
        let (number, unit) = unsigned.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if part.contains('.') || (whole.is_empty() && part.is_empty()) {
            return Err(refused());
        }
        let factor = factor(unit).ok_or_else(refused)?;
        let size = billionths(whole, part, factor);
        Ok(Self { billionths: if negative { -size } else { size } })
    }
}

fn factor(unit: &str) -> Option<Factor> {
    if let Some((_, ten)) = DECIMAL.iter().find(|(name, _)| *name == unit) {
        return Some(Factor { ten: *ten, two: 0 });
    }
    if let Some((_, two)) = BINARY.iter().find(|(name, _)| *name == unit) {
        return Some(Factor { ten: 0, two: *two });
    }
    let exponent: i64 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    let largest = i64::from(LARGEST_EXPONENT);
    let ten = i32::try_from(exponent.clamp(-largest, largest)).ok()?;
    Some(Factor { ten, two: 0 })
}

/// The amount, as large as can be counted at most.
fn billionths(whole: &str, part: &str, factor: Factor) -> i128 {
    let (whole, part) = shifted(whole, part, factor.ten);
    let power = 1_i128 << factor.two;
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(FRACTION_DIGITS).collect();
    let more = i128::from(part.bytes().skip(FRACTION_DIGITS).any(|digit| digit != b'0'));
    let upper = whole.parse::<i128>().ok().and_then(|whole| whole.checked_mul(power)?.checked_mul(1_000_000_000));
    // A billion of the smallest parts that count make a billionth.
    let lower = digits.parse::<i128>().unwrap_or_default() * power + more;
    let lower = lower / 1_000_000_000 + i128::from(lower % 1_000_000_000 > 0);
    upper.and_then(|upper| upper.checked_add(lower)).unwrap_or(i128::MAX)
}

/// Moves the point.
fn shifted(whole: &str, part: &str, ten: i32) -> (String, String) {
    let places = usize::try_from(ten.unsigned_abs()).unwrap_or_default();
    let zeros = "0".repeat(places);
    if ten >= 0 {
        let digits = format!("{part}{zeros}");
        let (left, right) = digits.split_at(places);
        (format!("0{whole}{left}"), right.trim_end_matches('0').to_owned())
    } else {
        let digits = format!("{zeros}{whole}");
        let (left, right) = digits.split_at(digits.len() - places);
        (format!("0{left}"), format!("{right}{part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Kubernetes' own parser makes of texts; `nanos` is null for a text that it refuses.
    const GOLDEN: &str = include_str!("quantities.json");

    #[test]
    fn quantities_are_read_as_kubernetes_does() {
        let cases: Vec<serde_json::Value> = serde_json::from_str(GOLDEN).unwrap();
        assert!(cases.len() > 90);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let expected: Option<i128> = case["nanos"].as_str().map(|nanos| nanos.parse().unwrap());
            let read = text.parse::<Quantity>().ok().map(Quantity::billionths);
            assert_eq!(read, expected, "`{text}`");
        }
    }

    #[test]
    fn quantities_without_a_number_are_refused() {
        for text in [".", "+", "-", "m", "Ki", "e3"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        let error = "much".parse::<Quantity>().unwrap_err().to_string();
        assert!(error.starts_with("`much` is not a quantity; write"), "{error}");
    }

    #[test]
    fn quantities_are_compared_as_amounts() {
        let quantity = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(quantity("1"), quantity("1000m"));
        assert_eq!(quantity("1Gi"), quantity("1024Mi"));
        assert!(quantity("1G") < quantity("1Gi"));
        assert!(quantity("-1") < quantity("0"));
        assert!(quantity("1e99") > quantity("1E"));
        assert!(quantity("1e99999") >= quantity("1e99"));
    }
}
