//! What Go makes of templates, as `tests/golden/generate.go` wrote it down, and every difference from that.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skep_template::{EvaluationError, ParseError, RenderLimits, Template};

/// The name of some data, a template, and what becomes of it here: its output, or the class of its error.
type Difference = (&'static str, &'static str, Result<&'static str, &'static str>);

/// Where the result is not Go's, by the reason for it.
const DIFFERENCES: &[(&str, &[Difference])] = &[
    (
        "integral numbers of data are written with all digits",
        &[
            ("numbers", "{{.exact}}", Ok("9007199254740993")),
            ("numbers", "{{.large}}", Ok("100000000000000000000")),
            ("numbers", "{{.list}}", Ok("[1 1000000 2.5]")),
            ("numbers", "{{.max}}", Ok("18446744073709551615")),
            ("numbers", "{{.million | print | len}}", Ok("7")),
            ("numbers", "{{.million}}", Ok("1000000")),
            ("numbers", "{{.min}}", Ok("-9223372036854775808")),
            ("numbers", "{{.over}}", Ok("123456789012345680000")),
            ("numbers", "{{html .million}}", Ok("1000000")),
            ("numbers", "{{js .million}}", Ok("1000000")),
            ("numbers", "{{json .exact}}", Ok("9007199254740993")),
            (
                "numbers",
                "{{json .}}",
                Ok(
                    "{\"exact\":9007199254740993,\"exp\":1000,\"frac\":1234567.25,\"huge\":1e+21,\"hundred\":100000,\"large\":100000000000000000000,\"list\":[1,1000000,2.5],\"long\":31.245270191439438,\"longer\":0.12345678901234568,\"max\":18446744073709551615,\"maxf\":1.7976931348623157e+308,\"micro\":0.000015,\"million\":1000000,\"min\":-9223372036854775808,\"neg\":-2.5,\"negzero\":-0,\"over\":123456789012345680000,\"small\":3,\"sub\":5e-324,\"third\":0.3333333333333333,\"tinier\":1e-7,\"tiny\":0.000001,\"vast\":1.5e+300,\"whole\":5}",
                ),
            ),
            ("numbers", "{{print .million .list}}", Ok("1000000 [1 1000000 2.5]")),
            ("numbers", "{{print .million | quote}}", Ok("\"1000000\"")),
            ("numbers", "{{printf \"%#v\" .million}}", Ok("1000000")),
            ("numbers", "{{printf \"%d\" .million}}", Ok("%!d(float64=1000000)")),
            ("numbers", "{{printf \"%v\" .list}}", Ok("[1 1000000 2.5]")),
            ("numbers", "{{printf \"%v\" .million}}", Ok("1000000")),
            ("numbers", "{{println .million}}", Ok("1000000\n")),
            ("numbers", "{{urlquery .million}}", Ok("1000000")),
            ("texts", "{{(fromJson .json).a}}", Ok("1000000")),
            ("texts", "{{fromJson .json}}", Ok("map[a:1000000 b:[true <nil>]]")),
            ("texts", "{{fromJson \"1000000\"}}", Ok("1000000")),
            ("texts", "{{range $k, $v := fromJson .json}}{{$k}}={{$v}};{{end}}", Ok("a=1000000;b=[true <nil>];")),
            ("texts", "{{with fromJson .json}}{{.a}} {{index .b 1}}{{end}}", Ok("1000000 <no value>")),
            (
                "workflow",
                "{{$}}{{$x := 1}}",
                Ok(
                    "map[forEach:map[index:0 item:map[n:2 name:pkg]] params:map[empty: flag:true limit:10 nothing:<nil> off:false subject:disk full tags:[a b]] steps:map[create:map[content:map[] output:map[] status:skipped] my-step:map[content:map[text: text_1:second] error:no \"route\" output:<nil> status:failed] search:map[content:map[text:hello] output:map[big:1234567 count:3 items:[map[id:7 name:x] map[id:8 name:y <b>]] ratio:0.5 text:{\"field\":\"v\",\"list\":[1,2.5,null],\"deep\":{\"a\":{\"b\":true}}}] status:completed]] vars:map[] workflow:map[duration_ms:1500 id:w-1 start_time:2026-01-02T03:04:05Z status:running step_count:3]]",
                ),
            ),
            (
                "workflow",
                "{{.steps.search.output}}",
                Ok(
                    "map[big:1234567 count:3 items:[map[id:7 name:x] map[id:8 name:y <b>]] ratio:0.5 text:{\"field\":\"v\",\"list\":[1,2.5,null],\"deep\":{\"a\":{\"b\":true}}}]",
                ),
            ),
        ],
    ),
    (
        "integers and numbers of data are compared by value",
        &[
            ("numbers", "{{eq .exact 9007199254740993}}", Ok("true")),
            ("numbers", "{{eq .million 1000000}}", Ok("true")),
            ("numbers", "{{eq .whole 5}}", Ok("true")),
            ("numbers", "{{gt .vast 1}}", Ok("true")),
            ("numbers", "{{lt .small 4}}", Ok("true")),
            ("types", "{{eq (index .s 0) 116.0}}", Ok("true")),
            ("types", "{{eq (len .list) .one}}", Ok("false")),
            ("types", "{{eq .half 0}}", Ok("false")),
            ("types", "{{eq .one 1}}", Ok("true")),
            ("types", "{{eq 1 .one}}", Ok("true")),
            ("types", "{{eq 1 1.0}}", Ok("true")),
            ("types", "{{ge 1 .one}}", Ok("true")),
            ("types", "{{gt .half 0}}", Ok("true")),
            ("types", "{{le .neg -7}}", Ok("true")),
            ("types", "{{lt .one 2}}", Ok("true")),
            ("types", "{{lt 1 1.5}}", Ok("true")),
            ("types", "{{ne .one 1}}", Ok("false")),
            ("workflow", "{{eq .steps.search.output.count 3}}", Ok("true")),
            ("workflow", "{{if gt .steps.search.output.count 2}}many{{else}}few{{end}}", Ok("many")),
        ],
    ),
    (
        "imaginary numbers are refused",
        &[
            ("workflow", "{{1+2i}}", Err("parse")),
            ("workflow", "{{2i}}", Err("parse")),
            ("workflow", "{{print 1e3i}}", Err("parse")),
        ],
    ),
];

