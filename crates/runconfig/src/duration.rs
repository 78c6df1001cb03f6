//! Durations as Go reads and writes them: `1h30m`, `1.5s`, `250ms`, to the nanosecond.

use std::fmt::{self, Display, Write as _};
use std::str::FromStr;
use std::time::Duration;

/// A duration, possibly negative, of at most some 292 years: what fits Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    /// How many nanoseconds it has.
    pub nanoseconds: i64,
}

/// A text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is not written as one.
    #[error("`{0}` is not a duration; write numbers with a unit (ns, us, ms, s, m or h), such as `30s` or `1h30m`")]
    Malformed(String),
    /// It is longer than can be counted.
    #[error("`{0}` is too long; a duration can be at most some 2562047h (292 years)")]
    TooLong(String),
}

const SECOND: u128 = 1_000_000_000;

/// The units, the longest one first. Both signs for "micro" are in use.
const UNITS: &[(&str, u128)] = &[
    ("h", 3600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
];

// === impl GoDuration ===

impl GoDuration {
    /// A number of whole seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { nanoseconds: seconds.saturating_mul(1_000_000_000) }
    }

    /// As the standard library's type, which has no negative ones.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.nanoseconds).ok().map(Duration::from_nanos)
    }

    /// The whole seconds in it; a part of a second is dropped.
    pub const fn whole_seconds(self) -> i64 {
        self.nanoseconds / 1_000_000_000
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let malformed = || DurationError::Malformed(text.to_owned());
        let too_long = || DurationError::TooLong(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut total: u128 = 0;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (part, after) = after.strip_prefix('.').map_or(("", after), digits);
            if whole.is_empty() && part.is_empty() {
                return Err(malformed());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let unit = UNITS.iter().find_map(|(unit, size)| (*unit == name).then_some(*size)).ok_or_else(malformed)?;
            let count: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
            let length = count.checked_mul(unit).and_then(|length| length.checked_add(fraction(part, unit)));
            total = length.and_then(|length| total.checked_add(length)).ok_or_else(too_long)?;
            rest = after;
        }
        let total = i128::try_from(total).map_err(|_| too_long())?;
        let nanoseconds = i64::try_from(if negative { -total } else { total }).map_err(|_| too_long())?;
        Ok(Self { nanoseconds })
    }
}

/// The digits at the start of a text, and what follows them.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The digits behind a point, in nanoseconds; those that no longer fit are dropped. It is rounded as Go does.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is a part of a unit, and so small"
)]
fn fraction(digits: &str, unit: u128) -> u128 {
    let mut value: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes() {
        let longer = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        let Some(longer) = longer.filter(|longer| i64::try_from(*longer).is_ok()) else { break };
        value = longer;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u128
}

/// As Go writes it: in hours, minutes and seconds from one second on, otherwise in the largest unit that fits.
impl Display for GoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = u128::from(self.nanoseconds.unsigned_abs());
        if self.nanoseconds < 0 {
            formatter.write_char('-')?;
        }
        if size == 0 {
            return formatter.write_str("0s");
        }
        if size < SECOND {
            let (unit, name) = match size {
                ..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "\u{b5}s"),
                _ => (1_000_000, "ms"),
            };
            return write!(formatter, "{}{name}", decimal(size, unit));
        }
        let (hours, minutes) = (size / (3600 * SECOND), size / (60 * SECOND) % 60);
        if hours > 0 {
            write!(formatter, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(formatter, "{minutes}m")?;
        }
        write!(formatter, "{}s", decimal(size % (60 * SECOND), SECOND))
    }
}

/// `size / unit` with as many digits behind the point as it takes. `unit` is a power of ten.
fn decimal(size: u128, unit: u128) -> String {
    let (whole, part) = (size / unit, size % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}
