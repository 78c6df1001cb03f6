//! Scenarios: what a user does to the resources, and what must come of it, as data.
//!
//! A file in `tests/scenarios` holds the scenarios of one kind. Each runs in a namespace of its own, all of them beside each other
//! on one operator that watches the whole cluster.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, stream};
use skep_testkit::ControlPlane;

use crate::running::{define, start_rechecking};
use crate::stage::{Scenario, Stage};

/// How many scenarios run beside each other.
const AT_ONCE: usize = 8;

/// The scenarios of all files, with the file's title; only those that `SCENARIO` names part of, if it is set.
pub(crate) fn scenarios() -> Result<Vec<(String, Scenario)>> {
    let mut scenarios = Vec::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios"))? {
        let path = file?.path();
        let title = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let text = std::fs::read_to_string(&path)?;
        let read: Vec<Scenario> = serde_saphyr::from_str(&text).with_context(|| format!("{}", path.display()))?;
        scenarios.extend(read.into_iter().map(|scenario| (title.clone(), scenario)));
    }
    scenarios.sort_by(|(one, a), (other, b)| (one, &a.name).cmp(&(other, &b.name)));
    if let Some(only) = only() {
        scenarios.retain(|(title, scenario)| format!("{title}: {}", scenario.name).contains(&only));
    }
    ensure!(!scenarios.is_empty(), "no scenario is called that");
    Ok(scenarios)
}

fn only() -> Option<String> {
    std::env::var("SCENARIO").ok()
}

#[tokio::test]
async fn every_scenario_comes_out_as_written() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    // Blocked deletions that are left behind are rechecked by a timer, which is not what the last check is about.
    let operator = start_rechecking(&plane, String::new(), Duration::from_hours(1))?;
    let scenarios = scenarios()?;
    let count = scenarios.len();
    let failures: Vec<String> = stream::iter(scenarios)
        .map(|(title, scenario)| {
            let plane = &plane;
            let client = &operator.client;
            async move {
                let namespace = plane.namespace("scenario").await;
                let ran = match namespace {
                    Ok(namespace) => Stage::new(client, namespace).run(&scenario).await,
                    Err(error) => Err(error),
                };
                ran.err().map(|error| format!("{title}: {}: {error:#}", scenario.name))
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(|failure| async { failure })
        .collect()
        .await;
    println!("{count} scenarios");
    ensure!(
        failures.is_empty(),
        "{} of {count} scenarios came out otherwise:\n{}",
        failures.len(),
        failures.join("\n")
    );
    // The objects that are left, valid or not, are not reconciled again and again.
    operator.settled().await?;
    let reconciles = || {
        let page = operator.metrics();
        page.lines().filter(|line| line.contains("reconciles")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = reconciles();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = reconciles();
    let more: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    ensure!(more.is_empty(), "reconciles of objects that did not change: {more:?}");
    // What all of them left behind, in every state, is what GitOps tools see.
    let health = crate::gitops::check_all(&operator.client).await?;
    ensure!(only().is_some() || health.len() == 3, "too few states among the scenarios: {health:?}");
    operator.stop().await?;
    plane.stop();
    Ok(())
}
