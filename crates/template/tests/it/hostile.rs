//! Templates that are made to do harm: none panics, hangs, or takes more than its limits.

use proptest::prelude::*;
use serde_json::{Value, json};
use skep_template::{EvaluationError, RenderLimits, Template};

/// Limits that are soon reached.
const FEW: RenderLimits = RenderLimits { steps: 20_000, output: 10_000, calls: 20 };

fn data() -> Value {
    let numbers: Vec<Value> = (0..200).map(|number| json!({ "n": number, "s": "<&>" })).collect();
    json!({
        "list": numbers, "text": "<\u{0}é\u{2028}".repeat(100), "n": 1e6, "half": 0.5, "t": true, "null": null,
        "map": { "b": { "c": [1, null, "x"] }, "a": "y" }, "json": "{\"a\":[[[[]]]]}", "format": "%[1]*d%[%99999999.99999999f%",
    })
}

fn failure(template: &str, data: &Value) -> EvaluationError {
    let template = Template::parse(template).unwrap();
    template.render(data, RenderLimits::default()).unwrap_err().problem
}

/// Each of these would run for hours, or take all memory.
#[test]
fn no_template_takes_more_than_its_limits() {
    let list: Vec<Value> = (0..10_000).map(Value::from).collect();
    let members: serde_json::Map<String, Value> = (0..10_000).map(|number| (format!("m{number}"), json!([]))).collect();
    let large = json!({ "list": list, "map": members, "text": "<".repeat(100_000), "json": "[".to_owned() + &"[],".repeat(300_000) + "[]]" });
    // A tenth of the default, because tests are not optimized.
    let limits = RenderLimits { steps: 100_000, output: 1_000_000, ..RenderLimits::default() };
    let steps = EvaluationError::Steps { most: 100_000 };
    let output = EvaluationError::Output { most: 1_000_000 };
    let calls = EvaluationError::Calls { most: 100 };
    let cases = [
        ("{{range .list}}{{range $.list}}{{end}}{{end}}", &steps),
        ("{{range 9223372036854775807}}{{end}}", &steps),
        ("{{range .list}}{{range $.list}}{{.}}{{end}}{{end}}", &steps),
        ("{{range .list}}{{range $.map}}{{break}}{{end}}{{end}}", &steps),
        ("{{range .list}}{{print $.map}}{{end}}", &steps),
        ("{{range .list}}{{$x := json $.map}}{{end}}", &steps),
        ("{{range 1000}}{{if eq $.text $.text}}{{end}}{{end}}", &steps),
        ("{{range 1000}}{{if lt $.text $.text}}{{end}}{{end}}", &steps),
        ("{{range 1000}}{{if index $.map $.text}}{{end}}{{end}}", &steps),
        ("{{range 1000}}{{$x := slice $.text 1}}{{end}}", &steps),
        ("{{$x := fromJson .json}}", &steps),
        ("{{$x := .text}}{{range 1000}}{{$x = print $x $x}}{{end}}", &output),
        ("{{$x := .text}}{{range 1000}}{{$x = html $x}}{{end}}", &output),
        ("{{js .text .text}}{{urlquery .text .text .text .text}}", &output),
        ("{{range 1000}}{{$x := js $.text}}{{end}}", &steps),
        ("{{printf \"%9999999d%9999999d\" 1 2}}", &output),
        ("{{printf \"%*d\" 1000000 1 | printf \"%q%[1]q%[1]q%[1]q%[1]q%[1]q%[1]q%[1]q%[1]q%[1]q%[1]q\"}}", &output),
        ("{{range 1000}}{{$x := printf \"%.9999999f\" 1.5}}{{end}}", &output),
        ("{{range 1000}}{{$x := printf \"%.99999f\" 1.5}}{{end}}", &steps),
        ("{{range 1000}}{{$x := printf \"%099999d%-99999s%99999v\" 1 \"\" nil}}{{end}}", &steps),
        ("{{define \"t\"}}{{template \"t\"}}{{end}}{{template \"t\"}}", &calls),
        (
            "{{define \"t\"}}{{range 9}}{{template \"u\"}}{{end}}{{end}}{{define \"u\"}}{{template \"t\"}}{{end}}{{template \"t\"}}",
            &calls,
        ),
        (
            "{{define \"t\"}}{{if lt (len .) 90}}{{template \"t\" (print . 1)}}{{template \"t\" (print . 1)}}{{end}}{{end}}{{template \"t\" \"\"}}",
            &steps,
        ),
    ];
    for (template, expected) in cases {
        let rendered = Template::parse(template).unwrap().render(&large, limits);
        assert_eq!(&rendered.unwrap_err().problem, expected, "{template}");
    }
}

