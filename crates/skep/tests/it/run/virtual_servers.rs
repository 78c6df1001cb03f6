//! Virtual servers of `skep run`: the servers of a group behind one URL.

use super::*;

const KINDS: &str = r#"---
{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPGroup, metadata: {name: team}}
---
apiVersion: toolhive.stacklok.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: all}
spec:
  groupRef: {name: team}
  incomingAuth: {type: anonymous}
  config:
    compositeTools:
    - name: twice
      description: Calculates with both.
      parameters: {type: object, properties: {e: {type: string}}}
      steps:
      - {id: a, tool: one_calculate, arguments: {expression: "{{.params.e}}"}}
      - {id: b, tool: two.calculate, dependsOn: [a], arguments: {expression: "{{json .steps.a.output.result}} * 2"}}
"#;

fn member(name: &str) -> String {
    demo_server(name, ", groupRef: {name: team}")
}

/// The names of the tools at a URL, once they are as many.
fn tools(url: &str, count: usize) -> Vec<String> {
    loop {
        let listed = post(url, &request("tools/list"))["result"]["tools"].clone();
        let names: Vec<String> =
            listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        if names.len() >= count {
            return names;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_servers_of_a_group_have_one_url() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{}{}{}{KINDS}", member("one"), member("two"), demo_server("stranger", ""));
    let file = write(directory.path(), "all.yaml", &text);
    let run = Running::start(&["-f", &file, "-o", "json"]);
    let url = run.settled("all")["url"].as_str().unwrap().to_owned();
    let names = tools(&url, 3);
    assert!(
        names.iter().any(|name| name == "one_calculate") && names.iter().any(|name| name == "two_calculate"),
        "{names:?}"
    );
    assert!(names.iter().all(|name| !name.starts_with("stranger")), "{names:?}");
    let params = json!({ "name": "twice", "arguments": { "e": "3 + 4" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    assert_eq!(post(&url, &body.to_string())["result"]["structuredContent"]["result"], 14);
    run.stop();
}

#[test]
fn an_inline_member_whose_credentials_do_not_resolve_is_never_called() {
    const CREDENTIALS: &str = r"---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {k: hush}}
---
apiVersion: toolhive.stacklok.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: key}
spec: {type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: key, key: k}}}
";
    let (spec, _) = KINDS.split_once("  config:\n").unwrap();
    let reference = |name: &str| format!("{{type: externalAuthConfigRef, externalAuthConfigRef: {{name: {name}}}}}");
    let (gone, key) = (reference("gone"), reference("key"));
    let outgoing =
        format!("  outgoingAuth: {{source: inline, default: {gone}, backends: {{one: {gone}, two: {key}}}}}\n");
    let directory = tempfile::tempdir().unwrap();
    let servers = [member("one"), member("two"), member("three")].concat();
    let file = write(directory.path(), "all.yaml", &format!("{servers}{CREDENTIALS}{spec}{outgoing}"));
    let run = Running::start(&["-f", &file, "-o", "json"]);
    for name in ["one", "three"] {
        let line = run.settled("all");
        let expected = format!("`{name}` is left out: MCPExternalAuthConfig `gone` not found");
        assert!(line["reason"].as_str().unwrap().contains(&expected), "{line}");
    }
    let url = run.settled("all")["url"].as_str().unwrap().to_owned();
    let names = tools(&url, 1);
    assert!(names.iter().all(|name| name.starts_with("two_")), "{names:?}");
    run.stop();
}

#[test]
fn a_virtual_server_that_cannot_run_is_reported_and_the_rest_runs() {
    let directory = tempfile::tempdir().unwrap();
    let scripts = KINDS.replace("  config:\n", "  config:\n    codeMode: {enabled: true}\n");
    let file = write(directory.path(), "all.yaml", &format!("{}{scripts}", member("one")));
    let run = Running::start(&["-f", &file, "-o", "json"]);
    let line = run.about("all");
    assert_eq!(line["state"], "refused");
    assert!(line["reason"].as_str().unwrap().contains("codeMode"), "{line}");
    assert_eq!(run.settled("one")["state"], "ready");
    run.stop();
}
