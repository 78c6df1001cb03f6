//! Texts that exhausted the stack or the memory of the parsers, or took them hours. A failure of these tests may be the end of
//! their process.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use skep_authz::cedar::Cedar;
use skep_authz::{check, entities, policies};

/// The stack of a worker thread of tokio.
const WORKER_STACK: usize = 2 * 1024 * 1024;

/// What can stand around an expression: before it and behind it.
const AROUND: &[(&str, &str)] = &[
    ("(", ")"),
    ("[", "]"),
    ("{a: ", "}"),
    ("{\"a b\": 1, b: ", "}"),
    ("!(", ")"),
    ("!!!!(", ")"),
    ("-(", ")"),
    ("----(", ")"),
    ("principal[", "]"),
    ("principal.contains(", ")"),
    ("ip(", ")"),
    ("1 + [1, ", "] == 1"),
    ("if true then ", " else false"),
    ("if ", " then true else false"),
    ("if true then true else ", ""),
    ("true && (", ") || false"),
    ("(", " has a.b.c)"),
    ("(", " is A in B::\"b\")"),
    ("(", " is 1)"),
    ("(", "+1is A in B::\"b\")"),
    ("(", "+1is 1)"),
    ("(", "+1in B::\"b\")"),
    ("(", "+1has a.b.c)"),
    ("(", "+1like \"*\")"),
    ("1if true then ", " else false"),
    ("(1if ", " 1then true 1else false)"),
    ("(", " like \"*\")"),
    ("(", " like 1)"),
    ("(", ").a[\"b\"].contains(1)"),
];
const LINKS: &[&str] = &[
    " || true",
    " && true",
    " + 1",
    " - 1",
    " * 1",
    ".a",
    "[\"a\"]",
    ".contains(1)",
    " + -1",
    "+1in 1",
    "+1is A",
    " 1is",
];
/// What makes an error of all that stands before it, or of none of it.
const ENDS: &[&str] =
    &["", " is 1", " is A in B::\"b\"", " has 1", " has a.b", " like 1", " == 1", "(1)", " = 1", " 1"];

fn on_worker_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(WORKER_STACK).spawn(test).unwrap();
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn policy(condition: &str) -> String {
    format!("permit(principal, action, resource) when {{ {condition} }};")
}

fn refusal(config: &Value) -> String {
    check("cedarv1", config).unwrap_err()
}

#[test]
fn ten_thousand_brackets_are_refused() {
    on_worker_stack(|| {
        for (open, close) in AROUND {
            let text =
                policy(&format!("{}true{}", open.repeat(10_000 / open.len()), close.repeat(10_000 / open.len())));
            let problem = refusal(&json!({ "policies": ["permit(principal, action, resource);", text] }));
            assert!(problem.starts_with("policies[1]: "), "{open}: {problem}");
        }
        for open in ["[", r#"{"a":"#] {
            let text = open.repeat(10_000);
            let problem =
                refusal(&json!({ "policies": ["permit(principal, action, resource);"], "entities_json": text }));
            assert!(problem.starts_with("entities_json: more than 64 "), "{problem}");
        }
    });
}

/// The deepest and the longest that are allowed, in every shape and with every end.
#[test]
fn the_deepest_policy_that_is_allowed_fits_into_the_stack_of_a_worker() {
    on_worker_stack(|| {
        let around = AROUND.iter().map(|around| (around, &LINKS[5]));
        let shapes = around.chain(LINKS.iter().map(|link| (&AROUND[0], link)));
        for ((open, close), link) in shapes {
            for end in ENDS {
                // As many links as are left: brackets are links, too. All of them inside, or some behind each bracket.
                let mut inside = (1..=skep_bounds::POLICY_CHAIN).rev().step_by(8).map(|links| {
                    let inside = format!("principal{}{end}", link.repeat(links));
                    policy(&format!("{}{inside}{}", open.repeat(31), close.repeat(31)))
                });
                let mut behind = (1..=skep_bounds::POLICY_CHAIN / 16).rev().map(|links| {
                    let tail = format!("{close}{}", link.repeat(links));
                    policy(&format!("{}principal{}{end}", open.repeat(31), tail.repeat(31)))
                });
                for text in [inside.find(is_within_bounds), behind.find(is_within_bounds)].into_iter().flatten() {
                    // What a policy refers to is found as well.
                    drop(Cedar::new(&json!({ "policies": [text] })));
                }
            }
        }
    });
}

