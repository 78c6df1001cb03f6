//! The targets: invariants for arbitrary bytes.

use serde_json::{Value, json};
use skep_auth::aws::{RoleMapping, Roles};
use skep_mcp::fuzzing::{self, SEEDS};
use skep_template::RenderLimits;

/// A function that must neither panic nor exhaust its stack, and what its inputs look like.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) seeds: &'static [&'static [u8]],
    pub(crate) run: fn(&[u8]),
}

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "message", seeds: SEEDS, run: fuzzing::message },
    Target { name: "splice", seeds: SEEDS, run: fuzzing::splice },
    Target { name: "sse", seeds: SEEDS, run: fuzzing::sse },
    Target { name: "lines", seeds: SEEDS, run: fuzzing::lines },
    Target { name: "headers", seeds: SEEDS, run: fuzzing::headers },
    Target { name: "bridge", seeds: SEEDS, run: fuzzing::bridge },
    Target { name: "replies", seeds: SEEDS, run: replies },
    Target { name: "policies", seeds: POLICIES, run: policies },
    Target { name: "entities", seeds: ENTITIES, run: entities },
    Target { name: "templates", seeds: TEMPLATES, run: templates },
    Target { name: "rendering", seeds: RENDERING, run: rendering },
    Target { name: "matchers", seeds: MATCHERS, run: matchers },
    Target { name: "webhooks", seeds: WEBHOOKS, run: webhooks },
    Target { name: "tokens", seeds: skep_auth::fuzzing::TOKENS, run: skep_auth::fuzzing::tokens },
    Target { name: "keys", seeds: skep_auth::fuzzing::KEY_SETS, run: skep_auth::fuzzing::key_sets },
    Target { name: "issuers", seeds: skep_auth::fuzzing::RESPONSES, run: skep_auth::fuzzing::responses },
    Target { name: "manifests", seeds: MANIFESTS, run: manifests },
];

/// The most that a template renders here, in bytes.
const OUTPUT: usize = 64 * 1024;

const POLICIES: &[&[u8]] = &[
    br#"permit(principal, action == Action::"call_tool", resource == Tool::"weather");"#,
    br#"forbid(principal is Client in G::"g", action in [Action::"a"], resource) unless { principal.claim_email like "*@a" };"#,
    br#"@id("a") permit(principal, action, resource) when { if context has a.b then !(context.a.b == -1) else {a: [1, "x"]}.a.contains(1) };"#,
    br#"permit(principal, action, resource) when { ((principal is A in B::"b") || true) && 1 + 2 * 3 < 4 }; // comment "("#,
];
const ENTITIES: &[&[u8]] = &[
    br#"[{"uid":{"type":"User","id":"a"},"attrs":{"n":1,"r":{"s":[true,"x"]}},"parents":[{"type":"G","id":"g"}]}]"#,
    br#"[{"uid":{"__entity":{"type":"G","id":"g"}}},{"uid":{"type":"G","id":"h"},"parents":[{"type":"G","id":"g"}],"x":{}}]"#,
    br#"[{"uid":{"type":"A","id":""},"attrs":{"ip":{"__extn":{"fn":"ip","arg":"10.0.0.1"}},"e":{"__entity":{"type":"G","id":"g"}}}}]"#,
    br#"[{"uid":{"type":"A","id":"x"},"attrs":{"a":[[],[],{},[1],{"a":[-1.5e3,true,null]},"\":[]"]},"tags":{"":{"":{}}}}]"#,
];
const TEMPLATES: &[&[u8]] = &[
    br#"{{if eq .steps.a.status "completed"}}{{(fromJson .steps.x.output.text).field}}{{else if .b}}`x`{{else}}'{{end}}"#,
    br"{{((((({{'{{if}}{{end}}{{if}}",
    br"{{range $i, $e := .a}}{{/* comment */}}{{- json $e -}}{{end}} text }} {{",
];
const RENDERING: &[&[u8]] = &[
    br#"{{if eq .steps.a.status "completed"}}{{(fromJson .steps.x.output.text).field}}{{else if .b}}`x`{{else}}'{{end}}"#,
    br#"{{define "t"}}{{range $i, $e := .list}}{{$i}}{{$e}}{{end}}{{end}}{{template "t" .}}{{with .object}}{{json .a}}{{end}}"#,
    br#"{{printf "%-5d|%q|%v" 1 "a" .list}}{{index .list 0}}{{slice "abc" 1 2}}{{len .list}}{{and 1 .a}}{{- 1 -}}"#,
];
const MATCHERS: &[&[u8]] = &[
    br#"claims.groups.exists(g, g.matches(r'^team-\w+$')) && claims.email.endsWith("@example.com")"#,
    br#"has(claims.a) ? claims['a'].size() > 1u : !(claims.n - -1 <= 2.5e3) || "x" in [claims.s, b'y', 'z']"#,
    br#"claims.groups.filter(g, g != "((").map(g, {"k": g}.k + '!').all(g, claims.groups.all(h, h in claims.groups))"#,
];
const WEBHOOKS: &[&[u8]] = &[
    br#"{"version":"v0.1.0","uid":"u","allowed":true,"patch_type":"json_patch","patch":[{"op":"replace","path":"/mcp_request/params/name","value":"b"},{"op":"add","path":"/mcp_request/params/arguments/l/-","value":{"a":[1.50,null]}}]}"#,
    br#"{"allowed":true,"patch_type":"json_patch","patch":[{"op":"copy","from":"/mcp_request/params","path":"/mcp_request/params/arguments/~0~1"},{"op":"move","from":"/mcp_request/params/arguments/l/0","path":"/mcp_request/params/x"},{"op":"test","path":"/mcp_request/id","value":1},{"op":"remove","path":"/mcp_request/params/name"}]}"#,
    br#"{"allowed":false,"message":"m","reason":"r","details":{"a":[]},"code":403}"#,
];
const MANIFESTS: &[&[u8]] = &[
    b"apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec:\n  image: i\n  args: [a, \"b\"]\n---\n{\"kind\": \"B\"}\n",
    b"a: &x [1, 2]\nb: *x\nc: |\n  text\n  ---\nd: >-\n  folded\n...\n%YAML 1.2\n---\n- !tag x\n",
    b"---\n---\n...\n--- # a\n# b\n---\na\n---\n...\n{\"a\": \"\\u001b[2J\"}\n",
];

