use super::*;

const LISTED: &str = r#"{"jsonrpc":"2.0", "id":12345678901234567890123, "result":{"_meta":{"n":1e400}, "tools":[ {"name":"a", "description":"does <a>", "inputSchema":{"x":1.0}} , {"inputSchema":{}, "name":"b"} , {"name":"c","annotations":{"readOnlyHint":true}} ], "nextCursor":null, "ttlMs":5}, "x":1 }"#;

fn read(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn filtered(text: &str, verdict: impl FnMut(&Element<'_>) -> Verdict) -> Option<String> {
    let rewritten = rewrite(&read(text), List::Tools, verdict).unwrap()?;
    Message::parse(rewritten.clone()).unwrap();
    Some(String::from_utf8(rewritten.to_vec()).unwrap())
}

fn refusal(result: &str) -> MessageError {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    rewrite(&read(&text), List::Tools, |_| Verdict::Keep).expect_err(result)
}

#[test]
fn every_element_is_shown() {
    let mut seen = Vec::new();
    let changed = filtered(LISTED, |element| {
        seen.push((element.name.to_string(), element.description.as_deref().map(str::to_owned), element.raw.len()));
        if element.name == "c" {
            assert_eq!(element.annotations, Some(r#"{"readOnlyHint":true}"#));
        }
        Verdict::Keep
    });
    assert_eq!(changed, None);
    let description = Some("does <a>".to_owned());
    assert_eq!(seen, [("a".to_owned(), description, 63), ("b".to_owned(), None, 30), ("c".to_owned(), None, 48)]);
}

#[test]
fn elements_go_and_all_else_stays() {
    const A: &str = r#"{"name":"a", "description":"does <a>", "inputSchema":{"x":1.0}}"#;
    const B: &str = r#"{"inputSchema":{}, "name":"b"}"#;
    const C: &str = r#"{"name":"c","annotations":{"readOnlyHint":true}}"#;
    for (dropped, gone) in [
        ("a", format!("{A} , ")),
        ("b", format!(" , {B}")),
        ("c", format!(" , {C}")),
        ("ab", format!("{A} , {B} , ")),
        ("abc", format!("{A} , {B} , {C}")),
    ] {
        let left =
            filtered(
                LISTED,
                |element| {
                    if dropped.contains(element.name.as_ref()) { Verdict::Drop } else { Verdict::Keep }
                },
            );
        assert_eq!(left, Some(LISTED.replacen(&gone, "", 1)), "{dropped}");
    }
}

#[test]
fn members_change_and_all_else_stays() {
    let renamed = filtered(LISTED, |element| match element.name.as_ref() {
        "a" => Verdict::Change(Change {
            name: Some("alpha \"1\"".to_owned()),
            description: Some("does b".to_owned()),
            ..Change::default()
        }),
        "b" => Verdict::Change(Change { description: Some("new".to_owned()), ..Change::default() }),
        _ => Verdict::Change(Change { annotations: Some(Raw::parse("{}").unwrap()), ..Change::default() }),
    });
    let expected = LISTED
        .replacen(r#""name":"a", "description":"does <a>""#, r#""name":"alpha \"1\"", "description":"does b""#, 1)
        .replacen(r#""name":"b""#, r#""name":"b","description":"new""#, 1)
        .replacen(r#"{"readOnlyHint":true}"#, "{}", 1);
    assert_eq!(renamed, Some(expected));
}

#[test]
fn names_can_be_swapped() {
    let swapped = filtered(LISTED, |element| {
        let name = match element.name.as_ref() {
            "a" => "b",
            "b" => "a",
            _ => return Verdict::Keep,
        };
        Verdict::Change(Change { name: Some(name.to_owned()), ..Change::default() })
    });
    let expected = LISTED.replacen(r#"{"name":"a""#, r#"{"name":"b""#, 1).replacen(
        r#"{"inputSchema":{}, "name":"b"}"#,
        r#"{"inputSchema":{}, "name":"a"}"#,
        1,
    );
    assert_eq!(swapped, Some(expected));
}

#[test]
fn a_change_to_the_same_is_none() {
    let same =
        |element: &Element<'_>| Verdict::Change(Change { name: Some(element.name.to_string()), ..Change::default() });
    assert_eq!(filtered(LISTED, same), None);
}

#[test]
fn what_has_no_list_stays_as_it_is() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":null}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"prompts":[{"name":"a"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"tools":[{"name":"a"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"tools":[{"name":"a"}]}}"#,
    ] {
        assert_eq!(filtered(text, |_| Verdict::Drop), None, "{text}");
    }
}

#[test]
fn a_list_that_cannot_be_evaluated_is_never_passed_through() {
    let nameless = MessageError::Nameless { key: "tools", name: "name" };
    let not_a_list = MessageError::NotAList { key: "tools" };
    let twice = MessageError::Duplicate { place: "an element of the list" };
    for (result, why) in [
        (r#"[{"tools":[{"name":"a"}]}]"#, MessageError::ResultNotAnObject),
        (r#"[{"name":"a"}]"#, MessageError::ResultNotAnObject),
        (r#""{\"tools\":[{\"name\":\"a\"}]}""#, MessageError::ResultNotAnObject),
        ("7", MessageError::ResultNotAnObject),
        ("true", MessageError::ResultNotAnObject),
        (r#"{"tools":[{"name":"a"},{"description":"b"}]}"#, nameless),
        (r#"{"tools":[{"name":7}]}"#, nameless),
        (r#"{"tools":[{"name":""}]}"#, nameless),
        (r#"{"tools":[{"name":"\ud800"}]}"#, nameless),
        (r#"{"tools":[{}]}"#, nameless),
        (r#"{"tools":["a"]}"#, not_a_list),
        (r#"{"tools":[null]}"#, not_a_list),
        (r#"{"tools":{"name":"a"}}"#, not_a_list),
        (r#"{"tools":"a"}"#, not_a_list),
        (r#"{"tools":[{"name":"a","name":"b"}]}"#, twice),
        (r#"{"tools":[{"name":"a","n\u0061me":"b"}]}"#, twice),
        (
            r#"{"tools":[{"name":"a","Name":"b"}]}"#,
            MessageError::OtherCase { place: "an element of the list", known: "name" },
        ),
        (r#"{"tools":[],"tools":[{"name":"a"}]}"#, MessageError::Duplicate { place: "`result`" }),
        (r#"{"tools":[],"Tools":[{"name":"a"}]}"#, MessageError::OtherCase { place: "`result`", known: "tools" }),
        (r#"{"tools":[],"t\u006fols":[{"name":"a"}]}"#, MessageError::Duplicate { place: "`result`" }),
    ] {
        assert_eq!(refusal(result), why, "{result}");
    }
}

#[test]
fn each_list_has_its_own_names() {
    for (list, method, element) in [
        (List::Tools, "tools/list", r#"{"name":"x"}"#),
        (List::Prompts, "prompts/list", r#"{"name":"x"}"#),
        (List::Resources, "resources/list", r#"{"name":"other","uri":"x"}"#),
        (List::ResourceTemplates, "resources/templates/list", r#"{"name":"other","uriTemplate":"x"}"#),
    ] {
        assert_eq!(List::of(method), Some(list));
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"{}":[{element}]}}}}"#, list.key());
        let rename = |element: &Element<'_>| {
            assert_eq!(element.name, "x");
            Verdict::Change(Change { name: Some("y".to_owned()), ..Change::default() })
        };
        let renamed = rewrite(&read(&text), list, rename).unwrap().unwrap();
        assert_eq!(renamed, text.replacen("\"x\"", "\"y\"", 1));
    }
    assert_eq!(List::of("roots/list"), None);
}

#[test]
fn an_element_by_itself_is_read_and_changed_as_in_its_list() {
    let found = elements(&read(LISTED), List::Tools).unwrap();
    assert_eq!(found.len(), 3);
    let element = Element::parse(List::Tools, &found[0]).unwrap();
    assert_eq!((&*element.name, element.description.as_deref()), ("a", Some("does <a>")));
    let change = Change { name: Some("z".to_owned()), ..Change::default() };
    let expected = r#"{"name":"z", "description":"does <a>", "inputSchema":{"x":1.0}}"#;
    assert_eq!(element.changed(List::Tools, change).unwrap(), expected);
    for wrong in ["[]", "{}", r#"{"name":"a"} 1"#, r#"{"name":"a","name":"b"}"#] {
        assert!(Element::parse(List::Tools, wrong).is_err(), "{wrong}");
    }
}
