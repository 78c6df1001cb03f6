//! Clients of each era in front of servers of each era, over stdio and over streamable HTTP: each works in its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::eras::{connect, start};
use super::{Caller, Server, Stage, WAYS, call};
use crate::{program, ui};

/// What the servers speak, and how they are started.
const STDIO: [(&str, &str); 3] = [("typescript", "modern"), ("python", "both"), ("typescript", "both")];
const HTTP: [&str; 3] = ["legacy", "modern", "both"];
/// How long the crowd calls one server, in seconds.
const CROWD: u32 = 60;

/// Calls every server with clients of both eras. Returns a row for each, and what failed.
pub(super) fn run(home: &Path, servers: &[Server], callers: &[Caller]) -> Result<(Vec<String>, Vec<String>)> {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let mut record = |title: &str, failed: Vec<String>| {
        rows.push(format!("{title:<44} {}", if failed.is_empty() { "ok" } else { "FAILED" }));
        failures.extend(failed.into_iter().map(|why| format!("{title}: {why}")));
    };
    for (sdk, eras) in STDIO {
        let stage = start(home, sdk, eras)?;
        record(&format!("{sdk} server on stdio, {eras}"), clients(home, &stage, callers));
    }
    // Servers that know nothing of 2026-07-28.
    for server in servers.iter().filter(|server| ["server-everything", "mcp-server-time"].contains(&server.name)) {
        for way in WAYS.into_iter().filter(|way| way.client == "streamable" && !way.remote) {
            let Some(program) = server.speaks(way.server) else { continue };
            let title = format!("{} by {}, legacy", server.name, way.name);
            ui::progress(&title);
            let stage = Stage::start(home, server, program, way).with_context(|| title.clone())?;
            let called = callers.iter().map(|caller| call(&stage.url(way), caller, server, way));
            let failed = called
                .zip(callers)
                .filter_map(|(called, caller)| Some(format!("{}: {:#}", caller.name, called.err()?)));
            record(&title, failed.collect());
        }
    }
    for eras in HTTP {
        let server = over_http(home, eras);
        let way = WAYS.into_iter().find(|way| way.server == "streamable-http" && !way.remote).context("no way")?;
        ui::progress(&format!("server that speaks HTTP, {eras}"));
        let stage = Stage::start(home, &server, server.speaks(way.server).context("no program")?, way)?;
        record(&format!("typescript server over HTTP, {eras}"), clients(home, &stage, callers));
    }
    for eras in ["both", "modern"] {
        let title = format!("50 clients of both eras, typescript, {eras}");
        ui::progress(&title);
        let stage = start(home, "typescript", eras)?;
        let crowd = home.join("eras-crowd.mjs");
        let mut command = Command::new("timeout");
        command.arg((CROWD * 3).to_string()).arg("node").arg(crowd).args([&stage.url(WAYS[0]), &CROWD.to_string()]);
        record(&title, program::capture(&mut command).err().map(|error| format!("{error:#}")).into_iter().collect());
    }
    Ok((rows, failures))
}

/// Has the clients of both eras call a server, and those that know one era only.
fn clients(home: &Path, stage: &Stage, callers: &[Caller]) -> Vec<String> {
    let mut failed = Vec::new();
    for sdk in ["python", "typescript"] {
        for mode in ["auto", "legacy"] {
            failed.extend(connect(home, stage, (sdk, mode), "echo").err().map(|error| format!("{sdk}: {error:#}")));
        }
    }
    let arguments = r#"{"message":"hello"}"#;
    let echo = Server { name: "echo", stdio: None, sse: None, streamable: None, tool: "echo", arguments };
    for caller in callers.iter().filter(|caller| ["python1", "sdk"].contains(&caller.name)) {
        failed.extend(stage.call(caller, &echo, WAYS[0]).err().map(|error| format!("{}: {error:#}", caller.name)));
    }
    failed
}

fn over_http(home: &Path, eras: &'static str) -> Server {
    let program = vec!["node".to_owned(), home.join("eras-http.mjs").display().to_string(), eras.to_owned()];
    let arguments = r#"{"message":"hello"}"#;
    Server { name: "eras-http", stdio: None, sse: None, streamable: Some(program), tool: "echo", arguments }
}