/// Brackets of a directive were looked for up to the end of the format, again for each directive.
#[test]
fn a_format_of_open_brackets_is_read_once() {
    let data = json!("%[".repeat(1_000_000));
    assert_eq!(failure("{{printf .}}", &data), EvaluationError::Steps { most: 1_000_000 });
}

/// Threads of tests have a stack of two megabytes, as those of the proxy.
#[test]
fn the_deepest_template_fits_the_stack() {
    let blocks = "{{range 1}}{{with 1}}{{if 1}}".repeat(10);
    let parentheses = |inner: &str| format!("{}{inner}{}", "(print ".repeat(32), ")".repeat(32));
    let text = format!(
        "{{{{define \"t\"}}}}{blocks}{{{{template \"t\"}}}}{}{{{{end}}}}{{{{template \"t\"}}}}",
        "{{end}}".repeat(30)
    );
    assert_eq!(failure(&text, &Value::Null), EvaluationError::Calls { most: 100 });
    let deep = format!("{{{{{}}}}}", parentheses("1"));
    assert_eq!(Template::parse(&deep).unwrap().render(&Value::Null, RenderLimits::default()).unwrap(), "1");
    let mut nested = json!(1);
    (0..200).for_each(|_| nested = json!([nested]));
    for template in ["{{.}}", "{{json .}}", "{{printf \"%#v\" .}}"] {
        assert_eq!(failure(template, &nested), EvaluationError::Nesting { most: 128 }, "{template}");
    }
    let json = json!("[".repeat(10_000));
    assert!(matches!(failure("{{fromJson .}}", &json), EvaluationError::NotJson(_)));
}

/// Each of them is kept until the template is rendered, one behind the other.
#[test]
fn many_texts_are_decoded() {
    let template = Template::parse("{{range 100000}}{{$x := fromJson \"[1]\"}}{{end}}").unwrap();
    assert_eq!(template.render(&Value::Null, RenderLimits::default()).unwrap(), "");
}

/// Parts of templates, of which some nest and some open what nothing closes.
fn pieces() -> impl Strategy<Value = String> {
    let values = prop::sample::select(vec![
        ".",
        "$",
        "$x",
        ".list",
        ".map",
        ".map.b.c",
        ".text",
        ".n",
        ".half",
        ".t",
        ".null",
        ".absent.x",
        ".json",
        ".format",
        "nil",
        "1",
        "-3",
        "9999999",
        "1e9",
        "\"%9999d\"",
        "\"%[2]*[1]f\"",
        "`a`",
        "'a'",
        "(len .list)",
        "(print .)",
        "(fromJson .json)",
    ]);
    let functions = prop::sample::select(vec![
        "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "index", "slice", "len", "print", "printf", "println",
        "html", "js", "urlquery", "call", "json", "quote", "fromJson",
    ]);
    let call = (functions, prop::collection::vec(values.clone(), 0..4))
        .prop_map(|(function, arguments)| format!("{function} {}", arguments.join(" ")));
    let pipeline = prop_oneof![
        values.prop_map(str::to_owned),
        call.clone(),
        (call.clone(), call.clone()).prop_map(|(one, other)| format!("{one} | {other}")),
        (call.clone(), call).prop_map(|(one, other)| format!("print ({one}) ({other})")),
    ];
    let keyword = prop::sample::select(vec![
        "",
        "",
        "if ",
        "with ",
        "range ",
        "range $i, $x := ",
        "range $x = ",
        "$x := ",
        "$x = ",
        "else if ",
        "template \"t\" ",
        "block \"t\" ",
    ]);
    let word = prop::sample::select(vec![
        "{{end}}",
        "{{end}}",
        "{{else}}",
        "{{break}}",
        "{{continue}}",
        "{{define \"t\"}}",
        "text",
        "{{",
        "}}",
        "{{- ",
        " -}}",
        "{{/* c */}}",
        "\n",
    ]);
    prop_oneof![
        3 => (keyword, pipeline).prop_map(|(keyword, pipeline)| format!("{{{{{keyword}{pipeline}}}}}")),
        2 => word.prop_map(str::to_owned),
    ]
}

