//! What an error says: where, what is wrong, and what to do.

use serde_json::json;
use skep_template::{ParseError, RenderLimits, Template};

fn parse_error(template: &str) -> String {
    Template::parse(template).map_or_else(|error| error.to_string(), |_| String::new())
}

fn render_error(template: &str) -> String {
    let data = json!({
        "n": 1.5, "s": "secret value", "list": ["secret value"], "map": { "a": null }, "bad": "secret value {", "long": "x".repeat(100)
    });
    let template = Template::parse(template).unwrap();
    template.render(&data, RenderLimits::default()).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn an_invalid_template_is_reported_with_its_place_and_what_to_do() {
    let cases = [
        ("a\nb {{.x", "line 2, column 3: this action is not closed; end it with `}}`"),
        ("{{/* a", "line 1, column 1: this comment is not closed; end it with `*/}}`"),
        ("{{/* a */ .x}}", "line 1, column 10: a comment fills its action; end it with `*/}}` or `*/ -}}`"),
        ("é {{\"a}}", "line 1, column 5: this string is not closed; `\"` is missing"),
        ("{{(.x}}", "line 1, column 6: a parenthesis of this action is not closed; `)` is missing"),
        ("{{.x)}}", "line 1, column 5: `)` closes nothing; remove it, or open its parenthesis"),
        (
            "{{.steps.my-step.output}}",
            "line 1, column 9: `-` cannot follow `.my`; put a space between them, or quote the whole name and read it with `index`, as in `index .steps \"my-step\"`",
        ),
        ("{{.x & .y}}", "line 1, column 6: `&` does not belong into an action; remove it, or put it in quotes"),
        ("{{.x\n= 1}}", "line 2, column 1: `=` does not fit into an action; remove it, or separate it by a space"),
        ("{{if .x}}a{{else}}{{else}}{{end}}", "line 1, column 27: `{{else}}` belongs to no open block; remove it"),
        ("{{else}}", "line 1, column 1: `{{else}}` belongs to no open block; remove it"),
        ("a {{end}}", "line 1, column 3: `{{end}}` belongs to no open block; remove it"),
        ("{{if .a}}\n {{range .b}}\n{{end}}", "line 1, column 1: `if` is not closed; add `{{end}}`"),
        ("{{define \"a\"}}", "line 1, column 1: `define` is not closed; add `{{end}}`"),
        ("{{break}}", "line 1, column 3: `{{break}}` is outside of `range`; remove it"),
        ("{{if}}{{end}}", "line 1, column 5: the value is missing in `if`; write one, such as `.params.name`"),
        ("{{upper .x}}", "line 1, column 3: there is no function `upper`; use one of and, call, eq, "),
        (
            "{{$x}}",
            "line 1, column 3: `$x` is not declared here; declare it with `:=` before, in the same block or one around it",
        ),
        ("{{1.x}}", "line 1, column 3: `1.x` is not a number that can be used; "),
        ("{{2i}}", "line 1, column 3: `2i` is an imaginary number, which are not supported; remove it"),
        ("{{\"\\q\"}}", "line 1, column 3: `\"\\q\"` has an escape or a character that cannot be used; "),
        (
            "{{\"a\".x}}",
            "line 1, column 6: `.x` follows a value that has no members; separate it by a space, or remove it",
        ),
        ("{{.a | .b | 1}}", "line 1, column 13: only a function can stand behind `|`; write its name there"),
        (
            "{{$x, $y := .a}}",
            "line 1, column 3: too many variables in an action; only `range` has two, an index and an element",
        ),
        ("{{range $x, 1}}{{end}}", "line 1, column 13: `range` declares variables only; write `$index, $element :=`"),
        (
            "{{define \"a\"}}x{{end}}{{define \"a\"}}y{{end}}",
            "line 1, column 23: `a` is the name of an earlier template; give each its own",
        ),
        ("{{if .x}}{{else with .y}}{{end}}{{end}}", "line 1, column 17: `with` does not fit into `else`, "),
    ];
    for (template, expected) in cases {
        let error = parse_error(template);
        assert!(error.starts_with(expected), "{template}: {error}");
    }
}

#[test]
fn an_error_quotes_little_and_in_one_line() {
    let error = parse_error(&format!("{{{{{}}}}}", "x".repeat(10_000)));
    assert!(error.contains(&format!("no function `{}…`", "x".repeat(40))) && error.len() < 500, "{error}");
    assert!(!parse_error("{{define `a\nb`}}x{{end}}{{define `a\nb`}}y{{end}}").contains('\n'));
}

#[test]
fn a_template_that_is_too_large_or_too_deep_is_refused() {
    let most = "it has 65537 bytes, and 65536 are the most; write less, or split it";
    assert_eq!(parse_error(&"x".repeat(65_537)), most);
    assert_eq!(parse_error(&"x".repeat(65_536)), "");
    let nested = |depth: usize| format!("{{{{{}1{}}}}}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(parse_error(&nested(32)), "");
    assert!(matches!(Template::parse(&nested(33)), Err(ParseError::Bounds(_))));
    let blocks = |depth: usize| format!("{}{}", "{{if 1}}".repeat(depth), "{{end}}".repeat(depth));
    assert_eq!(parse_error(&blocks(32)), "");
    assert!(matches!(Template::parse(&blocks(33)), Err(ParseError::Bounds(_))));
}

#[test]
fn a_failure_is_reported_with_its_place_and_what_to_do_but_without_data() {
    let cases = [
        ("\n{{.n.x}}", "line 2, column 3: a value of type float64 has no `.x`; only objects have members"),
        ("{{.map.a.x}}", "line 1, column 3: null has no `.x`; test the value with `if` or `with` before"),
        (
            "{{.map 1}}",
            "line 1, column 3: `.map` is not a function, but has arguments; remove them, or separate them by `|`",
        ),
        (
            "{{1 2}}",
            "line 1, column 3: only a function takes arguments; remove them, or write the name of a function first",
        ),
        ("{{len .s .s}}", "line 1, column 3: `len` takes one argument, not 2"),
        (
            "{{quote .n}}",
            "line 1, column 9: `quote` needs a string, not float64; convert the value with `print` or `json`",
        ),
        (
            "{{eq .s .n}}",
            "line 1, column 3: values of types string and float64 cannot be compared; convert them with `print`, or compare their `len`",
        ),
        (
            "{{lt .list .list}}",
            "line 1, column 3: values of type []interface {} cannot be compared; convert them with `json`, or compare their `len`",
        ),
        ("{{index .list 1}}", "line 1, column 3: index 1 is out of range, there are 1 elements; test `len` before"),
        (
            "{{index .list .s}}",
            "line 1, column 3: a value of type string is not an index of a list; use an integer, such as 0 or `len`",
        ),
        (
            "{{index .n 1}}",
            "line 1, column 3: `index` cannot be used on a value of type float64; use it on a string, a list or an object",
        ),
        ("{{range .s}}{{end}}", "line 1, column 9: `range` cannot go through a value of type string; "),
        ("{{template \"t\"}}", "line 1, column 3: there is no template `t`; add it with `define`"),
        ("{{if 0}}{{$x := 1}}{{else}}{{$x}}{{end}}", "line 1, column 30: `$x` has no value here; "),
        (
            "{{fromJson .bad}}",
            "line 1, column 3: `fromJson` got a text that is not JSON: expected value at line 1 column 1",
        ),
        ("{{nil}}", "line 1, column 3: `nil` alone is not a value to use; compare with it, as in `eq .a nil`"),
    ];
    for (template, expected) in cases {
        let error = render_error(template);
        assert!(error.starts_with(expected), "{template}: {error}");
        assert!(!error.contains("secret"), "{template}: {error}");
    }
}

/// Go writes the address of a list.
#[test]
fn no_address_is_written() {
    let template = Template::parse(r#"{{printf "%p" .}}"#).unwrap();
    let output = template.render(&json!([1]), RenderLimits::default());
    assert_eq!(output.unwrap(), "%!p([]interface {}=[1])");
}
