use skep_bounds::MANIFEST_ALIASES;

use crate::json::{Json, Members};

fn object(name: &str, value: Json) -> Json {
    Json::Object(Members::from_iter([(name.to_owned(), value)]))
}

fn cases(golden: &[u8]) -> Vec<Json> {
    match Json::from_slice(golden).unwrap() {
        Json::Array(cases) => cases,
        other => panic!("{other:?}"),
    }
}

fn text<'a>(case: &'a Json, name: &str) -> &'a str {
    case.get(name).and_then(Json::as_str).unwrap()
}

/// Each text as a value, as an element and, when it is a single line, as a name.
fn uses(string: &str) -> Vec<Json> {
    let mut uses = vec![object("k", Json::from(string)), object("o", Json::Array(vec![Json::from(string)]))];
    if string.len() < 100 && !string.contains('\n') {
        uses.push(object(string, Json::from(1)));
    }
    uses
}

#[test]
fn a_yaml_document_is_read_within_limits() {
    // Of so many anchors that no other limit of the parser is met.
    let aliases = |count: usize| {
        let anchors: Vec<_> = (0..200).map(|number| format!("&a{number} x")).collect();
        let uses: Vec<_> = (0..count).map(|number| format!("*a{}", number % 200)).collect();
        format!("a: [{}]\nb: [{}]\n", anchors.join(", "), uses.join(", "))
    };
    let doubled = |levels: usize| {
        let level =
            |level: usize| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(", "));
        format!("l0: &l0 xxxxxxxxxx\n{}", (1..=levels).map(level).collect::<String>())
    };
    for (text, what) in [
        (format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)), "too deep"),
        (aliases(MANIFEST_ALIASES + 1), "too many aliases"),
        (doubled(6), "a million texts"),
        (format!("[{}1]", "1, ".repeat(300_000)), "too many values"),
        (format!("a: \"{}\"", "x".repeat(skep_bounds::MANIFEST_BYTES)), "too large"),
    ] {
        assert!(Json::from_yaml(&text).is_err(), "{what}");
    }
    assert!(Json::from_yaml(&aliases(MANIFEST_ALIASES)).is_ok());
    assert!(Json::from_yaml(&doubled(2)).is_ok());
    assert!(Json::from_yaml(&format!("{}1{}", "[".repeat(60), "]".repeat(60))).is_ok());
}

#[test]
fn texts_are_quoted_as_go_does() {
    for case in cases(include_bytes!("../../tests/golden/go/yaml_scalars.json")) {
        let written: String = uses(text(&case, "text")).iter().map(Json::to_yaml).collect();
        assert_eq!(written, text(&case, "yaml"), "{:?}", text(&case, "text"));
    }
}

#[test]
fn trees_are_laid_out_as_go_does() {
    for case in cases(include_bytes!("../../tests/golden/go/yaml_trees.json")) {
        let tree = case.get("tree").unwrap();
        assert_eq!(tree.to_yaml(), text(&case, "yaml"));
        assert_eq!(&Json::from_yaml(text(&case, "yaml")).unwrap(), tree);
    }
}

/// Go loses the first line of some of these, or writes what other readers take for a boolean.
#[test]
fn texts_that_go_does_not_write_well_read_back_as_they_were() {
    for string in [
        "\n",
        "\n\n",
        "\na",
        "\n a\n",
        " a\nb",
        "  a\n  b\n",
        " \n",
        "a\r\nb",
        "a\u{2028}b",
        "a\u{85}b",
        "\u{feff}a",
        "<<",
        "tRuE",
        "nULL",
        "1e400",
        "2020-13-45",
        "\t\n",
        "a\n\t",
        "x: \n y",
        "---\na",
        "a\n---\nb",
        "a\n...\n",
    ] {
        for json in uses(string) {
            assert_eq!(Json::from_yaml(&json.to_yaml()).unwrap(), json, "{}", json.to_yaml());
        }
        let nested = object("a", Json::Array(vec![object("b", object("c", Json::from(string)))]));
        assert_eq!(Json::from_yaml(&nested.to_yaml()).unwrap(), nested, "{}", nested.to_yaml());
    }
}

#[test]
fn a_document_can_be_a_single_value() {
    for (json, expected) in [("{}", "{}\n"), ("[]", "[]\n"), ("null", "null\n"), ("\"a\"", "a\n"), ("[1]", "- 1\n")] {
        assert_eq!(json.parse::<Json>().unwrap().to_yaml(), expected);
    }
}
