//! Which members of the data a template reads, as far as its text shows.
//!
//! The tree is walked as if it were rendered, with paths instead of values. Where a path depends on data, it ends: elements of
//! lists, results of functions, and variables that are assigned twice are unknown. Both branches of a choice count.

use std::collections::{BTreeMap, BTreeSet};

use crate::function::Function;
use crate::scope::Scope;
use crate::tree::{Branch, Command, Node, Operand, Pipeline, Term, Tree};

/// How many names of a path are kept. What reads a step needs four.
const LONGEST: usize = 8;
/// With how many different values as its dot a template is walked. With further ones its dot is unknown.
const MOST_VISITS: usize = 4;

/// A value as far as it is known without rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AbstractValue<'t> {
    /// The data, or the member that a path leads to.
    Path(Vec<&'t str>),
    /// A string.
    Text(&'t str),
    Unknown,
}

/// The paths that a template reads.
pub(crate) fn of(tree: &Tree) -> BTreeSet<Vec<&str>> {
    let mut reader = Reader {
        tree,
        found: BTreeSet::new(),
        scope: Scope::new(AbstractValue::Unknown),
        visited: BTreeMap::new(),
        waiting: vec![(tree.main.as_slice(), AbstractValue::Path(Vec::new()))],
    };
    while let Some((nodes, dot)) = reader.waiting.pop() {
        reader.scope = Scope::new(dot.clone());
        reader.nodes(nodes, &dot);
    }
    reader.found
}

struct Reader<'t> {
    tree: &'t Tree,
    found: BTreeSet<Vec<&'t str>>,
    scope: Scope<'t, AbstractValue<'t>>,
    /// With which dots a template was walked, or will be.
    visited: BTreeMap<&'t [u8], Vec<AbstractValue<'t>>>,
    waiting: Vec<(&'t [Node], AbstractValue<'t>)>,
}

// === impl Reader ===

impl<'t> Reader<'t> {
    fn nodes(&mut self, nodes: &'t [Node], dot: &AbstractValue<'t>) {
        for node in nodes {
            match node {
                Node::Text { .. } | Node::Break | Node::Continue => {}
                Node::Action(pipeline) => {
                    self.read(dot, pipeline);
                }
                Node::If(branch) => self.branch(branch, dot, |_| None),
                Node::With(branch) => self.branch(branch, dot, Some),
                Node::Range(branch) => self.branch(branch, dot, |_| Some(AbstractValue::Unknown)),
                Node::Template { name, argument, .. } => {
                    let argument =
                        argument.as_ref().map_or(AbstractValue::Unknown, |argument| self.read(dot, argument));
                    self.visit(name, argument);
                }
            }
        }
    }

    /// A block; `dot_of` makes its dot from its value, if it has another.
    fn branch(
        &mut self,
        branch: &'t Branch,
        dot: &AbstractValue<'t>,
        dot_of: impl FnOnce(AbstractValue<'t>) -> Option<AbstractValue<'t>>,
    ) {
        let mark = self.scope.mark();
        let value = self.read(dot, &branch.pipeline);
        let inner = dot_of(value);
        if inner == Some(AbstractValue::Unknown) {
            // The variables of a loop are its elements.
            for name in &branch.pipeline.variables {
                self.forget(name);
            }
        }
        let behind = self.scope.mark();
        self.nodes(&branch.body, inner.as_ref().unwrap_or(dot));
        self.scope.leave(behind);
        self.nodes(&branch.otherwise, dot);
        self.scope.leave(mark);
    }

    /// Walks another template later, unless it was already walked with this dot.
    fn visit(&mut self, name: &'t [u8], dot: AbstractValue<'t>) {
        let Some(nodes) = self.tree.templates.get(name) else { return };
        let visits = self.visited.entry(name).or_default();
        let dot = if visits.len() < MOST_VISITS { dot } else { AbstractValue::Unknown };
        if !visits.contains(&dot) {
            visits.push(dot.clone());
            self.waiting.push((nodes, dot));
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(variable) = self.scope.get_mut(name) {
            *variable = AbstractValue::Unknown;
        }
    }

    /// The value of a pipeline, which is read.
    fn read(&mut self, dot: &AbstractValue<'t>, pipeline: &'t Pipeline) -> AbstractValue<'t> {
        let value = self.pipeline(dot, pipeline);
        self.found(&value);
        value
    }

    fn found(&mut self, value: &AbstractValue<'t>) {
        if let AbstractValue::Path(path) = value
            && !path.is_empty()
        {
            self.found.insert(path.clone());
        }
    }

    fn pipeline(&mut self, dot: &AbstractValue<'t>, pipeline: &'t Pipeline) -> AbstractValue<'t> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(dot, command, last));
        }
        let value = last.unwrap_or(AbstractValue::Unknown);
        for name in &pipeline.variables {
            if pipeline.assigns {
                // Before or after, and in which iteration, is not known here.
                self.found(&value);
                self.forget(name);
            } else {
                self.scope.declare(name, value.clone());
            }
        }
        value
    }

    fn command(
        &mut self,
        dot: &AbstractValue<'t>,
        command: &'t Command,
        last: Option<AbstractValue<'t>>,
    ) -> AbstractValue<'t> {
        let mut arguments: Vec<AbstractValue<'t>> = Vec::new();
        for argument in &command.arguments {
            arguments.push(self.operand(dot, argument));
        }
        arguments.extend(last);
        if let Term::Function(Function::Index) = command.first.term {
            return self.index(arguments);
        }
        for argument in &arguments {
            self.found(argument);
        }
        self.operand(dot, &command.first)
    }

    /// The member that names lead to. Where something else leads further, it ends.
    fn index(&mut self, arguments: Vec<AbstractValue<'t>>) -> AbstractValue<'t> {
        let mut arguments = arguments.into_iter();
        let mut value = arguments.next().unwrap_or(AbstractValue::Unknown);
        for argument in arguments {
            self.found(&argument);
            value = match argument {
                AbstractValue::Text(name) => value.member(name),
                AbstractValue::Path(_) | AbstractValue::Unknown => {
                    self.found(&value);
                    AbstractValue::Unknown
                }
            };
        }
        value
    }

    fn operand(&mut self, dot: &AbstractValue<'t>, operand: &'t Operand) -> AbstractValue<'t> {
        match &operand.term {
            Term::Dot => dot.clone(),
            Term::Text(text) => std::str::from_utf8(text).map_or(AbstractValue::Unknown, AbstractValue::Text),
            Term::Variable(name) => self.scope.get(name).cloned().unwrap_or(AbstractValue::Unknown),
            Term::Pipeline(pipeline) => self.pipeline(dot, pipeline),
            Term::Fields { of, names } => {
                let value = self.operand(dot, of);
                names.iter().fold(value, |value, name| value.member(name))
            }
            Term::Nil | Term::Bool(_) | Term::Int(_) | Term::Float(_) | Term::Overflow(_) | Term::Function(_) => {
                AbstractValue::Unknown
            }
        }
    }
}

