//! The value of a pipeline: commands, operands, members, and calls of functions with their arguments.
//!
//! Recursion is as deep as parentheses are nested, which the parser bounds.

use crate::arena::Arena;
use crate::builtin;
use crate::error::{EvaluationError, Position, RenderError};
use crate::function::Function;
use crate::meter::Meter;
use crate::scope::Scope;
use crate::tree::{Command, Operand, Pipeline, Term};
use crate::value::{Text, Value};

/// What values depend on, but for dot.
#[derive(Debug)]
pub(crate) struct Evaluator<'r> {
    pub(crate) scope: Scope<'r, Value<'r>>,
    pub(crate) meter: Meter,
    pub(crate) arena: Arena<'r>,
}

// === impl Evaluator ===

impl<'r> Evaluator<'r> {
    /// The value of a pipeline, which its variables get as well.
    pub(crate) fn pipeline(&mut self, dot: &Value<'r>, pipeline: &'r Pipeline) -> Result<Value<'r>, RenderError> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(dot, command, last)?.taken());
        }
        let value = last.unwrap_or(Value::Nothing);
        for name in &pipeline.variables {
            if pipeline.assigns {
                self.assign(name, value.clone()).map_err(|problem| problem.at(pipeline.at))?;
            } else {
                self.scope.declare(name, value.clone());
            }
        }
        Ok(value)
    }

    /// Gives a variable another value.
    pub(crate) fn assign(&mut self, name: &str, value: Value<'r>) -> Result<(), EvaluationError> {
        let variable = self.scope.get_mut(name).ok_or_else(|| EvaluationError::Variable(name.to_owned()))?;
        *variable = value;
        Ok(())
    }

    /// The value of a command; `last` is the value of the command before it.
    fn command(
        &mut self,
        dot: &Value<'r>,
        command: &'r Command,
        last: Option<Value<'r>>,
    ) -> Result<Value<'r>, RenderError> {
        let Operand { at, term } = &command.first;
        let has_arguments = !command.arguments.is_empty() || last.is_some();
        match term {
            Term::Function(function) => self.call(dot, *function, *at, &command.arguments, last),
            Term::Fields { of, names } => {
                let value = self.operand(dot, of)?;
                self.fields(value, names, has_arguments).map_err(|problem| problem.at(*at))
            }
            Term::Variable(_) => {
                let value = self.operand(dot, &command.first)?;
                if has_arguments { Err(EvaluationError::NotAFunction.at(*at)) } else { Ok(value) }
            }
            _ if has_arguments => Err(EvaluationError::NotAFunction.at(*at)),
            Term::Nil => Err(EvaluationError::NilCommand.at(*at)),
            _ => self.operand(dot, &command.first),
        }
    }

    /// The value of an argument, or of a command without arguments.
    fn operand(&mut self, dot: &Value<'r>, operand: &'r Operand) -> Result<Value<'r>, RenderError> {
        let at = operand.at;
        self.meter.step().map_err(|problem| problem.at(at))?;
        match &operand.term {
            Term::Dot => Ok(dot.clone()),
            Term::Nil => Ok(Value::Nothing),
            Term::Bool(value) => Ok(Value::Bool(*value)),
            Term::Int(number) => Ok(Value::Int(*number)),
            Term::Float(number) => Ok(Value::Float(*number)),
            Term::Overflow(text) => Err(EvaluationError::Overflow(text.to_string()).at(at)),
            Term::Text(text) => Ok(Value::Text(Text::Borrowed(text))),
            Term::Variable(name) => {
                let value = self.scope.get(name).cloned();
                value.ok_or_else(|| EvaluationError::Variable(name.to_string()).at(at))
            }
            Term::Function(function) => self.call(dot, *function, at, &[], None),
            Term::Pipeline(pipeline) => self.pipeline(dot, pipeline),
            Term::Fields { of, names } => {
                let value = self.operand(dot, of)?;
                self.fields(value, names, false).map_err(|problem| problem.at(at))
            }
        }
    }

    /// The member of a member of … a value.
    fn fields(
        &mut self,
        value: Value<'r>,
        names: &[Box<str>],
        has_arguments: bool,
    ) -> Result<Value<'r>, EvaluationError> {
        let mut value = value;
        for (index, name) in names.iter().enumerate() {
            self.meter.step()?;
            let has_arguments = has_arguments && index + 1 == names.len();
            value = match value {
                // What is missing has no members either, but asking for them is no error.
                Value::Nothing => return Ok(Value::Nothing),
                Value::Null => return Err(EvaluationError::NilField { field: name.to_string() }),
                Value::Map(_) if has_arguments => {
                    return Err(EvaluationError::FieldArguments { field: name.to_string() });
                }
                Value::Map(members) => members.get(name.as_ref()).map_or(Value::Nothing, Value::of_json),
                other => {
                    return Err(EvaluationError::NoField { field: name.to_string(), found: other.type_name() });
                }
            };
        }
        Ok(value)
    }

    /// Calls a function. The value of the command before is its last argument.
    fn call(
        &mut self,
        dot: &Value<'r>,
        function: Function,
        at: Position,
        arguments: &'r [Operand],
        last: Option<Value<'r>>,
    ) -> Result<Value<'r>, RenderError> {
        let found = arguments.len() + usize::from(last.is_some());
        let arity = function.arity();
        if !arity.allows(found) {
            let problem = EvaluationError::Arguments { function: function.name(), takes: arity.describe(), found };
            return Err(problem.at(at));
        }
        if matches!(function, Function::And | Function::Or) {
            return self.choose(dot, function == Function::Or, arguments, last);
        }
        let mut values = Vec::with_capacity(found);
        for argument in arguments {
            let value = self.operand(dot, argument)?;
            values.push(checked(function, values.len(), value).map_err(|problem| problem.at(argument.at))?);
        }
        if let Some(last) = last {
            values.push(checked(function, values.len(), last).map_err(|problem| problem.at(at))?);
        }
        self.meter.step().map_err(|problem| problem.at(at))?;
        builtin::call(function, &values, &mut self.meter, &self.arena).map_err(|problem| problem.at(at))
    }

    /// `or`, which is its first true argument, and `and`, which is its first false one; else they are their last one. What comes
    /// after it is not evaluated.
    fn choose(
        &mut self,
        dot: &Value<'r>,
        wanted: bool,
        arguments: &'r [Operand],
        last: Option<Value<'r>>,
    ) -> Result<Value<'r>, RenderError> {
        let mut value = Value::Nothing;
        for argument in arguments {
            value = self.operand(dot, argument)?;
            if value.is_true() == wanted {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}

/// An argument of a function, if it is of a type that the function takes there.
fn checked(function: Function, index: usize, value: Value<'_>) -> Result<Value<'_>, EvaluationError> {
    if index > 0 || !function.needs_text() || matches!(value, Value::Text(_)) {
        return Ok(value);
    }
    Err(EvaluationError::NotAString { function: function.name(), found: value.type_name() })
}
