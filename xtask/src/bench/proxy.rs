//! The proxy's cost: processor time per call first, then calls per second, latency, and memory with many sessions.
//!
//! ```text
//!                 ┌──────────────────────────────┐
//!   callers ──────┼─▶ floor: forwards only ──────┼─▶ server, streamable HTTP
//!                 ├─▶ skep proxy, streamable ────┤
//!                 ├─▶ a peer, if one is named ───┘
//!                 ├─▶ skep proxy, stdio ─────────────▶ server, stdio
//!                 │   with `--pods` also
//!                 ├─▶ skep proxy, attached ──────────▶ API server ─▶ the server's pod
//!                 └─▶ a pod's network ─▶ skep proxy ─▶ API server ─▶ the server's pod
//! ```
//!
//! The last one is as the operator makes it. What the network of pods takes to bring its answers to the callers counts as its
//! own time, and the floor has none of that: beside the floor stands the one before.
//!
//! All of them run during the whole measurement and are called in turns, round by round, because a machine is not equally
//! fast at all times. Nothing here is an assertion: a number means something only beside the floor of the same run.

pub(super) mod floor;
mod full_chain;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;

use super::load::{Ask, Callers};
use super::report::{self, Memory, Round};
use crate::pods::{Images, Pods, Subject};
use crate::process::{Process, Usage, counted, free_port, wait_for_port};
use crate::program;
use crate::skep::{self, Behind, Pod, Program, Proxy};
use crate::{target_dir, ui};

/// How often each is called.
const ROUNDS: usize = 3;
/// How long each is called before the measurement, so that buffers and caches are warm.
const WARM_UP: Duration = Duration::from_millis(500);
/// The lengths of results, in bytes.
const SIZES: [usize; 2] = [1024, 100 * 1024];
/// How long to wait before memory is measured, so that freed memory is returned.
const SETTLE: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Another proxy to measure beside ours, such as http://127.0.0.1:9000/mcp. It must stand in front of the bench's own
    /// server; give that a port by `--server-port`.
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// The process of the peer, whose processor time and memory are read.
    #[arg(long, value_name = "PID", requires = "peer")]
    peer_process: Option<u32>,
    /// Where the MCP server of the proxies listens; left out, on a free port.
    #[arg(long, value_name = "PORT")]
    server_port: Option<u16>,
    /// What each middleware costs instead: the bare chain, each middleware on top of it, and all of them together.
    #[arg(long, conflicts_with_all = ["peer", "pods"])]
    full_chain: bool,
    /// For how many seconds each is called in each round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many callers there are, each with a connection and a session of its own.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// How many sessions are opened and closed before memory is measured.
    #[arg(long, default_value_t = 60_000)]
    sessions: usize,
    /// How many sessions are open at once when memory is measured.
    #[arg(long, default_value_t = 4_000)]
    open: usize,
    /// Also proxies that are attached to pods, in the cluster of `cargo xtask cluster up`: one on this machine, and one in a
    /// pod, whose image is built and put there.
    #[arg(long)]
    pods: bool,
    #[command(flatten)]
    images: Images,
    /// The URL and the process of the proxy in a pod.
    #[arg(long, value_names = ["URL", "PID"], num_args = 2, hide = true)]
    in_a_pod: Option<Vec<String>>,
    /// The server of the one on this machine.
    #[arg(long, value_name = "FILE", hide = true)]
    attached: Option<PathBuf>,
    /// The `skep` to measure. Left out, the one of the image is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// One way to the server.
struct Way {
    name: &'static str,
    url: String,
    /// The process in between, if it is known.
    process: Option<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if cfg!(debug_assertions) {
        // Callers that were not optimized would measure themselves.
        return super::run_optimized();
    }
    if arguments.pods {
        return run_inside(arguments);
    }
    if arguments.full_chain {
        return full_chain::run(arguments);
    }
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let program = Program { path: server::build()?, arguments: Vec::new() };
    let port = arguments.server_port.map_or_else(free_port, Ok)?;
    let _server = server::start(&program.path, port)?;
    let url = format!("http://127.0.0.1:{port}/mcp");

    let floor_port = free_port()?;
    let floor = Process::start(
        Command::new(std::env::current_exe()?)
            .args(["bench", "floor", &floor_port.to_string(), &port.to_string()])
            .stdin(Stdio::null()),
    )?;
    wait_for_port(floor_port, Duration::from_secs(10))?;
    let place = target_dir()?.join("bench");
    let streamable = Proxy::start(&binary, &place.join("streamable"), &Behind::Url(url.clone()))?;
    let stdio = Proxy::start(&binary, &place.join("stdio"), &Behind::Stdio(&program))?;
    let attached = match &arguments.attached {
        Some(file) => {
            let pod: Pod = serde_json::from_slice(&fs::read(file)?)?;
            Some(Proxy::start(&binary, &place.join("attached"), &Behind::Pod(&pod))?)
        }
        None => None,
    };

