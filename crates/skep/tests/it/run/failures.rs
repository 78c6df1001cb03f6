//! The reports about servers that fail and recover.

use std::io::{BufRead as _, BufReader, Read as _};

use super::{PATIENCE, Running, get, lines, server, write};

/// A server that exits at once: in a pipe, too, the failure is reported with its exit status and its last log lines.
#[test]
fn a_failed_server_is_reported_with_its_exit_status_and_its_last_log_lines() {
    let directory = tempfile::tempdir().unwrap();
    let script = "for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 7";
    let text = server("broken", &format!("image: 'exec://sh', args: [-c, '{script}']"));
    let file = write(directory.path(), "broken.yaml", &text);
    let words = "the server ended: exit status: 7 | line 3 | line 4 | line 5 | line 6 | line 7";
    let run = Running::start(&["-f", &file, "-o", "json"]);
    let mut line = run.about("broken");
    while line["state"] != "failing" {
        assert_eq!(line["state"], "starting", "{line}");
        line = run.about("broken");
    }
    assert_eq!(line["reason"], words);
    // The public health endpoint shows nothing of the server's log.
    let (host, _) = line["url"].as_str().unwrap().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let health = get(host, "/health");
    assert!(health.contains("exit status: 7") && !health.contains("line 3"), "{health}");
    run.stop();

    let mut run = Running::start(&["-f", &file]);
    assert!(run.line().starts_with("broken http://127.0.0.1:"));
    let mut errors = BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert_eq!(line, format!("MCPServer/broken: failing: {words}\n"));
    run.signal("-INT");
    let mut more = String::new();
    errors.read_to_string(&mut more).unwrap();
    assert_eq!(more, "", "it did not change");
}

/// A server that fails twice, with messages that differ by the time only, and then serves.
const RECOVERS: &str = r#"
tries=$(cat TRIES 2>/dev/null || echo 0); echo $((tries + 1)) > TRIES
if [ "$tries" -lt 2 ]; then echo "a log is in /tmp/logs/$(date +%s%N)-debug.log" >&2; exit 1; fi
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in *notifications/*) continue ;; esac
  printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id"
done
"#;

#[test]
fn an_identical_failure_is_reported_once_and_so_is_the_recovery_also_in_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let tries = directory.path().join("tries");
    let script = write(directory.path(), "recovers.sh", &RECOVERS.replace("TRIES", tries.to_str().unwrap()));
    let file = write(directory.path(), "a.yaml", &server("flaky", &format!("image: 'exec://sh', args: ['{script}']")));
    let mut run = Running::start(&["-f", &file]);
    assert!(run.line().starts_with("flaky http://127.0.0.1:"));
    let errors = lines(run.child.stderr.take().unwrap());
    let next = || errors.recv_timeout(PATIENCE).expect("another line");
    let failed = next();
    assert!(
        failed.starts_with("MCPServer/flaky: failing: the server ended: exit status: 1 | a log is in "),
        "{failed}"
    );
    assert_eq!(next(), "MCPServer/flaky: ready");
    assert_eq!(std::fs::read_to_string(&tries).unwrap().trim(), "3");
    run.signal("-INT");
    assert!(errors.recv_timeout(PATIENCE).is_err(), "there is no more to report");
}

/// A running process is not yet a ready server: it may be a package manager that looks for what does not exist.
#[test]
fn a_server_that_never_responds_is_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "a.yaml", &server("slow", "image: 'exec://sh', args: [-c, 'sleep 3; exit 1']"));
    let run = Running::start(&["-f", &file, "-o", "json"]);
    assert_eq!(run.about("slow")["state"], "starting");
    assert_eq!(run.about("slow")["state"], "failing");
    run.stop();
}