#[expect(clippy::ptr_arg, reason = "it is for `Iterator::find`")]
fn is_within_bounds(text: &String) -> bool {
    skep_bounds::cedar(text).is_ok()
}

/// What is drawn for one level: what stands around it, and how long a tail hangs on it.
fn levels() -> impl Strategy<Value = Vec<((&'static str, &'static str), &'static str, usize)>> {
    let tail = prop_oneof![4 => Just(0_usize), 4 => 1_usize..12, 1 => 1_usize..500];
    prop::collection::vec((prop::sample::select(AROUND), prop::sample::select(LINKS), tail), 0..=31)
}

#[test]
fn every_policy_that_passes_the_scan_is_parsed_within_the_stack_of_a_worker() {
    on_worker_stack(|| {
        let links = prop::collection::vec((prop::sample::select(LINKS), 1_usize..200), 0..4);
        let shapes = (levels(), links, prop::sample::select(ENDS), any::<bool>());
        let mut runner = TestRunner::new(Config { cases: 600, ..Config::default() });
        let parsed = Cell::new(0);
        let result = runner.run(&shapes, |(around, links, end, is_first)| {
            let before: String = around.iter().map(|((open, _), ..)| *open).collect();
            let close =
                |((_, close), link, times): &((&str, &str), &str, usize)| format!("{close}{}", link.repeat(*times));
            let behind: String = around.iter().rev().map(close).collect();
            let chain: String = links.iter().map(|(link, times)| link.repeat(*times)).collect();
            let text = if is_first { format!("principal{chain}{end}") } else { "principal".to_owned() };
            let tail = if is_first { String::new() } else { format!("{chain}{end}") };
            let text = policy(&format!("{before}{text}{behind}{tail}"));
            parsed.set(parsed.get() + usize::from(is_within_bounds(&text)));
            drop(policies::parse(&text));
            Ok(())
        });
        result.unwrap();
        // The generator is of use only if much of it reaches the parser.
        assert!(parsed.get() > 60, "{} of 600", parsed.get());
    });
}

/// An unknown escape is an error with a copy of its string, and an operand that is missing one of two kilobytes. Cedar goes on
/// behind them: 64 KiB of escapes took 4 GB.
#[test]
fn errors_are_not_collected_without_end() {
    let strings = |escape: &str| {
        let string = format!("\"{}\"", escape.repeat(65_000 / escape.len()));
        [
            policy(&format!("principal.a == {string}")),
            policy(&format!("principal.a like {string}.a")),
            policy(&format!("principal has {string}")),
            policy(&format!("principal in User::{string}")),
            policy(&format!("{{{string}: 1}} == 1")),
            format!("@id({string}) {}", policy("true")),
        ]
    };
    for escape in ["\\q", "\\*", "\\x80", "\\u{d800}", "\\u{}", "\r", "\\\r"] {
        for text in strings(escape) {
            let problem = refusal(&json!({ "policies": [text] }));
            assert!(problem.starts_with("policies[0]: ") && problem.contains(" string "), "{escape:?}: {problem}");
        }
    }
    for text in ["[@]", "a(@)", "{@}"].map(|around| policy(&around.replace('@', &",".repeat(32_000)))) {
        assert!(refusal(&json!({ "policies": [text] })).contains("nothing is before a `,`"));
    }
}

