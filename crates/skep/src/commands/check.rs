//! `skep check`: validates manifests as an API server and the operator would, without either.
//!
//! ```text
//!   files ─▶ manifests: schema and rules, as by the API server ─▶ plan, as by the operator ─▶ findings
//! ```
//!
//! There is no second validator here: the findings are the refusals and conditions of the operator's own plans
//! ([`planning`]), in a world made of the files. An object that the files refer to and do not contain may be in the
//! cluster; see [`references`].

mod planning;
mod references;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use serde::Serialize;
use skep_api::plain::plain;
use skep_api::resource::Resource;

use self::planning::{Planner, is_new};
use self::references::{Missing, Objects, Rejected};
use crate::cli::{Check, Output};
use crate::manifests::{Content, Manifests, Object, Unreadable};
use crate::terminal::{self, visible};

/// The finding about one object, or about a file that cannot be read.
#[derive(Serialize)]
struct Finding {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The verdict on an object.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Valid,
    Invalid,
    /// Not of Skep's API group, and so not checked.
    Skipped,
}

/// Checks the objects of the files.
struct Checker {
    planner: Planner,
    /// The objects in the files.
    found: Objects,
    /// The objects in the files that are not valid, and where they are.
    rejected: Rejected,
    /// The valid ones, and those that the cluster is assumed to have.
    assumed: Objects,
}

pub(super) fn run(arguments: &Check) -> Result<ExitCode> {
    let manifests = Manifests::load(&arguments.files)?;
    let mut findings: Vec<Finding> = manifests.unreadable.iter().map(Finding::of_file).collect();
    let assumed = references::assumed(&manifests.found);
    let rejected = manifests.rejected();
    let checker = Checker { planner: Planner::new()?, found: manifests.found, rejected, assumed };
    findings.extend(manifests.objects.iter().map(|object| Finding::of_object(object, &checker)));
    if findings.is_empty() {
        return Err(anyhow!("there is nothing to check: no file holds a manifest"));
    }
    match arguments.output {
        Output::Json => terminal::print_json(&findings)?,
        Output::Text => report(&findings)?,
    }
    let invalid = findings.iter().any(|finding| finding.verdict == Verdict::Invalid);
    Ok(if invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Objects on standard output, files that cannot be read on standard error.
fn report(findings: &[Finding]) -> Result<()> {
    let paint = terminal::paint();
    let names = || findings.iter().filter_map(|finding| finding.object.as_deref());
    let width = names().map(|name| visible(name).chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { file, line, object, verdict, problems, warnings } in findings {
        let Some(object) = object else {
            terminal::complain(&format!("error: cannot read `{file}`: {}", problems.join("; ")));
            continue;
        };
        let word = match verdict {
            Verdict::Valid => paint.good("valid"),
            Verdict::Invalid => paint.bad("invalid"),
            Verdict::Skipped => "skipped".to_owned(),
        };
        let (object, file) = (visible(object), visible(file));
        let place = line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}"));
        writeln!(text, "{object:<width$}  {word:<9}  {place}")?;
        for problem in problems {
            writeln!(text, "  {}", visible(problem))?;
        }
        for warning in warnings {
            writeln!(text, "  {}: {}", paint.pending("warning"), visible(warning))?;
        }
    }
    terminal::print(&text)
}

// === impl Checker ===

impl Checker {
    /// What the operator would report about a resource: its errors, and what it would wait for.
    fn check(&self, me: &Resource) -> (Vec<String>, Vec<String>) {
        let missing = Missing::of(me, &self.found, &self.rejected);
        let (mut problems, mut warnings) = (missing.problems(), missing.warnings());
        let whole = self.planner.check(me, &self.assumed);
        // The operator checks nothing else while a reference does not resolve. The rest of the spec is checked without
        // it.
        let without = missing.without(me).map(|rest| self.planner.check(&rest, &self.assumed)).unwrap_or_default();
        let in_rest = |message: &String| !missing.is_about(message);
        let errors = whole.errors.into_iter().filter(|message| !missing.explains(message));
        for problem in errors.chain(without.errors.into_iter().filter(in_rest)) {
            if is_new(&problem, problems.iter().chain(&warnings)) {
                problems.push(problem);
            }
        }
        let refused = whole.warnings.into_iter().filter(|message| !missing.explains(message));
        let waits = whole.wait.filter(|_| missing.is_empty());
        for warning in refused.chain(without.warnings.into_iter().filter(in_rest)).chain(waits) {
            if is_new(&warning, problems.iter().chain(&warnings)) {
                warnings.push(warning);
            }
        }
        let reworded = |list: Vec<String>| list.iter().map(|one| plain(one)).collect();
        (reworded(problems), reworded(warnings))
    }
}

// === impl Finding ===

impl Finding {
    fn of_file(source: &Unreadable) -> Self {
        Self {
            file: source.file.clone(),
            line: None,
            object: None,
            verdict: Verdict::Invalid,
            problems: vec![source.problem.clone()],
            warnings: Vec::new(),
        }
    }

    fn of_object(object: &Object, checker: &Checker) -> Self {
        let (verdict, problems, warnings) = match &object.content {
            Content::Data | Content::Foreign => (Verdict::Skipped, Vec::new(), Vec::new()),
            Content::Invalid(problems) => (Verdict::Invalid, problems.clone(), Vec::new()),
            Content::Resource(resource) => {
                let (problems, warnings) = checker.check(resource);
                let verdict = if problems.is_empty() { Verdict::Valid } else { Verdict::Invalid };
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
