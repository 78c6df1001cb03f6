//! `skep uninstall`: removes the operator from a cluster so that nothing in it waits for an operator that is gone.

use std::cell::RefCell;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use serde::Serialize;
use skep_operator::uninstall::{Step, Uninstall as Leaving, UninstallError};

use crate::cli::{Output, Uninstall};
use crate::kubernetes::{self, Connection};
use crate::terminal;

/// The result, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    dry_run: bool,
    steps: &'a [Step],
}

pub(super) fn run(arguments: &Uninstall) -> Result<ExitCode> {
    leave(arguments)?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main(flavor = "current_thread")]
async fn leave(arguments: &Uninstall) -> Result<()> {
    let cluster = kubernetes::connect(&arguments.cluster).await?;
    let namespaces = arguments.watch_namespace.iter().map(|name| name.trim().to_owned());
    let leaving = Leaving {
        home: arguments.namespace.clone(),
        deployment: arguments.deployment.clone(),
        namespaces: namespaces.filter(|name| !name.is_empty()).collect(),
        dry_run: arguments.dry_run,
        is_gone: arguments.operator_gone,
    };
    let steps = RefCell::new(Vec::new());
    let is_text = arguments.output == Output::Text;
    let left = leaving.run(&cluster.client, |step| {
        if is_text {
            // A closed output must not stop the work halfway.
            let _closed = terminal::print(&line(step, arguments.dry_run));
        }
        steps.borrow_mut().push(step.clone());
    });
    let left = left.await;
    let steps = steps.into_inner();
    if is_text && left.is_ok() {
        terminal::print(&summary(&steps, arguments.dry_run))?;
    }
    if !is_text {
        terminal::print_json(&Report { dry_run: arguments.dry_run, steps: &steps })?;
    }
    left.map_err(|error| explain(&cluster, error))
}

/// A failure in one line: the action, the error, what to do.
fn explain(cluster: &Connection, error: UninstallError) -> anyhow::Error {
    match error {
        UninstallError::Api { action, source } => cluster.explain(&source).context(format!("cannot {action}")),
        other => anyhow!("{other}"),
    }
}

fn line(step: &Step, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    match step {
        Step::Scaled { deployment, from } => format!("Deployment {deployment}: {would}scaled from {from} to 0\n"),
        Step::Released { kind, namespace, name } => format!("{kind} {namespace}/{name}: {would}released\n"),
        Step::NotDefined { kind } => format!("{kind}: not defined in this cluster\n"),
        Step::LeaseDeleted { lease } => format!("Lease {lease}: {would}deleted\n"),
    }
}

fn summary(steps: &[Step], dry_run: bool) -> String {
    let released = steps.iter().filter(|step| matches!(step, Step::Released { .. })).count();
    if dry_run {
        return format!("{released} objects would be released; nothing was changed\n");
    }
    format!("{released} objects released: they, their namespaces and the definitions can be deleted now\n")
}
