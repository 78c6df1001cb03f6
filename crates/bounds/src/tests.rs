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
    ] {
        let text = error.to_string();
        assert!(text.contains("; ") && !text.ends_with('.') && text.lines().count() == 1, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_scanned_without_a_panic(text in any::<String>()) {
        let _judged = (cedar(&text), json(&text), template(&text));
    }

    #[test]
    fn any_signs_are_scanned_without_a_panic(
        signs in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "(", ")", "[", "]", "{", "}", "\"", "\\", "'", "`", "/*", "*/", "//", "\n", "if ", "else if", "end", "range", ".", ";", ",", "is", "é",
        ]), 0..200)
    ) {
        let text = signs.concat();
        let _judged = (cedar(&text), json(&text), template(&text));
    }
}
