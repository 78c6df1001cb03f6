//! A condition in CEL over the claims of a token, within limits.
//!
//! The library has none of its own: its parser recurses, it compiles a regular expression at each use, and it evaluates for as long as it
//! takes. So a matcher is scanned before it is parsed, its regular expressions are compiled once, and how many steps it may take is
//! estimated before it is evaluated.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::extractors::This;
use cel::{FunctionContext, IdedExpr, Program};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};
use skep_bounds::{BoundsError, COMPILED_PATTERN_BYTES, MATCHER_STEPS, PATTERN_BYTES};

/// How many bytes of texts count for a step.
const BYTES_PER_STEP: usize = 64;
/// The same of elements, where a list is copied or compared.
const ELEMENTS_PER_STEP: u64 = 16;

/// A condition.
#[derive(Debug)]
pub(super) struct Matcher {
    program: Program,
    /// The regular expressions that stand in it.
    patterns: Arc<HashMap<String, Regex>>,
}

/// Why a matcher cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MatcherError {
    /// It exceeds a limit, or cannot be split into tokens.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// It cannot be parsed.
    #[error("it is not a CEL expression; correct it")]
    Syntax,
    /// A regular expression in it.
    #[error(
        "`{0}` is no regular expression, or one of more than {PATTERN_BYTES} bytes, or of more than {COMPILED_PATTERN_BYTES} when it is \
         compiled; correct it"
    )]
    Pattern(String),
}

/// The sizes in the claims of a token that the work of a matcher depends on.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// The most elements of a list or an object.
    elements: u64,
    /// How many steps the longest text counts for.
    text: u64,
}

// === impl Matcher ===

impl Matcher {
    pub(super) fn new(text: &str) -> Result<Self, MatcherError> {
        skep_bounds::cel(text)?;
        let program = Program::compile(text).map_err(|_errors| MatcherError::Syntax)?;
        let mut patterns = HashMap::new();
        visit(program.expression(), &mut |call| {
            let literal = call.args.last().filter(|_| call.func_name == "matches").map(|pattern| &pattern.expr);
            if let Some(Expr::Literal(LiteralValue::String(pattern))) = literal {
                let compiled = compile(pattern).ok_or_else(|| {
                    let shown: String = pattern.chars().take(100).collect();
                    MatcherError::Pattern(shown)
                })?;
                patterns.insert(pattern.to_string(), compiled);
            }
            Ok::<(), MatcherError>(())
        })?;
        Ok(Self { program, patterns: Arc::new(patterns) })
    }

    /// Whether the condition is true of these claims. They are a variable of the expression, never a part of it. One that fails at run
    /// time, or would take too long, matches no client.
    pub(super) fn is_true(&self, claims: &Map<String, Value>) -> bool {
        let steps = steps(self.program.expression(), Sizes::of(claims));
        if steps > MATCHER_STEPS {
            tracing::warn!(
                steps,
                most = MATCHER_STEPS,
                "matcher not evaluated: it takes too many steps for this token"
            );
            return false;
        }
        let mut context = cel::Context::default();
        let Ok(claims) = cel::to_value(claims) else { return false };
        let patterns = self.patterns.clone();
        context.add_function(
            "matches",
            move |context: &FunctionContext<'_, '_>, This(text): This<Arc<String>>, pattern: Arc<String>| {
                matches(&patterns, &text, &pattern).ok_or_else(|| context.error("the pattern cannot be used"))
            },
        );
        context.add_variable_from_value("claims", claims);
        matches!(self.program.execute(&context), Ok(cel::Value::Bool(true)))
    }
}

/// Whether a text matches a pattern. A pattern that is no literal is compiled for this time only.
fn matches(patterns: &HashMap<String, Regex>, text: &str, pattern: &str) -> Option<bool> {
    match patterns.get(pattern) {
        Some(pattern) => Some(pattern.is_match(text)),
        None => compile(pattern).map(|pattern| pattern.is_match(text)),
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(COMPILED_PATTERN_BYTES).dfa_size_limit(COMPILED_PATTERN_BYTES);
    builder.build().ok().filter(|_| pattern.len() <= PATTERN_BYTES)
}

/// Visits all calls of an expression. Its depth was checked before it was parsed.
fn visit<E>(expression: &IdedExpr, act: &mut impl FnMut(&CallExpr) -> Result<(), E>) -> Result<(), E> {
    if let Expr::Call(call) = &expression.expr {
        act(call)?;
    }
    parts(&expression.expr).into_iter().try_for_each(|part| visit(part, act))
}

/// The expressions that one consists of.
fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Call(call) => call.target.iter().map(AsRef::as_ref).chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
        }
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// How many steps an expression may take.
fn steps(expression: &IdedExpr, sizes: Sizes) -> u64 {
    let of_parts = |expression: &Expr| sum(parts(expression).into_iter().map(|part| steps(part, sizes)));
    match &expression.expr {
        Expr::Comprehension(each) => steps_of_each(each, sizes),
        Expr::Call(call) if reads_all(&call.func_name) => of_parts(&expression.expr)
            .saturating_add(sizes.text.max(sizes.elements / ELEMENTS_PER_STEP))
            .saturating_add(1),
        other => of_parts(other).saturating_add(1),
    }
}

