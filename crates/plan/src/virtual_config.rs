//! `config.yaml` of a virtual server, and the one judgement of it: the operator asks before it writes one, and the process before it serves
//! one. So what the operator applies is never refused by the pods that read it.
//!
//! ```text
//!   document ─▶ unknown members ─▶ VirtualConfig ─▶ what does not fit together, what is not supported
//! ```

mod members;
mod optimizer;
mod rules;

use std::time::Duration;

use skep_api::virtual_config::VirtualConfig;
use skep_runconfig::feature::Feature;
use skep_runconfig::{GoDuration, VirtualDocument};

pub use crate::webhook::documents as webhooks;

/// Why a configuration cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualConfigError {
    /// It has members of other types.
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

/// Reads a document, strictly: a member that is not known is an error, and so nothing that is configured is silently not in force.
pub fn read(document: &VirtualDocument) -> Result<VirtualConfig, VirtualConfigError> {
    let syntax = |error: skep_runconfig::json::JsonError| VirtualConfigError::Syntax(error.to_string());
    let unknown = members::unknown(document).map_err(syntax)?;
    if !unknown.is_empty() {
        return Err(VirtualConfigError::UnknownMembers(unknown));
    }
    let config = document.decode().map_err(syntax)?;
    check(&config)?;
    Ok(config)
}

/// Whether what a configuration says fits together.
pub fn check(config: &VirtualConfig) -> Result<(), VirtualConfigError> {
    let problems = rules::problems(config);
    if problems.is_empty() { Ok(()) } else { Err(VirtualConfigError::Invalid(problems)) }
}

/// What a configuration requests of the process, and the member that does.
pub fn needed(config: &VirtualConfig) -> Vec<(Feature, &'static str)> {
    let needed = [
        (Feature::CodeMode, "codeMode", config.code_mode.as_ref().is_some_and(|mode| mode.enabled)),
        (Feature::Optimizer, "optimizer", config.optimizer.is_some()),
        (Feature::Webhooks, "webhooks", config.webhooks.is_some()),
    ];
    needed.into_iter().filter(|(.., is_needed)| *is_needed).map(|(feature, member, _)| (feature, member)).collect()
}

/// A time as Go writes it. Nothing for none.
pub fn duration(text: &str) -> Option<Duration> {
    text.parse::<GoDuration>().ok()?.to_std().filter(|duration| !duration.is_zero())
}