    let way = |name, url, process| Way { name, url, process };
    let mut ways = vec![
        way("direct", url, None),
        way("floor", format!("http://127.0.0.1:{floor_port}/mcp"), Some(floor.id())),
        way("skep, streamable", streamable.url(), Some(streamable.id())),
        way("skep, stdio", stdio.url(), Some(stdio.id())),
    ];
    ways.extend(arguments.peer.clone().map(|url| way("peer", url, arguments.peer_process)));
    if let Some(attached) = &attached {
        ways.push(way("skep, attached", attached.url(), Some(attached.id())));
    }
    if let Some([url, process]) = arguments.in_a_pod.as_deref() {
        ways.push(way("skep, in a pod", url.clone(), Some(process.parse().context("not a process id")?)));
    }
    // One thread: the more the callers take, the less is left for those that are measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(arguments, &ways))
}

/// Puts the server into a pod, and measures everything in the cluster's network.
fn run_inside(arguments: &Arguments) -> Result<()> {
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let server = server::build()?;
    let (directory, program) = (server.parent().context("no directory")?, server.file_name().context("no name")?);
    let pods = Pods::start(&arguments.images)?;
    let (name, program) = ("bench", Path::new(program));
    let subject = Subject { name, directory, program, arguments: &[], is_stdio: true };
    let url = pods.serve(&subject)?;
    let process = pods.proxy(name)?.to_string();
    let pod = pods.alone(&subject, "bench-attached")?;
    pods.remove(&pod)?;
    let attached = target_dir()?.join("pods/bench-attached.json");
    fs::write(&attached, serde_json::to_vec(&pod)?)?;
    let mut command = pods.inside(&std::env::current_exe()?)?;
    command.args(std::env::args_os().skip(1).filter(|argument| argument != "--pods"));
    command.args(["--in-a-pod", &url, &process, "--attached"]).arg(attached);
    if arguments.binary.is_none() {
        command.arg("--binary").arg(binary);
    }
    let done = program::run(&mut command);
    pods.remove(&pod)?;
    done
}

async fn measure(arguments: &Arguments, ways: &[Way]) -> Result<()> {
    let mut memories = Vec::new();
    for way in ways.iter().filter(|way| way.process.is_some()) {
        ui::progress(&format!("{}: sessions…", way.name));
        memories.push(memory(arguments, way).await.with_context(|| way.name)?);
    }
    let mut results = Vec::new();
    for size in SIZES {
        let mut rounds: Vec<Vec<Round>> = ways.iter().map(|_| Vec::new()).collect();
        for number in 1..=ROUNDS {
            ui::progress(&format!("results of {size} bytes, round {number} of {ROUNDS}…"));
            for (way, rounds) in ways.iter().zip(&mut rounds) {
                rounds.push(round(arguments, way, size, None).await.with_context(|| way.name)?);
            }
        }
        results.push((size, rounds));
    }
    for (way, memory) in ways.iter().filter(|way| way.process.is_some()).zip(&mut memories) {
        memory.loaded = usage(way)?.resident;
    }
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    let (callers, time) = (arguments.connections, arguments.seconds);
    ui::result(&format!(
        "{callers} callers, {ROUNDS} rounds of {time} s each: the median round, and the least and the most of them"
    ));
    for (size, rounds) in &results {
        ui::result(&report::calls(*size, &names, rounds));
    }
    ui::result(&report::memory(arguments.open, arguments.sessions, &memories));
    Ok(())
}

/// Calls the server on one way, with an `Authorization` header if there is one.
async fn round(arguments: &Arguments, way: &Way, size: usize, authorization: Option<&str>) -> Result<Round> {
    let callers = Callers::connect(&way.url, arguments.connections).await?;
    let mut callers = match authorization {
        Some(authorization) => callers.with_authorization(authorization)?,
        None => callers,
    };
    callers.initialize().await?;
    let asks = [Ask::tool("bytes", size)];
    callers.ask_for(&asks, WARM_UP).await?;
    let used = || way.process.map(Usage::of).transpose();
    let before = used()?;
    let started = Instant::now();
    let taken = callers.ask_for(&asks, Duration::from_secs(arguments.seconds)).await?;
    let time = started.elapsed();
    let cpu = before.zip(used()?).map(|(before, after)| after.cpu - before.cpu);
    callers.leave().await?;
    Ok(Round::new(taken, time, cpu))
}

/// Measures the memory of one way, with many sessions and after many.
async fn memory(arguments: &Arguments, way: &Way) -> Result<Memory> {
    let Usage { resident: idle, own, .. } = usage(way)?;
    let counted = way.process.and_then(counted);
    let mut callers = Callers::connect(&way.url, arguments.connections).await?;
    let sessions = callers.open(arguments.open).await?;
    tokio::time::sleep(SETTLE).await;
    let open = usage(way)?.resident;
    callers.close(sessions).await?;
    callers.open_and_close(arguments.sessions, &[]).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(Memory { name: way.name, idle, own, counted, open, closed: usage(way)?.resident, loaded: 0.0 })
}

fn usage(way: &Way) -> Result<Usage> {
    Usage::of(way.process.context("there is no process to measure")?)
}
