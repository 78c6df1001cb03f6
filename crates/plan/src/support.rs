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

/// Refuses a kind that the configured image does not run at all.
pub(crate) fn check_kind(feature: Feature, settings: &Settings) -> Result<(), PlanError> {
    if settings.unsupported.contains(&feature) { Err(PlanError::Unsupported(unsupported(feature))) } else { Ok(()) }
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
    format!("{}: {feature} is not supported by the configured image of Skep", feature.field())
}
