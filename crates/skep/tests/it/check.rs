//! `skep check`

use serde_json::Value;

use crate::{repository, skep, skep_with_input};

/// The warnings about what only `skep run` accepts, and about what this version does not support.
const SKEP_RUN: &str = "a cluster refuses this, only `skep run` accepts it: ";
const NOT_SUPPORTED: &str = "is not supported by the configured image of Skep";

#[test]
fn the_examples_are_valid() {
    let examples = repository().join("examples");
    let run = skep(&["check", "-f", examples.to_str().unwrap()]);
    // The missing objects of the examples are Secrets; some examples are for `skep run`, and some for a later version.
    let expected = [": Secret `", SKEP_RUN, NOT_SUPPORTED];
    let is_fine = |line: &str| {
        line.contains(" valid ") || line.starts_with("  warning: ") && expected.iter().any(|words| line.contains(words))
    };
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
    let words =
        ["no-such-file.yaml", "a.yaml`: not valid YAML", "b.yaml`: not valid YAML or JSON at line 5", "not UTF-8 text"];
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
    // A kind of the same name in another API group.
    let (code, findings) = findings("apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: s}\n");
    assert_eq!((code, findings[0]["verdict"].as_str()), (0, Some("skipped")));
}

/// An object that is in the files and not valid is not reported as missing.
#[test]
fn a_reference_to_an_object_that_is_not_valid_says_where_it_is() {
    let server = |spec: &str| ours("MCPServer", "s", spec);
    let tools = ours("MCPToolConfig", "tools", "{toolsFilter: 5}");
    let said = problems(&format!("{tools}\n---\n{}", server("{image: a, toolConfigRef: {name: tools}}")));
    assert!(
        said.contains("spec.toolConfigRef: MCPToolConfig `tools` (") && said.contains(":2) is not valid"),
        "{said}"
    );
    let secret = |name: &str, data: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ndata: {{k: '{data}'}}\n---\n")
    };
    let server = server("{image: a, secrets: [{name: sec, key: k, targetEnvName: K}]}");
    let said = problems(&format!("{}{}{server}", secret("sec", "not base64!"), secret("other", "YQ==")));
    assert!(said.contains("Secret `sec` (") && said.contains("is not valid"), "{said}");
}

/// A file of documents that cannot be read does not flood the terminal.
#[test]
fn only_the_first_documents_of_a_file_that_cannot_be_read_are_reported() {
    let (code, findings) = findings(&"---\na: [\n".repeat(500));
    assert_eq!((code, findings.len()), (1, 21));
    assert!(findings[20]["problems"][0].as_str().unwrap().contains("more than 20 documents"), "{}", findings[20]);
}

/// What only the operator validates: references, URLs, policies, pod templates.
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

/// Objects that the files refer to and do not contain may be in the cluster.
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

