//! Texts that are too large or too deep: `skep check` and `skep operator` refuse them, with their place and the limit,
//! while everything else continues.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_testkit::{ControlPlane, Seen, eventually};

const VERSION: &str = "toolhive.stacklok.dev/v1beta1";
/// The limit on the growth of the operator's memory, whatever the input.
const MOST_KIB: u64 = 64 * 1024;
/// By how much the peak memory of `skep check` may exceed that of a check of one small object. A shipped binary takes some 20 MiB for that; an
/// unoptimized one takes more, most of it for its own pages.
const MOST_OF_CHECK_KIB: u64 = 44 * 1024;
const PERMIT: &str = "permit(principal, action, resource);";

/// An object, what it needs, and the expected message.
struct Hostile {
    kind: KindName,
    name: &'static str,
    spec: Value,
    config_map: Option<Value>,
    /// `None` if it is within the limits.
    words: Option<&'static str>,
}

fn policy(condition: &str) -> String {
    format!("permit(principal, action, resource) when {{ {condition} }};")
}

fn sized(bytes: usize) -> String {
    policy(&format!("\"{}\" == \"\"", "x".repeat(bytes)))
}

fn server(authz: &Value) -> Value {
    json!({ "image": "registry.example/a:1", "authzConfig": authz })
}

fn inline(policies: &Value, entities: &str) -> Value {
    json!({ "type": "inline", "inline": { "policies": policies, "entitiesJson": entities } })
}

fn in_config_map(name: &str) -> Value {
    json!({ "type": "configMap", "configMap": { "name": name, "key": "authz.json" } })
}

fn document(policies: &Value) -> Value {
    let text = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies, "entities_json": "" } });
    json!({ "authz.json": text.to_string() })
}

