use super::*;
use crate::method;

fn parse(text: &str) -> Result<Message, MessageError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn read(text: &str) -> Message {
    parse(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// A message with these members beside the version.
fn refusal(members: &str) -> MessageError {
    parse(&format!(r#"{{"jsonrpc":"2.0",{members}}}"#)).expect_err(members)
}

#[test]
fn a_message_is_known_by_its_members() {
    for (members, kind) in [
        (r#""id":1,"method":"ping""#, Kind::Request),
        (r#""id":"a","method":"ping","params":null"#, Kind::Request),
        (r#""method":"notifications/initialized""#, Kind::Notification),
        (r#""id":null,"method":"notifications/initialized""#, Kind::Notification),
        (r#""id":1,"result":{}"#, Kind::Response),
        (r#""id":1,"result":null"#, Kind::Response),
        (r#""id":1,"result":{},"error":null"#, Kind::Response),
        (r#""id":1,"error":{"code":1,"message":""}"#, Kind::Error),
        (r#""id":null,"error":{"code":1,"message":""}"#, Kind::Error),
        (r#""error":{"code":1,"message":""}"#, Kind::Error),
        (r#""id":1,"result":null,"error":{}"#, Kind::Error),
    ] {
        assert_eq!(read(&format!(r#"{{"jsonrpc":"2.0",{members}}}"#)).kind(), kind, "{members}");
    }
}

#[test]
fn what_is_neither_or_both_is_refused() {
    for (members, why) in [
        (r#""id":1"#, MessageError::NoKind),
        (r#""id":1,"error":null"#, MessageError::NoKind),
        (r#""id":1,"result":{},"error":{}"#, MessageError::NoKind),
        (r#""id":1,"method":"a","result":{}"#, MessageError::NoKind),
        (r#""id":1,"method":"a","error":null"#, MessageError::NoKind),
        (r#""result":{}"#, MessageError::NoId),
        (r#""id":null,"result":{}"#, MessageError::NoId),
        (r#""id":true,"method":"a""#, MessageError::BadId),
        (r#""id":[1],"method":"a""#, MessageError::BadId),
        (r#""id":{},"result":1"#, MessageError::BadId),
        (r#""id":1,"method":7"#, MessageError::BadMethod),
        (r#""id":1,"method":null"#, MessageError::BadMethod),
        (r#""id":1,"method":"\ud800""#, MessageError::BadMethod),
    ] {
        assert_eq!(refusal(members), why, "{members}");
    }
}

#[test]
fn the_version_is_exact() {
    for version in ["", r#""jsonrpc":"2","#, r#""jsonrpc":2.0,"#, r#""jsonrpc":"1.0","#, r#""jsonrpc":null,"#] {
        assert_eq!(parse(&format!(r#"{{{version}"id":1,"method":"ping"}}"#)), Err(MessageError::Version), "{version}");
    }
    for version in [r#""2\u002e0""#, r#""\u0032.0""#] {
        assert_eq!(
            read(&format!(r#"{{"jsonrpc":{version},"id":1,"method":"ping"}}"#)).method(),
            Some("ping"),
            "{version}"
        );
    }
}

#[test]
fn only_one_object_is_a_message() {
    for (text, why) in [
        ("[]", MessageError::Batch),
        (" \r\n\t[{\"jsonrpc\":\"2.0\"", MessageError::Batch),
        ("1", MessageError::NotAnObject),
        ("\"{}\"", MessageError::NotAnObject),
        ("", MessageError::Syntax { at: 0 }),
        ("  ", MessageError::Syntax { at: 2 }),
        ("nonsense", MessageError::Syntax { at: 0 }),
        (r#"{"jsonrpc":"2.0","method":"a"} {}"#, MessageError::Syntax { at: 31 }),
        (r#"{"jsonrpc":"2.0","method":"a""#, MessageError::Syntax { at: 29 }),
        ("\u{feff}{}", MessageError::Syntax { at: 0 }),
    ] {
        assert_eq!(parse(text), Err(why), "{text}");
    }
    assert_eq!(Message::parse(Bytes::from_static(b"{\"a\":\"\xff\"}")), Err(MessageError::NotUtf8));
    assert_eq!(Message::parse(Bytes::from_static(b"[\xff")), Err(MessageError::Batch));
}

#[test]
fn no_name_may_be_read_in_two_ways() {
    let message = MessageError::Duplicate { place: "the message" };
    let params = MessageError::Duplicate { place: "`params`" };
    let meta = MessageError::Duplicate { place: "`params._meta`" };
    for (members, why) in [
        (r#""method":"tools/list","method":"tools/call""#, message),
        (r#""method":"tools/list","m\u0065thod":"tools/call""#, message),
        (r#""m\u0065thod":"tools/list","method":"tools/call""#, message),
        (r#""method":"a","x":1,"\u0078":2"#, message),
        (r#""method":"a","jsonrpc":"2.0""#, message),
        (r#""method":"a","params":{"name":"a","name":"b"}"#, params),
        (r#""method":"a","params":{"n\u0061me":"a","name":"b"}"#, params),
        (r#""method":"a","params":{"y":1,"x":2,"y":3}"#, params),
        (r#""method":"a","params":{"_meta":{},"_meta":{}}"#, params),
        (r#""method":"a","params":{"_meta":{"progressToken":1,"progressToken":2}}"#, meta),
        (r#""method":"a","params":{"_meta":{"x":1,"x":1}}"#, meta),
        (r#""method":"a","params":{"ref":{"name":"a","name":"b"}}"#, MessageError::Duplicate { place: "`params.ref`" }),
        (
            r#""method":"a","params":{"arguments":{"path":1,"p\u0061th":2}}"#,
            MessageError::Duplicate { place: "`params.arguments`" },
        ),
    ] {
        assert_eq!(refusal(members), why, "{members}");
    }
}

#[test]
fn known_names_have_one_case() {
    for (members, place, known) in [
        (r#""method":"tools/list","Method":"tools/call""#, "the message", "method"),
        (r#""method":"a","ID":1"#, "the message", "id"),
        (r#""method":"a","Params":{}"#, "the message", "params"),
        (r#""method":"a","paramſ":{}"#, "the message", "params"),
        (r#""method":"a","JSONRPC":"2.0""#, "the message", "jsonrpc"),
        (r#""id":1,"Result":{},"result":{}"#, "the message", "result"),
        (r#""method":"a","params":{"Name":"a"}"#, "`params`", "name"),
        (r#""method":"a","params":{"\u004eame":"a"}"#, "`params`", "name"),
        (r#""method":"a","params":{"Arguments":{}}"#, "`params`", "arguments"),
        (r#""method":"a","params":{"_META":{}}"#, "`params`", "_meta"),
        (r#""method":"a","params":{"URI":"x"}"#, "`params`", "uri"),
        (r#""method":"a","params":{"taskid":"x"}"#, "`params`", "taskId"),
        (r#""method":"a","params":{"_meta":{"progresstoken":1}}"#, "`params._meta`", "progressToken"),
        (
            r#""method":"a","params":{"_meta":{"io.modelcontextprotocol/ClientInfo":1}}"#,
            "`params._meta`",
            "io.modelcontextprotocol/clientInfo",
        ),
        (r#""method":"a","params":{"ref":{"Name":"a"}}"#, "`params.ref`", "name"),
    ] {
        assert_eq!(refusal(members), MessageError::OtherCase { place, known }, "{members}");
    }
}

#[test]
fn names_that_mean_nothing_are_free() {
    let text = r#"{"x":1,"X":2,"jsonrpc":"2.0","method":"a","params":{"y":1,"Y":2,"arguments":{"Name":1,"name":2},"deep":{"a":1,"a":2}}}"#;
    assert_eq!(read(text).body(), text);
    // Results are not parsed.
    read(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2,"Tools":[]}}"#);
}

#[test]
fn parts_are_found_wherever_they_stand() {
    let text = r#" { "params" : { "_meta" : { "progressToken" : 7 } , "name" : "e\u0063ho" , "arguments" : { "a" : 1e400 } } , "id" : 12345678901234567890123 , "method" : "tools\/call" , "jsonrpc" : "2.0" } "#;
    let message = read(text);
    assert_eq!(message.kind(), Kind::Request);
    assert_eq!(message.method(), Some("tools/call"));
    assert_eq!(message.id().unwrap().raw(), "12345678901234567890123");
    assert_eq!(message.meta(), Some(br#"{ "progressToken" : 7 }"#.as_slice()));
    assert_eq!(message.progress_token(), Some(Id::number(7)));
    assert_eq!(message.cancels(), None);
    assert_eq!(method::resource(&message).as_deref(), Some("echo"));
    assert_eq!(method::arguments(&message), Some(br#"{ "a" : 1e400 }"#.as_slice()));
    assert_eq!((message.result(), message.error()), (None, None));
    assert_eq!(message.into_body(), text);
}

#[test]
fn responses_return_result_or_error() {
    let response = read(r#"{"jsonrpc":"2.0","id":"a","result":[1.0]}"#);
    assert_eq!((response.result(), response.error(), response.method()), (Some(b"[1.0]".as_slice()), None, None));
    let error = read(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#);
    assert_eq!((error.error(), error.result(), error.id()), (Some(br#"{"code":1}"#.as_slice()), None, None));
}

#[test]
fn tokens_and_cancelled_requests_are_those_of_their_methods() {
    let progress = read(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","_meta":{"progressToken":1}}}"#,
    );
    assert_eq!(progress.progress_token(), Some(Id::string("t")));
    let cancelled = read(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.50}}"#);
    assert_eq!(cancelled.cancels().unwrap().raw(), "1.50");
    for other in [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestId":1,"_meta":{"progressToken":{}}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestId":1,"_meta":"progressToken"}}"#,
    ] {
        let message = read(other);
        assert_eq!((message.cancels(), message.progress_token()), (None, None), "{other}");
    }
}

#[test]
fn depth_does_not_cost_stack() {
    const DEPTH: usize = 100_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH));
        read(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#));
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{{"x":{deep}}}}}}}"#
        );
        assert_eq!(method::resource(&read(&call)).as_deref(), Some("a"));
        read(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"_meta":{{"x":{deep}}},"ref":{deep}}}}}"#));
        let half = open.repeat(DEPTH);
        assert!(parse(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{half}"#)).is_err());
    }
}

#[test]
fn long_messages_are_read() {
    let long = "é\\n".repeat(8 << 18);
    let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{long}"}}"#);
    assert!(response.len() >= 8 << 20);
    assert_eq!(read(&response).result().unwrap().len(), long.len() + 2);
    let many = (0..40_000).map(|number| format!("\"k{number}\":{number}")).collect::<Vec<_>>().join(",");
    read(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"arguments":{{{many}}}}}}}"#));
    let too_many = "\"a\":0,".repeat(100_000);
    assert_eq!(refusal(&format!(r#"{too_many}"method":"a""#)), MessageError::TooManyMembers { place: "the message" });
}

#[test]
fn the_debug_format_holds_no_secret() {
    let message = read(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"token":"hunter2"}}"#);
    assert_eq!(format!("{message:?}"), r#"Message { kind: Request, method: Some("a"), bytes: 66, .. }"#);
}

#[test]
fn a_byte_order_mark_can_be_removed() {
    assert_eq!(without_byte_order_mark(Bytes::from_static(b"\xef\xbb\xbf{}")), "{}");
    assert_eq!(without_byte_order_mark(Bytes::from_static(b"{}")), "{}");
}

#[test]
fn a_response_that_is_not_walked_is_the_one_that_parsing_finds() {
    for id in ["1", "\"a\\u0041\"", "12345678901234567890123"] {
        for result in ["{}", r#"{"tools":[{"name":"a"}]}"#, "null"] {
            let id = Id::parse(id).unwrap();
            let made = Message::response(&id, &Raw::parse(result).unwrap()).unwrap();
            assert_eq!(Message::parse(made.body().clone()).unwrap(), made);
        }
    }
}
