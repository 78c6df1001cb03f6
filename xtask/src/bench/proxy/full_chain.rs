//! The cost of middleware: the bare chain, each middleware alone on top of it, and all of them together, in one run.
//!
//! ```text
//!                 ┌──────────────────────────────┐
//!   callers ──────┼─▶ skep proxy, bare chain ────┤
//!                 ├─▶ skep proxy, + one of them ─┼─▶ server, streamable HTTP
//!                 └─▶ skep proxy, full chain ────┘
//! ```
//!
//! All callers send the same token, so that the bare chain reads the same headers. The full chain is: a JWT signed with ES256, 50 Cedar
//! policies, a tool filter, an audit log in a file, traces of which 10 % are sent to a collector on loopback, and a limit in memory.

mod loopback;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::loopback::Loopback;
use super::{Arguments, ROUNDS, Way, round, server, usage};
use crate::bench::load::Callers;
use crate::bench::report::{self, Round};
use crate::process::free_port;
use crate::skep::{self, Behind, Proxy};
use crate::{target_dir, ui};

/// The length of results, in bytes.
const SIZE: usize = 1024;
/// How many Cedar policies there are.
const POLICIES: usize = 50;
/// The largest CPU time of the full chain beside the bare one, and its largest memory when it is idle, in MiB.
const MOST: (f64, f64) = (1.6, 15.0);
/// Keys and tokens that PyJWT made, which the tests of the proxy use as well.
const VECTORS: &str = include_str!("../../../../crates/proxy/tests/it/tokens.json");

/// A chain, and what its RunConfig says beside that of the bare one.
struct Chain {
    name: &'static str,
    config: Value,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let port = arguments.server_port.map_or_else(free_port, Ok)?;
    let _server = server::start(&server::build()?, port)?;
    let vectors: Value = serde_json::from_str(VECTORS)?;
    let token = vectors.pointer("/tokens/ada").and_then(Value::as_str).context("there is no token")?;
    let loopback = Loopback::start(json!({ "keys": vectors.get("keys") }).to_string())?;
    let place = target_dir()?.join("bench/full-chain");
    let behind = Behind::Url(format!("http://127.0.0.1:{port}/mcp"));

    let mut proxies = Vec::new();
    for chain in chains(&loopback, &place) {
        let directory = place.join(chain.name.replace(' ', "-"));
        let proxy = Proxy::start_with(&binary, &directory, &behind, chain.config);
        proxies.push((chain.name, proxy.with_context(|| chain.name)?));
    }
    let ways: Vec<Way> =
        proxies.iter().map(|(name, proxy)| Way { name, url: proxy.url(), process: Some(proxy.id()) }).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(measure(arguments, &ways, token));
    drop(proxies);
    fs::remove_dir_all(&place)?;
    measured
}

async fn measure(arguments: &Arguments, ways: &[Way], token: &str) -> Result<()> {
    let authorization = format!("Bearer {token}");
    // After its first session: the keys of the issuer and the policies are there, and nothing else is.
    let mut idle = Vec::new();
    for way in ways {
        let mut callers = Callers::connect(&way.url, 1).await?.with_authorization(&authorization)?;
        callers.initialize().await.with_context(|| way.name)?;
        callers.leave().await?;
        idle.push(usage(way)?.resident);
    }
    let mut rounds: Vec<Vec<Round>> = ways.iter().map(|_| Vec::new()).collect();
    for number in 1..=ROUNDS {
        ui::progress(&format!("round {number} of {ROUNDS}…"));
        for (way, rounds) in ways.iter().zip(&mut rounds) {
            let measured = round(arguments, way, SIZE, Some(&authorization)).await;
            rounds.push(measured.with_context(|| way.name)?);
        }
    }
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    let (callers, time) = (arguments.connections, arguments.seconds);
    ui::result(&format!(
        "{callers} callers, {ROUNDS} rounds of {time} s each, results of {SIZE} bytes: the median round"
    ));
    ui::result(&report::shares(&names, &rounds, &idle, MOST));
    Ok(())
}

fn chains(loopback: &Loopback, place: &Path) -> Vec<Chain> {
    let issuer = json!({ "oidc_config": {
        "Issuer": "https://issuer.example", "Audience": "mcp", "JWKSURL": loopback.url("/keys"), "AllowPrivateIP": true, "InsecureAllowHTTP": true,
    } });
    let policies =
        json!({ "authz_config": { "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies() } } });
    let filter = json!({ "tools_filter": ["bytes"] });
    let audit = json!({ "audit_config": { "logFile": place.join("audit.log") } });
    let traces = json!({ "telemetry_config": {
        "endpoint": loopback.url(""), "insecure": true, "tracingEnabled": true, "samplingRate": "0.1",
    } });
    // Both levels are counted, and no call is refused.
    let bucket = json!({ "maxTokens": 1_000_000_000, "refillPeriod": "1s" });
    let limit = json!({ "rate_limit_config": { "shared": bucket, "perUser": bucket } });
    let mut all = json!({});
    let parts = [&issuer, &policies, &filter, &audit, &traces, &limit];
    for (name, value) in parts.into_iter().filter_map(Value::as_object).flatten() {
        if let Some(all) = all.as_object_mut() {
            all.insert(name.clone(), value.clone());
        }
    }
    // Limits for each client need clients that are known.
    let with_issuer = |part: &Value| {
        let mut config = issuer.clone();
        if let (Some(config), Some(part)) = (config.as_object_mut(), part.as_object()) {
            config.extend(part.clone());
        }
        config
    };
    let limit = with_issuer(&limit);
    [
        ("bare chain", json!({})),
        ("authentication", issuer),
        ("policies", policies),
        ("tool filter", filter),
        ("audit", audit),
        ("traces", traces),
        ("auth and limit", limit),
        ("full chain", all),
    ]
    .map(|(name, config)| Chain { name, config })
    .into()
}

/// Policies of which one permits the tool, and one of five forbids something.
fn policies() -> Vec<String> {
    let policy = |number: usize| {
        match number % 5 {
        _ if number == 0 => {
            r#"permit(principal, action == Action::"call_tool", resource == Tool::"bytes") when { principal has claim_sub };"#.to_owned()
        }
        1 => format!(r#"permit(principal in THVGroup::"team{number}", action, resource in MCP::"other{number}");"#),
        2 => format!(r#"permit(principal == Client::"user{number}", action, resource) when {{ resource.name like "tool{number}*" }};"#),
        3 => format!(r#"permit(principal, action == Action::"get_prompt", resource == Prompt::"prompt{number}");"#),
        4 => format!(r#"permit(principal, action, resource == Tool::"tool{number}") when {{ context has claim_level && context.claim_level.greaterThan(decimal("3.0")) }};"#),
        _ => format!(r#"forbid(principal, action == Action::"call_tool", resource == Tool::"dangerous{number}");"#),
    }
    };
    (0..POLICIES).map(policy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_policies_as_the_report_says_and_all_are_different() {
        let policies: std::collections::BTreeSet<String> = policies().into_iter().collect();
        assert_eq!(policies.len(), POLICIES);
    }
}
