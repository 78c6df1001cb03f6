//! Renders a tree. What is open (blocks, loops, calls of templates) stands on a stack of its own, so that no template exhausts the
//! stack of the thread.
//!
//! ```text
//!   frames: call of the template ─▶ block ─▶ loop ─▶ …   the last one gives the next node;
//!           what it makes is output, or another frame    without more nodes it is left, or its loop goes on
//! ```

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use crate::arena::{Arena, Place};
use crate::error::{EvaluationError, Position, RenderError, quoted};
use crate::evaluate::Evaluator;
use crate::members;
use crate::meter::{Meter, RenderLimits, Sink};
use crate::print;
use crate::scope::Scope;
use crate::tree::{Branch, Node, Pipeline, Tree};
use crate::utf8::to_utf8;
use crate::value::{Text, Value};

/// Renders a template with data.
pub(crate) fn render(tree: &Tree, data: &Json, limits: RenderLimits) -> Result<String, RenderError> {
    let place = Place::default();
    let dot = Value::of_json(data).taken();
    let evaluator = Evaluator { scope: Scope::new(dot.clone()), meter: Meter::new(limits), arena: Arena::new(&place) };
    let mut renderer = Renderer { tree, evaluator, frames: Vec::new(), calls: 0, output: Vec::new() };
    renderer.frames.push(Frame { nodes: tree.main.iter(), dot, kind: FrameKind::Block { mark: 1 } });
    while let Some(node) = renderer.next()? {
        renderer.node(node)?;
    }
    Ok(to_utf8(renderer.output))
}

struct Renderer<'r> {
    tree: &'r Tree,
    evaluator: Evaluator<'r>,
    frames: Vec<Frame<'r>>,
    /// How many calls of templates are nested.
    calls: usize,
    output: Vec<u8>,
}

/// Nodes that are being rendered.
struct Frame<'r> {
    nodes: std::slice::Iter<'r, Node>,
    dot: Value<'r>,
    kind: FrameKind<'r>,
}

/// What happens when the nodes of a frame are rendered.
enum FrameKind<'r> {
    /// The variables that were declared since a mark end.
    Block { mark: usize },
    /// The next element follows.
    Loop(Loop<'r>),
    /// The variables of the calling template come back.
    Call { scope: Scope<'r, Value<'r>> },
}

struct Loop<'r> {
    branch: &'r Branch,
    elements: Elements<'r>,
    /// Where the variables of the loop begin.
    mark: usize,
    /// Where the variables of one iteration begin.
    inner: usize,
}

/// What a loop goes through.
enum Elements<'r> {
    Integers(RangeInclusive<i64>),
    Bytes(RangeInclusive<u8>),
    Items(std::iter::Enumerate<std::slice::Iter<'r, Json>>),
    Members(std::vec::IntoIter<(&'r str, &'r Json)>),
}

// === impl Renderer ===

