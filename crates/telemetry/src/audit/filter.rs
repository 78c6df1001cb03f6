//! Which events are written.

use super::kind::EventType;

/// Which types of events are written. Exclusion wins over inclusion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Empty means all.
    included: Vec<EventType>,
    excluded: Vec<EventType>,
}

/// A configuration lists a type that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{list}[{index}]: `{name}` is not an event type; use one of {}", EventType::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownEventTypeError {
    list: &'static str,
    index: usize,
    name: String,
}

// === impl EventFilter ===

impl EventFilter {
    /// The filter of the lists `eventTypes` and `excludeEventTypes`.
    pub fn new(included: &[String], excluded: &[String]) -> Result<Self, UnknownEventTypeError> {
        Ok(Self { included: read("eventTypes", included)?, excluded: read("excludeEventTypes", excluded)? })
    }

    /// Whether events of a type are written.
    pub fn writes(&self, kind: EventType) -> bool {
        (self.included.is_empty() || self.included.contains(&kind)) && !self.excluded.contains(&kind)
    }
}

fn read(list: &'static str, names: &[String]) -> Result<Vec<EventType>, UnknownEventTypeError> {
    let known = |(index, name): (usize, &String)| {
        EventType::named(name).ok_or_else(|| UnknownEventTypeError {
            list,
            index,
            name: name.chars().take(64).collect(),
        })
    };
    names.iter().enumerate().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(included: &[&str], excluded: &[&str]) -> Result<EventFilter, UnknownEventTypeError> {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        EventFilter::new(&texts(included), &texts(excluded))
    }

    #[test]
    fn exclusion_wins_and_an_empty_list_means_all() {
        let all = filter(&[], &[]).unwrap();
        assert!(all.writes(EventType::McpPing) && all.writes(EventType::SseConnection));
        let some = filter(&["mcp_ping", "sse_connection"], &["mcp_ping"]).unwrap();
        assert!(some.writes(EventType::SseConnection));
        assert!(!some.writes(EventType::McpPing) && !some.writes(EventType::McpToolCall));
        assert!(!filter(&[], &["mcp_ping"]).unwrap().writes(EventType::McpPing));
    }

    #[test]
    fn a_type_that_does_not_exist_is_named_with_its_place() {
        let error = filter(&["mcp_ping", "nonsense"], &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("eventTypes[1]: `nonsense` is not an event type; use one of mcp_initialize, "),
            "{error}"
        );
        let error = filter(&[], &["audit_events_dropped"]).unwrap_err().to_string();
        assert!(error.starts_with("excludeEventTypes[0]: "), "{error}");
    }
}
