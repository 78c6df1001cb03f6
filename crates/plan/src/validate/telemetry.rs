//! `MCPTelemetryConfig`: something to send, over a connection that can be trusted, and headers that are there once.

use std::collections::BTreeSet;

use skep_api::kinds::{MCPTelemetryConfigSpec, OpenTelemetry};

use super::Problems;
use crate::text::{check_header_name, sanitise};

pub(super) fn problems(spec: &MCPTelemetryConfigSpec) -> Problems {
    let mut problems = Problems::default();
    if let Some(otel) = &spec.open_telemetry {
        problems.under("spec.openTelemetry", of_exporter(otel));
    }
    problems
}

fn of_exporter(otel: &OpenTelemetry) -> Problems {
    let mut problems = Problems::default();
    let tracing = otel.tracing.as_ref().is_some_and(|tracing| tracing.enabled);
    let metrics = otel.metrics.as_ref().is_some_and(|metrics| metrics.enabled);
    let endpoint = otel.endpoint.as_deref().unwrap_or_default();
    let useful = endpoint.is_empty() || tracing || metrics;
    problems.unless(useful, ".endpoint", "nothing is sent there; set tracing.enabled or metrics.enabled, or remove it");
    let advice =
        "not the address of a collector; write a host and a port, such as otel-collector.monitoring:4318, or a URL";
    problems.unless(is_collector(endpoint), ".endpoint", advice);
    for name in otel.headers.keys() {
        problems.check(".headers", check_header_name(name));
    }
    let mut seen = BTreeSet::new();
    for (index, header) in otel.sensitive_headers.iter().enumerate() {
        let place = format!(".sensitiveHeaders[{index}]");
        let name = &header.name;
        problems.check(format_args!("{place}.name"), check_header_name(name));
        problems.secret(format_args!("{place}.secretKeyRef"), Some(&header.secret_key_ref));
        let open = otel.headers.keys().any(|other| other.eq_ignore_ascii_case(name));
        problems.unless(!open, &place, format_args!("header `{name}` stands in headers too; keep it in one of them"));
        // Each value travels in a variable of the environment that is named after its header.
        let fresh = seen.insert(sanitise(name));
        problems.unless(
            fresh,
            &place,
            format_args!("header `{name}` is as good as an earlier one; remove one of them"),
        );
    }
    problems.ca_bundle(".caBundleRef", otel.ca_bundle_ref.as_ref());
    let contradicts = otel.insecure && otel.ca_bundle_ref.is_some();
    problems.unless(!contradicts, ".caBundleRef", "there is no TLS while insecure is true; remove one of them");
    problems
}

/// Whether a text is a host, perhaps with a port and a path, or a URL of one. A proxy refuses to start with any other.
fn is_collector(endpoint: &str) -> bool {
    let rest = match endpoint.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        Some(_) => return false,
        None => endpoint,
    };
    let is_plain =
        !rest.contains(|one: char| one.is_whitespace() || one.is_control() || matches!(one, '@' | '?' | '#'));
    endpoint.is_empty() || is_plain && !rest.is_empty() && !rest.starts_with(['/', ':'])
}