impl<'r> Renderer<'r> {
    /// The next node, after what ends before it.
    fn next(&mut self) -> Result<Option<&'r Node>, RenderError> {
        while let Some(frame) = self.frames.last_mut() {
            if let Some(node) = frame.nodes.next() {
                return Ok(Some(node));
            }
            self.finish()?;
        }
        Ok(None)
    }

    /// Ends the last frame, unless its loop goes on.
    fn finish(&mut self) -> Result<(), RenderError> {
        let Some(mut frame) = self.frames.pop() else { return Ok(()) };
        match &mut frame.kind {
            FrameKind::Block { mark } => self.evaluator.scope.leave(*mark),
            FrameKind::Call { .. } => {}
            FrameKind::Loop(current) => {
                self.evaluator.scope.leave(current.inner);
                let pipeline = &current.branch.pipeline;
                let at = pipeline.at;
                self.evaluator.meter.step().map_err(|problem| problem.at(at))?;
                let Some((index, element)) = current.elements.next() else {
                    self.evaluator.scope.leave(current.mark);
                    return Ok(());
                };
                self.set_variables(pipeline, index, &element).map_err(|problem| problem.at(at))?;
                frame.nodes = current.branch.body.iter();
                frame.dot = element;
                self.frames.push(frame);
                return Ok(());
            }
        }
        if let FrameKind::Call { scope } = frame.kind {
            self.evaluator.scope = scope;
            self.calls -= 1;
        }
        Ok(())
    }

    /// Gives the variables of a loop their values. A single one gets the element.
    fn set_variables(
        &mut self,
        pipeline: &Pipeline,
        index: Value<'r>,
        element: &Value<'r>,
    ) -> Result<(), EvaluationError> {
        let mut names = pipeline.variables.iter();
        match (names.next(), names.next()) {
            (Some(first), Some(second)) => {
                self.evaluator.assign(first, index)?;
                self.evaluator.assign(second, element.clone())
            }
            (Some(only), None) => self.evaluator.assign(only, element.clone()),
            (None, _) => Ok(()),
        }
    }

    fn node(&mut self, node: &'r Node) -> Result<(), RenderError> {
        let dot = self.frames.last().map_or(Value::Nothing, |frame| frame.dot.clone());
        match node {
            Node::Text { text, at } => self.print(&Value::Text(Text::Borrowed(text.as_bytes())), *at),
            Node::Action(pipeline) => {
                let value = self.evaluator.pipeline(&dot, pipeline)?;
                if pipeline.variables.is_empty() { self.print(&value, pipeline.at) } else { Ok(()) }
            }
            Node::If(branch) => self.branch(dot, branch, false),
            Node::With(branch) => self.branch(dot, branch, true),
            Node::Range(branch) => self.range(dot, branch),
            Node::Template { name, argument, at } => self.template(&dot, name, argument.as_ref(), *at),
            Node::Break => {
                self.leave_blocks();
                if let Some(Frame { kind: FrameKind::Loop(current), .. }) = self.frames.pop() {
                    self.evaluator.scope.leave(current.mark);
                }
                Ok(())
            }
            Node::Continue => {
                self.leave_blocks();
                if let Some(frame) = self.frames.last_mut() {
                    frame.nodes = [].iter();
                }
                Ok(())
            }
        }
    }

    /// Writes a value to the output.
    fn print(&mut self, value: &Value<'r>, at: Position) -> Result<(), RenderError> {
        let meter = &mut self.evaluator.meter;
        let written = meter.step().and_then(|()| print::value(&mut Sink::new(&mut self.output, meter), value));
        written.map_err(|problem| problem.at(at))
    }

    /// Leaves the blocks inside of the innermost loop.
    fn leave_blocks(&mut self) {
        // INVARIANT: `break` and `continue` stand in a loop of the same template. The loop ends the variables of its blocks.
        while self.frames.last().is_some_and(|frame| matches!(frame.kind, FrameKind::Block { .. })) {
            self.frames.pop();
        }
    }

    /// `if`, and `with`, which changes dot.
    fn branch(&mut self, dot: Value<'r>, branch: &'r Branch, sets_dot: bool) -> Result<(), RenderError> {
        let mark = self.evaluator.scope.mark();
        let value = self.evaluator.pipeline(&dot, &branch.pipeline)?;
        let (nodes, dot) = match value.is_true() {
            true if sets_dot => (&branch.body, value),
            true => (&branch.body, dot),
            false => (&branch.otherwise, dot),
        };
        self.frames.push(Frame { nodes: nodes.iter(), dot, kind: FrameKind::Block { mark } });
        Ok(())
    }

    fn range(&mut self, dot: Value<'r>, branch: &'r Branch) -> Result<(), RenderError> {
        let mark = self.evaluator.scope.mark();
        let value = self.evaluator.pipeline(&dot, &branch.pipeline)?;
        let inner = self.evaluator.scope.mark();
        let elements = self.elements(&value, branch).map_err(|problem| problem.at(branch.pipeline.at))?;
        let frame = match elements {
            // The first element is like the next one after no nodes.
            Some(elements) => {
                let kind = FrameKind::Loop(Loop { branch, elements, mark, inner });
                Frame { nodes: [].iter(), dot, kind }
            }
            None => Frame { nodes: branch.otherwise.iter(), dot, kind: FrameKind::Block { mark } },
        };
        self.frames.push(frame);
        Ok(())
    }

    /// What a loop goes through, or nothing if there is no element.
    fn elements(&mut self, value: &Value<'r>, branch: &Branch) -> Result<Option<Elements<'r>>, EvaluationError> {
        let is_indexed = branch.pipeline.variables.len() > 1;
        match value {
            Value::Int(_) | Value::Byte(_) if is_indexed => Err(EvaluationError::RangeVariables),
            Value::Int(count) => Ok((*count > 0).then(|| Elements::Integers(0..=*count - 1))),
            Value::Byte(count) => Ok((*count > 0).then(|| Elements::Bytes(0..=*count - 1))),
            Value::List(list) => {
                let items = list.items();
                Ok((!items.is_empty()).then(|| Elements::Items(items.iter().enumerate())))
            }
            Value::Map(map) => {
                let sorted = members::sorted(map, &mut self.evaluator.meter)?;
                Ok((!sorted.is_empty()).then(|| Elements::Members(sorted.into_iter())))
            }
            Value::Nothing | Value::Null => Ok(None),
            Value::Bool(_) | Value::Whole(_) | Value::Float(_) | Value::Text(_) => {
                Err(EvaluationError::Range(value.type_name()))
            }
        }
    }

    /// Renders another template, which knows no variables of this one.
    fn template(
        &mut self,
        dot: &Value<'r>,
        name: &[u8],
        argument: Option<&'r Pipeline>,
        at: Position,
    ) -> Result<(), RenderError> {
        let Some(nodes) = self.tree.templates.get(name) else {
            let name = quoted(&String::from_utf8_lossy(name));
            return Err(EvaluationError::Template(name).at(at));
        };
        let most = self.evaluator.meter.calls();
        if self.calls >= most {
            return Err(EvaluationError::Calls { most }.at(at));
        }
        let dot = argument.map_or(Ok(Value::Nothing), |argument| self.evaluator.pipeline(dot, argument))?;
        self.evaluator.meter.step().map_err(|problem| problem.at(at))?;
        self.calls += 1;
        let scope = std::mem::replace(&mut self.evaluator.scope, Scope::new(dot.clone()));
        self.frames.push(Frame { nodes: nodes.iter(), dot, kind: FrameKind::Call { scope } });
        Ok(())
    }
}

// === impl Elements ===

impl<'r> Elements<'r> {
    /// The next index and element. Integers have no index.
    fn next(&mut self) -> Option<(Value<'r>, Value<'r>)> {
        match self {
            Self::Integers(left) => left.next().map(|number| (Value::Nothing, Value::Int(number))),
            Self::Bytes(left) => left.next().map(|number| (Value::Nothing, Value::Byte(number))),
            Self::Items(left) => {
                let (index, item) = left.next()?;
                Some((Value::Int(i64::try_from(index).unwrap_or(i64::MAX)), Value::of_json(item)))
            }
            Self::Members(left) => {
                let (name, member) = left.next()?;
                Some((Value::Text(Text::Borrowed(name.as_bytes())), Value::of_json(member)))
            }
        }
    }
}
