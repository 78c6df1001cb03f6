//! What the data plane of the configured images cannot do: refused at plan time, or reported as not in force. Never a crash loop, and
//! never only a line in a log.

use skep_runconfig::RunConfig;
use skep_runconfig::feature::Feature;

use crate::error::{NOT_SUPPORTED, PlanError};
use crate::status::Status;
use crate::world::Settings;

/// Refuses a document that asks for what its proxy could not enforce or record: the proxy would not start.
pub(crate) fn check(config: &RunConfig, settings: &Settings) -> Result<(), PlanError> {
    let needed = Feature::needed(config);
    let missing = needed.iter().filter(|feature| settings.unsupported.contains(feature) && !feature.only_observes());
    let missing: Vec<String> = missing.map(|feature| unsupported(*feature)).collect();
    if missing.is_empty() { Ok(()) } else { Err(PlanError::Unsupported(missing.join("; "))) }
}

/// Refuses a virtual server that asks for what the configured image cannot do: each feature with the field that requests it.
pub(crate) fn check_virtual(needed: &[(Feature, String)], settings: &Settings) -> Result<(), PlanError> {
    let missing = needed.iter().filter(|(feature, _)| is_lacked_by_vmcp(*feature, settings));
    let missing: Vec<String> = missing.map(|(feature, field)| unsupported_at(field, *feature)).collect();
    if missing.is_empty() { Ok(()) } else { Err(PlanError::Unsupported(missing.join("; "))) }
}

/// Whether the virtual servers of the configured image lack a feature.
pub(crate) fn is_lacked_by_vmcp(feature: Feature, settings: &Settings) -> bool {
    settings.unsupported_by_vmcp.as_ref().is_some_and(|lacked| lacked.contains(&feature))
}

/// Says of what only observes calls, is configured and is not supported, that it is not in force.
pub(crate) fn report(status: &mut Status, configured: &[(Feature, bool)], settings: &Settings) {
    for (feature, is_configured) in configured {
        let condition = match feature {
            Feature::Tracing => "TracingInForce",
            Feature::MetricsExport => "MetricsExportInForce",
            _ => continue,
        };
        if *is_configured && settings.unsupported.contains(feature) {
            let message = format!("{}; remove it, or use an image that supports it", unsupported(*feature));
            status.condition(condition, false, NOT_SUPPORTED, message);
        }
    }
}

fn unsupported(feature: Feature) -> String {
    unsupported_at(feature.field(), feature)
}

/// The message about a feature that a field requests.
pub(crate) fn unsupported_at(field: &str, feature: Feature) -> String {
    format!("{field}: {feature} is not supported by the configured image of Skep")
}