/// `large` is the size of the largest text, and `entries` the length of the longest lists.
fn hostile(large: usize, entries: usize) -> Vec<Hostile> {
    let brackets = "(".repeat(10_000);
    let deep = json!([policy(&brackets)]);
    let doubled = format!("{}principal{}", "(".repeat(30), " is A in B::\"b\")".repeat(30));
    let many: Vec<String> =
        (0..2_000).map(|n| format!("permit(principal, action, resource == Tool::\"t{n}\");")).collect();
    let row = |id: usize| json!({ "uid": { "type": "A", "id": id.to_string() }, "parents": [{ "type": "A", "id": (id + 1).to_string() }] });
    let row = (0..2_000).map(row).collect::<Value>().to_string();
    let mapping = json!({ "matcher": brackets, "roleArn": "arn:aws:iam::123456789012:role/r" });
    let sts = json!({ "type": "awsSts", "awsSts": { "region": "eu-central-1", "roleMappings": [mapping] } });
    let step = json!({ "id": "a", "tool": "t", "arguments": { "x": format!("{{{{ {brackets} }}}}") } });
    let tool = json!({ "name": "t", "description": "d", "steps": [step] });
    let profile = json!({ "type": "configmap", "name": "profile", "key": "profile.json" });
    let shared =
        |policies: Value| json!({ "type": "cedarv1", "config": { "policies": policies, "entities_json": "[]" } });
    let matcher = |list: usize| format!("size([{}]) > 0", vec!["-1"; list].join(","));
    let roles = |matcher: &str, count: usize| {
        let mapping = json!({ "matcher": matcher, "roleArn": "arn:aws:iam::123456789012:role/r" });
        json!({ "type": "awsSts", "awsSts": { "region": "eu-central-1", "roleMappings": vec![mapping; count] } })
    };
    let composite = |steps: Value| json!({ "name": "t", "description": "d", "steps": steps });
    let nested = |leaf: Value| (0..20).fold(leaf, |inner, _| json!({ "k".repeat(1_000): inner }));
    let with_arguments = |arguments: Value| composite(json!([{ "id": "a", "tool": "t", "arguments": arguments }]));
    let chain = |id: usize| json!({ "id": format!("s{id}"), "tool": "t", "dependsOn": [format!("s{}", id + 1)] });
    let variable = |id: usize| json!({ "name": format!("E{id}"), "value": "" });
    let overrides = |count: usize| {
        let env = (0..count).map(variable).collect::<Value>();
        json!({ "image": "registry.example/a:1", "resourceOverrides": { "proxyDeployment": { "env": env } } })
    };
    let attributes = |values: &str| format!(r#"[{{"uid":{{"type":"A","id":"x"}},"attrs":{{"a":[{values}[]]}}}}]"#);
    let levels = |levels: usize, values: usize| {
        format!("{}[{}0]{},", r#"{"a":"#.repeat(levels), "0,".repeat(values), "}".repeat(levels))
    };
    let virtual_server = |member: &str, value: Value| {
        let mut spec = json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } });
        spec[member] = value;
        spec
    };
    let backend = json!({ "type": "externalAuthConfigRef", "externalAuthConfigRef": { "name": "x" } });
    let backends: serde_json::Map<String, Value> = (0..entries).map(|id| (format!("b{id}"), backend.clone())).collect();
    let inline_tool =
        |id: usize| json!({ "name": format!("t{id}"), "description": "d", "steps": [{ "id": "a", "tool": "b" }] });
    let one = |kind, name, spec, words| Hostile { kind, name, spec, config_map: None, words };
    let depth = Some("more than 32 brackets");
    vec![
        one(
            KindName::MCPServer,
            "cedar",
            server(&inline(&deep, "[]")),
            Some("spec.authzConfig.inline: policies[0]: more than 32 brackets"),
        ),
        one(
            KindName::MCPServer,
            "doubled",
            server(&inline(&json!([PERMIT, policy(&doubled)]), "[]")),
            Some("policies[1]: more than 2 `is … in …` tests"),
        ),
        one(
            KindName::MCPServer,
            "entities",
            server(&inline(&json!([PERMIT]), &"[".repeat(10_000))),
            Some("entities_json: more than 64 brackets"),
        ),
        one(
            KindName::MCPServer,
            "row",
            server(&inline(&json!([PERMIT]), &row)),
            Some("more than 32 levels of parents"),
        ),
        Hostile {
            config_map: Some(document(&deep)),
            ..one(KindName::MCPServer, "mapped", server(&in_config_map("mapped")), depth)
        },
        Hostile {
            config_map: Some(json!({ "profile.json": "[".repeat(10_000) })),
            ..one(
                KindName::MCPServer,
                "profile",
                json!({ "image": "registry.example/a:1", "permissionProfile": profile }),
                Some("more than 64 brackets"),
            )
        },
        Hostile {
            config_map: Some(json!({ "profile.json": format!(r#"{{"x":[{}0]}}"#, r#"{"a":0},"#.repeat(100_000)) })),
            ..one(
                KindName::MCPServer,
                "profile-values",
                json!({ "image": "registry.example/a:1", "permissionProfile": { "type": "configmap", "name": "profile-values", "key": "profile.json" } }),
                Some("it has more than 20000 values"),
            )
        },
        Hostile {
            config_map: Some(json!({ "authz.json": format!("{{type: cedarv1, x: [{}]}}", "{a},".repeat(200_000)) })),
            ..one(
                KindName::MCPServer,
                "mapped-values",
                server(&in_config_map("mapped-values")),
                Some("is too large; split it"),
            )
        },
        Hostile {
            config_map: Some(json!({ "authz.json": "~\n---\n".repeat(160_000) })),
            ..one(
                KindName::MCPServer,
                "documents",
                server(&in_config_map("documents")),
                Some("it must hold one document, and holds more"),
            )
        },
        one(
            KindName::MCPRemoteProxy,
            "remote",
            json!({ "remoteUrl": "https://a.example", "authzConfig": inline(&deep, "[]") }),
            depth,
        ),
        one(KindName::MCPAuthzConfig, "shared", shared(deep), Some("spec.config: policies[0]: more than 32 brackets")),
        one(
            KindName::MCPAuthzConfig,
            "large",
            shared(json!([sized(large)])),
            Some("bytes together, and 262144 are the most"),
        ),
        one(
            KindName::MCPAuthzConfig,
            "set",
            shared(json!([sized(60_000), sized(60_000), sized(60_000), sized(60_000), sized(60_000)])),
            Some("bytes together, and 262144 are the most"),
        ),
        one(
            KindName::MCPAuthzConfig,
            "policy",
            shared(json!([sized(70_000)])),
            Some("policies[0]: it has 70054 bytes, and 65536 are the most"),
        ),
        one(
            KindName::MCPAuthzConfig,
            "many",
            shared(json!(many)),
            Some("there are 2000 policies, and 1000 are the most"),
        ),
        // As much as is allowed is still validated in bounded memory.
        one(KindName::MCPAuthzConfig, "most", shared(json!(many.get(..1_000))), None),
        one(
            KindName::MCPExternalAuthConfig,
            "cel",
            sts,
            Some("spec.awsSts.roleMappings[0].matcher: more than 32 brackets"),
        ),
        one(
            KindName::VirtualMCPCompositeToolDefinition,
            "template",
            tool,
            Some("steps[0].arguments.x: more than 32 brackets"),
        ),
        one(
            KindName::VirtualMCPCompositeToolDefinition,
            "places",
            with_arguments(nested(json!(vec!["{{((((((((((((((((((((((((((((((((((("; entries]))),
            Some("0 more"),
        ),
        // It is valid, so no place is reported.
        one(
            KindName::VirtualMCPCompositeToolDefinition,
            "leaves",
            with_arguments(nested(json!(vec![0; 3 * entries]))),
            None,
        ),
        one(
            KindName::VirtualMCPCompositeToolDefinition,
            "values",
            with_arguments(json!({ "a": vec![0; 18 * entries] })),
            Some("it has more than 20000 values"),
        ),
        one(
            KindName::VirtualMCPCompositeToolDefinition,
            "steps",
            composite((0..entries).map(chain).collect()),
            Some("steps; write at most 100"),
        ),
        one(
            KindName::MCPExternalAuthConfig,
            "minus",
            roles(&matcher(3_290), 1),
            Some("matcher: it has more than 2048 tokens"),
        ),
        one(
            KindName::MCPExternalAuthConfig,
            "matchers",
            roles(&matcher(100), 140),
            Some("the matchers of this configuration are too many; write at most 100"),
        ),
        one(KindName::MCPExternalAuthConfig, "all-matchers", roles(&matcher(100), 8), None),
        one(
            KindName::MCPAuthzConfig,
            "attributes",
            json!({ "type": "cedarv1", "config": { "policies": [PERMIT], "entities_json": attributes(&"[],".repeat(80_000)) } }),
            Some("entities_json: it has more than 16384 values"),
        ),
        one(
            KindName::MCPAuthzConfig,
            "all-attributes",
            json!({ "type": "cedarv1", "config": { "policies": [PERMIT], "entities_json": attributes(&"[],".repeat(16_000)) } }),
            None,
        ),
        one(
            KindName::MCPAuthzConfig,
            "nested-attributes",
            json!({ "type": "cedarv1", "config": { "policies": [PERMIT], "entities_json": attributes(&levels(57, 5_000)) } }),
            Some("entities_json: values of attributes are nested too deep"),
        ),
        one(
            KindName::MCPAuthzConfig,
            "all-nested-attributes",
            json!({ "type": "cedarv1", "config": { "policies": [PERMIT], "entities_json": attributes(&levels(57, 1_000)) } }),
            None,
        ),
        one(KindName::MCPServer, "variables", overrides(entries), Some("variables; write at most 1000")),
        one(
            KindName::VirtualMCPServer,
            "backends",
            virtual_server("outgoingAuth", json!({ "source": "inline", "backends": backends })),
            Some("entries; write at most 1000"),
        ),
        one(
            KindName::VirtualMCPServer,
            "tools",
            virtual_server("config", json!({ "compositeTools": (0..entries / 2).map(inline_tool).collect::<Value>() })),
            Some("steps; write at most 100 tools and 1000 steps"),
        ),
    ]
}

impl Hostile {
    /// The object and its ConfigMap, as JSON documents.
    fn manifests(&self) -> Vec<String> {
        let object = json!({ "apiVersion": VERSION, "kind": self.kind.as_str(), "metadata": { "name": self.name }, "spec": self.spec });
        let map = self.config_map.iter().map(
            |data| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": self.name }, "data": data }),
        );
        map.chain([object]).map(|object| object.to_string()).collect()
    }
}

/// The peak of a process's memory in KiB, as far as it can still be read.
pub(crate) fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Runs `skep check` on a manifest and tracks its memory until it ends: exit code, findings, peak.
fn check(manifest: &str) -> (Option<i32>, String, u64) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.json");
    std::fs::write(&file, manifest).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_skep"))
        .args(["check", "-o", "json", "-f"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let mut most = 0;
    let status = loop {
        most = most.max(peak(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::yield_now();
    };
    (status.code(), reader.join().unwrap().unwrap(), most)
}

#[test]
fn skep_check_refuses_what_is_too_large_or_too_deep_in_bounded_memory() {
    let bystander =
        json!({ "apiVersion": VERSION, "kind": "MCPGroup", "metadata": { "name": "bystander" }, "spec": {} });
    let (_, _, least) = check(&bystander.to_string());
    for hostile in hostile(2_000_000, 1_200) {
        let started = std::time::Instant::now();
        let manifests = hostile.manifests().into_iter().chain([bystander.to_string()]).collect::<Vec<_>>();
        let (code, out, most) = check(&manifests.join("\n---\n"));
        println!("{:<10} {:>8} KiB {:?}", hostile.name, most, started.elapsed());
        let findings: Vec<Value> =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{}: {error}: {out}", hostile.name));
        let of = |name: &str| {
            findings
                .iter()
                .find(|one| one["object"].as_str().is_some_and(|object| object.ends_with(&format!("/{name}"))))
                .unwrap()
        };
        assert_eq!(of("bystander")["verdict"], "valid", "{}", hostile.name);
        let object = findings
            .iter()
            .rfind(|one| one["object"] == format!("{}/{}", hostile.kind.as_str(), hostile.name))
            .unwrap();
        match hostile.words {
            Some(words) => {
                assert_eq!(code, Some(1), "{}: {object}", hostile.name);
                assert!(object["problems"].to_string().contains(words), "{}: {object}", hostile.name);
            }
            None => assert_eq!((code, object["verdict"].as_str()), (Some(0), Some("valid")), "{object}"),
        }
        assert!(most < least + MOST_OF_CHECK_KIB, "{} took {most} KiB, a small check {least} KiB", hostile.name);
    }
    for deep in ["[".repeat(10_000), r#"{"a":"#.repeat(10_000)] {
        let object = format!(
            r#"{{"apiVersion":"{VERSION}","kind":"MCPServer","metadata":{{"name":"deep"}},"spec":{{"image":"i","podTemplateSpec":{deep}"#
        );
        let (code, out, most) = check(&format!("{bystander}\n---\n{object}"));
        assert_eq!(code, Some(1), "{out}");
        assert!(
            out.contains("more than 64 lists and objects are nested") && out.contains("MCPGroup/bystander"),
            "{out}"
        );
        assert!(most < least + MOST_OF_CHECK_KIB, "it took {most} KiB, a small check {least} KiB");
    }
}

/// An operator that is killed with its test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _it_is_gone = self.0.kill();
        let _no_zombie = self.0.wait();
    }
}

fn operator(plane: &ControlPlane, namespace: &str) -> Result<Operator> {
    let child = Command::new(env!("CARGO_BIN_EXE_skep"))
        .args(["operator", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .envs([
            ("WATCH_NAMESPACE", namespace),
            ("POD_NAMESPACE", namespace),
            ("TOOLHIVE_RUNNER_IMAGE", "registry.example/r:1"),
        ])
        .stderr(Stdio::inherit())
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Operator(child))
}

async fn until(api: &Api<DynamicObject>, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    let wanted = &wanted;
    eventually(&format!("{name}: {what}"), Duration::from_mins(1), || async move {
        let Some(found) = api.get_opt(name).await? else { return Ok(Seen::NotYet("it does not exist".to_owned())) };
        let found = serde_json::to_value(found)?;
        let shown: String = found["status"].to_string().chars().take(600).collect();
        Ok(if wanted(&found) { Seen::Yes(()) } else { Seen::NotYet(shown) })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_refuses_what_is_too_large_or_too_deep_while_others_are_reconciled() -> Result<()> {
    let plane = ControlPlane::start().await?;
    crate::skep(&["crds", "apply", "--kubeconfig", plane.kubeconfig().to_str().context("a path")?]).succeeded();
    let namespace = plane.namespace("bounds").await?;
    let apply = ["apply", "--server-side", "-n", &namespace, "-f", "-"];
    let of = |kind: KindName| {
        Api::<DynamicObject>::namespaced_with(plane.client().unwrap(), &namespace, &api_resource(kind))
    };
    let deployments: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, &namespace, &child_resource(ChildKind::Deployment));
    let bystander = |name: &str| {
        json!({ "apiVersion": VERSION, "kind": "MCPServer", "metadata": { "name": name }, "spec": { "image": "registry.example/a:1" } }).to_string()
    };
    let mut operator = operator(&plane, &namespace)?;
    plane.kubectl_with_input(&apply, &bystander("before")).await?.success()?;
    until(&deployments, "before", "exists", |_| true).await?;
    let before = peak(operator.0.id()).context("the operator ended")?;

    // As large as an object can be: the API server rejects a larger one.
    let too_large = hostile(2_000_000, 1_200).into_iter().find(|one| one.name == "large").context("a large one")?;
    assert!(plane.kubectl_with_input(&apply, &too_large.manifests().concat()).await?.success().is_err());
    let all = hostile(1_000_000, 3_000);
    for (number, hostile) in all.iter().enumerate() {
        let started = std::time::Instant::now();
        let manifests = hostile.manifests().join("\n---\n");
        plane.kubectl_with_input(&apply, &manifests).await?.success()?;
        let (is_reported, words) =
            (|one: &Value| one["status"]["conditions"].is_array(), hostile.words.unwrap_or_default());
        until(&of(hostile.kind), hostile.name, words, |one| {
            is_reported(one) && one["status"].to_string().contains(words)
        })
        .await?;
        println!("{:<10} {:?}", hostile.name, started.elapsed());
        let name = format!("after-{number}");
        plane.kubectl_with_input(&apply, &bystander(&name)).await?.success()?;
        until(&deployments, &name, "exists", |_| true).await?;
        assert!(deployments.get_opt(hostile.name).await?.is_none(), "{} got a Deployment", hostile.name);
    }
    until(&of(KindName::MCPAuthzConfig), "most", "is valid", |one| {
        one["status"]["conditions"].to_string().contains(r#""status":"True","type":"Valid""#)
    })
    .await?;
    let after = peak(operator.0.id()).context("the operator ended")?;
    println!("the operator's peak went from {before} KiB to {after} KiB");
    assert!(after - before < MOST_KIB, "from {before} KiB to {after} KiB");
    assert!(operator.0.try_wait()?.is_none(), "the operator ended");
    drop(operator);
    plane.stop();
    Ok(())
}

/// Each was held as a tree of a hundred times its size, and some hundred of them in one namespace would end the operator of all.
#[tokio::test(flavor = "multi_thread")]
async fn many_large_objects_of_one_namespace_take_little_more_than_their_bytes() -> Result<()> {
    const COUNT: usize = 40;
    const PROPERTIES: usize = 9_000;
    let plane = ControlPlane::start().await?;
    crate::skep(&["crds", "apply", "--kubeconfig", plane.kubeconfig().to_str().context("a path")?]).succeeded();
    let namespace = plane.namespace("large").await?;
    let kind = KindName::VirtualMCPCompositeToolDefinition;
    let of = Api::<DynamicObject>::namespaced_with(plane.client()?, &namespace, &api_resource(kind));
    let properties: serde_json::Map<String, Value> =
        (0..PROPERTIES).map(|number| (format!("p{number}"), json!({}))).collect();
    let definition = |number: usize| {
        let spec = json!({
            "name": format!("tool_{number}"), "description": "d", "parameters": { "type": "object", "properties": properties },
            "steps": [{ "id": "a", "tool": "t" }],
        });
        json!({ "apiVersion": VERSION, "kind": kind.as_str(), "metadata": { "name": format!("large-{number}") }, "spec": spec })
            .to_string()
    };
    let mut operator = operator(&plane, &namespace)?;
    let apply = async |numbers: std::ops::Range<usize>| {
        let manifests = numbers.clone().map(definition).collect::<Vec<_>>().join("\n---\n");
        let arguments = ["apply", "--server-side", "-n", &namespace, "-f", "-"];
        plane.kubectl_with_input(&arguments, &manifests).await?.success()?;
        for number in numbers {
            until(&of, &format!("large-{number}"), "is valid", |one| {
                one["status"]["conditions"].to_string().contains(r#""status":"True""#)
            })
            .await?;
        }
        anyhow::Ok(())
    };
    // One costs what it takes to parse and to plan it.
    apply(0..1).await?;
    let one = peak(operator.0.id()).context("the operator ended")?;
    apply(1..COUNT).await?;
    let all = peak(operator.0.id()).context("the operator ended")?;
    println!("the operator's peak went from {one} KiB with one large object to {all} KiB with {COUNT}");
    assert!(all - one < MOST_KIB, "from {one} KiB to {all} KiB");
    assert!(operator.0.try_wait()?.is_none(), "the operator ended");
    drop(operator);
    plane.stop();
    Ok(())
}
