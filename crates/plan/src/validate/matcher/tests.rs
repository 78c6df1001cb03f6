use proptest::prelude::*;

use skep_bounds::{MATCHER_BYTES, MATCHER_TOKENS};

use super::{Matchers, parse, tokens};

/// Checks a matcher that is alone.
fn check(text: &str) -> Result<(), String> {
    let checked = Matchers::default().scan(text).and_then(|()| parse(text));
    checked.map_err(|error| error.to_string())
}

/// Asserts how the error of a matcher begins; an empty text stands for no error.
fn assert_error(matcher: &str, expected: &str) {
    let reported = check(matcher).err().unwrap_or_default();
    let fits = if expected.is_empty() { reported.is_empty() } else { reported.starts_with(expected) };
    let matcher: String = matcher.chars().take(200).collect();
    assert!(fits, "{matcher}\n  error: {reported}\n  expected: {expected}");
}

#[test]
fn regular_expressions_are_checked() {
    let long = "a".repeat(skep_bounds::PATTERN_BYTES + 1);
    for (pattern, expected) in [
        (r"^team-\w+$", ""),
        (r"^\p{Lu}.*@example\.com$", ""),
        ("(", "`(` is no regular expression"),
        (r"(\w{100}){100}", "the regular expression `(\\w{100}){100}` takes too much memory"),
        (&long, "it has 1025 bytes"),
    ] {
        assert_error(&format!("claims.sub.matches(r'{pattern}')"), expected);
        assert_error(&format!("claims.groups.exists(g, !g.matches(r'{pattern}'))"), expected);
    }
    assert_error("claims.sub.matches(claims.pattern)", "");
}

#[test]
fn conditions_over_claims_are_taken() {
    for matcher in [
        "true",
        "claims.admin",
        "claims.sub == 'someone' && claims['groups'].size() > 1u",
        "has(claims.email) && claims.email.endsWith(\"@example.com\")",
        "\"admins\" in claims.groups || claims.groups.exists(g, g.matches(r'^team-\\d+$'))",
        "claims.groups.all(g, g != '(((((') && claims.orgs.exists_one(o, claims.teams.exists(t, t == o))",
        "claims.groups.filter(g, g.startsWith(\"a\")).map(g, size(g)).exists(n, n > 3)",
        "type(claims.level) == int ? claims.level > 3 : string(claims.level) == \"high\" // a comment (((",
        "timestamp(claims.updated).getFullYear() >= 2025 && duration('1h') < duration(claims.age)",
        "claims.name == \"\"\"two\nlines\"\"\" || claims.name == '\\u00e4\\n\\x41\\101\\'' || claims.b == b'\\xff'",
        "{'a': claims.x}['a'] == claims.`x-y`",
        "!(claims.sub in ['a', 'b'])",
        "claims.n in [1, 2u, 3U, 0x1F, 0xau, 1.5, .5, 1e3, 1E-3, 1.5e+3] && claims.n-1 > 0",
    ] {
        assert_error(matcher, "");
    }
}

#[test]
fn matchers_that_could_not_be_evaluated_are_refused_with_the_place() {
    for (matcher, expected) in [
        ("", "it is not valid CEL: line 1, column 1: mismatched input its end; correct it there"),
        ("claims.sub ==", "it is not valid CEL: line 1, column 14: mismatched input its end;"),
        ("claims.sub ==\n  == 1", "it is not valid CEL: line 2, column 3: "),
        ("claims.sub claims.aud", "it is not valid CEL: line 1, column 12: mismatched input 'claims'"),
        ("claims.n == 99999999999999999999", "it is not valid CEL: line 1, column 13: invalid int literal"),
        ("claims.sub = 'x'", "`=` alone means nothing; write `==`"),
        ("claims.sub == “x”", "`“` means nothing in CEL; remove it, or put it in quotes"),
        ("claims.sub == 'x", "a text is not closed; `'` is missing"),
        ("claims.sub == 'x\n'", "a text is not closed; `'` is missing"),
        ("claims.sub == '\\d'", "`\\d` in a text stands for nothing; for a backslash write `\\\\`"),
        ("claims.sub == '\\u00'", "`\\u` in a text needs 4 digits behind it"),
        ("claims.sub in'x'", "`in` is followed by a string;"),
        ("claims['sub' == 1", "a bracket is not closed; `]` is missing"),
        ("(claims.a]", "`]` closes nothing that is open;"),
        ("claims.`a\"b`", "a name in backticks is broken;"),
        ("sub == 'x'", "`sub` is unknown; a matcher sees the claims of the token alone, such as `claims.sub`"),
        ("claims.groups.exists(g, g == h)", "`h` is unknown;"),
        ("claims.groups.exists(g, true) && g", "`g` is unknown;"),
        ("{'a': b}.a", "`b` is unknown;"),
        ("claims.groups.exists(g)", "`exists` does not take these arguments; write it as in `claims.groups.exists("),
        ("claims.sub.lowerAscii() == 'x'", "there is no function `lowerAscii`;"),
        ("google.protobuf.Empty{} == claims", "`google.protobuf.Empty` is unknown;"),
        ("'admins'", "it is not a condition, so it matches no token;"),
        ("['admins']", "it is not a condition, so it matches no token;"),
    ] {
        assert_error(matcher, expected);
    }
}

