//! What is written down about calls: the audit log, traces, metrics.

use std::collections::BTreeMap;

use crate::document::document;

document! {
    /// The audit log.
    pub struct AuditConfig {
        /// Whether there is one. The presence of the document counts, not this.
        pub enabled: bool = if_set "enabled",
        /// The component that events name.
        pub component: String = if_set "component",
        /// The events that are written. Empty means all.
        pub event_types: Vec<String> = if_set "eventTypes",
        /// The events that are not.
        pub exclude_event_types: Vec<String> = if_set "excludeEventTypes",
        /// Whether events carry the request.
        pub include_request_data: bool = if_set "includeRequestData",
        /// Whether events carry the response.
        pub include_response_data: bool = if_set "includeResponseData",
        /// Whether an error in the body of a response counts as one.
        pub detect_application_errors: Option<bool> = if_set "detectApplicationErrors",
        /// How many bytes of data an event carries.
        pub max_data_size: i64 = if_set "maxDataSize",
        /// How many actors of a delegation an event names.
        pub max_delegation_depth: i64 = if_set "maxDelegationDepth",
        /// A file to write to instead of the log.
        pub log_file: String = if_set "logFile",
    }
}

document! {
    /// Traces and metrics.
    pub struct TelemetryConfig {
        /// The collector, as `host:port`.
        pub endpoint: String = if_set "endpoint",
        /// `service.name`
        pub service_name: String = if_set "serviceName",
        /// `service.version`
        pub service_version: String = if_set "serviceVersion",
        /// Whether there are traces.
        pub tracing_enabled: bool = always "tracingEnabled",
        /// Whether there are metrics.
        pub metrics_enabled: bool = always "metricsEnabled",
        /// The part of traces that is kept, from `0` to `1`.
        pub sampling_rate: String = if_set "samplingRate",
        /// Headers on requests to the collector.
        pub headers: BTreeMap<String, String> = if_set "headers",
        /// Whether the collector is reached without TLS.
        pub insecure: bool = if_set "insecure",
        /// Whether metrics can be scraped.
        pub enable_prometheus_metrics_path: bool = if_set "enablePrometheusMetricsPath",
        /// The port to scrape them at.
        pub prometheus_port: i64 = if_set "prometheusPort",
        /// Whether they are also served on the proxy's own port.
        pub metrics_on_transport_port: Option<bool> = if_set "metricsOnTransportPort",
        /// Environment variables to carry on spans.
        pub environment_variables: Vec<String> = if_set "environmentVariables",
        /// Further attributes of everything that is sent.
        pub custom_attributes: BTreeMap<String, String> = if_set "customAttributes",
        /// Whether attributes of before the MCP conventions are written too.
        pub use_legacy_attributes: bool = always "useLegacyAttributes",
        /// A file with certificate authorities to trust for the collector.
        pub ca_cert_path: String = if_set "caCertPath",
    }
}
