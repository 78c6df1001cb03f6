//! A template as a tree. Blocks and parentheses nest as deep as [`skep_bounds::EXPRESSION_DEPTH`] allows.

use std::collections::BTreeMap;

use crate::error::Position;
use crate::function::Function;

/// A template and the templates that it defines.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) main: Vec<Node>,
    /// What `define` and `block` made, by name. Names can have any bytes.
    pub(crate) templates: BTreeMap<Box<[u8]>, Vec<Node>>,
}

/// A piece of a template.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Text between actions.
    Text {
        text: Box<str>,
        at: Position,
    },
    /// Prints a value, unless it declares a variable.
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    /// Renders another template, with a value as its dot.
    Template {
        name: Box<[u8]>,
        argument: Option<Pipeline>,
        at: Position,
    },
    Break,
    Continue,
}

/// A block that depends on a value, and what is rendered instead.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) pipeline: Pipeline,
    pub(crate) body: Vec<Node>,
    pub(crate) otherwise: Vec<Node>,
}

/// Commands of which each gets the value of the one before, and the variables that get the last value.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) at: Position,
    pub(crate) variables: Vec<Box<str>>,
    /// Whether the variables exist already.
    pub(crate) assigns: bool,
    pub(crate) commands: Vec<Command>,
}

/// A value, or a function with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) first: Operand,
    pub(crate) arguments: Vec<Operand>,
}

/// A term and its place.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) at: Position,
    pub(crate) term: Term,
}

/// What a value is made of.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// `.`
    Dot,
    /// `nil`
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// An integer that does not fit. It is an error where it is used.
    Overflow(Box<str>),
    /// A string, which can have any bytes.
    Text(Box<[u8]>),
    /// A variable, with its `$`.
    Variable(Box<str>),
    Function(Function),
    /// Parentheses.
    Pipeline(Box<Pipeline>),
    /// Members of dot, of a variable, of parentheses, or of what a function returns.
    Fields {
        of: Box<Operand>,
        names: Vec<Box<str>>,
    },
}

// === impl Term ===

impl Term {
    /// Whether it is written out: such a term has no members, and nothing can be piped into it.
    pub(crate) fn is_literal(&self) -> bool {
        match self {
            Self::Dot
            | Self::Nil
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Overflow(_)
            | Self::Text(_) => true,
            Self::Variable(_) | Self::Function(_) | Self::Pipeline(_) | Self::Fields { .. } => false,
        }
    }
}
