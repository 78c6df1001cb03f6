//! Labels, as Prometheus and a collector want them.

use skep_telemetry::KeyValue;

/// The longest label that a client can choose, in bytes.
pub(super) const LABEL: usize = 128;

/// Labels with names that are derived from those of OpenTelemetry.
pub(super) type NamedLabels = Vec<(String, String)>;

/// Labels as attributes.
pub(super) fn attributes(labels: &[(&'static str, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::new(*name, value.clone())).collect()
}

/// Labels as Prometheus writes their names.
pub(super) fn underscored(labels: &[(&'static str, String)]) -> NamedLabels {
    labels.iter().map(|(name, value)| (name.replace('.', "_"), value.clone())).collect()
}

/// A label of a bounded length: clients choose it.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= LABEL {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LABEL - 3);
    format!("{}...", text.get(..end).unwrap_or_default())
}
