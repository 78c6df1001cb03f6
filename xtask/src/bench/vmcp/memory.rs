//! The memory of a virtual server while sessions come and go, and while what its backends offer changes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::report::{self, Growth, Verdicts};
use super::stage::Stage;
use super::{Arguments, SIZE, list};
use crate::bench::load::{Ask, Callers};
use crate::process::Usage;
use crate::ui;

/// How often memory is measured.
const PARTS: usize = 10;
/// How long to wait before memory is measured, so that freed memory is returned.
const SETTLE: Duration = Duration::from_secs(1);
/// How long a change may take to be seen by clients.
const SEEN: Duration = Duration::from_secs(20);

pub(super) async fn measure(arguments: &Arguments, stage: &Stage, verdicts: &mut Verdicts) -> Result<()> {
    stage.wait_for_lists().await?;
    let all = [sessions(arguments, stage).await?, changes(arguments, stage).await?];
    ui::result(&report::memory(&all));
    for growth in &all {
        verdicts.of_memory(growth);
    }
    Ok(())
}

/// Opens and closes sessions, each with a call of one of the backends.
async fn sessions(arguments: &Arguments, stage: &Stage) -> Result<Growth> {
    let before = resident(stage).await?;
    let asks: Vec<Ask> = stage.tools.iter().map(|tool| Ask::tool(tool, SIZE)).collect();
    let mut callers = Callers::connect(&stage.healthy.url(), arguments.connections).await?;
    let mut after = Vec::new();
    for part in 1..=PARTS {
        ui::progress(&format!("sessions, part {part} of {PARTS}…"));
        callers.open_and_close(arguments.sessions / PARTS, &asks).await?;
        after.push(resident(stage).await?);
    }
    Ok(Growth { what: format!("{} sessions", arguments.sessions), before, after })
}

/// Changes the list of one backend after the other. A client listens, and another one requests each new list.
async fn changes(arguments: &Arguments, stage: &Stage) -> Result<Growth> {
    let before = resident(stage).await?;
    let mut listener = Callers::connect(&stage.healthy.url(), 1).await?;
    listener.initialize().await?;
    let _listening = listener.listen().await?;
    let mut client = Callers::connect(&stage.healthy.url(), 1).await?;
    client.initialize().await?;
    let mut backends = Vec::new();
    for url in stage.backends.urls() {
        backends.push(Callers::connect(&url, 1).await?);
    }
    let change = Ask::new("bench/change", &json!({}), 0);
    let mut after = Vec::new();
    for part in 1..=PARTS {
        ui::progress(&format!("changes, part {part} of {PARTS}…"));
        for number in 0..arguments.changes / PARTS {
            let done = (part - 1) * (arguments.changes / PARTS) + number;
            let place = done % backends.len().max(1);
            let backend = backends.get_mut(place).context("there is no backend")?;
            backend.ask(&change).await.context("a change was not seen")?;
            let new = format!("from server {place} after change {}.", done / stage.count + 1);
            wait_until_listed(&mut client, &new).await?;
        }
        after.push(resident(stage).await?);
    }
    Ok(Growth { what: format!("{} changes", arguments.changes), before, after })
}

/// Waits until clients see a change.
async fn wait_until_listed(client: &mut Callers, new: &str) -> Result<()> {
    let deadline = Instant::now() + SEEN;
    loop {
        let body = client.ask(&list(0)).await?;
        if String::from_utf8_lossy(&body).contains(new) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no list has `{new}`");
    }
}

async fn resident(stage: &Stage) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    Ok(Usage::of(stage.healthy.id())?.resident)
}