// === impl AbstractValue ===

impl<'t> AbstractValue<'t> {
    /// A member of this value.
    fn member(self, name: &'t str) -> Self {
        match self {
            Self::Path(mut path) => {
                if path.len() < LONGEST {
                    path.push(name);
                }
                Self::Path(path)
            }
            Self::Text(_) | Self::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Template;

    fn references(text: &str) -> Vec<String> {
        Template::parse(text).unwrap().references().map(|path| path.join(".")).collect()
    }

    #[test]
    fn fields_are_found_however_a_template_reaches_them() {
        let cases: [(&str, &[&str]); 24] = [
            ("text", &[]),
            ("{{.}}{{$}}", &[]),
            ("{{.steps.a.output.text}}", &["steps.a.output.text"]),
            (r#"{{index .steps "a" "output" "text"}}"#, &["steps.a.output.text"]),
            (r#"{{(index .steps "a").output.text}}"#, &["steps.a.output.text"]),
            (r#"{{"a" | index .steps}}"#, &["steps.a"]),
            (r#"{{index . "steps" "a"}}"#, &["steps.a"]),
            ("{{index .steps.a.output.items 0}}", &["steps.a.output.items"]),
            ("{{(index .steps.a.output.items 0).name}}", &["steps.a.output.items"]),
            ("{{index .steps .params.step}}", &["params.step", "steps"]),
            ("{{$s := .steps.a}}{{$s.output.x}}{{$.params.p}}", &["params.p", "steps.a", "steps.a.output.x"]),
            ("{{$s := .steps.a}}{{$s = .steps.b}}{{$s.output.x}}", &["steps.a", "steps.b"]),
            (
                "{{with .steps.a}}{{.output.x}}{{else}}{{.params.p}}{{end}}",
                &["params.p", "steps.a", "steps.a.output.x"],
            ),
            ("{{with $s := .steps.a}}{{$s.output.x}}{{end}}", &["steps.a", "steps.a.output.x"]),
            ("{{range .steps.a.output.items}}{{.name}}{{$.params.p}}{{end}}", &["params.p", "steps.a.output.items"]),
            ("{{range $i, $s := .steps}}{{$s.output.x}}{{end}}", &["steps"]),
            ("{{range .l}}{{else}}{{.b}}{{end}}", &["b", "l"]),
            ("{{if .a}}{{.b}}{{else if .c}}{{.d}}{{else}}{{.e}}{{end}}", &["a", "b", "c", "d", "e"]),
            (r"{{(fromJson .steps.a.output.text).field}}", &["steps.a.output.text"]),
            ("{{and .a (or .b .c) | printf .d}}", &["a", "b", "c", "d"]),
            (
                r#"{{define "t"}}{{.output.x}}{{$.status}}{{end}}{{template "t" .steps.a}}{{template "t" .steps.b}}"#,
                &["steps.a", "steps.a.output.x", "steps.a.status", "steps.b", "steps.b.output.x", "steps.b.status"],
            ),
            (r#"{{block "t" .steps}}{{.a.status}}{{end}}"#, &["steps", "steps.a.status"]),
            (r#"{{define "t"}}{{.x}}{{end}}{{template "t"}}"#, &[]),
            ("{{.a.b.c.d.e.f.g.h.i.j}}", &["a.b.c.d.e.f.g.h"]),
        ];
        for (text, expected) in cases {
            assert_eq!(references(text), expected, "{text}");
        }
    }

    #[test]
    fn templates_that_call_each_other_with_ever_new_values_are_walked_a_few_times() {
        let text = r#"{{define "t"}}{{template "t" .a}}{{template "t" .b}}{{end}}{{template "t" .}}"#;
        let found = references(text);
        assert!(found.contains(&"a.b".to_owned()) || found.contains(&"b.a".to_owned()), "{found:?}");
        assert!(found.len() < 10, "{found:?}");
    }
}
