//! What one message of a client may cost a proxy.

use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::loopback::Loopback;
use super::{Running, demo_server, exchange, write};
use crate::bounds::peak;

/// The most that one message may take beside the buffers that hold its bytes, in KiB. A tree of it would take hundreds of MiB.
const MOST_KIB: u64 = 96 * 1024;

/// One test at a time: each sends messages of the largest size, and a slow upload is cut.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes the peak of a process what it takes now, and returns that.
fn reset_peak(pid: u32) -> u64 {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    peak(pid).expect("it runs")
}

/// Small values that are much larger as a tree than as text, in a message of almost the largest size.
fn dense(shape: &str) -> String {
    format!("[{}0]", format!("{shape},").repeat(7_500_000 / (shape.len() + 1)))
}

/// Item 17-8: messages are never parsed as a whole.
#[test]
fn one_message_of_a_client_takes_little_more_than_its_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let manifest = write(directory.path(), "demo.yaml", &demo_server("demo", ""));
    let running = Running::start_with(&["-f", &manifest, "-o", "json"], &[("SKEP_MEMORY_BUDGET", "48Mi")]);
    let url = running.settled("demo")["url"].as_str().unwrap().to_owned();
    let before = peak(running.child.id()).unwrap();
    let message =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let name = "n".repeat(7_500_000);
    for body in [
        message(
            "initialize",
            &format!(
                r#"{{"protocolVersion":"2025-11-25","clientInfo":{{}},"capabilities":{{"experimental":{}}}}}"#,
                dense(r#"{"":0}"#)
            ),
        ),
        message(
            "initialize",
            &format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{}}}"#, dense("[0]")),
        ),
        message("resources/subscribe", &format!(r#"{{"uri":"demo://x","junk":{}}}"#, dense(r#"{"":0}"#))),
        message("logging/setLevel", &format!(r#"{{"level":"info","junk":{}}}"#, dense("[0]"))),
        message("tools/call", &format!(r#"{{"name":"{name}","arguments":{{}}}}"#)),
        message(
            "tools/call",
            &format!(r#"{{"name":"calculate","_meta":{{"io.modelcontextprotocol/junk":{}}}}}"#, dense(r#"{"":0}"#)),
        ),
    ] {
        exchange(&url, &body);
    }
    let after = peak(running.child.id()).expect("it runs");
    println!("the peak went from {before} KiB to {after} KiB");
    assert!(after - before < MOST_KIB, "from {before} KiB to {after} KiB");
    running.stop();
}

/// A webhook that adds a member to every message.
fn patching_webhook() -> Loopback {
    let operation = json!({ "op": "add", "path": "/mcp_request/params/_meta", "value": {} });
    let body = json!({ "allowed": true, "patch_type": "json_patch", "patch": [operation] }).to_string();
    Loopback::start(move |_| body.clone())
}

/// The same for a message of the largest size that webhooks see: its bytes are held several times, for the webhook and for the server. A
/// tree of it would take more than 40 MiB.
const MOST_OF_WEBHOOKS_KIB: u64 = 24 * 1024;

/// What guards a server may not take more than the messages that it guards.
#[test]
fn webhooks_and_policies_take_little_more_than_the_messages_of_clients() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let policy = "permit(principal, action, resource);";
    let authz = format!("authzConfig: {{type: inline, inline: {{policies: ['{policy}']}}}}");
    let webhook = patching_webhook();
    let hooks = format!(
        "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPWebhookConfig\nmetadata: {{name: hooks}}\nspec: {{mutating: \
         [{{name: m, url: 'http://{}/', tlsConfig: {{insecureSkipVerify: true}}}}]}}\n",
        webhook.address
    );
    let manifest = hooks
        + &demo_server("hooked", &format!(", webhookConfigRef: {{name: hooks}}, {authz}"))
        + &demo_server("guarded", &format!(", {authz}"));
    let manifest = write(directory.path(), "guarded.yaml", &manifest);
    let running = Running::start_with(&["-f", &manifest, "-o", "json"], &[("SKEP_MEMORY_BUDGET", "48Mi")]);
    let (mut hooked, mut guarded) = (String::new(), String::new());
    while hooked.is_empty() || guarded.is_empty() {
        let line: serde_json::Value = serde_json::from_str(&running.line()).unwrap();
        if line["state"] == "ready" {
            let url = if line["name"] == "hooked" { &mut hooked } else { &mut guarded };
            line["url"].as_str().unwrap().clone_into(url);
        }
    }
    let calculate = r#"{"name":"calculate","arguments":{"expression":"6 * 7"},"junk":"#;
    let call = |junk: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{calculate}{junk}}}}}"#);
    let arguments = |members: &str| {
        let params = format!(r#"{{"name":"calculate","arguments":{{"expression":"1",{members}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let shape = |shape: &str, bytes: usize| format!("[{}0]", format!("{shape},").repeat(bytes / (shape.len() + 1)));
    // Small messages are patched as ever.
    assert_eq!(exchange(&hooked, &call("[1]")).1["result"]["structuredContent"]["result"], 42);
    let refused = |body: &str| exchange(&hooked, body).1["error"]["message"].clone();
    let mut before = reset_peak(running.child.id());
    for dense in [shape(r#"{"":0}"#, 1_000_000), shape("[0]", 1_000_000)] {
        assert_eq!(refused(&call(&dense)), "Failed to apply patch from webhook");
    }
    // As many values as a message may have.
    assert_eq!(exchange(&hooked, &call(&shape(r#"{"":0}"#, 50_000))).1["result"]["structuredContent"]["result"], 42);
    let mut grew_by_less = |most: u64| {
        let after = peak(running.child.id()).expect("it runs");
        println!("the peak went from {before} KiB to {after} KiB");
        assert!(after - before < most, "from {before} KiB to {after} KiB");
        before = reset_peak(running.child.id());
    };
    grew_by_less(MOST_OF_WEBHOOKS_KIB);
    exchange(&guarded, &arguments(&format!(r#""a":{}"#, dense(r#"{"":0}"#))));
    exchange(&guarded, &call(&dense("[0]")));
    grew_by_less(MOST_KIB);
    running.stop();
}
