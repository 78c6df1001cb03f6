//! `calculate`: arithmetic, by a parser that can do nothing else.
//!
//! ```text
//!   sum     = product { ("+" | "-") product }
//!   product = signed { ("*" | "/" | "%") signed }
//!   signed  = { "+" | "-" } power
//!   power   = value [ "^" signed ]
//!   value   = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//! ```

use std::iter::Peekable;
use std::str::CharIndices;

use serde_json::{Value, json};

use super::{Arguments, Tool, text};
use crate::server::Surroundings;

/// How long an expression may be, in bytes.
const LONGEST: usize = 1000;
/// How deep parentheses and signs may be nested. The parser's own depth follows it.
const DEEPEST: usize = 50;
/// Whole numbers below this are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) const TOOL: Tool = Tool {
    name: "calculate",
    title: "Calculate",
    description: "Evaluates arithmetic: + - * / % ^, parentheses, pi, e, and sqrt, abs, floor, ceil, round, ln, sin, cos, tan, min, max.",
    repeats: true,
    arguments: || {
        json!({
            "expression": {
                "type": "string",
                "maxLength": LONGEST,
                "description": "What to evaluate, such as (1 + 2) * 3 ^ 2 or sqrt(2).",
            },
        })
    },
    required: &["expression"],
    output: || json!({ "result": { "type": "number", "description": "What it comes to." } }),
    run,
};

/// An expression, read from left to right.
struct Parser<'a> {
    text: &'a str,
    left: Peekable<CharIndices<'a>>,
    depth: usize,
}

fn run(arguments: &Arguments, _: &Surroundings) -> Result<Value, String> {
    let expression = text(arguments, "expression")?.ok_or("the argument `expression` must be a string")?;
    let result = evaluate(expression)?;
    Ok(json!({ "result": number(result) }))
}

fn evaluate(expression: &str) -> Result<f64, String> {
    if expression.len() > LONGEST {
        return Err(format!("the expression is longer than {LONGEST} bytes"));
    }
    let mut parser = Parser { text: expression, left: expression.char_indices().peekable(), depth: 0 };
    let result = parser.sum()?;
    if let Some(found) = parser.peek() {
        return Err(format!("`{found}` does not fit at position {}", parser.position()));
    }
    if result.is_finite() { Ok(result) } else { Err("the result is not a finite number".to_owned()) }
}

/// Whole numbers are written without a fraction.
fn number(result: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and within the bounds of an i64")]
    if result.fract() == 0.0 && result.abs() < EXACT { json!(result as i64) } else { json!(result) }
}

// === impl Parser ===

impl Parser<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the expression is nested more than {DEEPEST} deep"));
        }
        let mut total = self.product()?;
        loop {
            total = match self.take_any(&['+', '-']) {
                Some('+') => total + self.product()?,
                Some(_) => total - self.product()?,
                None => break,
            };
        }
        self.depth -= 1;
        Ok(total)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut total = self.signed()?;
        loop {
            let Some(operator) = self.take_any(&['*', '/', '%']) else { return Ok(total) };
            let operand = self.signed()?;
            if operator != '*' && operand == 0.0 {
                return Err("a division by zero".to_owned());
            }
            total = match operator {
                '*' => total * operand,
                '/' => total / operand,
                _ => total % operand,
            };
        }
    }

    fn signed(&mut self) -> Result<f64, String> {
        let mut negative = false;
        while let Some(sign) = self.take_any(&['+', '-']) {
            negative ^= sign == '-';
        }
        let value = self.power()?;
        Ok(if negative { -value } else { value })
    }

    fn power(&mut self) -> Result<f64, String> {
        let base = self.value()?;
        if self.take_any(&['^']).is_none() {
            return Ok(base);
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the expression is nested more than {DEEPEST} deep"));
        }
        let exponent = self.signed()?;
        self.depth -= 1;
        Ok(base.powf(exponent))
    }

    fn value(&mut self) -> Result<f64, String> {
        match self.peek() {
            Some('(') => {
                self.left.next();
                let value = self.sum()?;
                self.close()?;
                Ok(value)
            }
            Some(first) if first.is_ascii_digit() || first == '.' => self.digits(),
            Some(first) if first.is_ascii_alphabetic() => self.name(),
            Some(other) => Err(format!("`{other}` does not fit at position {}", self.position())),
            None => Err("the expression ends too early".to_owned()),
        }
    }

    /// A number, with a fraction and an exponent if need be.
    fn digits(&mut self) -> Result<f64, String> {
        let start = self.offset();
        let mut last = ' ';
        while let Some(&(_, next)) = self.left.peek() {
            let is_sign = matches!(next, '+' | '-') && matches!(last, 'e' | 'E');
            if !(next.is_ascii_digit() || matches!(next, '.' | 'e' | 'E') || is_sign) {
                break;
            }
            last = next;
            self.left.next();
        }
        let text = self.since(start);
        text.parse().map_err(|_| format!("`{text}` is not a number"))
    }

    fn name(&mut self) -> Result<f64, String> {
        let start = self.offset();
        while self.left.next_if(|(_, next)| next.is_ascii_alphanumeric()).is_some() {}
        let name = self.since(start).to_owned();
        match name.as_str() {
            "pi" => return Ok(std::f64::consts::PI),
            "e" => return Ok(std::f64::consts::E),
            _ => {}
        }
        if self.take_any(&['(']).is_none() {
            return Err(format!("`{name}` is not known here"));
        }
        let mut arguments = vec![self.sum()?];
        while self.take_any(&[',']).is_some() {
            arguments.push(self.sum()?);
        }
        self.close()?;
        apply(&name, &arguments)
    }

    fn close(&mut self) -> Result<(), String> {
        self.take_any(&[')']).map(|_| ()).ok_or_else(|| "a `)` is missing".to_owned())
    }

    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        while self.left.next_if(|(_, next)| next.is_whitespace()).is_some() {}
        self.left.peek().map(|(_, next)| *next)
    }

    fn take_any(&mut self, wanted: &[char]) -> Option<char> {
        let next = self.peek().filter(|next| wanted.contains(next))?;
        self.left.next();
        Some(next)
    }

    fn offset(&mut self) -> usize {
        self.left.peek().map_or(self.text.len(), |(offset, _)| *offset)
    }

    /// The position for people, counted from 1.
    fn position(&mut self) -> usize {
        let offset = self.offset();
        self.text.get(..offset).map_or(0, |before| before.chars().count()) + 1
    }

    fn since(&mut self, start: usize) -> &str {
        let end = self.offset();
        self.text.get(start..end).unwrap_or_default()
    }
}

fn apply(function: &str, arguments: &[f64]) -> Result<f64, String> {
    let value = match (function, arguments) {
        ("sqrt", [of]) => of.sqrt(),
        ("abs", [of]) => of.abs(),
        ("floor", [of]) => of.floor(),
        ("ceil", [of]) => of.ceil(),
        ("round", [of]) => of.round(),
        ("ln", [of]) => of.ln(),
        ("sin", [of]) => of.sin(),
        ("cos", [of]) => of.cos(),
        ("tan", [of]) => of.tan(),
        ("min", all) => all.iter().copied().fold(f64::INFINITY, f64::min),
        ("max", all) => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ("sqrt" | "abs" | "floor" | "ceil" | "round" | "ln" | "sin" | "cos" | "tan", _) => {
            return Err(format!("`{function}` takes one number"));
        }
        _ => return Err(format!("there is no function `{function}`")),
    };
    Ok(value)
}
