//! `skep check`

use serde_json::Value;

use crate::{repository, skep, skep_with_input};

#[test]
fn the_examples_are_valid() {
    let examples = repository().join("examples");
    let run = skep(&["check", "-f", examples.to_str().unwrap()]);
    // What the examples refer to and do not hold are Secrets.
    let is_fine =
        |line: &str| line.contains(" valid ") || line.starts_with("  warning: ") && line.contains(": Secret `");
    assert!(run.succeeded().lines().all(is_fine), "{}", run.out);
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
    assert!(findings[2]["problems"].to_string().contains("is not served; write `toolhive.stacklok.dev/v1beta1`"));
}

const GROUP: &str = "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: g}\n";

fn ours(kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: toolhive.stacklok.dev/v1beta1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// The findings about a text, and the exit code.
fn findings(text: &str) -> (i32, Vec<Value>) {
    let run = skep_with_input(&["check", "-f", "-", "-o", "json"], text);
    assert_eq!(run.err, "");
    (run.code, serde_json::from_str(&run.out).unwrap())
}

/// The problems of the last object of a text, in one line.
fn problems(text: &str) -> String {
    let (code, findings) = findings(text);
    let last = findings.last().unwrap();
    assert_eq!((code, last["verdict"].as_str()), (1, Some("invalid")), "{last}");
    last["problems"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

#[test]
fn several_files_are_checked_after_one_flag() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, two) = (file("a.yaml", GROUP), file("b.yaml", &ours("MCPToolConfig", "t", "{toolsFilter: [a]}")));
    let run = skep(&["check", "-f", &one, &two]);
    assert_eq!(run.succeeded().lines().count(), 2, "{}", run.out);
}

/// A file, a document and an object that are broken are each reported, and everything else is checked.
#[test]
fn a_broken_file_hides_none_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(directory.path().join(name), text).unwrap();
    write("a.yaml", b"a: [\n");
    write("b.yaml", format!("{GROUP}---\nkind: {{\n{}", ours("MCPServer", "s", "{imag: x}")).as_bytes());
    write("c.yaml", b"\xff\xfe");
    write("d.yaml", ours("MCPToolConfig", "t", "{toolsFilter: [a]}").as_bytes());
    let directory = directory.path().to_str().unwrap();
    let run = skep(&["check", "-f", "no-such-file.yaml", directory]);
    assert_eq!(run.code, 1);
    let objects: Vec<_> = run.out.lines().filter(|line| !line.starts_with(' ')).collect();
    let expected = [("MCPGroup/g", " valid "), ("MCPServer/s", " invalid "), ("MCPToolConfig/t", " valid ")];
    assert_eq!(objects.len(), expected.len(), "{}", run.out);
    for (line, (name, verdict)) in objects.iter().zip(expected) {
        assert!(line.starts_with(name) && line.contains(verdict), "{line}");
    }
    let errors: Vec<_> = run.err.lines().collect();
    let words = [
        "no-such-file.yaml",
        "a.yaml`: not valid YAML",
        "b.yaml`: not valid YAML or JSON at line 5",
        "not a text in UTF-8",
    ];
    assert_eq!(errors.len(), words.len(), "{}", run.err);
    for (line, words) in errors.iter().zip(words) {
        assert!(line.starts_with("error: cannot read `") && line.contains(words), "{line}");
    }
}

#[test]
fn an_object_that_is_defined_twice_is_an_error_that_names_both_places() {
    let server = ours("MCPServer", "s", "{image: a}");
    let said = problems(&format!("{server}---\n{GROUP}{server}"));
    assert!(said.contains("MCPServer `s` is defined twice: at -:2 and at -:11"), "{said}");
}

#[test]
fn a_version_that_does_not_exist_suggests_the_newest() {
    for version in
        ["toolhive.stacklok.dev/v1", "toolhive.stacklok.dev/v1alpha2", "toolhive.stacklock.dev/v1beta1", "v1beta1"]
    {
        let said = problems(&format!("apiVersion: {version}\nkind: MCPGroup\nmetadata: {{name: g}}\n"));
        assert!(said.contains("write `toolhive.stacklok.dev/v1beta1`"), "{version}: {said}");
    }
    // A kind of the same name that is somebody else's.
    let (code, findings) = findings("apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: s}\n");
    assert_eq!((code, findings[0]["verdict"].as_str()), (0, Some("skipped")));
}

