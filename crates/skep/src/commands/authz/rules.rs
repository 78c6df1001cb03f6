//! The policies of a file: Cedar, the configuration of a proxy, an MCPAuthzConfig, or a workload with policies in its spec.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use skep_api::authz::AuthzConfig;
use skep_api::manifest;
use skep_authz::cedar::Cedar;
use skep_authz::query::{Feature, Query};
use skep_authz::{Decision, Engine, source};

use super::report::Place;

/// Policies, and where each of them stands.
pub(super) struct Rules {
    cedar: Box<Cedar>,
    file: String,
    /// The line of each, if it was found.
    lines: Vec<Option<usize>>,
}

impl Rules {
    /// The policies of a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = super::read(path)?;
        let file = path.display().to_string();
        if path.extension().is_some_and(|ending| ending == "cedar") {
            return Self::of_cedar(file, &text);
        }
        let document = manifest::parse_one(&text).with_context(|| {
            format!(
                "{file}: it is neither a configuration nor a manifest; the name of a file of policies ends in .cedar"
            )
        })?;
        Self::of_document(file, &text, &document)
    }

    fn of_cedar(file: String, text: &str) -> Result<Self> {
        let policies = source::split(text);
        ensure!(!policies.is_empty(), "{file}: there is no policy in it; without one, everything is denied");
        let lines: Vec<Option<usize>> = policies.iter().map(|policy| Some(policy.line)).collect();
        let texts: Vec<&str> = policies.iter().map(|policy| policy.text).collect();
        let config = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": texts } });
        Self::new(file, &config, lines)
    }

    fn of_document(file: String, text: &str, document: &Value) -> Result<Self> {
        let config = match document.get("kind").and_then(Value::as_str) {
            None => document.clone(),
            Some("MCPAuthzConfig") => {
                let member = |name: &str| document.pointer(&format!("/spec/{name}")).cloned().unwrap_or_default();
                json!({ "version": "1.0", "type": member("type"), "cedar": member("config") })
            }
            Some("MCPServer" | "MCPRemoteProxy") => in_place(&file, document)?,
            Some(kind) => bail!("{file}: a {kind} holds no policies that can be explained; use an MCPAuthzConfig"),
        };
        let policies = config.pointer("/cedar/policies").and_then(Value::as_array);
        let mut last = 0;
        let lines = policies.into_iter().flatten().map(|policy| {
            let line = source::find(text, policy.as_str()?, last);
            last = line.unwrap_or(last);
            line
        });
        let lines = lines.collect();
        Self::new(file, &config, lines)
    }

    fn new(file: String, config: &Value, lines: Vec<Option<usize>>) -> Result<Self> {
        match Engine::new(config).map_err(|error| with_line(&file, &error.to_string(), &lines))? {
            Engine::Cedar(cedar) => Ok(Self { cedar, file, lines }),
            Engine::Http(_) => {
                bail!("{file}: an HTTP decision point decides by rules of its own; only Cedar is explained")
            }
        }
    }

    /// Decides as a proxy does.
    pub(super) fn decide(&self, claims: &Map<String, Value>, query: &Query<'_>, server: &str) -> Decision {
        match self.cedar.principal(claims) {
            Ok(principal) => self.cedar.decide(&principal, query, server),
            Err(failed) => failed,
        }
    }

    /// The tools, prompts or resources that policies name.
    pub(super) fn named(&self, feature: Feature) -> impl Iterator<Item = &str> {
        self.cedar.named(feature)
    }

    /// Where a policy stands, by what a decision calls it: `policy3`, or `policy3.1 (its id)`.
    pub(super) fn place(&self, policy: &str) -> Place {
        let number = policy.strip_prefix("policy").unwrap_or_default();
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        let line = number.parse().ok().and_then(|index: usize| self.lines.get(index).copied().flatten());
        Place { policy: policy.to_owned(), file: self.file.clone(), line }
    }
}

/// The configuration that a proxy gets from the policies in the spec of its workload.
fn in_place(file: &str, document: &Value) -> Result<Value> {
    let authz = document.pointer("/spec/authzConfig").cloned();
    let authz =
        authz.with_context(|| format!("{file}: it has no spec.authzConfig; explain what its authzConfigRef names"))?;
    let authz: AuthzConfig = serde_json::from_value(authz).with_context(|| format!("{file}: spec.authzConfig"))?;
    let config = skep_plan::inline_authz(&authz);
    let config = config.with_context(|| {
        format!("{file}: spec.authzConfig has no inline policies; explain the document of the ConfigMap that it names")
    })?;
    Ok(config.decode()?)
}

/// An error about `policies[3]`, with the line of that.
fn with_line(file: &str, error: &str, lines: &[Option<usize>]) -> anyhow::Error {
    let number = error.strip_prefix("policies[").and_then(|rest| rest.split_once(']'));
    let line = number.and_then(|(number, _)| lines.get(number.parse::<usize>().ok()?).copied().flatten());
    match line {
        Some(line) => anyhow::anyhow!("{file}:{line}: {error}"),
        None => anyhow::anyhow!("{file}: {error}"),
    }
}