/// Cedar repeats what it cannot read.
#[test]
fn refusals_are_short() {
    let long = "x".repeat(60_000);
    for policy in [
        policy(&long),
        policy(&format!("principal has ({long} + 1)")),
        policy(&format!("{long}()")),
        format!("{long};"),
    ] {
        let problem = refusal(&json!({ "policies": [policy] }));
        assert!(problem.starts_with("policies[0] is not valid Cedar: ") && problem.len() < 1_500, "{problem}");
    }
    let entities =
        json!([{ "uid": { "type": long, "id": "a" }, "attrs": { "a": null } }, { "uid": { "type": "1", "id": long } }]);
    let problem = refusal(&json!({ "policies": [policy("true")], "entities_json": entities.to_string() }));
    assert!(problem.starts_with("entities_json: ") && problem.len() < 1_500, "{problem}");
}

#[test]
fn tokens_in_any_order_are_parsed_within_the_stack_of_a_worker() {
    on_worker_stack(|| {
        let signs = prop::sample::select(vec![
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            "((((",
            "[[[[",
            "))))",
            "\"",
            "\\",
            "\\\"",
            "\\q",
            "\\*",
            "\\x80",
            "\r",
            "//",
            "\n",
            "if ",
            " then ",
            " else ",
            "!",
            "-",
            "--",
            ".a",
            " has ",
            " like ",
            " is ",
            "1is ",
            "1in ",
            "1if ",
            "1has ",
            "1like ",
            " in ",
            "&&",
            "||",
            "==",
            "=",
            "<",
            ",",
            ";",
            ":",
            "::",
            "a",
            "1",
            "principal",
            "permit(principal,action,resource)",
            " when {",
            "@a(\"x\")",
            "?principal",
            "?",
            "é",
            "#",
            "\u{0}",
        ]);
        let mut runner = TestRunner::new(Config { cases: 600, ..Config::default() });
        let result = runner.run(&prop::collection::vec(signs, 0..150), |signs| {
            drop(policies::parse(&signs.concat()));
            drop(entities::parse(&signs.concat()));
            Ok(())
        });
        result.unwrap();
    });
}

