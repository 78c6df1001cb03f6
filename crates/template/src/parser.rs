//! From tokens to a tree: text, actions and blocks. [`pipeline`] reads what stands in an action.

mod pipeline;

use std::collections::BTreeMap;

use skep_bounds::{BoundsError, EXPRESSION_DEPTH};

use crate::error::{ParseError, Position, SyntaxError, quoted};
use crate::lexer::{self, Token, TokenKind};
use crate::literal;
use crate::scope::Scope;
use crate::tree::{Branch, Node, Tree};

/// Words that cannot be the name of a function.
const KEYWORDS: [&str; 11] =
    ["block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"];

/// The context in which a pipeline may have two variables.
const RANGE: &str = "`range`";

/// Parses a template that is bounded in size.
pub(crate) fn parse(text: &str) -> Result<Tree, ParseError> {
    let mut parser = Parser {
        tokens: lexer::tokens(text)?,
        next: 0,
        scope: Scope::new(()),
        loops: 0,
        depth: 0,
        templates: BTreeMap::new(),
    };
    let main = parser.main()?;
    Ok(Tree { main, templates: parser.templates })
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    /// How many tokens are read.
    next: usize,
    /// The variables that are declared so far.
    scope: Scope<'t, ()>,
    /// How many `range` are around.
    loops: usize,
    /// How many blocks and parentheses are around.
    depth: usize,
    templates: BTreeMap<Box<[u8]>, Vec<Node>>,
}

/// An action, as the list that it stands in sees it.
enum Item {
    Node(Node),
    Else,
    End,
}

/// A block that depends on a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyword {
    If,
    With,
    Range,
}

// === impl Keyword ===

impl Keyword {
    const fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::With => "with",
            Self::Range => "range",
        }
    }

    /// What is being read, for errors.
    const fn context(self) -> &'static str {
        match self {
            Self::If => "`if`",
            Self::With => "`with`",
            Self::Range => RANGE,
        }
    }

    const fn node(self, branch: Branch) -> Node {
        match self {
            Self::If => Node::If(branch),
            Self::With => Node::With(branch),
            Self::Range => Node::Range(branch),
        }
    }
}

// === impl Parser ===