/// Any response of a webhook is read, and whatever its patch makes of a message answers to the same id and method, and is bounded.
fn webhooks(data: &[u8]) {
    use skep_webhook::{Cause, FailurePolicy, Kind, MOST_BYTES, outcome};
    const MESSAGE: &str =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"l":[1,"x"],"n":1e400}}}"#;
    let Ok(message) = skep_mcp::Message::parse(MESSAGE.into()) else { return };
    let Ok(answer) = skep_webhook::response::Answer::read(data, "u") else { return };
    let decided = outcome::decide(Kind::Mutating, FailurePolicy::Fail, Ok(answer), &message);
    let outcome::Outcome::Next(Some(patched)) = decided else { return };
    assert!(patched.len() <= MOST_BYTES, "a patch made a message of {} bytes", patched.len());
    match outcome::check(&message, patched) {
        Ok(_) | Err(Cause::InvalidMessage(_)) => {}
        Err(cause) => assert_ne!(cause, Cause::OtherMessage, "a patch made another message"),
    }
}

/// The error in a reply is the same one wherever the parts of the reply are cut.
fn replies(data: &[u8]) {
    use skep_telemetry::audit::{Framing, ReplyScan};
    for framing in [Framing::Json, Framing::Events] {
        let found = |parts: &[&[u8]]| {
            let mut scan = ReplyScan::new(framing);
            for part in parts {
                scan.feed(part);
            }
            scan.finish()
        };
        let (before, after) = data.split_at(data.len() / 2);
        assert_eq!(found(&[data]), found(&[before, after]));
    }
}

/// Any policies are validated.
fn policies(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        drop(skep_authz::policies::parse(text));
    }
}

/// Any entities are validated, and what is accepted in its lenient form is accepted in its strict one.
fn entities(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if skep_authz::entities::parse(text).is_ok() {
        let strict = skep_authz::entities::normalise(text).map(|strict| strict.to_string());
        // The strict form names what may be left out, so only its size may be too much, in bytes or in values.
        let is_too_large = |strict: &str| {
            strict.len() > skep_bounds::ENTITIES_BYTES
                || skep_bounds::json_values(strict, skep_bounds::ENTITY_VALUES).is_err()
        };
        assert!(strict.is_ok_and(|strict| skep_authz::entities::parse(&strict).is_ok() || is_too_large(&strict)));
    }
}

/// Templates, and JSON in strings, are scanned.
fn templates(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _checked =
            (skep_bounds::template(text), skep_bounds::json(text), skep_bounds::json_values(text, usize::MAX));
    }
}

/// Any template is parsed, and what was parsed is rendered within its limits.
fn rendering(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(template) = skep_template::Template::parse(text) else { return };
    let steps = json!({ "a": { "status": "completed" }, "x": { "output": { "text": "{\"field\":[1]}" } } });
    let data = json!({ "steps": steps, "list": [1, "x", null, [2.5]], "object": { "a": { "b": true } }, "a": 1 });
    let limits = RenderLimits { steps: 10_000, output: OUTPUT, ..RenderLimits::default() };
    if let Ok(rendered) = template.render(&data, limits) {
        assert!(rendered.len() <= OUTPUT, "a template rendered {} bytes", rendered.len());
    }
}

/// Any matcher is scanned and compiled, and what was compiled is evaluated.
fn matchers(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let role_arn = "arn:aws:iam::123456789012:role/a".to_owned();
    let mapping = RoleMapping { matcher: text.to_owned(), role_arn, ..RoleMapping::default() };
    let Ok(roles) = Roles::new(&[mapping], "", "") else { return };
    let claims = json!({ "groups": ["team-a", "b"], "email": "a@example.com", "a": [1], "n": 1, "s": "x" });
    if let Value::Object(claims) = claims {
        let _role = roles.choose(&claims);
    }
}

/// Any manifests are parsed, and what was parsed can be written.
fn manifests(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for document in skep_api::manifest::documents(text) {
        for object in document.objects.iter().flatten() {
            assert!(skep_api::manifest::document(object).is_ok(), "what was parsed cannot be written");
        }
    }
}
