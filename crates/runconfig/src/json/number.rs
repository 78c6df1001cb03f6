//! Numbers as their digits, and how Go writes a floating-point number.

/// A JSON number. It is kept as text, so that no digit is lost between reading and writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(String);

/// Below this and from the other one on, Go writes an exponent.
const SMALLEST_WITHOUT_EXPONENT: f64 = 1e-6;
const SMALLEST_WITH_EXPONENT: f64 = 1e21;

impl Number {
    /// INVARIANT: `digits` is a JSON number.
    pub(super) fn from_digits(digits: &str) -> Self {
        Self(digits.to_owned())
    }

    /// A floating-point number with as few digits as distinguish it from its neighbours. JSON has none for infinity.
    pub fn from_f64(number: f64) -> Option<Self> {
        if !number.is_finite() {
            return None;
        }
        let size = number.abs();
        if size == 0.0 || (SMALLEST_WITHOUT_EXPONENT..SMALLEST_WITH_EXPONENT).contains(&size) {
            return Some(Self(number.to_string()));
        }
        let text = format!("{number:e}");
        let signed = if text.contains("e-") { text } else { text.replace('e', "e+") };
        Some(Self(signed))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole number that this is.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The nearest floating-point number.
    pub fn as_f64(&self) -> Option<f64> {
        self.0.parse().ok()
    }
}

impl From<i64> for Number {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}