/// The parser visits the operand of an even number of them twice: 31 such brackets took it hours.
#[test]
fn repeated_prefix_operators_are_refused() {
    for matcher in [
        "!!claims.x",
        "! ! claims.x",
        "!//a\n!claims.x",
        "--claims.x < 1",
        "1 - --1 < claims.x",
        "!!!claims.x",
        "-(--1) < 1",
    ] {
        let reported = check(matcher).unwrap_err();
        assert!(reported.ends_with("changes nothing; remove both"), "{matcher}: {reported}");
    }
    for prefix in ["!!(", "--(", "! !(", "- -(", "1in--(", "0x1in--(", "1uin--(", "1e3in--(", ".5in--("] {
        for levels in [1, 31] {
            assert!(check(&format!("{}true{}", prefix.repeat(levels), ")".repeat(levels))).is_err(), "{prefix}");
        }
    }
    for matcher in [
        "!claims.x",
        "!(!claims.x)",
        "1 - -1 < claims.x",
        "claims['a']--1 < 2",
        "!claims.a && !claims.b",
        "-claims.x != -1",
        "claims.x -1 in[-1]",
    ] {
        assert_error(matcher, "");
    }
}

/// Each of these ended the process, by the end of the stack or by a panic of the parser.
#[test]
fn depth_is_refused_before_it_is_parsed() {
    let deep = "more than 32 brackets and choices stand inside each other;";
    let long = "more than 256 operators hang on each other;";
    for (matcher, expected) in [
        ("(".repeat(40), deep),
        (format!("{}true{}", "(".repeat(33), ")".repeat(33)), deep),
        (format!("{}true{}", "(".repeat(32), ")".repeat(32)), ""),
        (format!("{}[] == []{}", "[".repeat(31), "]".repeat(31)), "it is not a condition"),
        (format!("{}true{} == claims", "{1:".repeat(32), "}".repeat(32)), ""),
        (format!("{}claims.x{}", "size(".repeat(32), ")".repeat(32)), ""),
        (format!("claims{}", ".x".repeat(256)), ""),
        (format!("claims{}", ".x".repeat(257)), long),
        (format!("claims{}", "[0]".repeat(256)), ""),
        (format!("claims{}", "[0]".repeat(257)), long),
        (format!("claims.x{} > 1", "+1".repeat(254)), ""),
        (format!("claims.x{}", "+1".repeat(300)), long),
        (format!("{}true", "claims.x?1:".repeat(32)), ""),
        (format!("{}true", "claims.x?1:".repeat(33)), deep),
        (format!("{}claims.x", "!".repeat(300)), "`!!` changes nothing; remove both"),
        (format!("{}1 < claims.x", "- ".repeat(4_000)), "`--` changes nothing; remove both"),
        (format!("claims.x{}", " in claims".repeat(255)), ""),
        (format!("claims.x{}", " in claims".repeat(256)), long),
        (format!("1{}", " in 1".repeat(1_990)), long),
        // A number that runs into `in` is two tokens for the parser.
        (format!("{}1", "1in ".repeat(2_400)), "`1in` is a number followed by an identifier;"),
        (format!("{}1", "0xfin ".repeat(1_600)), "`0xfin` is a number followed by an identifier;"),
        (format!("{}1", "1uin ".repeat(1_900)), "`1uin` is a number followed by an identifier;"),
        (format!("{}1", ".1e-1in ".repeat(1_200)), "`1in` is a number followed by an identifier;"),
        // What hangs on a bracket hangs on all that the bracket holds.
        (format!("{}claims{}", "(".repeat(31), ")".repeat(31)), ""),
        (format!("{}claims{}", "(".repeat(31), format!("){}", ".x".repeat(7)).repeat(31)), ""),
        (format!("{}claims{}", "(".repeat(31), format!("){}", ".x".repeat(150)).repeat(31)), long),
        (format!("[{}]{}", "claims".to_owned() + &".x".repeat(200), "[0]".repeat(100)), long),
        (format!("{}1", "claims.x ? claims.x ? ".repeat(400)), deep),
        ("(".repeat(10_000), deep),
        (format!("claims.x{}", " || claims.x == 1".repeat(300)), ""),
        ("x".repeat(10_001), "it has 10001 bytes, and 10000 are the most;"),
        // What the parser would not take for texts.
        (format!("0x1br\"\\\"{}\"", "(".repeat(200)), "`0x1br` is followed by a string;"),
        (format!("=\"{}\"", "(".repeat(200)), "`=` alone means nothing;"),
        (format!("`\"{}\"`", "(".repeat(200)), "a name in backticks is broken;"),
        (format!("//\r\"\"\"\n{}\"\"\"", "(".repeat(200)), deep),
        (format!("'\\q{}'", "(".repeat(200)), "`\\q` in a text stands for nothing;"),
    ] {
        assert_error(&matcher, expected);
    }
}

