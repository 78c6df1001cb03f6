//! `skep check`: judges manifests as an API server and the operator would, without either.
//!
//! ```text
//!   files ─▶ manifests: schema and rules, as by the API server ─▶ plan, as by the operator ─▶ findings
//! ```
//!
//! There is no second validator here: what is found are the refusals and conditions of the operator's own plans, in a world that
//! is made of the files. What the files refer to and do not hold may be in the cluster; see [`references`].

mod references;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use skep_api::plain::plain;
use skep_api::resource::Resource;
use skep_plan::plan::{Plan, Verdict};

use self::references::{Missing, Objects};
use crate::cli::{Check, Output};
use crate::commands::run::job::planned;
use crate::manifests::{Content, Manifests, Object, Unreadable};
use crate::terminal;

/// What is said about one object, or about a file that cannot be read.
#[derive(Serialize)]
struct Finding {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    verdict: Judgement,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// How an object fared.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Judgement {
    Valid,
    Invalid,
    /// Not of Skep's API group, and so not looked into.
    Skipped,
}

/// Conditions with which the operator says that a spec is wrong. Others speak of what runs.
const JUDGEMENTS: [&str; 2] = ["Valid", "Validated"];
/// How the reason of a condition ends that is false for want of an object. References are judged by themselves.
const MISSING: &str = "NotFound";

pub(super) fn run(arguments: &Check) -> Result<ExitCode> {
    let manifests = Manifests::load(&arguments.files)?;
    let mut findings: Vec<Finding> = manifests.unreadable.iter().map(Finding::of_file).collect();
    let assumed = references::assumed(&manifests.found);
    findings.extend(manifests.objects.iter().map(|object| Finding::of_object(object, &manifests.found, &assumed)));
    if findings.is_empty() {
        return Err(anyhow!("there is nothing to check: no file holds a manifest"));
    }
    match arguments.output {
        Output::Json => terminal::print_json(&findings)?,
        Output::Text => report(&findings)?,
    }
    let invalid = findings.iter().any(|finding| finding.verdict == Judgement::Invalid);
    Ok(if invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Objects on standard output, files that cannot be read on standard error.
fn report(findings: &[Finding]) -> Result<()> {
    let paint = terminal::paint();
    let names = || findings.iter().filter_map(|finding| finding.object.as_ref());
    let width = names().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { file, line, object, verdict, problems, warnings } in findings {
        let Some(object) = object else {
            terminal::complain(&format!("error: cannot read `{file}`: {}", problems.join("; ")));
            continue;
        };
        let word = match verdict {
            Judgement::Valid => paint.good("valid"),
            Judgement::Invalid => paint.bad("invalid"),
            Judgement::Skipped => "skipped".to_owned(),
        };
        let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
        writeln!(text, "{object:<width$}  {word:<9}  {place}")?;
        for problem in problems {
            writeln!(text, "  {problem}")?;
        }
        for warning in warnings {
            writeln!(text, "  {}: {warning}", paint.pending("warning"))?;
        }
    }
    terminal::print(&text)
}

/// What the operator would say about a resource: what is wrong with it, and what it would wait for.
fn judge(me: &Resource, found: &Objects, assumed: &Objects) -> (Vec<String>, Vec<String>) {
    let missing = Missing::of(me, found);
    let plan = planned(me, assumed);
    let (mut problems, mut warnings) = (missing.problems(), missing.warnings());
    let mut said = conditions(&plan);
    match &plan.verdict {
        Verdict::Refuse(why) => said.insert(0, why.clone()),
        Verdict::Wait(why) if missing.is_empty() => warnings.push(why.clone()),
        Verdict::Wait(_) | Verdict::Apply => {}
    }
    for problem in said.into_iter().filter(|problem| !missing.explains(problem)) {
        let is_known = |known: &String| known.contains(&problem) || problem.contains(known.as_str());
        if !problems.iter().chain(&warnings).any(is_known) {
            problems.push(problem);
        }
    }
    let reworded = |list: Vec<String>| list.iter().map(|one| plain(one)).collect();
    (reworded(problems), reworded(warnings))
}

/// What the conditions of a plan say against a spec.
fn conditions(plan: &Plan) -> Vec<String> {
    let status = plan.status.onto(&json!({}), 0, "");
    let conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_against = |condition: &&Value| {
        let (kind, reason) = (text(condition, "type"), text(condition, "reason"));
        text(condition, "status") == "False"
            && JUDGEMENTS.iter().any(|ending| kind.ends_with(ending))
            && !reason.ends_with(MISSING)
    };
    conditions.iter().filter(is_against).map(|condition| text(condition, "message")).collect()
}

// === impl Finding ===

impl Finding {
    fn of_file(source: &Unreadable) -> Self {
        Self {
            file: source.file.clone(),
            line: None,
            object: None,
            verdict: Judgement::Invalid,
            problems: vec![source.problem.clone()],
            warnings: Vec::new(),
        }
    }

    fn of_object(object: &Object, found: &Objects, assumed: &Objects) -> Self {
        let (verdict, problems, warnings) = match &object.content {
            Content::Data | Content::Foreign => (Judgement::Skipped, Vec::new(), Vec::new()),
            Content::Invalid(problems) => (Judgement::Invalid, problems.clone(), Vec::new()),
            Content::Resource(resource) => {
                let (problems, warnings) = judge(resource, found, assumed);
                let verdict = if problems.is_empty() { Judgement::Valid } else { Judgement::Invalid };
                (verdict, problems, warnings)
            }
        };
        Self {
            file: object.place.file().to_owned(),
            line: Some(object.place.line()),
            object: Some(format!("{}/{}", object.kind, object.label())),
            verdict,
            problems,
            warnings,
        }
    }
}
