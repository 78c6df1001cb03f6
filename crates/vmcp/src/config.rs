//! The configuration of a virtual server: `config.yaml`, as the operator writes it or people do.
//!
//! ```text
//!   text ─▶ size and depth ─▶ YAML ─▶ unknown members ─▶ VirtualConfig ─▶ validation ─▶ Config
//! ```
//!
//! It is strict: a member that is not known is an error, and so nothing that is configured is silently not in force.

mod backends;
mod members;
mod optimizer;
mod run_config;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use skep_api::virtual_config::{FailureHandling, VirtualConfig};
use skep_runconfig::{GoDuration, VirtualDocument};

pub use self::backends::{BackendConfigError, Where};
pub use self::run_config::RunConfigError;
use crate::aggregate::Rules;
use crate::backend::TIMEOUT;
use crate::composite::{CompositeTools, DefinitionError};
use crate::health::{BreakerSettings, MonitorSettings};

/// The largest configuration that is read, in bytes.
const BYTES: usize = 4 * 1024 * 1024;

/// A configuration that can be served.
#[derive(Clone, Debug)]
pub struct Config {
    document: VirtualConfig,
}

/// Why a configuration cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is too large.
    #[error("the configuration has {0} bytes; at most {BYTES} are read")]
    TooLarge(usize),
    /// It is no YAML, or has members of other types.
    #[error("failed to parse YAML: {0}")]
    Syntax(String),
    /// It has members that do not exist.
    #[error("failed to parse YAML: {}", list(.0))]
    UnknownMembers(Vec<String>),
    /// It does not fit together.
    #[error("invalid configuration:\n{}", lines(.0))]
    Invalid(Vec<String>),
}

fn list(members: &[String]) -> String {
    let named: Vec<String> = members.iter().map(|member| format!("unknown field `{member}`")).collect();
    named.join(", ")
}

fn lines(problems: &[String]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| format!("  - {problem}")).collect();
    lines.join("\n")
}

// === impl Config ===

impl Config {
    /// Reads and validates `config.yaml`.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        if text.len() > BYTES {
            return Err(ConfigError::TooLarge(text.len()));
        }
        let document = VirtualDocument::from_yaml(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let unknown = members::unknown(&document).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        if !unknown.is_empty() {
            return Err(ConfigError::UnknownMembers(unknown));
        }
        let document = document.decode().map_err(|error| ConfigError::Syntax(error.to_string()))?;
        Self::new(document)
    }

    /// A configuration that was put together in another way.
    pub fn new(document: VirtualConfig) -> Result<Self, ConfigError> {
        let problems = validate::problems(&document);
        if problems.is_empty() { Ok(Self { document }) } else { Err(ConfigError::Invalid(problems)) }
    }

    /// The document.
    pub fn document(&self) -> &VirtualConfig {
        &self.document
    }

    /// The name of the virtual server.
    pub fn name(&self) -> &str {
        self.document.name.as_deref().unwrap_or_default()
    }

    /// The group whose members are its backends.
    pub fn group(&self) -> &str {
        self.document.group_ref.as_deref().unwrap_or_default()
    }

    /// How the backends become one.
    pub fn rules(&self) -> Rules {
        self.document.aggregation.as_ref().map(Rules::of).unwrap_or_default()
    }

    /// How long a backend may be silent.
    pub fn timeout(&self, backend: &str) -> Duration {
        let timeouts = self.document.operational.as_ref().and_then(|operational| operational.timeouts.as_ref());
        let text = timeouts.map(|timeouts| timeouts.per_workload.get(backend).unwrap_or(&timeouts.default));
        text.and_then(|text| duration(text)).unwrap_or(TIMEOUT)
    }

    /// How backends are checked. They always are: a configuration that does not say how has the defaults.
    pub fn monitor(&self) -> MonitorSettings {
        let operational = self.document.operational.as_ref();
        let handling = operational.and_then(|operational| operational.failure_handling.as_ref());
        let time = |of: fn(&FailureHandling) -> &String| handling.and_then(|handling| duration(of(handling)));
        let breaker = handling.and_then(|handling| handling.circuit_breaker.as_ref()).filter(|breaker| breaker.enabled);
        MonitorSettings {
            interval: time(|handling| &handling.health_check_interval).unwrap_or(Duration::from_secs(30)),
            timeout: time(|handling| &handling.health_check_timeout).unwrap_or(Duration::from_secs(10)),
            threshold: handling.and_then(|handling| u32::try_from(handling.unhealthy_threshold).ok()).unwrap_or(3),
            breaker: breaker.map(|breaker| BreakerSettings {
                failures: u32::try_from(breaker.failure_threshold).unwrap_or(5),
                timeout: duration(&breaker.timeout).unwrap_or(Duration::from_mins(1)),
            }),
        }
    }

    /// The headers of clients that backends get.
    pub fn passthrough(&self) -> Vec<http::HeaderName> {
        self.document.passthrough_headers.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The composite tools, ready to run.
    pub fn composite_tools(&self) -> Result<CompositeTools, DefinitionError> {
        CompositeTools::new(&self.document.composite_tools)
    }

    /// A summary for people: what it is, and how many of each there are.
    pub fn summary(&self) -> BTreeMap<&'static str, String> {
        let document = &self.document;
        let aggregation = document.aggregation.as_ref().map(|aggregation| aggregation.conflict_resolution);
        let incoming = document.incoming_auth.as_ref().map(|auth| auth.method.clone());
        let outgoing = document.outgoing_auth.as_ref().map(|auth| auth.source.clone());
        BTreeMap::from([
            ("Name", self.name().to_owned()),
            ("Group", self.group().to_owned()),
            ("Incoming Auth", incoming.unwrap_or_default()),
            ("Outgoing Auth", outgoing.unwrap_or_default()),
            (
                "Conflict Resolution",
                serde_json::to_value(aggregation.unwrap_or_default())
                    .ok()
                    .and_then(|value| value.as_str().map(str::to_owned))
                    .unwrap_or_default(),
            ),
            ("Composite Tools", document.composite_tools.len().to_string()),
        ])
    }
}

/// A time as Go writes it. Nothing for none.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    text.parse::<GoDuration>().ok()?.to_std().filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests;