impl<'t> Parser<'t> {
    /// A token that was not read yet, the next one first.
    fn peek(&self, ahead: usize) -> Token<'t> {
        let last = self.tokens.len().saturating_sub(1);
        let end = Token { kind: TokenKind::End, text: "", at: Position { line: 1, column: 1 }, spaced: false };
        self.tokens.get((self.next + ahead).min(last)).copied().unwrap_or(end)
    }

    fn take(&mut self) -> Token<'t> {
        let token = self.peek(0);
        self.next += 1;
        token
    }

    /// Whether the next token is this word.
    fn is_word(&self, ahead: usize, word: &str) -> bool {
        let token = self.peek(ahead);
        token.kind == TokenKind::Word && token.text == word
    }

    /// The next token, which must be of this kind.
    fn expect(&mut self, kind: TokenKind, context: &'static str) -> Result<Token<'t>, ParseError> {
        let token = self.take();
        if token.kind == kind { Ok(token) } else { Err(unexpected(token, context)) }
    }

    /// Reads something that is nested.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH {
            return Err(BoundsError::Depth { most: EXPRESSION_DEPTH }.into());
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// The whole text. Only here templates are defined.
    fn main(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        while self.peek(0).kind != TokenKind::End {
            if self.peek(0).kind == TokenKind::Open && self.is_word(1, "define") {
                self.definition()?;
                continue;
            }
            let at = self.peek(0).at;
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::Else => return Err(at.syntax(SyntaxError::NoBlock("{{else}}"))),
                Item::End => return Err(at.syntax(SyntaxError::NoBlock("{{end}}"))),
            }
        }
        Ok(nodes)
    }

    /// What stands in a block, and whether `else` ends it.
    fn body(&mut self, name: &'static str, opened: Position) -> Result<(Vec<Node>, bool), ParseError> {
        let mut nodes = Vec::new();
        while self.peek(0).kind != TokenKind::End {
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::Else => return Ok((nodes, true)),
                Item::End => return Ok((nodes, false)),
            }
        }
        Err(opened.syntax(SyntaxError::OpenBlock(name)))
    }

    /// The body of a block that has no `else`.
    fn body_without_else(&mut self, name: &'static str, opened: Position) -> Result<Vec<Node>, ParseError> {
        let (nodes, has_else) = self.body(name, opened)?;
        let at = self.peek(0).at;
        if has_else { Err(at.syntax(SyntaxError::NoBlock("{{else}}"))) } else { Ok(nodes) }
    }

    /// A text or an action.
    fn item(&mut self) -> Result<Item, ParseError> {
        let token = self.take();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(Node::Text { text: token.text.into(), at: token.at })),
            TokenKind::Open => self.action(token.at),
            _ => {
                Err(unexpected(token, "`else`, which is followed by `if` only after `if`, by `with` only after `with`"))
            }
        }
    }

    fn action(&mut self, opened: Position) -> Result<Item, ParseError> {
        let token = self.peek(0);
        let word = if token.kind == TokenKind::Word { token.text } else { "" };
        if !KEYWORDS.contains(&word) || matches!(word, "define" | "nil") {
            return self.pipeline("an action", TokenKind::Close).map(|pipeline| Item::Node(Node::Action(pipeline)));
        }
        self.take();
        let node = match word {
            "if" => self.branch(Keyword::If, opened)?,
            "with" => self.branch(Keyword::With, opened)?,
            "range" => self.branch(Keyword::Range, opened)?,
            "block" => self.block(opened)?,
            "template" => self.template(token.at)?,
            "break" => self.leave_loop("{{break}}", Node::Break, token.at)?,
            "continue" => self.leave_loop("{{continue}}", Node::Continue, token.at)?,
            "else" => {
                // What follows `else` is read by the block that it belongs to.
                if !self.is_word(0, "if") && !self.is_word(0, "with") {
                    self.expect(TokenKind::Close, "`else`")?;
                }
                return Ok(Item::Else);
            }
            _ => {
                self.expect(TokenKind::Close, "`end`")?;
                return Ok(Item::End);
            }
        };
        Ok(Item::Node(node))
    }

    /// A block that depends on a value, after its keyword.
    fn branch(&mut self, keyword: Keyword, opened: Position) -> Result<Node, ParseError> {
        self.nested(|parser| {
            let mark = parser.scope.mark();
            let pipeline = parser.pipeline(keyword.context(), TokenKind::Close)?;
            parser.loops += usize::from(keyword == Keyword::Range);
            let (body, has_else) = parser.body(keyword.name(), opened)?;
            parser.loops -= usize::from(keyword == Keyword::Range);
            let continues = keyword != Keyword::Range && parser.is_word(0, keyword.name());
            let otherwise = match (has_else, continues) {
                (false, _) => Vec::new(),
                (true, false) => parser.body_without_else(keyword.name(), opened)?,
                // One `end` is enough for both.
                (true, true) => {
                    parser.take();
                    vec![parser.branch(keyword, opened)?]
                }
            };
            // Variables of the body are known in `otherwise`, but have no value there.
            parser.scope.leave(mark);
            Ok(keyword.node(Branch { pipeline, body, otherwise }))
        })
    }

    fn leave_loop(&mut self, name: &'static str, node: Node, at: Position) -> Result<Node, ParseError> {
        self.expect(TokenKind::Close, "`break` and `continue`")?;
        if self.loops == 0 { Err(at.syntax(SyntaxError::OutsideLoop(name))) } else { Ok(node) }
    }

    /// A call of another template, after its keyword.
    fn template(&mut self, at: Position) -> Result<Node, ParseError> {
        let name = self.template_name("`template`")?;
        let argument = if self.peek(0).kind == TokenKind::Close {
            self.take();
            None
        } else {
            Some(self.pipeline("`template`", TokenKind::Close)?)
        };
        Ok(Node::Template { name, argument, at })
    }

    /// A template that is defined where it is called, after its keyword.
    fn block(&mut self, opened: Position) -> Result<Node, ParseError> {
        let at = self.peek(0).at;
        let name = self.template_name("`block`")?;
        let argument = self.pipeline("`block`", TokenKind::Close)?;
        self.nested(|parser| parser.named("block", &name, opened))?;
        Ok(Node::Template { name, argument: Some(argument), at })
    }

    /// A template that is defined, from its `{{` on.
    fn definition(&mut self) -> Result<(), ParseError> {
        let opened = self.take().at;
        self.take();
        let name = self.template_name("`define`")?;
        self.expect(TokenKind::Close, "`define`")?;
        self.nested(|parser| parser.named("define", &name, opened))
    }

    /// The body of a template of its own: it knows no variables but its own, and is in no loop.
    fn named(&mut self, keyword: &'static str, name: &[u8], opened: Position) -> Result<(), ParseError> {
        let scope = std::mem::replace(&mut self.scope, Scope::new(()));
        let loops = std::mem::take(&mut self.loops);
        let body = self.body_without_else(keyword, opened)?;
        self.scope = scope;
        self.loops = loops;
        // A template of spaces only does not count if there is another.
        if self.templates.get(name).is_none_or(|known| is_blank(known)) {
            self.templates.insert(name.into(), body);
        } else if !is_blank(&body) {
            let name = quoted(&String::from_utf8_lossy(name));
            return Err(opened.syntax(SyntaxError::Duplicate(name)));
        }
        Ok(())
    }

    fn template_name(&mut self, context: &'static str) -> Result<Box<[u8]>, ParseError> {
        let token = self.take();
        if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
            return Err(unexpected(token, context));
        }
        string(token)
    }
}

fn string(token: Token<'_>) -> Result<Box<[u8]>, ParseError> {
    let bytes = literal::string(token.text).map(Vec::into_boxed_slice);
    bytes.ok_or_else(|| token.at.syntax(SyntaxError::Literal(quoted(token.text))))
}

fn unexpected(token: Token<'_>, context: &'static str) -> ParseError {
    let found = if token.kind == TokenKind::End { "the end".to_owned() } else { quoted(token.text) };
    token.at.syntax(SyntaxError::Unexpected { found, context })
}

/// Whether a template renders to nothing but space.
fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node, Node::Text { text, .. } if text.trim().is_empty()))
}
