//! Matchers: conditions in CEL, written by administrators, that are true or false of the claims of a token.
//!
//! An environment has one variable, `claims`, and the functions of CEL's standard library. A matcher that names anything
//! else would fail for every request; here it fails once, when it is written, with its place.

#[cfg(test)]
mod tests;

use std::fmt::Display;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue};
use cel::parser::Parser;
use cel::{IdedExpr, ParseErrors};
use regex::RegexBuilder;
use skep_bounds::{
    BoundsError, COMPILED_PATTERN_BYTES, MATCHER_COUNT, MATCHER_SET_BYTES, MATCHER_SET_TOKENS, PATTERN_BYTES,
};

use super::Problems;

/// The only variable of a matcher.
const CLAIMS: &str = "claims";
/// Names of types, which can be compared with what `type()` gives.
const TYPES: &[&str] = &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// The functions of the standard library, beside the operators. Macros that were called wrongly are left as calls, and
/// are not among them.
const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// Expanded by the parser where their arguments fit.
const MACROS: &[(&str, &str)] = &[
    ("all", "`claims.groups.all(group, group != \"guests\")`"),
    ("exists", "`claims.groups.exists(group, group == \"admins\")`"),
    ("exists_one", "`claims.groups.exists_one(group, group == \"admins\")`"),
    ("filter", "`claims.groups.filter(group, group.startsWith(\"team-\"))`"),
    ("has", "`has(claims.email)`"),
    ("map", "`claims.groups.map(group, group + \"-team\")`"),
];

/// The matchers of one configuration. Each has limits of its own; together they have some as well, because an object has room for
/// hundreds of the longest.
#[derive(Debug, Default)]
pub(super) struct Matchers {
    count: usize,
    bytes: usize,
    tokens: usize,
}

/// What is wrong with a matcher, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct MatcherError(String);

/// How many tokens the parser sees of the matchers of a configuration, as far as it sees them. They cost no more time than that.
pub(crate) fn tokens<'a>(matchers: impl IntoIterator<Item = &'a str>) -> usize {
    let mut all = Matchers::default();
    for text in matchers.into_iter().filter(|text| !text.is_empty()) {
        // One that is refused is not parsed, and nothing behind the one with which all are too many.
        if all.scan(text).is_err() && all.exceed() {
            break;
        }
    }
    all.tokens
}

// === impl MatcherError ===

impl From<BoundsError> for MatcherError {
    fn from(error: BoundsError) -> Self {
        Self(error.to_string())
    }
}

// === impl Matchers ===

impl Matchers {
    /// Checks the next one, if there is one. Nothing is parsed of one with which they are too many.
    pub(super) fn check(&mut self, problems: &mut Problems, place: impl Display, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            problems.check(place, self.scan(text).and_then(|()| parse(text)));
        }
    }

    /// Checks the limits of a text, and of all texts so far.
    fn scan(&mut self, text: &str) -> Result<(), MatcherError> {
        // Once there are too many, no further one is scanned.
        if !self.exceed() {
            self.count += 1;
            self.bytes += text.len();
        }
        if !self.exceed() {
            // What is refused here is refused where it is evaluated, too.
            self.tokens += skep_bounds::cel(text)?;
        }
        if self.exceed() {
            return Err(MatcherError(format!(
                "with it, the matchers of this configuration are too many; write at most {MATCHER_COUNT}, with {MATCHER_SET_BYTES} bytes \
                 and {MATCHER_SET_TOKENS} tokens together"
            )));
        }
        Ok(())
    }

    const fn exceed(&self) -> bool {
        self.count > MATCHER_COUNT || self.bytes > MATCHER_SET_BYTES || self.tokens > MATCHER_SET_TOKENS
    }
}

/// Whether a matcher can be evaluated; if not, what is wrong with it, and where. Its limits were checked.
fn parse(text: &str) -> Result<(), MatcherError> {
    let condition = Parser::new().parse(text).map_err(|errors| syntax_error(&errors))?;
    if !can_be_true(&condition.expr) {
        return Err(MatcherError(
            "it is not a condition, so it matches no token; compare a claim, such as `claims.sub == \"someone\"`"
                .to_owned(),
        ));
    }
    known(&condition, &mut Vec::new())
}

