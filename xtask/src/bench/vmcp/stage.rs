//! What is measured: the backends, and the ways to them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::backends::{Backends, tool};
use super::{SIZE, TOOLS, list};
use crate::bench::load::{Ask, Callers};
use crate::process::{Process, free_port, wait_for_port};
use crate::skep::{Behind, Proxy};
use crate::target_dir;

/// The ways, by name.
pub(super) const FLOOR: &str = "floor";
pub(super) const PROXY: &str = "skep proxy";
pub(super) const VIRTUAL: &str = "skep vmcp";
pub(super) const BESIDE_HANGING: &str = "skep vmcp, 2 hang";
pub(super) const ONE_SERVER: &str = "one server";

/// The backends that hang: a name, and how.
const HANGING: [(&str, &str); 2] = [("slow", "slow"), ("stalling", "stalling")];
/// How many tools the others have together. All together fit on one page of a list.
const OTHERS: usize = TOOLS - HANGING.len();
/// How long a virtual server may take to list all tools.
const LISTED: Duration = Duration::from_secs(30);

/// Some backends, and everything in front of them.
pub(super) struct Stage {
    /// How many backends there are that do not hang.
    pub(super) count: usize,
    pub(super) backends: Backends,
    hanging: Backends,
    one_server: Backends,
    floor: Process,
    floor_port: u16,
    proxy: Proxy,
    pub(super) healthy: Proxy,
    beside_hanging: Proxy,
    /// The tools of all backends, as clients call them.
    pub(super) tools: Vec<String>,
}

/// One way to the backends.
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) url: String,
    /// The process in between.
    pub(super) process: Option<u32>,
    /// What is requested, in turns.
    pub(super) asks: Vec<Ask>,
    /// The tools of backends that hang, for which clients wait meanwhile.
    pub(super) hanging: Vec<String>,
}

// === impl Stage ===

impl Stage {
    /// Starts so many backends, and what is in front of them.
    pub(super) fn start(binary: &Path, count: usize) -> Result<Self> {
        let backends = Backends::start(count, OTHERS)?;
        let hanging = Backends::start(HANGING.len(), HANGING.len())?;
        let one_server = Backends::start(1, OTHERS)?;
        let first = *backends.ports.first().context("there is no backend")?;
        let floor_port = free_port()?;
        let floor = Process::start(
            Command::new(std::env::current_exe()?)
                .args(["bench", "floor", &floor_port.to_string(), &first.to_string()])
                .stdin(Stdio::null()),
        )?;
        wait_for_port(floor_port, Duration::from_secs(10))?;
        let named: Vec<(String, String)> =
            backends.urls().enumerate().map(|(number, url)| (format!("b{number:02}"), url)).collect();
        let mut with_hanging = named.clone();
        with_hanging.extend(HANGING.iter().map(|(name, _)| (*name).to_owned()).zip(hanging.urls()));
        // Those that hang stay listed, so that calls of them are always in flight.
        let patient = json!({ "operational": { "failureHandling": { "unhealthyThreshold": 1_000_000 } } });
        let place = target_dir()?.join("bench/vmcp");
        let url = format!("http://127.0.0.1:{first}/mcp");
        Ok(Self {
            count,
            floor,
            floor_port,
            proxy: Proxy::start(binary, &place.join("proxy"), &Behind::Url(url))?,
            healthy: Proxy::start_virtual(binary, &place.join("healthy"), &named, json!({}))?,
            beside_hanging: Proxy::start_virtual(binary, &place.join("beside-hanging"), &with_hanging, patient)?,
            // One of each: a caller's turns go to all backends.
            tools: named.iter().map(|(name, _)| format!("{name}_{}", tool(0))).collect(),
            backends,
            hanging,
            one_server,
        })
    }

    /// Waits until the virtual servers list all tools. Returns how long the list of the first one is, in bytes.
    pub(super) async fn wait_for_lists(&self) -> Result<usize> {
        let mut lengths = Vec::new();
        for (server, tools) in [(&self.healthy, OTHERS), (&self.beside_hanging, TOOLS)] {
            let mut callers = Callers::connect(&server.url(), 1).await?;
            callers.initialize().await?;
            let deadline = Instant::now() + LISTED;
            loop {
                let body = callers.ask(&list(0)).await?;
                let found = count_tools(&body);
                if found == tools {
                    lengths.push(body.len());
                    break;
                }
                ensure!(Instant::now() < deadline, "a virtual server lists {found} of {tools} tools");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            callers.leave().await?;
        }
        lengths.first().copied().context("there is no virtual server")
    }

    /// From now on, two backends of the second virtual server hang.
    pub(super) async fn hang(&self) -> Result<()> {
        for ((_, how), url) in HANGING.iter().zip(self.hanging.urls()) {
            let ask = Ask::new("bench/hang", &json!({ "how": how }), 0);
            Callers::connect(&url, 1).await?.ask(&ask).await?;
        }
        Ok(())
    }

    /// The ways for calls.
    pub(super) fn calls(&self) -> Vec<Way> {
        let calls = |tools: &[String]| tools.iter().map(|tool| Ask::tool(tool, SIZE)).collect::<Vec<_>>();
        let (own, all) = (calls(&[tool(0)]), calls(&self.tools));
        let way = |name, url, process, asks, hanging| Way { name, url, process: Some(process), asks, hanging };
        let floor = format!("http://127.0.0.1:{}/mcp", self.floor_port);
        vec![
            way(FLOOR, floor, self.floor.id(), own.clone(), Vec::new()),
            way(PROXY, self.proxy.url(), self.proxy.id(), own, Vec::new()),
            way(VIRTUAL, self.healthy.url(), self.healthy.id(), all.clone(), Vec::new()),
            way(BESIDE_HANGING, self.beside_hanging.url(), self.beside_hanging.id(), all, hanging()),
        ]
    }

    /// The ways for lists, which have about so many bytes.
    pub(super) fn lists(&self, bytes: usize) -> Vec<Way> {
        let one_server = self.one_server.urls().next().unwrap_or_default();
        let way = |name, url, process, hanging| Way {
            name,
            url,
            process: Some(process),
            // Names are without a prefix where there is one server.
            asks: vec![list(bytes / 10 * 9)],
            hanging,
        };
        vec![
            way(ONE_SERVER, one_server, self.one_server.id(), Vec::new()),
            way(VIRTUAL, self.healthy.url(), self.healthy.id(), Vec::new()),
            way(BESIDE_HANGING, self.beside_hanging.url(), self.beside_hanging.id(), hanging()),
        ]
    }
}

/// The tools of backends that hang, as clients call them.
fn hanging() -> Vec<String> {
    HANGING.iter().map(|(name, _)| format!("{name}_{}", tool(0))).collect()
}

/// How many tools a response lists, of a body that may be an event.
fn count_tools(body: &[u8]) -> usize {
    let text = String::from_utf8_lossy(body);
    let mut texts = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let tools = texts.find_map(|text| {
        let value: Value = serde_json::from_str(text).ok()?;
        value.pointer("/result/tools").and_then(Value::as_array).map(Vec::len)
    });
    tools.unwrap_or_default()
}
