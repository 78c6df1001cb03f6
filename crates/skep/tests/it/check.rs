//! `skep check`

use serde_json::Value;

use crate::{repository, skep, skep_with_input};

#[test]
fn the_examples_are_valid() {
    let examples = repository().join("examples");
    let run = skep(&["check", "-f", examples.to_str().unwrap()]);
    assert!(run.succeeded().lines().all(|line| line.contains(" valid ")), "{}", run.out);
}

#[test]
fn every_problem_of_every_object_is_listed_with_its_place() {
    let manifest = "
apiVersion: toolhive.stacklok.dev/v1beta1
kind: MCPServer
metadata: {name: A_b}
spec: {imag: x, proxyPort: 70000, env: [{name: a, value: 1}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
---
apiVersion: toolhive.stacklok.dev/v2
kind: MCPGroup
metadata: {name: g}
";
    let run = skep_with_input(&["check", "-f", "-", "-o", "json"], manifest);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let findings: Vec<Value> = serde_json::from_str(&run.out).unwrap();
    let verdicts: Vec<_> = findings.iter().map(|finding| finding["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["invalid", "skipped", "invalid"]);
    for words in
        ["metadata.name", "spec.image: is missing", "did you mean `image`", "at most 65535", "spec.env[0].value"]
    {
        assert!(findings[0]["problems"].to_string().contains(words), "{words}: {}", findings[0]);
    }
    assert!(findings[2]["problems"].to_string().contains("is not served; write `toolhive.stacklok.dev/v1"));
}

#[test]
fn what_cannot_be_read_is_one_clear_line() {
    skep(&["check", "-f", "no-such-file.yaml"]).refused(1, &["no-such-file.yaml", "No such file"]);
    skep_with_input(&["check", "-f", "-"], "a: [").refused(1, &["cannot read `-`", "not valid YAML"]);
    skep_with_input(&["check", "-f", "-"], "").refused(1, &["nothing to check"]);
    let empty = tempfile::tempdir().unwrap();
    skep(&["check", "-f", empty.path().to_str().unwrap()]).refused(1, &["holds no *.yaml"]);
}