/// The first error of the parser, without its list of expected tokens, which is longer than the error itself.
fn syntax_error(errors: &ParseErrors) -> MatcherError {
    let Some(error) = errors.errors.first() else { return MatcherError("it is not valid CEL".to_owned()) };
    let (line, column) = error.pos;
    let message = error.msg.split(" expecting ").next().unwrap_or_default();
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message).replace("'<EOF>'", "its end");
    MatcherError(format!("it is not valid CEL: line {line}, column {column}: {message}; correct it there"))
}

/// Whether a condition can come out as true, as far as can be seen without claims.
fn can_be_true(condition: &Expr) -> bool {
    match condition {
        Expr::Literal(value) => matches!(value, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => false,
        Expr::Call(_) | Expr::Comprehension(_) | Expr::Ident(_) | Expr::Select(_) => true,
    }
}

/// Refuses names that stand for nothing. `bound` are the variables of the macros around.
fn known<'text>(condition: &'text IdedExpr, bound: &mut Vec<&'text str>) -> Result<(), MatcherError> {
    match &condition.expr {
        Expr::Unspecified | Expr::Literal(_) => Ok(()),
        Expr::Ident(name) => {
            let name = name.as_str();
            // The parser's own variables, in what it made of macros.
            let internal = name.starts_with('@');
            if internal || name == CLAIMS || bound.contains(&name) || TYPES.contains(&name) {
                return Ok(());
            }
            Err(MatcherError(format!(
                "`{name}` is unknown; a matcher sees the claims of the token alone, such as `{CLAIMS}.{name}`"
            )))
        }
        Expr::Select(select) => known(&select.operand, bound),
        Expr::Call(call) => {
            known_function(&call.func_name)?;
            check_pattern(call)?;
            call.target.iter().map(AsRef::as_ref).chain(&call.args).try_for_each(|part| known(part, bound))
        }
        Expr::List(list) => list.elements.iter().try_for_each(|element| known(element, bound)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| known_entry(entry, bound)),
        Expr::Struct(value) => {
            Err(MatcherError(format!("`{}` is unknown; there are no types of messages", value.type_name)))
        }
        Expr::Comprehension(each) => {
            known(&each.iter_range, bound)?;
            known(&each.accu_init, bound)?;
            let outside = bound.len();
            bound.extend([each.iter_var.as_str(), each.accu_var.as_str()]);
            bound.extend(each.iter_var2.as_deref());
            let inside = [&each.loop_cond, &each.loop_step, &each.result];
            inside.into_iter().try_for_each(|part| known(part, bound))?;
            bound.truncate(outside);
            Ok(())
        }
    }
}

fn known_entry<'text>(entry: &'text IdedEntryExpr, bound: &mut Vec<&'text str>) -> Result<(), MatcherError> {
    match &entry.expr {
        EntryExpr::MapEntry(entry) => {
            known(&entry.key, bound)?;
            known(&entry.value, bound)
        }
        EntryExpr::StructField(field) => known(&field.value, bound),
    }
}

/// Refuses a regular expression that cannot be used.
fn check_pattern(call: &CallExpr) -> Result<(), MatcherError> {
    let literal = call.args.last().filter(|_| call.func_name == "matches").map(|pattern| &pattern.expr);
    let Some(Expr::Literal(LiteralValue::String(pattern))) = literal else { return Ok(()) };
    skep_bounds::size(pattern, PATTERN_BYTES)?;
    match RegexBuilder::new(pattern).size_limit(COMPILED_PATTERN_BYTES).build() {
        Ok(_) => Ok(()),
        Err(regex::Error::CompiledTooBig(_)) => Err(MatcherError(format!(
            "the regular expression `{}` takes too much memory; write it shorter",
            &**pattern
        ))),
        Err(_) => Err(MatcherError(format!("`{}` is no regular expression; correct it", &**pattern))),
    }
}

/// Operators are calls as well, but their names begin with no letter.
fn known_function(name: &str) -> Result<(), MatcherError> {
    let operator = !name.starts_with(|first: char| first.is_ascii_alphabetic());
    if operator || FUNCTIONS.contains(&name) {
        return Ok(());
    }
    match MACROS.iter().find(|(of, _)| *of == name) {
        Some((_, example)) => {
            Err(MatcherError(format!("`{name}` does not take these arguments; write it as in {example}")))
        }
        None => Err(MatcherError(format!(
            "there is no function `{name}`; use those of CEL's standard library, such as `startsWith`"
        ))),
    }
}
