//! Moments, as annotations hold them: RFC 3339.

use jiff::Timestamp;

/// A text is not a timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as RFC 3339 does, such as `2026-01-31T12:00:00Z`")]
pub struct TimestampError(pub String);

/// Reads a moment.
pub fn timestamp(text: &str) -> Result<Timestamp, TimestampError> {
    let refused = || TimestampError(text.to_owned());
    if !has_form(text.as_bytes()) {
        return Err(refused());
    }
    text.parse().map_err(|_| refused())
}

/// Whether a text is a moment.
pub fn is_timestamp(text: &str) -> bool {
    timestamp(text).is_ok()
}

/// Whether what is asked for is later than what was done last. What was done last may be unknown or unreadable.
pub fn is_newer(asked: &str, done: Option<&str>) -> Result<bool, TimestampError> {
    let asked = timestamp(asked)?;
    Ok(done.and_then(|done| timestamp(done).ok()).is_none_or(|done| asked > done))
}

/// `0000-00-00T00:00:00`, perhaps a fraction, and `Z` or `+00:00`. The parser takes more than that.
fn has_form(text: &[u8]) -> bool {
    let fits = |text: &[u8], form: &[u8]| {
        let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
        text.len() == form.len() && text.iter().zip(form).all(fits)
    };
    let Some((moment, rest)) = text.split_at_checked(19) else { return false };
    let rest = match rest.split_first() {
        Some((b'.', digits)) => {
            let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            digits.split_at_checked(length).filter(|_| length > 0).map_or(rest, |(_, zone)| zone)
        }
        _ => rest,
    };
    fits(moment, b"0000-00-00T00:00:00") && (rest == b"Z" || fits(rest, b"+00:00") || fits(rest, b"-00:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_rfc_3339_writes_them() {
        for good in ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00+02:00"] {
            assert!(is_timestamp(good), "{good}");
        }
        for bad in [
            "",
            "now",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-01-31t12:00:00z",
            "2026-13-31T12:00:00Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00Z",
            "2026-01-31T12:00:00Z[UTC]",
            "2026-01-31T12:00:00+0200",
            "2026-02-30T12:00:00Z",
            "１026-01-31T12:00:00Z",
        ] {
            assert!(!is_timestamp(bad), "{bad}");
        }
    }

    #[test]
    fn moments_are_compared_as_moments() {
        let earlier = "2026-01-31T12:00:00+02:00";
        let later = "2026-01-31T10:30:00Z";
        assert_eq!(is_newer(later, Some(earlier)), Ok(true));
        assert_eq!(is_newer(earlier, Some(later)), Ok(false));
        assert_eq!(is_newer(later, Some(later)), Ok(false));
        assert_eq!(is_newer(later, None), Ok(true));
        assert_eq!(is_newer(later, Some("nonsense")), Ok(true));
        assert!(is_newer("nonsense", None).unwrap_err().to_string().contains("`nonsense` is not a time"));
    }
}
