//! The levels of a log.

/// The levels of a log, the quietest first.
const LEVELS: [&str; 8] = ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// How much of the log a level lets through: the more, the greater. One that is unknown lets everything through.
pub(crate) fn level_of(name: &str) -> u8 {
    LEVELS.iter().position(|known| *known == name).and_then(|place| u8::try_from(place).ok()).unwrap_or(7)
}

/// Whether there is such a level.
pub fn is_level(name: &str) -> bool {
    LEVELS.contains(&name)
}

/// The name of a level.
pub(super) fn level_name(level: u8) -> &'static str {
    LEVELS.get(usize::from(level)).copied().unwrap_or("debug")
}
