//! `skep check`: judges manifests as an API server would, without one.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::Value;
use skep_api::admission::{Admission, Admitted};
use skep_api::manifest;

use crate::cli::{Check, Output};
use crate::terminal;

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
    for (file, text) in read_all(&arguments.files)? {
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

/// The texts to check and where each comes from, directories in the order of their names.
fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            texts.push(("-".to_owned(), text));
        } else if path.is_dir() {
            let files = manifests_in(path)?;
            if files.is_empty() {
                return Err(anyhow!("the directory `{}` holds no *.yaml, *.yml or *.json file", path.display()));
            }
            for file in files {
                texts.push(read(&file)?);
            }
        } else {
            texts.push(read(path)?);
        }
    }
    Ok(texts)
}

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the directory `{}`", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let is_manifest =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<(String, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok((path.display().to_string(), text))
}
