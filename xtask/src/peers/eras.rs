//! Clients of both eras in front of one shared stdio server, on the SDKs of four languages each, in both orders of arrival. A server of
//! both eras keeps to the one that it is opened in; each client works in its own all the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{Caller, PATIENCE, Server, Stage, WAYS, Way, spawn, wait_until};
use crate::{program, root, ui};

/// By which way all of them talk.
const WAY: Way = WAYS[0];

/// The SDKs, by the language that each is for.
const SDKS: [&str; 4] = ["python", "typescript", "go", "rust"];

/// A client: the SDK that it is on, and how it connects.
type Client = (&'static str, &'static str);

/// Calls every server with every client. Returns a row for each round, and what failed.
pub(super) fn run(home: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for sdk in SDKS {
        for order in [["auto", "legacy"], ["legacy", "auto"]] {
            let title = format!("{sdk} server, {} first", order[0]);
            let stage = start(home, sdk, "both").with_context(|| title.clone())?;
            let bare = Caller { name: "python1", sse: true, command: python1(home) };
            let echo = server(sdk, home, "both");
            let mut failed = Vec::new();
            for mode in order {
                if mode == "legacy" {
                    // A client that declares no capability, before the legacy ones that do.
                    failed.extend(stage.call(&bare, &echo, WAY).err().map(|error| (bare.name, error)));
                }
                // What a server asks its client during a call works within an era.
                let tools: &[&str] = if mode == "legacy" { &["echo", "ask"] } else { &["echo"] };
                for client in SDKS.map(|sdk| (sdk, mode)) {
                    let tools = tools.iter().map(|tool| connect(home, &stage, client, tool));
                    failed.extend(tools.filter_map(Result::err).map(|error| (client.0, error)));
                }
            }
            record(&title, &failed, &mut rows, &mut failures);
        }
        // In front of the server on the Go SDK, one call of four came without its log.
        if sdk == "go" {
            continue;
        }
        let title = format!("{sdk} server, logs");
        let stage = start(home, sdk, "both").with_context(|| title.clone())?;
        let failed = logs(home, &stage, &title)?;
        record(&title, &failed, &mut rows, &mut failures);
    }
    // Of these SDKs, servers can do without `initialize` altogether.
    for sdk in ["typescript", "rust"] {
        let title = format!("{sdk} server, 2026-07-28 only");
        let stage = start(home, sdk, "modern").with_context(|| title.clone())?;
        let mut failed = Vec::new();
        for (client, tool) in SDKS.map(|client| (client, "echo")).into_iter().chain([("python", "log")]) {
            failed.extend(connect(home, &stage, (client, "auto"), tool).err().map(|error| (client, error)));
        }
        for client in SDKS {
            failed.extend(connect(home, &stage, (client, "legacy"), "echo").err().map(|error| (client, error)));
        }
        record(&title, &failed, &mut rows, &mut failures);
    }
    Ok((rows, failures))
}

/// Has a client of each era ask for the log of its call, alone and while another client listens. An open `subscriptions/listen` is no call
/// that a log could be of.
fn logs(home: &Path, stage: &Stage, title: &str) -> Result<Vec<(&'static str, anyhow::Error)>> {
    let ask = |mode| connect(home, stage, ("python", mode), "log").err().map(|error| ("python", error));
    let mut failed: Vec<_> = ask("auto").into_iter().collect();
    let log = home.join("listen.log");
    let mut listener = Command::new("node");
    listener.arg(home.join("eras-listen.mjs")).arg(stage.url(WAY));
    let _listening = spawn(&mut listener, &log)?;
    wait_until(&format!("{title}: a subscription"), PATIENCE, || {
        let logged = fs::read_to_string(&log)?;
        if logged.contains("acknowledged") { Ok(()) } else { bail!("{logged}") }
    })?;
    failed.extend(["auto", "legacy", "auto"].into_iter().filter_map(ask));
    Ok(failed)
}

fn record(title: &str, failed: &[(&str, anyhow::Error)], rows: &mut Vec<String>, failures: &mut Vec<String>) {
    rows.push(format!("{title:<37} {}", if failed.is_empty() { "ok" } else { "FAILED" }));
    failures.extend(failed.iter().map(|(client, error)| format!("{title}, {client}: {error:#}")));
}

pub(super) fn start(home: &Path, sdk: &'static str, eras: &str) -> Result<Stage> {
    ui::progress(&format!("{sdk} server of {eras}"));
    let server = server(sdk, home, eras);
    Stage::start(home, &server, server.speaks("stdio").context("it has no program")?, WAY)
}

/// The server of an SDK, over stdio.
fn server(sdk: &'static str, home: &Path, eras: &str) -> Server {
    let at = |path: &str| home.join(path).display().to_string();
    let script = root().join("xtask/peers/eras/server.py").display().to_string();
    let program = match sdk {
        "python" => vec![at("python2/bin/python"), script],
        "typescript" => vec!["node".to_owned(), at("eras-server.mjs"), eras.to_owned()],
        "go" => vec![at("go-peer"), "stdio".to_owned()],
        _ => vec![at("rust/debug/peer"), "server".to_owned(), eras.to_owned()],
    };
    let arguments = r#"{"message":"hello"}"#;
    Server { name: sdk, stdio: Some(program), sse: None, streamable: None, tool: "echo", arguments }
}

/// Has a client call a tool.
pub(super) fn connect(home: &Path, stage: &Stage, (sdk, mode): Client, tool: &str) -> Result<()> {
    let at = |path: &str| home.join(path).display().to_string();
    let script = root().join("xtask/peers/eras/client.py").display().to_string();
    let client = match sdk {
        "python" => vec![at("python2/bin/python"), script],
        "typescript" => vec!["node".to_owned(), at("eras-client.mjs")],
        "go" => vec![at("go-peer"), "client".to_owned()],
        _ => vec![at("rust/debug/peer"), "client".to_owned()],
    };
    let mut command = Command::new("timeout");
    command.arg("60").args(client).args([&stage.url(WAY), mode, tool]);
    program::capture(&mut command).map(drop).with_context(|| format!("{mode}, {tool}"))
}

fn python1(home: &Path) -> Vec<String> {
    let script = root().join("xtask/peers/python1.py");
    vec![home.join("python1/bin/python").display().to_string(), script.display().to_string()]
}
