use serde_json::json;

use skep_bounds::{CONFIG_MAP_VALUES, MANIFEST_DEPTH, MANIFEST_EXPANSION, MANIFEST_NODES};

use super::*;

const TOO_MANY: &str = "there are more than 1000 aliases; write the values out";
const TOO_MUCH: &str = "its aliases stand for far more than the text has; write the values out";
const TOO_LARGE: &str = "the text, with all that its aliases stand for, is too large; split it";

fn problem(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// Many anchors, and some aliases of each.
fn anchors(anchors: usize, aliases: usize) -> String {
    let anchor =
        |number: usize| format!("a{number}: &a{number} x\nb{number}: [{}]\n", format!("*a{number}, ").repeat(aliases));
    (0..anchors).map(anchor).collect()
}

#[test]
fn yaml_is_read_with_the_habits_of_kubernetes() {
    let text = "---\n# nothing\n---\nkind: A\nmode: 0644\non: yes\ntext: '0644'\nquoted: \"yes\"\nbig: 12345678901\n---\n{\"kind\": \"B\"}\n";
    let expected = vec![
        json!({ "kind": "A", "mode": 420, "on": true, "text": "0644", "quoted": "yes", "big": 12_345_678_901_i64 }),
        json!({ "kind": "B" }),
    ];
    assert_eq!(parse(text).unwrap(), expected);
}

#[test]
fn the_items_of_a_list_are_objects_of_their_own() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n";
    assert_eq!(parse(text).unwrap(), vec![json!({ "kind": "A" }), json!({ "kind": "B" })]);
}

#[test]
fn malformed_manifests_are_refused_in_one_line() {
    for (text, expected) in [("a: 1\na: 2\n", "duplicate"), ("a: [", "not valid YAML"), ("- a\n", "document 1")] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_broken_document_hides_none_of_the_others_and_each_says_where_it_is() {
    let text = "# the first\n\nkind: A\n---\nkind: [\n---\n- a\n--- {kind: D}\n...\n%YAML 1.2\n---\n# more\nkind: E\n";
    let all = documents(text);
    let places: Vec<_> = all.iter().map(|one| (one.line, one.objects.is_ok())).collect();
    assert_eq!(places, [(3, true), (5, false), (7, false), (8, true), (13, true)]);
    let problem = |index: usize| all[index].objects.as_ref().unwrap_err().to_string();
    assert!(problem(1).contains("at line 5"), "{}", problem(1));
    assert!(problem(2).starts_with("document 3 (line 7) is not an object"), "{}", problem(2));
    assert!(parse(text).is_err());
}

#[test]
fn a_marker_in_a_block_of_text_does_not_separate_documents() {
    let text = "kind: A\ntext: |\n  ---\n  more\n---\nkind: B\n";
    assert_eq!(parse(text).unwrap(), [json!({ "kind": "A", "text": "---\nmore\n" }), json!({ "kind": "B" })]);
    assert_eq!(parse("\u{feff}kind: A\r\n---\r\nkind: B\r\n").unwrap().len(), 2);
}

/// On the stack of a worker thread, which is what a test has, too.
#[test]
fn depth_and_size_are_bounded() {
    let flow = |levels: usize| format!("a: {}1{}", "[".repeat(levels), "]".repeat(levels));
    let block = |levels: usize| (0..levels).map(|level| " ".repeat(level) + "a:\n").collect::<Vec<_>>().concat();
    for text in [flow(MANIFEST_DEPTH - 1), block(MANIFEST_DEPTH - 1)] {
        assert!(parse(&text).is_ok(), "{:?}", parse(&text));
    }
    for text in [flow(MANIFEST_DEPTH), flow(10_000), block(MANIFEST_DEPTH + 1), block(5_000), "[".repeat(10_000)] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("more than 64 lists and objects are nested; flatten it"), "{error}");
    }
    let error = problem(&flow(MANIFEST_DEPTH));
    assert!(error.contains("line 1"), "{error}");
    let large = format!("a: {}", "x".repeat(MANIFEST_BYTES));
    assert!(parse(&large).unwrap_err().to_string().starts_with("it has 16777219 bytes, and 16777216 are the most"));
}

#[test]
fn a_written_document_reads_back_as_it_was() {
    let object = json!({
        "text": "two\nlines", "colon": "a: b", "yes": "yes", "number": "0644", "empty": "", "list": [1, { "a": null }],
        "expression": "self.x == '' || self.matches('^\\\\d$')", "on": true, "map": {}, "none": [], "float": 0.5, "tilde": "~",
    });
    let text = document(&object).unwrap();
    assert!(text.starts_with("---\n") && text.ends_with('\n'));
    assert_eq!(parse(&text).unwrap(), vec![object]);
}

#[test]
fn aliases_are_bounded_in_all_documents_together() {
    assert!(parse(&anchors(200, 5)).is_ok());
    let error = problem(&anchors(201, 5));
    assert!(error.contains(TOO_MANY), "{error}");
    let documents = |count: usize| format!("---\n{}", anchors(50, 5)).repeat(count);
    assert_eq!(parse(&documents(4)).unwrap().len(), 4);
    // The error names the limit of the whole text, not the rest of the budget.
    let error = problem(&documents(5));
    assert!(error.contains(TOO_MANY), "{error}");
}

