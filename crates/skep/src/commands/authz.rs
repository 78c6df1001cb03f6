//! `skep authz explain`: what an identity may do by a policy, and which policies decide.

mod report;
mod rules;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};
use skep_authz::Decision;
use skep_authz::query::{Annotations, Feature, Query, Treatment};
use skep_bounds::MANIFEST_BYTES;

use self::report::{Explanation, Report};
use self::rules::Rules;
use super::call::given_arguments;
use crate::cli::{AuthzExplain, Output};
use crate::terminal;

pub(super) fn explain(arguments: &AuthzExplain) -> Result<ExitCode> {
    let rules = Rules::read(&arguments.policy)?;
    let claims = claims(&arguments.claims)?;
    let decisions = match (&arguments.name, &arguments.tools) {
        (Some(name), _) => vec![one(arguments, &rules, &claims, name)?],
        (None, Some(tools)) => of_tools(arguments, &rules, &claims, tools)?,
        (None, None) => of_named(arguments, &rules, &claims)?,
    };
    let report = Report { server: arguments.server.clone(), decisions };
    match arguments.output {
        Output::Json => terminal::print_json(&report)?,
        Output::Text => terminal::print(&report.text(arguments.name.is_none()))?,
    }
    // A table is an answer whatever is in it.
    let is_table = arguments.name.is_none() && feature(Treatment::of(&arguments.method)).is_some();
    let is_denied = arguments.tools.is_none() && !is_table && report.decisions.iter().any(|one| !one.allowed);
    Ok(if is_denied { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The decision about one thing.
fn one(arguments: &AuthzExplain, rules: &Rules, claims: &Map<String, Value>, name: &str) -> Result<Explanation> {
    let treatment = Treatment::of(&arguments.method);
    let Some(feature) = feature(treatment) else { return Ok(by_method(&arguments.method, treatment)) };
    let given = given_arguments(&arguments.arguments, arguments.json.as_deref())?;
    // What the proxy knows of a tool it knows from the list.
    let tools = arguments.tools.as_deref().map(read_tools).transpose()?.unwrap_or_default();
    let annotations = tools.iter().find(|(tool, _)| tool == name).map(|(_, annotations)| *annotations);
    let annotations = annotations.unwrap_or_default();
    let query = Query {
        feature,
        operation: feature.operation(),
        id: name,
        arguments: Some(&given),
        annotations,
        backend: None,
    };
    let decision = rules.decide(claims, &query, &arguments.server);
    Ok(explained(&arguments.method, name, rules, &decision))
}

/// What a method is about, if that is decided about.
fn feature(treatment: Treatment) -> Option<Feature> {
    match treatment {
        Treatment::Decide(feature) | Treatment::DecideEach(feature) => Some(feature),
        Treatment::Filter(list) => Some(Feature::of_list(list)),
        Treatment::Allow | Treatment::Deny => None,
    }
}

/// The decisions about what the policies name, where nothing else says what the server has.
fn of_named(arguments: &AuthzExplain, rules: &Rules, claims: &Map<String, Value>) -> Result<Vec<Explanation>> {
    let treatment = Treatment::of(&arguments.method);
    let Some(feature) = feature(treatment) else { return Ok(vec![by_method(&arguments.method, treatment)]) };
    let names: Vec<&str> = rules.named(feature).collect();
    if names.is_empty() {
        bail!(
            "the policies name no {0}, so there is nothing to explain; name one with --name, or list the tools of the server with --tools",
            feature.name()
        );
    }
    let decide = |name: &str| {
        let query = Query::of_element(feature, name, Annotations::default());
        explained(&arguments.method, name, rules, &rules.decide(claims, &query, &arguments.server))
    };
    Ok(names.into_iter().map(decide).collect())
}

/// The decisions about the tools of a list.
fn of_tools(
    arguments: &AuthzExplain,
    rules: &Rules,
    claims: &Map<String, Value>,
    tools: &Path,
) -> Result<Vec<Explanation>> {
    let decide = |(name, annotations): (String, Annotations)| {
        let query = Query::of_element(Feature::Tool, &name, annotations);
        explained("tools/call", &name, rules, &rules.decide(claims, &query, &arguments.server))
    };
    Ok(read_tools(tools)?.into_iter().map(decide).collect())
}

/// What holds for a method whatever the policies are.
fn by_method(method: &str, treatment: Treatment) -> Explanation {
    let allowed = treatment == Treatment::Allow;
    let why = if allowed { "always allowed" } else { "denied: the method is not known" };
    Explanation { method: method.to_owned(), name: None, allowed, why: why.to_owned(), policies: Vec::new() }
}

fn explained(method: &str, name: &str, rules: &Rules, decision: &Decision) -> Explanation {
    Explanation {
        method: method.to_owned(),
        name: Some(name.to_owned()),
        allowed: decision.is_allowed,
        why: decision.reason(),
        policies: decision.policies.iter().map(|policy| rules.place(policy)).collect(),
    }
}

fn claims(path: &Path) -> Result<Map<String, Value>> {
    let text = read(path)?;
    let claims = serde_json::from_str(&text);
    claims
        .with_context(|| format!("{}: the claims must be a JSON object, such as {{\"sub\": \"ada\"}}", path.display()))
}

/// The tools of a file, as `skep tools -o json` prints them or as `tools/list` returns them.
fn read_tools(path: &Path) -> Result<Vec<(String, Annotations)>> {
    let text = read(path)?;
    let invalid = || format!("{}: it is not a list of tools; make one with `skep tools URL -o json`", path.display());
    let value: Value = serde_json::from_str(&text).with_context(invalid)?;
    let tools = value.get("tools").unwrap_or(&value).as_array().with_context(invalid)?;
    let tool = |tool: &Value| {
        let name = tool.as_str().or_else(|| tool.get("name")?.as_str())?;
        let annotations = tool.get("annotations").map(ToString::to_string).unwrap_or_default();
        Some((name.to_owned(), Annotations::of_json(&annotations)))
    };
    tools.iter().map(|one| tool(one).with_context(invalid)).collect()
}

/// The text of a file, or of standard input for `-`.
fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let mut text = String::new();
    let limit = MANIFEST_BYTES as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text))
    };
    let length = read.with_context(|| format!("cannot read {shown}"))?;
    ensure!(length <= MANIFEST_BYTES, "{shown} has more than {MANIFEST_BYTES} bytes");
    Ok(text)
}
