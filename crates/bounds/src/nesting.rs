//! How deep the tree will be that a parser makes of a sequence of tokens, without making it.

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
    /// The operand before it is written out twice by the parser.
    Double,
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
    /// Operands that are joined one below the other.
    joins: usize,
    /// Operators that hang on each other in the current operand.
    links: usize,
    /// How often the current operand doubles something that it holds.
    doubled: usize,
    /// The most of what any operand before it doubled.
    most_doubled: usize,
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
        let chain: usize = self.levels.iter().map(|level| level.joins + level.links).sum();
        if chain > longest {
            return Err(BoundsError::Chain { most: longest });
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
                level.links += 1;
                self.levels.push(Level { end: Some(end), ..Level::default() });
            }
            Token::Close(end) if level.end == Some(end) => {
                let doubled = level.doubled.max(level.most_doubled);
                self.levels.pop();
                if let Some(outer) = self.levels.last_mut() {
                    outer.doubled = outer.doubled.max(doubled);
                }
            }
            Token::Close(end) => return Err(BoundsError::NotOpen(end)),
            Token::Choice => level.choices += 1,
            Token::Comma => {
                (level.choices, level.joins) = (0, 0);
                level.next_operand();
            }
            Token::Join => level.next_operand(),
            Token::DeepJoin => {
                level.joins += 1;
                level.next_operand();
            }
            Token::Link => level.links += 1,
            Token::Double => {
                level.doubled += 1;
                if level.doubled > MOST_DOUBLED {
                    return Err(BoundsError::Doubled { most: MOST_DOUBLED });
                }
            }
            Token::Plain => {}
        }
        Ok(())
    }
}

// === impl Level ===

impl Level {
    fn next_operand(&mut self) {
        self.links = 0;
        self.most_doubled = self.most_doubled.max(self.doubled);
        self.doubled = 0;
    }
}
