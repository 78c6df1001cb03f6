//! What stands in an action: declarations, commands, operands.

use super::{KEYWORDS, Parser, RANGE, string, unexpected};
use crate::error::{ParseError, SyntaxError, quoted};
use crate::function::Function;
use crate::lexer::{Token, TokenKind};
use crate::literal::{self, NumberError};
use crate::tree::{Command, Operand, Pipeline, Term};

// === impl Parser ===

impl Parser<'_> {
    /// A pipeline and the token that ends it: `}}`, or the parenthesis around it.
    pub(super) fn pipeline(&mut self, context: &'static str, end: TokenKind) -> Result<Pipeline, ParseError> {
        let at = self.peek(0).at;
        let (variables, assigns) = self.declarations(context)?;
        let mut commands: Vec<Command> = Vec::new();
        while self.peek(0).kind != end {
            let token = self.peek(0);
            let is_first = commands.is_empty();
            let command = self.command(context)?;
            if !is_first && command.first.term.is_literal() {
                return Err(token.at.syntax(SyntaxError::NotExecutable));
            }
            commands.push(command);
        }
        let last = self.take();
        if commands.is_empty() {
            return Err(last.at.syntax(SyntaxError::NoValue(context)));
        }
        Ok(Pipeline { at, variables, assigns, commands })
    }

    /// The variables before `:=` or `=`, and whether it is `=`.
    fn declarations(&mut self, context: &'static str) -> Result<(Vec<Box<str>>, bool), ParseError> {
        let mut variables: Vec<Box<str>> = Vec::new();
        while self.peek(0).kind == TokenKind::Variable {
            let (variable, next) = (self.peek(0), self.peek(1));
            let is_list = match next.kind {
                TokenKind::Declare | TokenKind::Assign => false,
                TokenKind::Comma => true,
                _ => break,
            };
            self.take();
            self.take();
            variables.push(variable.text.into());
            // An assignment makes a name known as well, though it fails if there is no such variable.
            self.scope.declare(variable.text, ());
            if !is_list {
                return Ok((variables, next.kind == TokenKind::Assign));
            }
            if context != RANGE || variables.len() > 1 {
                return Err(variable.at.syntax(SyntaxError::TooManyVariables(context)));
            }
            let follows = self.peek(0);
            if !matches!(follows.kind, TokenKind::Variable | TokenKind::Close | TokenKind::CloseParenthesis) {
                return Err(follows.at.syntax(SyntaxError::RangeVariables));
            }
        }
        Ok((variables, false))
    }

    /// Operands up to `|`, which is read, or to the end of the pipeline.
    fn command(&mut self, context: &'static str) -> Result<Command, ParseError> {
        let token = self.peek(0);
        let first = self.operand()?.ok_or_else(|| unexpected(token, context))?;
        let mut arguments = Vec::new();
        loop {
            let token = self.peek(0);
            if token.spaced
                && let Some(argument) = self.operand()?
            {
                arguments.push(argument);
                continue;
            }
            match token.kind {
                TokenKind::Close | TokenKind::CloseParenthesis => break,
                TokenKind::Pipe => {
                    self.take();
                    break;
                }
                _ => return Err(unexpected(token, context)),
            }
        }
        Ok(Command { first, arguments })
    }

    /// A term with its members, or nothing if none begins here.
    fn operand(&mut self) -> Result<Option<Operand>, ParseError> {
        let Some(mut operand) = self.term()? else { return Ok(None) };
        while self.peek(0).kind == TokenKind::Field && !self.peek(0).spaced {
            let field = self.take();
            if operand.term.is_literal() {
                return Err(field.at.syntax(SyntaxError::NoMembers(quoted(field.text))));
            }
            operand = with_field(operand, field);
        }
        Ok(Some(operand))
    }

    fn term(&mut self) -> Result<Option<Operand>, ParseError> {
        let token = self.peek(0);
        let term = match token.kind {
            TokenKind::Word if token.text != "nil" && KEYWORDS.contains(&token.text) => return Ok(None),
            TokenKind::Word => word(token)?,
            TokenKind::Dot => Term::Dot,
            TokenKind::Field => {
                self.take();
                return Ok(Some(with_field(Operand { at: token.at, term: Term::Dot }, token)));
            }
            TokenKind::Variable if self.scope.get(token.text).is_some() => Term::Variable(token.text.into()),
            TokenKind::Variable => return Err(token.at.syntax(SyntaxError::Variable(quoted(token.text)))),
            TokenKind::Number => literal::number(token.text).map_err(|error| {
                let text = quoted(token.text);
                token.at.syntax(match error {
                    NumberError::Invalid => SyntaxError::Number(text),
                    NumberError::Imaginary => SyntaxError::Imaginary(text),
                })
            })?,
            TokenKind::Character => {
                let number = literal::character(token.text);
                Term::Int(number.ok_or_else(|| token.at.syntax(SyntaxError::Literal(quoted(token.text))))?)
            }
            TokenKind::String | TokenKind::RawString => Term::Text(string(token)?),
            TokenKind::OpenParenthesis => {
                self.take();
                let inner = self.nested(|parser| parser.pipeline("parentheses", TokenKind::CloseParenthesis))?;
                return Ok(Some(Operand { at: token.at, term: Term::Pipeline(Box::new(inner)) }));
            }
            _ => return Ok(None),
        };
        self.take();
        Ok(Some(Operand { at: token.at, term }))
    }
}

/// A constant, or the name of a function.
fn word(token: Token<'_>) -> Result<Term, ParseError> {
    match token.text {
        "nil" => Ok(Term::Nil),
        "true" => Ok(Term::Bool(true)),
        "false" => Ok(Term::Bool(false)),
        name => Function::by_name(name)
            .map(Term::Function)
            .ok_or_else(|| token.at.syntax(SyntaxError::Function { name: quoted(name), known: Function::names() })),
    }
}

/// A member of an operand. Members of members are one chain.
fn with_field(operand: Operand, field: Token<'_>) -> Operand {
    let name: Box<str> = field.text.strip_prefix('.').unwrap_or(field.text).into();
    let at = operand.at;
    let term = match operand.term {
        Term::Fields { of, mut names } => {
            names.push(name);
            Term::Fields { of, names }
        }
        _ => Term::Fields { of: Box::new(operand), names: vec![name] },
    };
    Operand { at, term }
}