/// A minus sign in front of a number takes the parser as long as 16 other tokens: 10,000 bytes of them took it 0.15 s.
#[test]
fn tokens_are_counted_by_what_they_cost_the_parser() {
    let list = |element: &str, count: usize| format!("size([{}]) > 0", vec![element; count].join(","));
    let refused = "it has more than 2048 tokens; split it";
    for (element, tokens_of_one) in [
        ("1", 2),
        ("a", 2),
        (" a // b\n", 2),
        ("\"a, - b\"", 2),
        ("a-1", 4),
        ("-1", 18),
        ("- 1", 18),
        ("-a", 18),
        ("(-1)", 20),
    ] {
        // Beside the elements, less the comma that is one too few: `size ( [ ] ) > 0`.
        let most = (MATCHER_TOKENS - 6) / tokens_of_one;
        assert_eq!(tokens([list(element, most).as_str()]), 6 + most * tokens_of_one, "{element}");
        assert_ne!(check(&list(element, most)).err().as_deref(), Some(refused), "{element}");
        assert_error(&list(element, most + 1), refused);
    }
    // As many bytes as there may be are refused by their tokens before they are parsed.
    assert_error(&list("-1", (MATCHER_BYTES - 20) / 3), refused);
}

#[test]
fn the_matchers_of_one_configuration_are_bounded_together() {
    let few = "claims.x == 1".to_owned();
    let long = format!("claims.x == '{}'", "x".repeat(MATCHER_BYTES - 20));
    let costly = format!("claims.x in [{}]", vec!["-1"; 110].join(","));
    for (matcher, most) in [(few, 100), (long, 6), (costly, 8)] {
        let mut matchers = Matchers::default();
        let reported: Vec<_> =
            (0..200).map(|_| matchers.scan(&matcher).and_then(|()| parse(&matcher)).is_ok()).collect();
        assert!(reported.iter().enumerate().all(|(index, is_fine)| *is_fine == (index < most)), "{most}: {reported:?}");
        assert!(
            matchers.scan(&matcher).unwrap_err().to_string().contains("at most 100, with 65536 bytes and 16384 tokens")
        );
    }
}

proptest! {
    /// No matcher ends the process. A failure is the end of this test's process, too.
    #[test]
    fn any_tokens_are_checked(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "(", ")", "[", "]", "{", "}", "((((", "))))", "[[[[", "{1:{1:", "'", "\"", "'''", "\"\"\"", "r'", "b\"", "\\", "\\n", "\\'", "`", "=",
                "==", "&", "&&", "|", "||", "?", ":", "?1:", ",", ".", ".x", "claims", "x", "1", "0x", "1e", "in", " ", "\n", "//", "!", "-", "+",
                "size(", ".exists(g,", "has(", "!!(", "--(", " in ", "1in ", "1in--(", "0x1", "1u", "\r", "é", "#", "\u{0}",
            ]),
            0..120,
        )
    ) {
        drop(check(&tokens.concat()));
    }

    /// As deep as may be, in every mixture.
    #[test]
    fn the_deepest_are_checked(
        around in prop::collection::vec(
            prop_oneof![60 => prop::sample::select(vec![
                ("(", ")"), ("[", "]"), ("{1:", "}"), ("{", ":1}"), ("size(", ")"), ("!(-", ")"), ("(", ").x.x.x.x.x"), ("1 in [", "]"), ("1in[", "]"), ("1+[1,", "][0]"), ("claims.x?1:", ""),
                ("claims.x?", ":1"), ("claims.g.exists(g,", ")"), ("claims.g.map(g,true,", ")"), ("has(claims.x)&&(", ")"),
            ]), 1 => prop::sample::select(vec![("!!(", ")"), ("--(", ")"), ("1in--(", ")"), ("! - !(", ")")])],
            24..=32,
        )
    ) {
        let before: String = around.iter().map(|(open, _)| *open).collect();
        let behind: String = around.iter().rev().map(|(_, close)| *close).collect();
        drop(check(&format!("{before}claims.x{behind} == 1")));
    }

    #[test]
    fn any_text_is_checked(text in any::<String>()) {
        drop(check(&text));
    }
}
