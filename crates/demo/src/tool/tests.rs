use super::*;

fn surroundings() -> Surroundings {
    Surroundings {
        now: || "2026-03-01T22:30:00Z".parse().unwrap(),
        uuid: || "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap(),
    }
}

fn call(tool: &str, arguments: &Value) -> Result<Value, String> {
    find(tool).unwrap().call(arguments.as_object().unwrap(), &surroundings())
}

fn calculate(expression: &str) -> Result<Value, String> {
    call("calculate", &json!({ "expression": expression })).map(|value| value["result"].clone())
}

#[test]
fn arithmetic_has_the_usual_order() {
    for (expression, expected) in [
        ("6 * 7", json!(42)),
        ("1 + 2 * 3", json!(7)),
        ("(1 + 2) * 3", json!(9)),
        ("10 - 4 - 3", json!(3)),
        ("2 ^ 3 ^ 2", json!(512)),
        ("-2 ^ 2", json!(-4)),
        ("2 ^ -1", json!(0.5)),
        ("7 % 4", json!(3)),
        ("--3", json!(3)),
        ("1e3 + .5", json!(1000.5)),
        ("2e-3 * 1000", json!(2)),
        ("max(1, 5, 3) - min(2, 4)", json!(3)),
        ("sqrt(abs(-16)) + round(2.5) + floor(1.9) + ceil(1.1)", json!(10)),
        ("2 * pi - 2*pi", json!(0)),
        ("ln(e) + cos(0) + sin(0) + tan(0)", json!(2)),
        ("10 ^ 300", json!(1e300)),
    ] {
        assert_eq!(calculate(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn the_error_says_what_cannot_be_calculated() {
    for (expression, words) in [
        ("", "ends too early"),
        ("1 +", "ends too early"),
        ("1 2", "`2` does not fit at position 3"),
        ("(1", "`)` is missing"),
        ("1)", "`)` does not fit"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1.2.3", "`1.2.3` is not a number"),
        ("system(1)", "no function `system`"),
        ("x", "`x` is not known"),
        ("sqrt(1, 2)", "takes one number"),
        ("sqrt(-1)", "not a finite number"),
        ("10 ^ 400", "not a finite number"),
        ("ä", "`ä` does not fit at position 1"),
        ("2 ä", "position 3"),
    ] {
        let problem = calculate(expression).unwrap_err();
        assert!(problem.contains(words), "{expression}: {problem}");
    }
}

#[test]
fn nothing_nests_without_end() {
    for deep in ["(".repeat(900), "2^".repeat(450), "abs(".repeat(200)] {
        assert!(calculate(&deep).unwrap_err().contains("nested"), "{deep}");
    }
    assert_eq!(calculate(&format!("{}1", "-".repeat(998))), Ok(json!(1)));
    assert!(calculate(&"1".repeat(1001)).unwrap_err().contains("longer"));
}

#[test]
fn a_pointer_leads_into_a_document() {
    let document = json!({ "items": [{ "a/b": null }, 2], "": 3 });
    let query = |pointer: &str| call("json_query", &json!({ "document": document, "pointer": pointer }));
    assert_eq!(query("/items/1"), Ok(json!({ "found": true, "value": 2 })));
    assert_eq!(query("/items/0/a~1b"), Ok(json!({ "found": true, "value": null })));
    assert_eq!(query("/"), Ok(json!({ "found": true, "value": 3 })));
    assert_eq!(query(""), Ok(json!({ "found": true, "value": document })));
    assert_eq!(query("/items/2"), Ok(json!({ "found": false, "value": null })));
    assert!(query("items").unwrap_err().contains("starts with /"));
}

#[test]
fn a_text_is_counted_by_several_measures() {
    let count = |text: &str| call("text_statistics", &json!({ "text": text })).unwrap();
    let expected = json!({ "characters": 19, "bytes": 20, "words": 4, "lines": 2, "longestWord": "grüne" });
    assert_eq!(count("grüne  Haus\nhier ab"), expected);
    let nothing = json!({ "characters": 0, "bytes": 0, "words": 0, "lines": 0, "longestWord": "" });
    assert_eq!(count(""), nothing);
}

#[test]
fn the_time_is_returned_at_an_offset() {
    let time = |offset: &str| call("time", &json!({ "offset": offset }));
    let expected = json!({ "time": "2026-03-02T00:30:00+02:00", "weekday": "Monday", "unixSeconds": 1_772_404_200 });
    assert_eq!(time("+02:00"), Ok(expected));
    assert_eq!(call("time", &json!({})).unwrap()["time"], "2026-03-01T22:30:00+00:00");
    assert_eq!(time("utc").unwrap()["weekday"], "Sunday");
    assert_eq!(time("-05:30").unwrap()["time"], "2026-03-01T17:00:00-05:30");
    for wrong in ["", "+2", "+24:00", "+02:60", "+ 2:00", "Europe/Berlin", "02:00", "+0é:00"] {
        assert!(time(wrong).unwrap_err().contains("is not an offset"), "{wrong}");
    }
}

#[test]
fn uuids_are_random_or_belong_to_a_name() {
    let random = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    assert_eq!(call("uuid", &json!({})), Ok(json!({ "uuids": [random] })));
    assert_eq!(call("uuid", &json!({ "count": 2 })), Ok(json!({ "uuids": [random, random] })));
    let named = json!({ "uuids": ["cfbff0d1-9375-5685-968c-48ce8b15ae17"] });
    assert_eq!(call("uuid", &json!({ "name": "example.com" })), Ok(named));
    assert!(call("uuid", &json!({ "name": "a", "count": 1 })).unwrap_err().contains("leave `count` out"));
    for wrong in [json!(0), json!(101), json!(-1), json!(1.5), json!("1")] {
        assert!(call("uuid", &json!({ "count": wrong })).unwrap_err().contains("from 1 to 100"), "{wrong}");
    }
}

#[test]
fn arguments_are_those_of_the_schema() {
    assert!(call("calculate", &json!({})).unwrap_err().contains("`expression` is missing"));
    assert!(call("calculate", &json!({ "expression": 1 })).unwrap_err().contains("must be a string"));
    let unknown = call("calculate", &json!({ "expression": "1", "x": 1 })).unwrap_err();
    assert!(unknown.contains("`x` is not an argument of `calculate`; it takes expression"), "{unknown}");
    assert!(call("time", &json!({ "offset": 2 })).unwrap_err().contains("must be a string"));
}

#[test]
fn the_output_matches_the_schema() {
    let samples = [
        ("calculate", json!({ "expression": "1" })),
        ("json_query", json!({ "document": 1, "pointer": "" })),
        ("text_statistics", json!({ "text": "" })),
        ("time", json!({})),
        ("uuid", json!({})),
    ];
    assert_eq!(samples.len(), TOOLS.len());
    for (name, arguments) in samples {
        let out = call(name, &arguments).unwrap();
        let members: Vec<&String> = out.as_object().unwrap().keys().collect();
        let listed = list().into_iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(json!(members), listed["outputSchema"]["required"], "{name}");
        assert!(listed["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
        assert_eq!(listed["inputSchema"]["type"], "object");
        assert_eq!(listed["annotations"]["readOnlyHint"], true);
    }
}
