//! `skep crds`: the custom resource definitions, printed or applied to a cluster.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;

use crate::cli::{Cluster, Crds, CrdsAction, Format, Output};
use crate::kubernetes::{self, Connection};
use crate::terminal;

/// The field manager of the definitions.
const MANAGER: &str = "skep-crds";
/// How long the API server may take until it serves a definition.
const PATIENCE: Duration = Duration::from_mins(1);
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome for one definition.
#[derive(Serialize)]
struct Applied {
    name: String,
    change: &'static str,
}

pub(super) fn run(arguments: &Crds) -> Result<ExitCode> {
    match &arguments.action {
        None => print(arguments.output)?,
        Some(CrdsAction::Apply { output, cluster }) => apply(*output, cluster)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(format: Format) -> Result<()> {
    let definitions = skep_api::crd::all()?;
    match format {
        Format::Json => terminal::print_json(&definitions),
        Format::Yaml => {
            let documents = definitions.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
            terminal::print(&documents.concat())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn apply(output: Output, cluster: &Cluster) -> Result<()> {
    let cluster = kubernetes::connect(cluster).await?;
    let mut results = Vec::new();
    for definition in skep_api::crd::all()? {
        results.push(apply_one(&cluster, &definition).await?);
    }
    for result in &results {
        wait_until_served(&cluster, &result.name).await?;
    }
    match output {
        Output::Json => terminal::print_json(&results),
        Output::Text => {
            let paint = terminal::paint();
            let mut text = String::new();
            for Applied { name, change } in &results {
                writeln!(text, "{name:<60} {}", paint.good(change))?;
            }
            terminal::print(&text)
        }
    }
}

async fn apply_one(cluster: &Connection, definition: &CustomResourceDefinition) -> Result<Applied> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let name = definition.name_any();
    let before = definitions.get_opt(&name).await.map_err(|error| cluster.explain(&error))?;
    let after = definitions
        .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(definition))
        .await
        .map_err(|error| cluster.explain(&error).context(format!("cannot apply `{name}`")))?;
    let change = match before {
        None => "created",
        Some(before) if before.resource_version() == after.resource_version() => "unchanged",
        Some(_) => "changed",
    };
    Ok(Applied { name, change })
}

async fn wait_until_served(cluster: &Connection, name: &str) -> Result<()> {
    let served = async {
        while !is_served(cluster, name).await? {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, served).await.unwrap_or_else(|_elapsed| {
        let seconds = PATIENCE.as_secs();
        Err(anyhow!("the API server does not serve `{name}` after {seconds} s; see the conditions in its status"))
    })
}

async fn is_served(cluster: &Connection, name: &str) -> Result<bool> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = definitions.get(name).await.map_err(|error| cluster.explain(&error))?;
    let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
    let find = |kind: &str, status: &str| conditions.iter().find(|one| one.type_ == kind && one.status == status);
    if let Some(refused) = find("NamesAccepted", "False") {
        let why = refused.message.as_deref().unwrap_or("another definition has them");
        return Err(anyhow!("the API server rejects the names of `{name}`: {why}"));
    }
    Ok(find("Established", "True").is_some())
}
