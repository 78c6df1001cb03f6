//! `MCPTelemetryConfig`: where traces and metrics go.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{CaBundleRef, Reference, References, SecretKeyRef};
use crate::schema::{Rule, map_by, rules};
use crate::status::ConfigStatus;

const OPEN_TELEMETRY_RULES: &[Rule] = &[Rule {
    cel: "!has(self.headers) || !has(self.sensitiveHeaders) || !self.sensitiveHeaders.exists(header, header.name in self.headers)",
    message: "a header name stands in both headers and sensitiveHeaders: keep it in one of them",
}];

/// The object: metadata, spec and status.
pub type MCPTelemetryConfig = Custom<MCPTelemetryConfigSpec>;

impl Kind for MCPTelemetryConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPTelemetryConfig";
    const ABOUT: &'static str = "Where traces and metrics go.";
    const PLURAL: &'static str = "mcptelemetryconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["mcpotel"];
    const COLUMNS: &'static [Column] = &[
        column("Endpoint", ".spec.openTelemetry.endpoint", "string"),
        column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"),
        column("Tracing", ".spec.openTelemetry.tracing.enabled", "boolean"),
        column("Metrics", ".spec.openTelemetry.metrics.enabled", "boolean"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        if let Some(otel) = &self.open_telemetry {
            for (index, header) in otel.sensitive_headers.iter().enumerate() {
                references.secret(
                    &header.secret_key_ref,
                    &format!("spec.openTelemetry.sensitiveHeaders[{index}].secretKeyRef"),
                );
            }
            references.ca_bundle(otel.ca_bundle_ref.as_ref(), "spec.openTelemetry.caBundleRef");
        }
        references.list()
    }
}

/// Where traces and metrics go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPTelemetryConfigSpec {
    /// What is sent to an OpenTelemetry collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetry>,
    /// What Prometheus may fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
}

/// What is sent to an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(OPEN_TELEMETRY_RULES))]
pub struct OpenTelemetry {
    /// Whether anything is sent.
    #[serde(default)]
    pub enabled: bool,
    /// Host and port of the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether the collector is reached without TLS.
    #[serde(default)]
    pub insecure: bool,
    /// Headers of each export, for what is no secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers of each export whose values are kept in Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub sensitive_headers: Vec<SensitiveHeader>,
    /// Attributes that every span and metric carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_attributes: BTreeMap<String, String>,
    /// Which metrics are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Which traces are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
    /// Whether spans carry the older attribute names beside the standard ones.
    #[serde(default = "yes")]
    pub use_legacy_attributes: bool,
    /// Certificate authorities to trust for the collector, instead of the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
}

/// A header of each export whose value is kept in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SensitiveHeader {
    /// Name of the header.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The Secret key that holds its value.
    pub secret_key_ref: SecretKeyRef,
}

/// Which metrics are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Whether metrics are sent.
    #[serde(default)]
    pub enabled: bool,
}

/// Which traces are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// Whether traces are sent.
    #[serde(default)]
    pub enabled: bool,
    /// The share of calls that are traced, from `0` to `1`.
    #[serde(default = "default_sampling_rate")]
    #[schemars(regex(pattern = r"^(0(\.\d+)?|1(\.0+)?)$"))]
    pub sampling_rate: String,
}

/// What Prometheus may fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prometheus {
    /// Whether metrics are served under `/metrics`.
    #[serde(default)]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

fn default_sampling_rate() -> String {
    "0.05".into()
}
