//! `time`: what time it is, at an offset from UTC.

use jiff::tz::Offset;
use serde_json::{Value, json};

use super::{Arguments, Tool, text};
use crate::server::Surroundings;

pub(super) const TOOL: Tool = Tool {
    name: "time",
    title: "Current time",
    description: "Returns the current time in UTC, or at an offset from it.",
    repeats: false,
    arguments: || {
        json!({
            "offset": {
                "type": "string",
                "description": "UTC, or an offset from it such as +02:00 or -05:30.",
                "default": "UTC",
            },
        })
    },
    required: &[],
    output: || {
        json!({
            "time": { "type": "string", "format": "date-time", "description": "The time, as RFC 3339 writes it." },
            "weekday": { "type": "string", "description": "The day of the week, in English." },
            "unixSeconds": { "type": "integer", "description": "Seconds since 1970-01-01T00:00:00Z." },
        })
    },
    run,
};

fn run(arguments: &Arguments, surroundings: &Surroundings) -> Result<Value, String> {
    let wanted = text(arguments, "offset")?.unwrap_or("UTC");
    let offset = offset(wanted)
        .ok_or_else(|| format!("`{wanted}` is not an offset; write UTC, or one such as +02:00 (at most 23:59)"))?;
    let now = (surroundings.now)();
    let there = now.to_zoned(offset.to_time_zone());
    Ok(json!({
        "time": there.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "weekday": there.strftime("%A").to_string(),
        "unixSeconds": now.as_second(),
    }))
}

fn offset(text: &str) -> Option<Offset> {
    if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("z") {
        return Some(Offset::UTC);
    }
    let (sign, digits) = match text.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, text.strip_prefix('-')?),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let seconds = number(hours, 23)? * 3600 + number(minutes, 59)? * 60;
    Offset::from_seconds(sign * seconds).ok()
}

/// Two digits.
fn number(text: &str, most: i32) -> Option<i32> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}