/// A macro does the same for each element of its list, and copies what it has so far if it makes a list.
fn steps_of_each(each: &ComprehensionExpr, sizes: Sizes) -> u64 {
    let elements = elements(&each.iter_range, sizes);
    let once = sum([&each.iter_range, &each.accu_init, &each.result].into_iter().map(|part| steps(part, sizes)));
    let repeated = sum([&each.loop_cond, &each.loop_step].into_iter().map(|part| steps(part, sizes)));
    once.saturating_add(elements.saturating_mul(repeated))
}

/// Whether a function may read or copy a whole text or list.
fn reads_all(function: &str) -> bool {
    let operators = [operators::ADD, operators::IN, operators::EQUALS, operators::NOT_EQUALS];
    operators.contains(&function) || function.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// How many elements a list may have: as many as one of the claims, as often as lists are added, or as many as stand in it.
fn elements(range: &IdedExpr, sizes: Sizes) -> u64 {
    let (mut added, mut written) = (1_u64, 0_u64);
    count(range, &mut added, &mut written);
    sizes.elements.max(written).saturating_mul(added)
}

fn count(expression: &IdedExpr, added: &mut u64, written: &mut u64) {
    match &expression.expr {
        Expr::Call(call) if call.func_name == operators::ADD => *added = added.saturating_add(1),
        Expr::List(list) => *written = (*written).max(list.elements.len() as u64),
        Expr::Map(map) => *written = (*written).max(map.entries.len() as u64),
        _ => {}
    }
    for part in parts(&expression.expr) {
        count(part, added, written);
    }
}

fn sum(steps: impl Iterator<Item = u64>) -> u64 {
    steps.fold(0, u64::saturating_add)
}

// === impl Sizes ===

impl Sizes {
    fn of(claims: &Map<String, Value>) -> Self {
        let mut sizes = Self { elements: claims.len() as u64, text: 0 };
        for value in claims.values() {
            sizes.take(value);
        }
        sizes
    }

    fn take(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text = self.text.max((text.len() / BYTES_PER_STEP) as u64),
            Value::Array(values) => {
                self.elements = self.elements.max(values.len() as u64);
                for value in values {
                    self.take(value);
                }
            }
            Value::Object(members) => {
                self.elements = self.elements.max(members.len() as u64);
                for value in members.values() {
                    self.take(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(matcher: &str, claims: &Value) -> bool {
        Matcher::new(matcher).unwrap().is_true(claims.as_object().unwrap())
    }

    fn error(matcher: &str) -> String {
        Matcher::new(matcher).unwrap_err().to_string()
    }

    #[test]
    fn what_the_parser_would_overflow_on_is_refused_before_it_is_parsed() {
        for (text, problem) in [
            (format!("{}1{}", "(".repeat(4000), ")".repeat(4000)), "stand inside each other"),
            (format!("{}true", "[".repeat(9000)), "stand inside each other"),
            (format!("claims{}", ".a".repeat(1000)), "operators hang on each other"),
            ("1 ".repeat(5000), "tokens"),
            ("a".repeat(10_001), "10001 bytes"),
        ] {
            assert!(error(&text).contains(problem), "{}", error(&text));
        }
    }

    #[test]
    fn a_regular_expression_that_takes_too_much_memory_is_refused() {
        for pattern in [r"(\w{100}){100}", "(", &"a".repeat(PATTERN_BYTES + 1)] {
            let problem = error(&format!("claims.sub.matches(r'{pattern}')"));
            assert!(problem.contains("regular expression"), "{problem}");
            // As a claim, it matches no client.
            assert!(!fits("claims.sub.matches(claims.pattern)", &json!({ "sub": "a", "pattern": pattern })));
        }
    }

    #[test]
    fn regular_expressions_match_and_are_compiled_once() {
        let matcher = Matcher::new(r"claims.groups.exists(g, g.matches(r'^team-\w+$'))").unwrap();
        assert_eq!(matcher.patterns.len(), 1);
        assert!(fits(r"claims.groups.exists(g, g.matches(r'^team-\w+$'))", &json!({ "groups": ["x", "team-ä"] })));
        assert!(!fits(r"claims.groups.exists(g, g.matches(r'^team-\w+$'))", &json!({ "groups": ["x", "a team-b"] })));
        assert!(fits("claims.sub.matches(claims.pattern)", &json!({ "sub": "abc", "pattern": "^a.c$" })));
    }

    #[test]
    fn a_matcher_that_would_take_too_many_steps_is_not_evaluated() {
        let nested = "claims.g.all(a, claims.g.all(b, claims.g.all(c, a + b != c + 'x')))";
        let groups = |count: usize| json!({ "g": (0..count).map(|number| number.to_string()).collect::<Vec<_>>() });
        assert!(fits(nested, &groups(3)));
        assert!(!fits(nested, &groups(2000)), "eight billion comparisons");
        assert!(fits("claims.g.exists(g, g == '1999')", &groups(2000)));
        let added = format!("({}).all(a, claims.g.all(b, b != 'y'))", vec!["claims.g"; 100].join(" + "));
        assert!(!fits(&added, &groups(200)));
        assert!(fits("claims.g.filter(g, g.startsWith('1')).map(g, g + '!').exists(g, g == '1!')", &groups(200)));
    }
}
