//! The cost of one hostile client for the others.
//!
//! ```text
//!   127.0.0.1            ── initialize, initialize, … ──┐
//!   127.0.0.2 … .11      ── one session each, calls ────┼─▶ skep proxy ─▶ demo server on stdio
//!   127.0.0.1            ── half a body; no reading ────┘
//! ```
//!
//! The clients are identified by their addresses. A failed request of the others is an error; their latency, and the
//! memory of the proxy, are printed.

mod client;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::client::Client;
use crate::process::Usage;
use crate::skep::{self, Behind, Program, Proxy};
use crate::{target_dir, ui};

/// How many others there are.
const OTHERS: u8 = 10;
/// Over how many connections the hostile client opens sessions.
const FLOODS: usize = 8;
/// The length of a body that is not sent to its end, and of a response that is not read, in bytes.
const BODY: usize = 8 * 1024 * 1024;
const RESULT: usize = 7 * 1024 * 1024;

/// How to measure.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many sessions the hostile client opens.
    #[arg(long, default_value_t = 200_000)]
    initializes: usize,
    /// How many bodies it leaves half sent.
    #[arg(long, default_value_t = 30)]
    bodies: usize,
    /// How many responses it does not read.
    #[arg(long, default_value_t = 20)]
    responses: usize,
    /// The `skep` to measure. Left out, the one of the image is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let program = Program { path: binary.clone(), arguments: vec!["demo-server".to_owned()] };
    let proxy = Proxy::start(&binary, &target_dir()?.join("bench/limits"), &Behind::Stdio(&program))?;
    let url = proxy.url();
    let port = url.split([':', '/']).nth(4).and_then(|port| port.parse().ok()).context("no port")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(arguments, port, proxy.id()))
}

async fn measure(arguments: &Arguments, port: u16, process: u32) -> Result<()> {
    let resident = || Usage::of(process).map(|usage| usage.resident);
    ui::result(&format!("idle: {:.1} MiB resident", resident()?));
    flood(arguments.initializes, port).await?;
    ui::result(&format!("after it: {:.1} MiB resident, {:.1} at the most", resident()?, Usage::of(process)?.peak));
    let (before, bodies) = (resident()?, half_sent(arguments.bodies, port).await?);
    ui::result(&format!(
        "{} half-sent bodies of 8 MiB: {:.1} MiB resident before, {:.1} with them; {} were admitted, {} got 503",
        arguments.bodies,
        before,
        resident()?,
        bodies.iter().filter(|body| body.is_some()).count(),
        bodies.iter().filter(|body| body.is_none()).count(),
    ));
    drop(bodies);
    let (before, responses) = (resident()?, unread(arguments.responses, port).await?);
    ui::result(&format!(
        "{} unread responses of 7 MiB: {before:.1} MiB resident before, {:.1} with them; a small call meanwhile takes {:?}",
        arguments.responses,
        resident()?,
        small_call(port).await?,
    ));
    drop(responses);
    Ok(())
}

/// Opens sessions from one address while clients of others work.
async fn flood(count: usize, port: u16) -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (2..2 + OTHERS).map(|number| tokio::spawn(work(number, port, Arc::clone(&is_over)))).collect();
    let started = Instant::now();
    let floods: Vec<_> = (0..FLOODS)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = Client::connect(1, port).await?;
                for _ in 0..count.div_ceil(FLOODS) {
                    client.initialize().await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for flood in floods {
        flood.await?.context("the client that opens sessions")?;
    }
    let time = started.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let mut taken: Vec<Duration> = Vec::new();
    let mut failed = 0;
    for other in others {
        match other.await? {
            Ok(times) => taken.extend(times),
            Err(error) => {
                failed += 1;
                ui::error(&error);
            }
        }
    }
    taken.sort();
    let at = |part: usize| taken.get(taken.len() * part / 1000).copied().unwrap_or_default();
    ui::result(&format!(
        "{count} initialize of one client in {time:.1?}; {OTHERS} others made {} calls meanwhile, {failed} of them failed; \
         half took up to {:.1?}, 99 % up to {:.1?}, the slowest {:.1?}",
        taken.len(),
        at(500),
        at(990),
        taken.last().copied().unwrap_or_default(),
    ));
    ensure!(failed == 0, "{failed} of {OTHERS} clients noticed");
    Ok(())
}

/// A client that works: one session for the whole time, and a new one now and then. Returns what its calls took.
async fn work(number: u8, port: u16, is_over: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let mut client = Client::connect(number, port).await?;
    let session = client.initialize().await?;
    let mut taken = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let started = Instant::now();
        client.call(&session).await.with_context(|| format!("client {number}"))?;
        taken.push(started.elapsed());
        if taken.len() % 100 == 0 {
            let new = client.initialize().await.with_context(|| format!("client {number}"))?;
            client.call(&new).await.with_context(|| format!("client {number}, a new session"))?;
        }
    }
    Ok(taken)
}

/// Sends half of each body. A refused one does not count.
async fn half_sent(count: usize, port: u16) -> Result<Vec<Option<Client>>> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(1, port).await?;
        bodies.push(client.send_half(BODY).await?.then_some(client));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(bodies)
}

/// Requests long responses, and reads none of them.
async fn unread(count: usize, port: u16) -> Result<Vec<Client>> {
    let mut responses = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(1, port).await?;
        client.ask_for(RESULT).await?;
        responses.push(client);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(responses)
}

async fn small_call(port: u16) -> Result<Duration> {
    let mut client = Client::connect(2, port).await?;
    let session = client.initialize().await?;
    let started = Instant::now();
    client.call(&session).await?;
    Ok(started.elapsed())
}