/// What becomes of a template: its output, or the class of its error.
fn result(template: &str, data: &Value) -> Result<String, &'static str> {
    let template = Template::parse(template).map_err(|_: ParseError| "parse")?;
    template.render(data, RenderLimits::default()).map_err(|error| class(&error.problem))
}

/// The class of an error, as the generator names it.
fn class(problem: &EvaluationError) -> &'static str {
    match problem {
        EvaluationError::Steps { .. } => "steps",
        EvaluationError::Output { .. } => "output",
        EvaluationError::Calls { .. } => "calls",
        EvaluationError::Nesting { .. } => "nesting",
        EvaluationError::NilField { .. } => "nil-field",
        EvaluationError::NoField { .. } => "no-field",
        EvaluationError::FieldArguments { .. } => "field-arguments",
        EvaluationError::NotAFunction => "not-a-function",
        EvaluationError::NilCommand => "nil-command",
        EvaluationError::Overflow(_) => "overflow",
        EvaluationError::Variable(_) => "variable",
        EvaluationError::Template(_) => "template",
        EvaluationError::Arguments { .. } => "arguments",
        EvaluationError::NotAString { .. } => "not-a-string",
        EvaluationError::NoComparison => "no-comparison",
        EvaluationError::Incompatible { .. } => "incompatible",
        EvaluationError::Incomparable(_) => "incomparable",
        EvaluationError::NoParts { .. } => "no-parts",
        EvaluationError::IndexType { .. } => "index-type",
        EvaluationError::IndexRange { .. } => "index-range",
        EvaluationError::SliceBounds => "slice-bounds",
        EvaluationError::Range(_) => "range",
        EvaluationError::RangeVariables => "range-variables",
        EvaluationError::Call(_) => "call",
        EvaluationError::NotJson(_) => "not-json",
    }
}

#[test]
fn templates_render_as_in_go_but_for_the_documented_differences() {
    let all: Value = serde_json::from_str(include_str!("../golden/vectors.json")).unwrap();
    let vectors = all["vectors"].as_array().unwrap();
    let rows = DIFFERENCES.iter().flat_map(|(_, rows)| *rows);
    let differences: BTreeMap<(&str, &str), _> =
        rows.map(|(data, template, ours)| ((*data, *template), *ours)).collect();
    let mut met = BTreeSet::new();
    let mut wrong = Vec::new();
    for vector in vectors {
        let (name, template) = (vector["data"].as_str().unwrap(), vector["template"].as_str().unwrap());
        let go = vector["output"].as_str().ok_or_else(|| vector["error"].as_str().unwrap());
        let ours = result(template, &all["data"][name]);
        let ours = ours.as_deref().map_err(|class| *class);
        let expected = differences.get(&(name, template)).copied().unwrap_or(go);
        if ours != expected {
            wrong.push(format!("{template:?} with `{name}`: {ours:?}, not {expected:?}"));
        }
        if ours != go {
            met.insert((name, template));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
    let stale: Vec<_> = differences.keys().filter(|row| !met.contains(*row)).collect();
    assert!(stale.is_empty(), "these do not differ: {stale:?}");
    assert!(vectors.len() > 1_000, "{}", vectors.len());
}
