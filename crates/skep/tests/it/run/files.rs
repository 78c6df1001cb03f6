//! Ports in manifests, broken files, servers that this version cannot run, and the file that the README runs.

use super::*;
use crate::{line_count, repository, wait_until};

/// Clients connect to the port in a server's manifest, and must not find another process there.
#[test]
fn the_port_of_a_manifest_is_bound_or_refused_with_its_holder() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (taken_port, free) = (taken.local_addr().unwrap().port(), free_port());
    let directory = tempfile::tempdir().unwrap();
    let text = demo_server("first", &format!(", proxyPort: {taken_port}"))
        + &demo_server("second", &format!(", proxyPort: {free}, proxyMode: sse"))
        + &demo_server("third", &format!(", proxyPort: {free}"));
    let file = write(directory.path(), "three.yaml", &text);
    let run = Running::start(&["-f", &file]);
    assert_eq!(run.line(), format!("second http://127.0.0.1:{free}/sse"));
    let errors = run.stop();
    let [first, third] = errors.lines().collect::<Vec<_>>()[..] else { panic!("{errors}") };
    let holder = format!("port {taken_port} is in use by `");
    assert!(first.starts_with("MCPServer/first: refused: ") && first.contains(&holder), "{first}");
    assert!(first.contains(&format!("(process {})", std::process::id())), "{first}");
    let both = format!("port {free} is given twice: here ({file}:12) and to MCPServer `second` ({file}:7)");
    assert!(third.starts_with("MCPServer/third: refused: ") && third.contains(&both), "{third}");
}

/// A port that no manifest sets may be any, but not one that a manifest sets.
#[test]
fn servers_without_a_port_get_one_each_and_leave_the_given_ones_alone() {
    let directory = tempfile::tempdir().unwrap();
    let text = demo_server("any", "") + &demo_server("more", "") + &demo_server("given", ", proxyPort: 8080");
    let run = Running::start(&["-f", &write(directory.path(), "three.yaml", &text), "-o", "json"]);
    let mut urls = std::collections::BTreeMap::new();
    while urls.len() < 3 {
        let line: Value = serde_json::from_str(&run.line()).unwrap();
        let name = line["name"].as_str().unwrap().to_owned();
        if line["state"] == "refused" {
            // Another process may have the default port.
            assert_eq!(name, "given", "{line}");
            urls.insert(name, String::new());
        } else if let Some(url) = line["url"].as_str() {
            urls.insert(name, url.to_owned());
        }
    }
    for name in ["any", "more"] {
        assert!(!urls[name].contains(":8080/"), "{urls:?}");
        assert_eq!(call(&urls[name]), 1024);
    }
    run.stop();
}

/// The README's example, with `skep` on the PATH as it says. The packages need a network, so only the server that needs
/// none runs.
#[test]
fn the_example_for_this_machine_runs_once_skep_is_installed() {
    let text = std::fs::read_to_string(repository().join("examples/07-on-this-machine.yaml")).unwrap();
    let documents: Vec<&str> =
        text.split("---\n").filter(|one| !one.contains("npx://") && !one.contains("uvx://")).collect();
    assert_eq!(documents.len(), 2, "{text}");
    let text = documents.join("---\n").replace("proxyPort: 8083", &format!("proxyPort: {}", free_port()));
    let directory = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_skep"));
    assert_eq!(binary.file_name().unwrap(), "skep");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let file = write(directory.path(), "example.yaml", &text);
    let run = Running::start_with(&["-f", &file, "-o", "json"], &[("PATH", &path)]);
    let line = run.about("tools");
    assert_eq!(call(line["url"].as_str().unwrap()), 1024);
    let tools = post(line["url"].as_str().unwrap(), &request("tools/list"))["result"]["tools"].clone();
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["calculate", "time"]);
    run.stop();
}

#[test]
fn a_broken_file_is_reported_and_the_rest_runs() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a: [\n");
    write(directory.path(), "b.yaml", &format!("{}---\nb: {{\n", demo_server("demo", "")));
    let path = directory.path().to_str().unwrap();
    let run = Running::start(&["-f", path, "-o", "json"]);
    for name in ["a.yaml", "b.yaml"] {
        let line: Value = serde_json::from_str(&run.line()).unwrap();
        assert!(line["file"].as_str().unwrap().ends_with(name), "{line}");
        assert_eq!(line["state"], "refused");
        assert!(line["reason"].as_str().unwrap().contains("not valid YAML"), "{line}");
    }
    assert_eq!(call(run.about("demo")["url"].as_str().unwrap()), 1024);
    run.stop();
}

/// Standard output is for the report.
#[test]
fn audit_events_go_to_standard_error_or_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "a.yaml", &demo_server("recorded", ", audit: {enabled: true}"));
    let log = directory.path().join("audit.log");
    let events = |text: &str| {
        let event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&event["type"], &event["target"]["name"]),
            (&"mcp_tool_call".into(), &"calculate".into()),
            "{text}"
        );
        assert_eq!(
            (text.lines().count(), &event["metadata"]["extra"]["backend_name"]),
            (1, &"recorded".into()),
            "{text}"
        );
    };
    let arguments = ["-f", &file, "-o", "json", "--audit-log", log.to_str().unwrap()];
    for (arguments, is_file) in [(&arguments[..], true), (&arguments[..4], false)] {
        let run = Running::start(arguments);
        assert_eq!(call(run.about("recorded")["url"].as_str().unwrap()), 1024);
        let errors = run.stop();
        if is_file {
            events(&std::fs::read_to_string(&log).unwrap());
            assert_eq!(errors, "");
        } else {
            events(&errors);
        }
    }
}

/// As logrotate does it: the file is renamed, and SIGHUP says so. Without a file, or at a terminal, a hangup ends the run.
#[test]
fn an_audit_log_of_a_run_that_was_rotated_is_opened_again_on_a_hangup() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "a.yaml", &demo_server("recorded", ", audit: {enabled: true}"));
    let (log, rotated) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
    let run = Running::start(&["-f", &file, "-o", "json", "--audit-log", log.to_str().unwrap()]);
    let url = run.about("recorded")["url"].as_str().unwrap().to_owned();
    call(&url);
    wait_until("the first event", || line_count(&log) == 1);
    std::fs::rename(&log, &rotated).unwrap();
    run.signal("-HUP");
    wait_until("a new file", || log.exists());
    call(&url);
    wait_until("an event in the new file", || line_count(&log) == 1);
    assert_eq!((line_count(&rotated), run.stop().as_str()), (1, ""));
}