/// What only the operator knows: references, URLs, policies, pod templates.
#[test]
fn the_operators_own_validation_is_applied() {
    let policy =
        |text: &str| ours("MCPAuthzConfig", "p", &format!("{{type: cedarv1, config: {{policies: ['{text}']}}}}"));
    for (text, words) in [
        (policy("permit(principal, action)"), "policies[0] is not valid Cedar"),
        (policy("permit(principal, action"), "policies[0]: a bracket is not closed"),
        (ours("MCPRemoteProxy", "r", "{remoteUrl: 'https://user@'}"), "spec.remoteUrl"),
        (ours("MCPRemoteProxy", "r", "{remoteUrl: 'http://169.254.169.254/mcp'}"), "spec.remoteUrl"),
        (
            ours("MCPServer", "s", "{image: a, podTemplateSpec: {spec: {containers: 5}}}"),
            "spec.containers: is `5`, but must be a list",
        ),
        (ours("MCPServer", "s", "{image: a, resources: {limits: {memory: much}}}"), "`much` is not a quantity"),
        (
            policy("permit(principal, action") + &ours("MCPServer", "s", "{image: a, authzConfigRef: {name: p}}"),
            "MCPAuthzConfig `p` is not valid",
        ),
        (
            ours(
                "VirtualMCPCompositeToolDefinition",
                "c",
                "{name: c, description: d, steps: [{id: a, tool: t, dependsOn: [z]}]}",
            ),
            "z",
        ),
        (
            GROUP.to_owned() + &ours("MCPServer", "s", "{image: a, groupRef: {name: h}}"),
            "spec.groupRef: MCPGroup `h` is not in these files, which have `g`",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: k}\nstringData: {a: b}\n".to_owned()
                + &ours("MCPServer", "s", "{image: a, secrets: [{name: k, key: c}]}"),
            "spec.secrets[0]: Secret `k` has no key `c`",
        ),
    ] {
        let said = problems(&text);
        assert!(said.contains(words), "{said}");
    }
}

/// What the files refer to and do not hold may be in the cluster.
#[test]
fn a_reference_out_of_the_files_is_a_warning() {
    let spec = "{image: a, toolConfigRef: {name: t}, secrets: [{name: k, key: c}], sessionStorage: {provider: redis, address: 'r:1', passwordRef: {name: k, key: d}}}";
    let (code, findings) = findings(&ours("MCPServer", "s", spec));
    assert_eq!((code, findings[0]["verdict"].as_str()), (0, Some("valid")), "{findings:?}");
    let warnings: Vec<_> =
        findings[0]["warnings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().any(|one| one.starts_with("spec.toolConfigRef: MCPToolConfig `t` is not in these files")));
    assert!(warnings.iter().any(|one| one.starts_with("spec.secrets[0]: Secret `k` is not in these files")));
}

/// Nobody who writes a manifest knows what a unit variant is.
#[test]
fn no_word_of_a_library_reaches_the_terminal() {
    let entities = ours(
        "MCPAuthzConfig",
        "p",
        "{type: cedarv1, config: {policies: ['permit(principal, action, resource);'], entities_json: '['}}",
    );
    let template = |spec: &str| ours("MCPServer", "s", &format!("{{image: a, podTemplateSpec: {spec}}}"));
    for text in [
        "a: [".to_owned(),
        "a: b: c".to_owned(),
        "{\"a\": ".to_owned(),
        "a: \"b".to_owned(),
        "\tа: b".to_owned(),
        "- a".to_owned(),
        entities,
        template("{spec: {containers: [{name: 5}]}}"),
        template("{spec: {restartPolicy: 7}}"),
        template("[]"),
        template("{spec: {containers: [{name: mcp, ports: [{containerPort: x}]}]}}"),
        "apiVersion: v1\nkind: Secret\nmetadata: []\n".to_owned(),
        ours("MCPServer", "s", "[]"),
        ours("MCPServer", "s", "{image: a, transport: Stdio}"),
    ] {
        let run = skep_with_input(&["check", "-f", "-"], &text);
        let said = format!("{}{}", run.out, run.err);
        assert_eq!(run.code, 1, "{text}: {said}");
        for word in [
            "serde",
            "saphyr",
            "EOF",
            "variant",
            "invalid type",
            "expected struct",
            "while parsing",
            "scalar",
            "Err(",
            "Some(",
        ] {
            assert!(!said.contains(word), "{text}: {said}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_one_clear_line() {
    skep(&["check", "-f", "no-such-file.yaml"]).refused(1, &["no-such-file.yaml", "No such file"]);
    skep_with_input(&["check", "-f", "-"], "a: [").refused(1, &["cannot read `-`", "not valid YAML"]);
    skep_with_input(&["check", "-f", "-"], "").refused(1, &["nothing to check"]);
    let empty = tempfile::tempdir().unwrap();
    skep(&["check", "-f", empty.path().to_str().unwrap()]).refused(1, &["holds no *.yaml"]);
}