/// A megabyte of aliases stood for 900 megabytes.
#[test]
fn the_size_of_expanded_aliases_is_in_proportion_to_the_text() {
    let large = |bytes: usize, aliases: usize| {
        format!("a: &a {}\nb: [{}]\n", "x".repeat(bytes), vec!["*a"; aliases].join(", "))
    };
    assert!(parse(&large(100_000, MANIFEST_EXPANSION - 1)).is_ok());
    let error = problem(&large(100_000, MANIFEST_EXPANSION + 1));
    assert!(error.contains(TOO_MUCH), "{error}");
    assert!(problem(&large(1_000_000, 90)).contains(TOO_MUCH));
    // Small texts may stand for more.
    assert!(parse(&large(600, 90)).is_ok());
    // One budget for all documents, also behind one that is broken.
    let document = format!("---\n{}", large(5_000, 90));
    assert!(parse(&document).is_err());
    let document = format!("---\n{}", large(900, 60));
    assert!(parse(&document).is_ok());
    let text = format!("{document}broken: [\n").repeat(30);
    let all = documents(&text);
    assert_eq!(all.len(), 30);
    let last = all[29].objects.as_ref().unwrap_err().to_string();
    assert!(last.contains(TOO_MUCH) || last.contains(TOO_MANY), "{last}");
    let many = format!("a: &a [{}]\nb: [{}]\n", vec!["1"; 5_000].join(","), vec!["*a"; 90].join(", "));
    assert!(problem(&many).contains(TOO_LARGE), "{}", problem(&many));
    let dense = format!("a: [{}]", "1,".repeat(MANIFEST_NODES + 1));
    assert!(problem(&dense).contains(TOO_LARGE), "{}", problem(&dense));
    // Anchors inside anchors, each of which is kept.
    let kept = format!("a: {}{}{}", "&a [".repeat(60), "1,".repeat(50_000), "]".repeat(60));
    assert!(problem(&kept).contains(TOO_MUCH), "{}", problem(&kept));
    let laughs = (1..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        let before = level - 1;
        format!("{text}a{level}: &a{level} [*a{before}, *a{before}, *a{before}, *a{before}]\n")
    });
    assert!(problem(&laughs).contains("aliases"), "{}", problem(&laughs));
}

#[test]
fn a_text_of_a_config_map_holds_one_document() {
    assert_eq!(parse_one("---\n# first\n---\nkind: A\n").unwrap(), json!({ "kind": "A" }));
    for (text, expected) in [
        ("", "it must hold one document, and holds none; write exactly one"),
        ("kind: A\n---\nkind: B\n", "it must hold one document, and holds more; write exactly one"),
        ("kind: A\n---\nkind: B\n---\n[", "it must hold one document, and holds more; write exactly one"),
        ("- a", "document 1 (line 1) is not an object"),
    ] {
        let error = parse_one(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let error = parse_one(&format!("a: {}", "x".repeat(CONFIG_MAP_BYTES))).unwrap_err().to_string();
    assert!(error.starts_with("it has 1048579 bytes, and 1048576 are the most"), "{error}");
}

/// A megabyte of small values took 300 MB, and of empty documents a second.
#[test]
fn a_text_of_a_config_map_has_few_values_and_few_documents() {
    let list = |values: usize| format!("a: [{}]", "b,".repeat(values));
    // The object, the name and the list count.
    assert!(parse_one(&list(CONFIG_MAP_VALUES - 3)).is_ok());
    let error = parse_one(&list(CONFIG_MAP_VALUES)).unwrap_err().to_string();
    assert!(error.contains(TOO_LARGE), "{error}");
    let nulls = |documents: usize| format!("{}a: 1\n", "~\n---\n".repeat(documents - 1));
    assert!(parse_one(&nulls(CONFIG_MAP_DOCUMENTS)).is_ok());
    for documents in [CONFIG_MAP_DOCUMENTS + 1, 170_000] {
        let error = parse_one(&nulls(documents)).unwrap_err().to_string();
        assert!(error.starts_with("it must hold one document, and holds more"), "{error}");
    }
}

/// Each ran the parser: 12 MB of markers took 14 seconds.
#[test]
fn parts_without_content_are_passed_over() {
    for empty in ["---\n", "...\n", "---\r\n", "--- # a\n", "\n", "# a\n---\n", "  \t\n...\n"] {
        assert_eq!(parts(&empty.repeat(100_000)).len(), 0, "{empty:?}");
        let text = format!("{}a: 1\n---\n{}b: 2\n", empty.repeat(1_000), empty.repeat(1_000));
        let found: Vec<_> = parts(&text).iter().map(|part| part.text.contains("a: 1")).collect();
        assert_eq!(found, [true, false], "{empty:?}");
        assert_eq!(parse(&text).unwrap(), [json!({ "a": 1 }), json!({ "b": 2 })], "{empty:?}");
    }
    // A part with content is read, even if it is not an object.
    for (text, parts_of) in [("--- a\n", 1), ("%YAML 1.2\n", 1), ("---\n\u{a0}\n", 1), ("- a\n---\n- b\n", 2)] {
        assert_eq!(parts(text).len(), parts_of, "{text:?}");
        assert!(parse(text).is_err(), "{text:?}");
    }
}