/// Templates with all of their blocks closed.
fn closed() -> impl Strategy<Value = String> {
    prop::collection::vec(pieces(), 0..12).prop_map(|pieces| {
        let mut text = "{{$x := .}}".to_owned();
        let mut open = 0_usize;
        for piece in pieces {
            let inside = piece.trim_start_matches("{{");
            open += usize::from(["if ", "with ", "range ", "block "].iter().any(|word| inside.starts_with(word)));
            if piece == "{{end}}" {
                let Some(left) = open.checked_sub(1) else { continue };
                open = left;
            }
            text += &piece;
        }
        text + &"{{end}}".repeat(open)
            + "{{define \"t\"}}{{range .}}{{template \"t\" .}}{{end}}{{template \"t\" 1}}{{end}}"
    })
}

/// Renders a template if it is one, and checks that the limits hold.
fn render(text: &str) -> Result<(), TestCaseError> {
    let Ok(template) = Template::parse(text) else { return Ok(()) };
    prop_assert!(template.references().all(|path| !path.is_empty()));
    if let Ok(output) = template.render(&data(), FEW) {
        // A byte that is not UTF-8 becomes three.
        prop_assert!(output.len() <= 3 * FEW.output, "{} bytes", output.len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "(?s).{0,200}") {
        render(&text)?;
    }

    #[test]
    fn any_tokens_are_parsed_or_refused(text in "(\\{\\{|\\}\\}|- | -|[.$a-c_|:=(),'\"`0-9+/*\\\\ \n-]|if |end|range |else|/\\*|\\*/){0,60}") {
        render(&text)?;
    }

    #[test]
    fn any_pieces_end_within_the_limits(pieces in prop::collection::vec(pieces(), 0..20)) {
        render(&pieces.concat())?;
    }

    #[test]
    fn any_template_ends_within_the_limits(text in closed()) {
        render(&text)?;
    }

    #[test]
    fn text_without_actions_stays_as_it_is(text in "(?s).{0,200}") {
        prop_assume!(!text.contains("{{"));
        let template = Template::parse(&text).unwrap();
        prop_assert_eq!(template.render(&Value::Null, RenderLimits::default()).unwrap(), text);
    }

    #[test]
    fn to_json_and_from_json_are_inverse(text in "(?s).{0,50}", number in any::<f64>(), whole in any::<i64>()) {
        let number = if number.is_finite() { number } else { 0.5 };
        let data = json!({ "text": text, "list": [number, whole, null, { "a": true }] });
        let template = Template::parse("{{json .}} {{json (fromJson (json .))}}").unwrap();
        let output = template.render(&data, RenderLimits::default()).unwrap();
        let (once, twice) = output.split_at(output.len() / 2);
        prop_assert_eq!(once, twice.trim_start());
        let back: Value = serde_json::from_str(once).unwrap();
        prop_assert_eq!(&back["text"], &data["text"]);
        prop_assert_eq!(back["list"][1].as_i64(), Some(whole));
        prop_assert_eq!(back["list"][0].as_f64(), Some(number));
    }
}
