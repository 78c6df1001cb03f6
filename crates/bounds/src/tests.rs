use proptest::prelude::*;

use super::*;

fn policy(condition: &str) -> String {
    format!("permit(principal, action, resource) when {{ {condition} }};")
}

fn nested(open: &str, levels: usize, close: &str) -> String {
    format!("{}true{}", open.repeat(levels), close.repeat(levels))
}

const DEEP: Result<(), BoundsError> = Err(BoundsError::Depth { most: EXPRESSION_DEPTH });
const LONG: Result<(), BoundsError> = Err(BoundsError::Chain { most: POLICY_CHAIN });

#[test]
fn depth_of_cedar_is_bounded_in_every_shape() {
    // One level is the `{` of the condition.
    let most = EXPRESSION_DEPTH - 1;
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{a: ", "}"),
        ("!(", ")"),
        ("-(", ")"),
        ("principal[", "]"),
        ("principal.contains(", ")"),
        ("if true then ", " else false"),
        ("if ", " then true else false"),
        ("if true then true else ", ""),
    ] {
        assert_eq!(cedar(&policy(&nested(open, most, close))), Ok(()), "{open}");
        assert_eq!(cedar(&policy(&nested(open, most + 1, close))), DEEP, "{open}");
        assert!(cedar(&policy(&nested(open, 5_000, ""))).is_err(), "{open}");
    }
    assert_eq!(cedar(&"(".repeat(10_000)), DEEP);
}

#[test]
fn chains_of_cedar_are_bounded_in_every_shape() {
    for link in [" || true", " && true", " + 1", " - 1", " * 1", ".a", "[\"a\"]", ".contains(1)"] {
        assert_eq!(cedar(&policy(&format!("principal{}", link.repeat(200)))), Ok(()), "{link}");
        assert_eq!(cedar(&policy(&format!("principal{}", link.repeat(POLICY_CHAIN + 1)))), LONG, "{link}");
    }
    for prefix in ["!", "-"] {
        assert_eq!(cedar(&policy(&format!("{}true", prefix.repeat(POLICY_CHAIN + 1)))), LONG, "{prefix}");
    }
    let conditions = format!("permit(principal, action, resource){};", " when { true }".repeat(POLICY_CHAIN + 1));
    assert_eq!(cedar(&conditions), LONG);
}

/// What hangs on a bracket hangs on all that the bracket holds.
#[test]
fn chains_are_bounded_across_brackets() {
    let tail = ".a".repeat(490);
    for (open, close) in [("(", ")"), ("[", "]"), ("{a: ", "}"), ("!(", ")"), ("ip(1, ", ")"), ("true || (", ")")] {
        let nest = |levels: usize| {
            let behind = format!("{close}{tail}");
            policy(&format!("{}principal{tail}{}", open.repeat(levels), behind.repeat(levels)))
        };
        assert_eq!(cedar(&nest(0)), Ok(()), "{open}");
        assert_eq!(cedar(&nest(1)), LONG, "{open}");
        assert_eq!(cedar(&nest(31)), LONG, "{open}");
    }
    // The first of many operands is as deep as there are operators behind it.
    let joins = " || true".repeat(490);
    assert_eq!(cedar(&policy(&format!("principal{tail}{joins}"))), LONG);
    assert_eq!(cedar(&policy(&format!("(principal{tail}){joins}"))), LONG);
    assert_eq!(cedar(&policy(&format!("[[1, principal{tail}, 1]]{tail}"))), LONG);
    // Names of types that look like keywords hide nothing.
    for word in ["then", "else", "is", "in", "has", "like"] {
        assert_eq!(cedar(&policy(&format!("1{}", format!(" + {word}::\"a\"").repeat(600)))), LONG, "{word}");
    }
    // Nor do numbers that run into a keyword.
    for link in [" 1in", " 1has", " 1like", " 1is"] {
        assert_eq!(cedar(&policy(&format!("1{}", link.repeat(600)))), LONG, "{link}");
    }
    assert_eq!(cedar(&policy(&nested("1if true then ", 40, " else false"))), DEEP);
    // Brackets beside each other do not add up.
    let beside = format!("(principal{tail}) == (resource{tail})");
    assert_eq!(cedar(&policy(&beside)), Ok(()));
    assert_eq!(cedar(&policy(&beside).replace("when", "when { true } unless")), Ok(()));
    let conditions = format!("permit(principal, action, resource) when {{ {beside} }} unless {{ {beside} }};");
    assert_eq!(cedar(&conditions), Ok(()));
}

