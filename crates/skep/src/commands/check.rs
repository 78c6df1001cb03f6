//! `skep check`: judges manifests as an API server would, without one.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::Value;
use skep_api::admission::{Admission, Admitted};
use skep_api::manifest;

use crate::cli::{Check, Output};
use crate::{files, terminal};

/// What is said about one object.
#[derive(Serialize)]
struct Finding {
    file: String,
    object: String,
    verdict: Judgement,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
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

pub(super) fn run(arguments: &Check) -> Result<ExitCode> {
    let admission = Admission::new()?;
    let mut findings = Vec::new();
    for (file, text) in files::read_all(&arguments.files)? {
        let objects = manifest::parse(&text).with_context(|| format!("cannot read `{file}`"))?;
        findings.extend(objects.iter().map(|object| judge(&admission, &file, object)));
    }
    if findings.is_empty() {
        return Err(anyhow!("there is nothing to check: no file holds a manifest"));
    }
    match arguments.output {
        Output::Json => terminal::print_json(&findings)?,
        Output::Text => terminal::print(&report(&findings)?)?,
    }
    let invalid = findings.iter().any(|finding| finding.verdict == Judgement::Invalid);
    Ok(if invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn judge(admission: &Admission, file: &str, object: &Value) -> Finding {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let name = text(object.get("metadata").and_then(|metadata| metadata.get("name")));
    let (verdict, problems) = match admission.admit(object) {
        Ok(Admitted::Ours(_)) => (Judgement::Valid, Vec::new()),
        Ok(Admitted::Foreign) => (Judgement::Skipped, Vec::new()),
        Err(problems) => (Judgement::Invalid, problems.iter().map(ToString::to_string).collect()),
    };
    Finding { file: file.to_owned(), object: format!("{}/{name}", text(object.get("kind"))), verdict, problems }
}

fn report(findings: &[Finding]) -> Result<String> {
    let paint = terminal::paint();
    let width = findings.iter().map(|finding| finding.object.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { file, object, verdict, problems } in findings {
        let word = match verdict {
            Judgement::Valid => paint.good("valid"),
            Judgement::Invalid => paint.bad("invalid"),
            Judgement::Skipped => "skipped".to_owned(),
        };
        writeln!(text, "{object:<width$}  {word:<9}  {file}")?;
        for problem in problems {
            writeln!(text, "  {problem}")?;
        }
    }
    Ok(text)
}
