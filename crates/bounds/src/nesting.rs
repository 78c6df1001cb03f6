//! How deep the tree will be that a parser makes of a sequence of tokens, without making it.
//!
//! A path from the root to a leaf passes the operators of one operand and enters at most one of its brackets. So the height
//! of an operand is at most the number of its operators plus the height of its highest bracket, and what a bracket holds
//! counts for all that hangs on it from outside: `((a.b.c).d.e).f`.

use crate::BoundsError;

/// How many operands that a parser writes out twice may be nested in each other: each doubles its work.
const MOST_DOUBLED: usize = 2;

/// A token, as far as the depth of the tree depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Opens a bracket that the given character closes.
    Open(char),
    /// Closes a bracket.
    Close(char),
    /// Begins a conditional, or is the `?` of one; it lasts until its bracket closes or another element begins.
    Choice,
    /// Begins another argument, element or statement.
    Comma,
    /// Joins operands into a tree that is not deep.
    Join,
    /// Joins operands into a tree in which each operand is one level deeper.
    DeepJoin,
    /// Hangs on what stands before it, as `.name`, `+ 1` and `!` do.
    Link,
    /// Tests a type; the operand before it is written out twice by the parser if [`Token::Within`] follows.
    TypeTest,
    /// Tests membership.
    Within,
    /// Anything else.
    Plain,
}

/// What a [`Nesting`] allows.
#[derive(Clone, Copy, Debug)]
pub struct NestingLimits {
    /// How many brackets and choices may be nested.
    pub depth: usize,
    /// How many operators may follow each other.
    pub chain: usize,
}

/// Follows the tokens of a text and refuses those that lead too deep.
#[derive(Debug)]
pub struct Nesting {
    limits: NestingLimits,
    levels: Vec<Level>,
}

/// What is open at a place: the inside of one bracket, or the whole text.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// What closes it; nothing closes the whole.
    end: Option<char>,
    choices: usize,
    /// Operands of the current element that are joined one below the other.
    joins: usize,
    operand: Operand,
    /// Whether the current operand is a test of a type.
    tests_type: bool,
    /// The most of what the operands before it in the current element are.
    operands: Height,
    /// The most of what the elements before the current one are.
    elements: Height,
}

/// An operand that is not at its end.
#[derive(Clone, Copy, Debug, Default)]
struct Operand {
    /// What its own operators make of it.
    own: Height,
    /// The most of what its closed brackets hold.
    inside: Height,
}

/// The height of a tree.
#[derive(Clone, Copy, Debug, Default)]
struct Height {
    /// Operators that hang on each other.
    links: usize,
    /// Operators that double what hangs on them.
    doubled: usize,
}

// === impl Nesting ===

impl Nesting {
    /// At the beginning of a text.
    pub fn new(limits: NestingLimits) -> Self {
        Self { limits, levels: vec![Level::default()] }
    }

    /// Takes the next token.
    pub fn push(&mut self, token: Token) -> Result<(), BoundsError> {
        self.step(token)?;
        let NestingLimits { depth: deepest, chain: longest } = self.limits;
        let depth: usize = self.levels.iter().map(|level| level.choices + 1).sum();
        if depth > deepest + 1 {
            return Err(BoundsError::Depth { most: deepest });
        }
        let height = self.levels.iter().rev().fold(Height::default(), |inside, level| level.height(inside));
        if height.links > longest {
            return Err(BoundsError::Chain { most: longest });
        }
        if height.doubled > MOST_DOUBLED {
            return Err(BoundsError::Doubled { most: MOST_DOUBLED });
        }
        Ok(())
    }

    /// At the end of a text: every bracket must be closed.
    pub fn finish(&self) -> Result<(), BoundsError> {
        match self.levels.last().and_then(|level| level.end) {
            Some(end) => Err(BoundsError::NotClosed(end)),
            None => Ok(()),
        }
    }

    /// Whether a bracket is open.
    pub fn is_inside(&self) -> bool {
        self.levels.len() > 1
    }

    fn step(&mut self, token: Token) -> Result<(), BoundsError> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        match token {
            Token::Open(end) => {
                level.operand.own.links += 1;
                self.levels.push(Level { end: Some(end), ..Level::default() });
            }
            Token::Close(end) if level.end == Some(end) => {
                let inside = level.height(Height::default());
                self.levels.pop();
                if let Some(outer) = self.levels.last_mut() {
                    outer.operand.inside = outer.operand.inside.max(inside);
                }
            }
            Token::Close(end) => return Err(BoundsError::NotOpen(end)),
            Token::Choice => level.choices += 1,
            Token::Comma => level.next_element(),
            Token::Join => level.next_operand(),
            Token::DeepJoin => {
                level.joins += 1;
                level.next_operand();
            }
            Token::Link => level.operand.own.links += 1,
            Token::TypeTest => {
                level.operand.own.links += 1;
                level.tests_type = true;
            }
            Token::Within => {
                level.operand.own.links += 1;
                level.operand.own.doubled += usize::from(level.tests_type);
            }
            Token::Plain => {}
        }
        Ok(())
    }
}

// === impl Level ===

impl Level {
    /// The height of all that it holds, when a bracket of that height stands at its end.
    fn height(&self, inside: Height) -> Height {
        self.elements.max(self.element(inside))
    }

    fn element(&self, inside: Height) -> Height {
        let Operand { own, inside: closed } = self.operand;
        let operands = self.operands.max(own.plus(closed.max(inside)));
        Height { links: self.joins + operands.links, ..operands }
    }

    fn next_operand(&mut self) {
        let Operand { own, inside } = self.operand;
        self.operands = self.operands.max(own.plus(inside));
        (self.operand, self.tests_type) = (Operand::default(), false);
    }

    fn next_element(&mut self) {
        let elements = self.height(Height::default());
        *self = Self { end: self.end, elements, ..Self::default() };
    }
}

// === impl Height ===

impl Height {
    fn max(self, other: Self) -> Self {
        Self { links: self.links.max(other.links), doubled: self.doubled.max(other.doubled) }
    }

    const fn plus(self, other: Self) -> Self {
        Self { links: self.links + other.links, doubled: self.doubled + other.doubled }
    }
}