/// The warnings of the last object of a text, which is valid.
fn warnings(text: &str) -> Vec<String> {
    let (code, findings) = findings(text);
    let last = findings.last().unwrap();
    assert_eq!((code, last["verdict"].as_str()), (0, Some("valid")), "{last}");
    let warnings = last["warnings"].as_array().cloned().unwrap_or_default();
    warnings.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// The operator sets a condition and runs the server: a virtual server may use the configuration.
#[test]
fn external_auth_that_is_not_in_force_is_a_warning() {
    let inject = "{type: upstreamInject, upstreamInject: {providerName: idp}}";
    let text = GROUP.to_owned()
        + &ours("MCPExternalAuthConfig", "inject", inject)
        + &ours("MCPServer", "s", "{image: a, groupRef: {name: g}, externalAuthConfigRef: {name: inject}}");
    let warnings = warnings(&text);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let words = ["MCPExternalAuthConfig `inject` has type upstreamInject", "unless a VirtualMCPServer uses it"];
    assert!(words.iter().all(|words| warnings[0].contains(words)), "{warnings:?}");
    assert!(!warnings[0].contains(SKEP_RUN), "{warnings:?}");
}

/// A manifest for `skep run`, or for a later version, is not invalid, but the operator refuses it.
#[test]
fn a_spec_that_the_operator_does_not_apply_yet_is_a_warning() {
    let sign_in = ours("MCPOIDCConfig", "own", "{type: inline, inline: {issuer: 'https://auth.example'}}")
        + &ours(
            "MCPExternalAuthConfig",
            "sign-in",
            "{type: embeddedAuthServer, embeddedAuthServer: {issuer: 'https://auth.example', signingKeySecretRefs: [{name: a, key: k}], \
             hmacSecretRefs: [{name: a, key: h}], upstreamProviders: [{name: c, type: oidc, oidcConfig: {issuerUrl: 'https://idp.example', \
             clientId: s, clientSecretRef: {name: i, key: s}}}]}}",
        );
    let authz = "oidcConfigRef: {name: own, audience: 'https://a.example/mcp', resourceUrl: 'https://a.example/mcp'}, \
        authServerRef: {kind: MCPExternalAuthConfig, name: sign-in}, \
        authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource);']}}";
    for (text, words) in [
        (ours("MCPServer", "s", "{image: 'exec://sh'}"), [SKEP_RUN, "spec.image: `exec://sh`"]),
        (ours("MCPRemoteProxy", "r", "{remoteUrl: 'http://127.0.0.1:9'}"), [SKEP_RUN, "host `127.0.0.1`"]),
        (
            GROUP.to_owned()
                + &ours("MCPServerEntry", "e", "{remoteUrl: 'http://localhost', transport: sse, groupRef: {name: g}}"),
            [SKEP_RUN, "host `localhost`"],
        ),
        (
            sign_in.clone() + &ours("MCPServer", "s", &format!("{{image: a, {authz}}}")),
            ["spec.authServerRef", NOT_SUPPORTED],
        ),
        (
            GROUP.to_owned()
                + &ours(
                    "VirtualMCPServer",
                    "v",
                    "{groupRef: {name: g}, incomingAuth: {type: anonymous}, config: {codeMode: {enabled: true}}}",
                ),
            ["spec.config.codeMode: ", NOT_SUPPORTED],
        ),
    ] {
        let warnings = warnings(&text);
        let is_said = |warning: &String| words.iter().all(|words| warning.contains(words));
        assert_eq!(warnings.iter().filter(|warning| is_said(warning)).count(), 1, "{text}: {warnings:?}");
    }
    // One does not hide the other, nor an error.
    let both = sign_in + &ours("MCPServer", "s", &format!("{{image: 'exec://sh', {authz}}}"));
    assert_eq!(warnings(&both).len(), 2, "{:?}", warnings(&both));
    let said = problems(&both.replace("resource);", "resource"));
    assert!(said.contains("policies[0]: a bracket is not closed"), "{said}");
}

/// A reference to an object outside the files does not skip the rest of the checks.
#[test]
fn the_rest_of_an_object_with_a_reference_out_of_the_files_is_checked() {
    let policies = "authzConfig: {type: inline, inline: {policies: ['permit(']}}";
    let header = "headerForward: {addPlaintextHeaders: {Host: x}}";
    for (text, words) in [
        (ours("MCPServer", "s", &format!("{{image: a, toolConfigRef: {{name: t}}, {policies}}}")), "policies[0]"),
        (
            ours("MCPServer", "s", &format!("{{image: a, oidcConfigRef: {{name: o, audience: b}}, {policies}}}")),
            "policies[0]",
        ),
        (
            ours(
                "MCPServer",
                "s",
                "{image: a, authzConfigRef: {name: t}, telemetryConfigRef: {name: u}, resources: {limits: {memory: much}}}",
            ),
            "`much` is not a quantity",
        ),
        (
            ours(
                "MCPServer",
                "s",
                "{image: a, authzConfig: {type: configMap, configMap: {name: t}}, resources: {limits: {memory: much}}}",
            ),
            "`much` is not a quantity",
        ),
        (
            ours(
                "MCPRemoteProxy",
                "r",
                &format!("{{remoteUrl: 'https://a.example.com', toolConfigRef: {{name: t}}, {header}}}"),
            ),
            "header `Host`",
        ),
        (
            ours(
                "MCPServerEntry",
                "e",
                &format!("{{remoteUrl: 'https://a.example.com', transport: sse, groupRef: {{name: g}}, {header}}}"),
            ),
            "header `Host`",
        ),
        (
            ours(
                "MCPServerEntry",
                "e",
                &format!("{{remoteUrl: 'http://169.254.169.254', transport: sse, groupRef: {{name: g}}, {header}}}"),
            ),
            "header `Host`",
        ),
        (
            GROUP.to_owned()
                + &ours(
                    "MCPServerEntry",
                    "e",
                    &format!("{{remoteUrl: 'https://a.example.com', transport: sse, groupRef: {{name: h}}, {header}}}"),
                ),
            "header `Host`",
        ),
    ] {
        let said = problems(&text);
        assert!(said.contains(words), "{text}: {said}");
        assert!(!said.contains("not found"), "{text}: {said}");
    }
    // A reference that is left out is not reported.
    for spec in [
        "{groupRef: {name: g}, incomingAuth: {type: oidc, oidcConfigRef: {name: o, audience: a}}}",
        "{groupRef: {name: g}, incomingAuth: {type: anonymous}, config: {compositeToolRefs: [{name: a}, {name: b}]}}",
        "{groupRef: {name: g}, incomingAuth: {type: anonymous}, embeddingServerRef: {name: e}, telemetryConfigRef: {name: t}}",
        "{groupRef: {name: g}, incomingAuth: {type: anonymous, authzConfig: {type: configMap, configMap: {name: c}}}}",
    ] {
        assert!(!warnings(&ours("VirtualMCPServer", "v", spec)).is_empty());
    }
    for spec in [
        "{image: a, externalAuthConfigRef: {name: a}, webhookConfigRef: {name: b}, authServerRef: {kind: MCPExternalAuthConfig, name: c}}",
        "{image: a, permissionProfile: {type: configmap, name: c, key: k}}",
    ] {
        assert!(!warnings(&ours("MCPServer", "s", spec)).is_empty());
    }
}

/// Authors of manifests do not know what a unit variant is.
#[test]
fn no_internal_error_text_reaches_the_terminal() {
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
fn an_unreadable_manifest_is_reported_in_one_line() {
    skep(&["check", "-f", "no-such-file.yaml"]).refused(1, &["no-such-file.yaml", "No such file"]);
    skep_with_input(&["check", "-f", "-"], "a: [").refused(1, &["cannot read `-`", "not valid YAML"]);
    skep_with_input(&["check", "-f", "-"], "").refused(1, &["nothing to check"]);
    let empty = tempfile::tempdir().unwrap();
    skep(&["check", "-f", empty.path().to_str().unwrap()]).refused(1, &["holds no *.yaml"]);
}
