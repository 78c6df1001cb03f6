//! What one message of a client may cost a proxy.

use super::{Running, demo_server, exchange, write};
use crate::bounds::peak;

/// The most that one message may take beside the buffers that hold its bytes, in KiB. A tree of it would take hundreds of MiB.
const MOST_KIB: u64 = 96 * 1024;

/// Small values that are much larger as a tree than as text, in a message of almost the largest size.
fn dense(shape: &str) -> String {
    format!("[{}0]", format!("{shape},").repeat(7_500_000 / (shape.len() + 1)))
}

/// Item 17-8: messages are never parsed as a whole.
#[test]
fn one_message_of_a_client_takes_little_more_than_its_bytes() {
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