#[test]
fn sizes_are_bounded_for_each_policy_and_for_the_set() {
    let sized = |bytes: usize| {
        let frame = policy("\"\" == \"\"").len();
        policy(&format!("\"{}\" == \"\"", "x".repeat(bytes - frame)))
    };
    let config = |policies: Vec<String>| json!({ "policies": policies });
    assert_eq!(check("cedarv1", &config(vec![sized(65_536); 4])), Ok(()));
    assert_eq!(
        refusal(&config(vec![sized(65_536), sized(65_537)])),
        "policies[1]: it has 65537 bytes, and 65536 are the most; write less, or split it"
    );
    assert!(
        refusal(&config(vec![sized(65_536); 5]))
            .starts_with("policies have 327680 bytes together, and 262144 are the most;")
    );
    assert!(refusal(&config(vec![sized(2_000_000)])).starts_with("policies have 2000000 bytes together"));
    let many: Vec<String> =
        (0..2_000).map(|n| format!("permit(principal, action, resource == Tool::\"tool-{n}\");")).collect();
    assert!(refusal(&config(many.clone())).starts_with("there are 2000 policies, and 1000 are the most;"));
    assert_eq!(check("cedarv1", &config(many.into_iter().take(1_000).collect())), Ok(()));
    let long = format!(r#"["{}"]"#, "x".repeat(262_144));
    assert!(
        entities::parse(&long).unwrap_err().to_string().starts_with("it has 262148 bytes, and 262144 are the most")
    );
}

/// Each value takes Cedar hundreds of bytes: 256 KiB of `[]` took 155 MB.
#[test]
fn values_of_entities_are_counted() {
    // Around the elements: the list, the entity, its uid of two texts, its attributes, and the set.
    let set = |element: &str, count: usize| {
        format!(r#"[{{"uid":{{"type":"A","id":"x"}},"attrs":{{"a":[{}]}}}}]"#, vec![element; count].join(","))
    };
    for (element, values) in [("[]", 1), ("{}", 1), ("1", 1), ("\"\"", 1), ("true", 1), ("[1]", 2), (r#"{"a":1}"#, 2)] {
        let most = (16_384 - 7) / values;
        assert!(entities::parse(&set(element, most)).is_ok(), "{element}");
        assert_eq!(
            entities::parse(&set(element, most + 1)).unwrap_err().to_string(),
            "it has more than 16384 values (texts, numbers, lists and objects); write less",
            "{element}"
        );
    }
}

/// Cedar's reader buffers a value at each level: 15,500 texts in 57 records took 220 MB.
#[test]
fn values_of_attributes_are_counted_at_every_level() {
    on_worker_stack(|| {
        let nested = |levels: usize, values: usize| {
            let list = json!((0..values).map(|value| value.to_string()).collect::<Vec<_>>());
            let inner = (1..levels).fold(list, |inner, _| json!({ "a": inner }));
            json!([{ "uid": { "type": "A", "id": "x" }, "attrs": { "a": inner } }]).to_string()
        };
        for (levels, values) in [(57, 15_500), (57, 2_000), (8, 15_500)] {
            let problem = entities::parse(&nested(levels, values)).unwrap_err().to_string();
            assert!(problem.starts_with("values of attributes are nested too deep: 65536 are the most"), "{problem}");
        }
        for (levels, values) in [(57, 1_000), (8, 7_000), (3, 16_000)] {
            assert!(entities::parse(&nested(levels, values)).is_ok(), "{levels}");
        }
        // What is counted is what a list holds, wherever the levels are.
        let many = json!((0..300).map(|_| (0..50).fold(json!(1), |inner, _| json!([inner]))).collect::<Vec<_>>());
        let tags = json!([{ "uid": { "type": "A", "id": "x" }, "tags": { "a": many } }]).to_string();
        assert!(entities::parse(&tags).is_err());
    });
}

/// The ancestors of a parent were gathered once for each time that it was named: 16 seconds for 256 KiB.
#[test]
fn a_parent_counts_once_however_often_it_is_named() {
    let above: Vec<Value> = (0..1_500).map(|id| json!({ "type": "A", "id": format!("above-{id}") })).collect();
    let parent = json!({ "type": "A", "id": "parent" });
    let child = json!({ "type": "A", "id": "child" });
    let text = json!([
        { "uid": parent, "parents": above },
        { "uid": child, "parents": vec![parent.clone(); 3_000] },
    ]);
    let strict = entities::normalise(&text.to_string()).unwrap();
    assert_eq!(strict[1]["parents"], json!([parent]));
    assert_eq!(strict[0]["parents"].as_array().unwrap().len(), 1_500);
}

fn entity(id: usize, parents: impl IntoIterator<Item = usize>) -> Value {
    let uid = |id: usize| json!({ "type": "A", "id": id.to_string() });
    json!({ "uid": uid(id), "parents": parents.into_iter().map(uid).collect::<Vec<_>>() })
}

/// Cedar finds ancestors by recursion and keeps all of them: 3,000 entities in a row took 32 seconds and 960 MB.
#[test]
fn hierarchies_are_bounded() {
    on_worker_stack(|| {
        let row = |length: usize| (0..length).map(|id| entity(id, [id + 1])).collect::<Value>().to_string();
        let problem = |text: &str| entities::parse(text).unwrap_err().to_string();
        assert!(entities::parse(&row(32)).is_ok());
        assert!(problem(&row(33)).contains("more than 32 levels of parents"));
        assert!(problem(&row(2_000)).contains("more than 32 levels of parents"));
        // Many below one that has many above it.
        let mut wide: Vec<Value> = (1..1_200).map(|id| entity(id, [0])).collect();
        wide.push(entity(0, 2_000..4_000));
        assert!(problem(&json!(wide).to_string()).contains("more than 65536 ancestors together"));
        let circle: Vec<Value> =
            (0..2_000).map(|id| entity(id, [(id + 1) % 2_000])).chain([entity(9_000, [7])]).collect();
        assert!(problem(&json!(circle).to_string()).contains("is an ancestor of itself"));
        let below: Vec<Value> = vec![entity(1, [2]), entity(2, [3]), entity(3, [2])];
        assert!(!problem(&json!(below).to_string()).contains("A::\"1\""));
    });
}
