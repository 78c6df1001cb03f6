//! `skep authz explain`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const CEDAR: &str = r#"// Everyone may look.
permit(principal, action == Action::"call_tool", resource == Tool::"look");

@id("ops only")
permit(principal in THVGroup::"ops", action, resource in MCP::"weather");
forbid(principal, action, resource) when { resource has destructiveHint && resource.destructiveHint };
"#;
const TOOLS: &str = r#"[{"name":"look"},{"name":"wipe","annotations":{"destructiveHint":true}},{"name":"set"}]"#;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("p.cedar", CEDAR);
        files.write("ada.json", r#"{"sub":"ada","groups":["ops"]}"#);
        files.write("bob.json", r#"{"sub":"bob"}"#);
        files.write("tools.json", TOOLS);
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Exit code, standard output and standard error.
    fn explain(&self, policy: &str, claims: &str, more: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_skep"))
            .current_dir(self.path())
            .args(["authz", "explain", "--policy", policy, "--claims", claims, "--server", "weather"])
            .args(more)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn a_decision_names_the_policies_and_their_lines() {
    let files = Files::new();
    for (claims, tool, code, expected) in [
        ("ada.json", "set", 0, "set: allowed, permitted by policy1 (ops only) at p.cedar:4\n"),
        ("bob.json", "set", 1, "set: denied, denied: no policy permits it\n"),
        ("bob.json", "look", 0, "look: allowed, permitted by policy0 at p.cedar:2\n"),
    ] {
        let (exit, text, _) = files.explain("p.cedar", claims, &["--name", tool]);
        assert_eq!((exit, text.as_str()), (code, expected));
    }
    let wipe = ["--name", "wipe", "--tools", "tools.json", "-o", "json"];
    let (exit, text, _) = files.explain("p.cedar", "ada.json", &wipe);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (exit, &report["decisions"][0]["allowed"]),
        (0, &json!(false)),
        "with a list, the answer is the decision"
    );
    assert_eq!(report["decisions"][0]["policies"], json!([{ "policy": "policy2", "file": "p.cedar", "line": 6 }]));
}

#[test]
fn without_a_list_the_table_has_what_the_policies_name() {
    let files = Files::new();
    let (exit, text, _) = files.explain("p.cedar", "bob.json", &[]);
    let expected = "NAME  DECISION  WHY\nlook  allowed   permitted by policy0 at p.cedar:2\n";
    assert_eq!((exit, text.as_str()), (0, expected));
    files.write(
        "named.cedar",
        r#"permit(principal, action, resource) when { [Tool::"set", Tool::"look"].contains(resource) };
           forbid(principal, action, resource == Tool::"wipe"); permit(principal, action, resource == Prompt::"greet");"#,
    );
    let (exit, text, _) = files.explain("named.cedar", "bob.json", &[]);
    let expected = "NAME  DECISION  WHY\n\
                    look  allowed   permitted by policy0 at named.cedar:1\n\
                    set   allowed   permitted by policy0 at named.cedar:1\n\
                    wipe  denied    forbidden by policy1 at named.cedar:2\n";
    assert_eq!((exit, text.as_str()), (0, expected));
    let (_, text, _) = files.explain("named.cedar", "bob.json", &["--method", "prompts/get"]);
    assert_eq!(text, "NAME   DECISION  WHY\ngreet  allowed   permitted by policy2 at named.cedar:2\n");
    let (exit, _, error) = files.explain("named.cedar", "bob.json", &["--method", "resources/read"]);
    assert!(exit != 0 && error.contains("the policies name no resource"), "{error}");
    let (exit, text, _) = files.explain("p.cedar", "bob.json", &["--method", "tasks/get"]);
    assert!(exit == 1 && text.contains("tasks/get"), "{text}");
}

#[test]
fn a_table_says_which_tools_an_identity_sees() {
    let files = Files::new();
    let (exit, text, _) = files.explain("p.cedar", "ada.json", &["--tools", "tools.json"]);
    let expected = "NAME  DECISION  WHY\n\
                    look  allowed   permitted by policy0, policy1 (ops only) at p.cedar:2, p.cedar:4\n\
                    wipe  denied    forbidden by policy2 at p.cedar:6\n\
                    set   allowed   permitted by policy1 (ops only) at p.cedar:4\n";
    assert_eq!((exit, text.as_str()), (0, expected));
}

#[test]
fn policies_may_stand_in_a_configuration_or_in_a_manifest() {
    let files = Files::new();
    let permit = "permit(principal, action, resource);";
    files.write(
        "c.json",
        &format!("{{\"version\":\"1.0\",\"type\":\"cedarv1\",\n\"cedar\":{{\"policies\":[\n\"{permit}\"]}}}}"),
    );
    files.write(
        "m.yaml",
        &format!("kind: MCPAuthzConfig\nmetadata: {{name: a}}\nspec:\n  type: cedarv1\n  config:\n    policies:\n    - |\n      {permit}\n"),
    );
    for kind in ["MCPServer", "MCPRemoteProxy"] {
        let inline = format!("inline:\n      policies:\n      - {permit}\n");
        let spec = format!("spec:\n  authzConfig:\n    type: inline\n    {inline}");
        files.write(&format!("{kind}.yaml"), &format!("kind: {kind}\nmetadata: {{name: a}}\n{spec}"));
    }
    for (file, line) in [("c.json", 3), ("m.yaml", 8), ("MCPServer.yaml", 8), ("MCPRemoteProxy.yaml", 8)] {
        let (exit, text, error) = files.explain(file, "bob.json", &["--name", "x"]);
        assert_eq!((exit, text), (0, format!("x: allowed, permitted by policy0 at {file}:{line}\n")), "{error}");
    }
}

#[test]
fn the_claims_that_a_workload_names_are_those_of_its_groups() {
    let files = Files::new();
    let policy = r#"permit(principal in Team::"ops", action, resource);"#;
    let inline = json!({ "policies": [policy] });
    let authz = json!({ "type": "inline", "inline": inline, "groupClaimName": "teams", "groupEntityType": "Team" });
    let server =
        json!({ "kind": "MCPServer", "metadata": { "name": "s" }, "spec": { "image": "i", "authzConfig": authz } });
    files.write("s.json", &server.to_string());
    files.write("eve.json", r#"{"sub":"eve","teams":["ops"]}"#);
    for (claims, exit) in [("eve.json", 0), ("ada.json", 1)] {
        assert_eq!(files.explain("s.json", claims, &["--name", "x"]).0, exit, "{claims}");
    }
}

#[test]
fn a_decision_that_cannot_be_explained_is_reported_in_one_line() {
    let files = Files::new();
    files.write("none.json", r#"{"kind":"MCPServer","spec":{"image":"i"}}"#);
    files.write(
        "map.json",
        r#"{"kind":"MCPServer","spec":{"authzConfig":{"type":"configMap","configMap":{"name":"m"}}}}"#,
    );
    files.write("bad.cedar", "permit(principal, action, resource);\n\npermit(;\n");
    files.write("empty.cedar", "// nothing\n");
    files.write("list.json", "[]");
    files.write(
        "pdp.json",
        r#"{"version":"1.0","type":"httpv1","pdp":{"http":{"url":"https://a"},"claim_mapping":"standard"}}"#,
    );
    for (policy, claims, more, words) in [
        ("bad.cedar", "bob.json", &["--name", "x"][..], "bad.cedar:3: policies[1]"),
        ("empty.cedar", "bob.json", &["--name", "x"], "there is no policy in it"),
        ("absent.cedar", "bob.json", &["--name", "x"], "cannot read absent.cedar"),
        ("p.cedar", "list.json", &["--name", "x"], "the claims must be a JSON object"),
        ("p.cedar", "bob.json", &["--method", "prompts/get"], "the policies name no prompt"),
        ("p.cedar", "bob.json", &["--tools", "bob.json"], "it is not a list of tools"),
        ("pdp.json", "bob.json", &["--name", "x"], "only Cedar is explained"),
        ("none.json", "bob.json", &["--name", "x"], "it has no spec.authzConfig"),
        ("map.json", "bob.json", &["--name", "x"], "explain the document of the ConfigMap"),
    ] {
        let (exit, text, error) = files.explain(policy, claims, more);
        assert_eq!((exit, text.as_str(), error.lines().count()), (1, "", 1), "{error}");
        assert!(error.contains(words), "{error}");
    }
    for (method, exit, words) in [("ping", 0, "always allowed"), ("tasks/get", 1, "the method is not known")] {
        let (code, text, _) = files.explain("p.cedar", "bob.json", &["--method", method]);
        assert!(code == exit && text.contains(words), "{text}");
    }
}