/// Each made an error with a copy of its string: 64 KiB of them took 4 GB.
#[test]
fn escapes_that_cedar_does_not_know_are_refused() {
    for known in
        [r"\n", r"\r", r"\t", r"\\", r"\0", r"\'", r#"\""#, r"\x7f", r"\u{0}", r"\u{1F_600}", r"\u{10ffff}", "\n"]
    {
        let long = known.repeat(3_000);
        assert_eq!(cedar(&policy(&format!("principal.a == \"{long}\""))), Ok(()), "{known}");
        assert_eq!(cedar(&policy(&format!("principal.a like \"{long}\\*\""))), Ok(()), "{known}");
    }
    for (unknown, escape) in [
        (r"\q", 'q'),
        (r"\*", '*'),
        (r"\é", 'é'),
        ("\\\r", '\r'),
        (r"\x8g", 'x'),
        (r"\x80", 'x'),
        (r"\x4", 'x'),
        (r"\u41", 'u'),
        (r"\u{}", 'u'),
        (r"\u{_1}", 'u'),
        (r"\u{+1}", 'u'),
        (r"\u{1111111}", 'u'),
        (r"\u{110000}", 'u'),
        (r"\u{d800}", 'u'),
    ] {
        let refused = Err(BoundsError::Escape(escape));
        let string = format!("\"{}\"", unknown.repeat(2_000));
        assert_eq!(cedar(&policy(&format!("principal.a == {string}"))), refused, "{unknown}");
        assert_eq!(cedar(&format!("@id({string})\n{}", policy("true"))), refused, "{unknown}");
        assert_eq!(cedar(&policy(&format!("principal == User::{string}"))), refused, "{unknown}");
        // A string behind `like` is not a pattern if an operator follows it.
        for more in ["", ".a", " + 1", "[1]", "(1)", " * 1"] {
            let expected = if unknown == r"\*" && more.is_empty() { Ok(()) } else { refused.clone() };
            assert_eq!(cedar(&policy(&format!("principal.a like {string}{more}"))), expected, "{unknown}{more}");
        }
    }
    let returns = "\r".repeat(1_000);
    assert_eq!(cedar(&policy(&format!("principal.a == \"{returns}\""))), Err(BoundsError::CarriageReturn));
    assert_eq!(cedar(&policy("true").replace(' ', "\r\n")), Ok(()));
}

/// Each made an error of two kilobytes.
#[test]
fn operands_that_are_missing_are_refused() {
    for missing in ["[,]", "[1,,]", "[,1]", "a(,)", "{:1}", "{a:1,:1}", "{a:,}", "{a::1}", "[::]", "(:)"] {
        let expected = if missing.contains("::") { Ok(()) } else { Err(BoundsError::NoOperand) };
        assert_eq!(cedar(&policy(missing)), expected, "{missing}");
    }
    assert_eq!(cedar(&policy(&format!("[{}]", ",".repeat(30_000)))), Err(BoundsError::NoOperand));
    assert_eq!(cedar(&policy("[1, 2,].contains(1,) && {a: 1, \"b\": [],} == {}")), Ok(()));
}

#[test]
fn elements_and_policies_do_not_add_up() {
    assert_eq!(cedar(&policy(&format!("[{}] == []", "principal.a + 1, ".repeat(1_000)))), Ok(()));
    assert_eq!(cedar(&policy("principal.a == 1 || true").repeat(900)), Ok(()));
    assert_eq!(cedar(&policy(&format!("{} true", "principal.a.b.c == 1 || ".repeat(POLICY_CHAIN - 10)))), Ok(()));
}

/// The parser takes 15 seconds for 24 of these, and twice as long for each more.
#[test]
fn tests_that_the_parser_doubles_are_not_nested() {
    let nest =
        |levels: usize| policy(&format!("{}principal{}", "(".repeat(levels), " is A in B::\"b\")".repeat(levels)));
    assert_eq!(cedar(&nest(2)), Ok(()));
    assert_eq!(cedar(&nest(3)), Err(BoundsError::Doubled { most: 2 }));
    let around = |levels: usize| {
        policy(&format!("{}principal is A in B::\"b\"{}", "(".repeat(levels), ").a is A in B::\"b\"".repeat(levels)))
    };
    assert_eq!(cedar(&around(1)), Ok(()));
    assert_eq!(cedar(&around(2)), Err(BoundsError::Doubled { most: 2 }));
    let type_named = |name: &str| {
        policy(&format!("(((principal is {name} in B::\"b\") is {name} in B::\"b\") is {name} in B::\"b\")"))
    };
    for name in ["A", "then", "else", "a::then", "is"] {
        assert_eq!(cedar(&type_named(name)), Err(BoundsError::Doubled { most: 2 }), "{name}");
    }
    for alone in [
        "if principal is User then resource is Doc else principal is Admin",
        "if principal is User in G::\"a\" then resource is Doc in G::\"a\" else principal is Admin in G::\"a\"",
        "if principal is A then principal in G::\"a\" else if resource is B then resource in G::\"a\" else context.a is C",
        "[principal is A, principal is B, principal is C, principal is D] == []",
        "((((principal is A) is B) is C) is D)",
        "((((principal in G::\"a\") in G::\"b\") in G::\"c\") in G::\"d\")",
    ] {
        assert_eq!(cedar(&policy(alone)), Ok(()), "{alone}");
    }
    // A number ends at its last digit, so a keyword may follow at once.
    let behind_number = format!("{}principal{}", "(".repeat(31), "+1is A in B::\"b\")".repeat(31));
    assert_eq!(cedar(&policy(&behind_number)), Err(BoundsError::Doubled { most: 2 }));
    let listed = "principal is A in B::\"b\" || (resource is C in D::\"d\") && ";
    assert_eq!(cedar(&policy(&format!("{} true", listed.repeat(40)))), Ok(()));
    assert_eq!(cedar(&policy("principal.is.is.is.if.if")), Ok(()));
}

#[test]
fn strings_and_comments_of_cedar_do_not_count() {
    let brackets = "(".repeat(100);
    assert_eq!(cedar(&policy(&format!("principal.a == \"{brackets}\\\"{brackets}\""))), Ok(()));
    assert_eq!(cedar(&format!("// {brackets}\" it's\n{}", policy("true"))), Ok(()));
    assert_eq!(cedar(&policy(&format!("\"\" == \"\" || {brackets}"))), DEEP);
    assert_eq!(cedar(&policy(&format!("\"\\\\\" == {brackets}\""))), DEEP);
    assert_eq!(cedar("permit(principal, action, resource) when { \"a"), Err(BoundsError::OpenString('"')));
    assert_eq!(cedar("\"a\\\n\""), Err(BoundsError::OpenString('"')));
    assert_eq!(cedar("permit(principal # x"), Err(BoundsError::Character('#')));
    assert_eq!(cedar("permit(principal, action, resource);;"), Err(BoundsError::EmptyPolicy));
    assert_eq!(cedar(&policy("(true")), Err(BoundsError::NotOpen('}')));
}

#[test]
fn size_and_tokens_are_bounded() {
    let long = format!("principal.a == \"{}\"", "x".repeat(POLICY_BYTES));
    let found = policy(&long).len();
    assert_eq!(cedar(&policy(&long)), Err(BoundsError::Bytes { found, most: POLICY_BYTES }));
    let dense = policy(&format!("[{}]", "1,".repeat(POLICY_TOKENS / 2)));
    assert_eq!(cedar(&dense), Err(BoundsError::Tokens { most: POLICY_TOKENS }));
}

#[test]
fn depth_of_json_is_bounded() {
    let lists = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep = Err(BoundsError::Depth { most: JSON_DEPTH });
    assert_eq!(json(&lists(JSON_DEPTH)), Ok(()));
    assert_eq!(json(&lists(JSON_DEPTH + 1)), deep);
    assert_eq!(json(&r#"{"a":"#.repeat(10_000)), deep);
    assert_eq!(json(&format!(r#"["{0}\"{0}", {{}}]"#, "[".repeat(100))), Ok(()));
    assert_eq!(json(&format!(r#"["\\",{}"#, "[".repeat(100))), deep);
    assert_eq!(json(&"[],".repeat(10_000)), Ok(()));
}

#[test]
fn depth_of_templates_is_bounded() {
    let blocks = |levels: usize| format!("{}x{}", "{{if .a}}".repeat(levels), "{{end}}".repeat(levels));
    for (text, expected) in [
        ("{{.steps.a.output}} (((((( {{json .b}}".to_owned(), Ok(())),
        ("(".repeat(10_000), Ok(())),
        (format!("{{{{ {} }}}}", "(".repeat(10_000)), DEEP),
        (format!("{{{{ {} }}}}", nested("(len ", EXPRESSION_DEPTH, ")")), Ok(())),
        (format!("{{{{ {} }}}}", nested("(len ", EXPRESSION_DEPTH + 1, ")")), DEEP),
        (blocks(EXPRESSION_DEPTH), Ok(())),
        (blocks(EXPRESSION_DEPTH + 1), DEEP),
        ("{{range .a}}{{.}}{{end}}".repeat(1_000), Ok(())),
        (format!("{{{{if .a}}}}{}{{{{end}}}}", "{{else if .b}}x".repeat(40)), DEEP),
        (format!("{{{{-\t(\n{}}}}}", "(".repeat(40)), DEEP),
        ("{{-\nif .a }}".repeat(40), DEEP),
        ("{{-\r\nif .a }}".repeat(40), DEEP),
        ("{{-\tif .a }}".repeat(40), DEEP),
        ("{{-if .a }}".repeat(40), Ok(())),
        (format!("{{{{- with .a -}}}}{}{{{{- end -}}}}", "{{ range .b }}".repeat(40)), DEEP),
        (format!("{{{{ print \"{0}\" `{0}` '(' }}}}", "(".repeat(100)), Ok(())),
        (format!("{{{{/* {} */}}}}", "(".repeat(100)), Ok(())),
        (format!("{{{{ print \"\\\"{0}\" }}}}", "(".repeat(100)), Ok(())),
        (format!("{{{{ print \"\\\\\" {0} }}}}", "(".repeat(100)), DEEP),
    ] {
        assert_eq!(template(&text), expected, "{}", text.chars().take(80).collect::<String>());
    }
    let long = "x".repeat(TEMPLATE_BYTES + 1);
    assert_eq!(template(&long), Err(BoundsError::Bytes { found: TEMPLATE_BYTES + 1, most: TEMPLATE_BYTES }));
}

/// Twice the text is twice the work: four thousand actions took as long as four million.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time is what is tested")]
fn templates_are_scanned_in_linear_time() {
    for action in ["{{}}", "{{ }}", "{{.a}}", "{{/**/}}", "{{\"\"}}", "{{- if -}}{{end}}"] {
        let fastest = |times: usize| {
            let text = action.repeat(times);
            let run = || {
                let start = std::time::Instant::now();
                assert_eq!(template(&text), Ok(()), "{action}");
                start.elapsed()
            };
            (0..5).map(|_| run()).min().unwrap_or_default()
        };
        let most = TEMPLATE_BYTES / action.len();
        // 32 times as much text takes about 32 times as long; with the square of it, it would be a thousand times.
        let (short, long) = (fastest(most / 32), fastest(most));
        assert!(long < short * 200, "{action}: {short:?} and {long:?}");
    }
}

/// A message is one line that says what to do.
#[test]
fn every_error_says_what_to_do() {
    for error in [
        BoundsError::Bytes { found: 2, most: 1 },
        BoundsError::Tokens { most: 1 },
        BoundsError::Depth { most: 1 },
        BoundsError::Chain { most: 1 },
        BoundsError::Doubled { most: 1 },
        BoundsError::NotOpen(')'),
        BoundsError::NotClosed(')'),
        BoundsError::OpenString('"'),
        BoundsError::Character('#'),
        BoundsError::EmptyPolicy,
        BoundsError::Escape('q'),
        BoundsError::CarriageReturn,
        BoundsError::NoOperand,
    ] {
        let text = error.to_string();
        assert!(text.contains("; ") && !text.ends_with('.') && text.lines().count() == 1, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_scanned_without_a_panic(text in any::<String>()) {
        let _checked = (cedar(&text), json(&text), template(&text));
    }

    #[test]
    fn any_signs_are_scanned_without_a_panic(
        signs in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "(", ")", "[", "]", "{", "}", "\"", "\\", "'", "`", "/*", "*/", "//", "\n", "if ", "else if", "end", "range", ".", ";", ",", "is", "é", "{{-\n", "\r", "\\x4", "\\u{1", " like ", "then", "else", "in", ":", "::",
        ]), 0..200)
    ) {
        let text = signs.concat();
        let _checked = (cedar(&text), json(&text), template(&text));
    }
}

#[test]
fn values_of_json_are_counted_without_names() {
    for (text, values) in [
        ("", 0),
        ("null", 1),
        ("-1.5e+3", 1),
        (r#""a, [b]: \"{c}""#, 1),
        ("[]", 1),
        ("[1, 2, true]", 4),
        (r#"{"a": 1, "b:c": [{}, "x"]}"#, 5),
        (r#"[[[]],{"a":{"b":null}}]"#, 6),
    ] {
        assert_eq!(json_values(text, values), Ok(()), "{text}");
        if let Some(fewer) = values.checked_sub(1) {
            assert_eq!(json_values(text, fewer), Err(BoundsError::Values { most: fewer }), "{text}");
        }
    }
    // What is not JSON is counted all the same.
    assert!(json_values(&"[".repeat(1_000), 999).is_err());
    assert!(json_values(&"1,".repeat(1_000), 999).is_err());
}
