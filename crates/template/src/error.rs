//! What is wrong with a template, where, and what to do about it.
//!
//! Texts of these errors quote the template, never the data that it is rendered with.

use std::fmt;

use skep_bounds::BoundsError;

/// The most characters of a template that an error quotes.
const QUOTED: usize = 40;

/// A place in the text of a template. Lines and columns count from one; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The character in the line.
    pub column: u32,
}

/// A text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is too large, or nested too deep.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// It does not follow the grammar.
    #[error("{at}: {problem}")]
    Syntax {
        /// Where.
        at: Position,
        /// What is wrong there.
        problem: SyntaxError,
    },
}

/// What does not follow the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The text ends inside an action.
    #[error("this action is not closed; end it with `}}}}`")]
    OpenAction,
    /// The text ends inside a comment.
    #[error("this comment is not closed; end it with `*/}}}}`")]
    OpenComment,
    /// Something follows a comment in its action.
    #[error("a comment fills its action; end it with `*/}}}}` or `*/ -}}}}`")]
    AfterComment,
    /// A string or character is not closed on its line, or at all.
    #[error("this string is not closed; `{0}` is missing")]
    OpenString(char),
    /// An action ends inside parentheses.
    #[error("a parenthesis of this action is not closed; `)` is missing")]
    OpenParenthesis,
    /// A parenthesis is closed that was not opened.
    #[error("`)` closes nothing; remove it, or open its parenthesis")]
    NotOpen,
    /// A name is followed by a character that neither belongs to it nor ends it.
    #[error(
        "`{found}` cannot follow `{name}`; put a space between them, or quote the whole name and read it with `index`, as in `index .steps \"my-step\"`"
    )]
    AfterName {
        /// The name.
        name: String,
        /// The character.
        found: char,
    },
    /// A character that begins no token.
    #[error("`{0}` does not belong into an action; remove it, or put it in quotes")]
    Character(char),
    /// A token that does not fit where it is.
    #[error("`{found}` does not fit into {context}; remove it, or separate it by a space")]
    Unexpected {
        /// The token.
        found: String,
        /// What is being read.
        context: &'static str,
    },
    /// A number that cannot be read, or that is too large.
    #[error(
        "`{0}` is not a number that can be used; write it as in Go, from -9223372036854775808 to 9223372036854775807"
    )]
    Number(String),
    /// An imaginary number.
    #[error("`{0}` is an imaginary number, which are not supported; remove it")]
    Imaginary(String),
    /// A string or character with an escape that Go does not know.
    #[error("`{0}` has an escape or a character that cannot be used; for a backslash write `\\\\`, or use backquotes")]
    Literal(String),
    /// A function that does not exist.
    #[error("there is no function `{name}`; use one of {}", .known.join(", "))]
    Function {
        /// The name.
        name: String,
        /// The functions that there are.
        known: Vec<&'static str>,
    },
    /// A variable that is not declared.
    #[error("`{0}` is not declared here; declare it with `:=` before, in the same block or one around it")]
    Variable(String),
    /// A member of a literal.
    #[error("`{0}` follows a value that has no members; separate it by a space, or remove it")]
    NoMembers(String),
    /// An action or parenthesis without a value.
    #[error("the value is missing in {0}; write one, such as `.params.name`")]
    NoValue(&'static str),
    /// A value is piped into something that is not a function.
    #[error("only a function can stand behind `|`; write its name there")]
    NotExecutable,
    /// More variables are declared than there are values.
    #[error("too many variables in {0}; only `range` has two, an index and an element")]
    TooManyVariables(&'static str),
    /// `range` declares something that is not a variable.
    #[error("`range` declares variables only; write `$index, $element :=`")]
    RangeVariables,
    /// `break` or `continue` without a loop.
    #[error("`{0}` is outside of `range`; remove it")]
    OutsideLoop(&'static str),
    /// A block is not closed.
    #[error("`{0}` is not closed; add `{{{{end}}}}`")]
    OpenBlock(&'static str),
    /// `else` or `end` without a block.
    #[error("`{0}` belongs to no open block; remove it")]
    NoBlock(&'static str),
    /// Two templates have one name.
    #[error("`{0}` is the name of an earlier template; give each its own")]
    Duplicate(String),
}

/// A template cannot be rendered with some data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct RenderError {
    /// Where.
    pub at: Position,
    /// What went wrong there.
    pub problem: EvaluationError,
}

/// What goes wrong while a template is rendered. Types are named as `printf "%T"` names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// It takes too long.
    #[error("it takes more than {most} steps; render less, or in parts")]
    Steps {
        /// The limit.
        most: u64,
    },
    /// It makes a text that is too large.
    #[error("it makes more than {most} bytes; render less")]
    Output {
        /// The limit.
        most: usize,
    },
    /// Templates call each other too deep.
    #[error("more than {most} calls of `template` are nested; end the recursion earlier")]
    Calls {
        /// The limit.
        most: usize,
    },
    /// Lists and objects are nested too deep.
    #[error("a value has more than {most} lists and objects inside each other; use a part of it")]
    Nesting {
        /// The limit.
        most: usize,
    },
    /// A member of null.
    #[error("null has no `.{field}`; test the value with `if` or `with` before")]
    NilField {
        /// The name of the member.
        field: String,
    },
    /// A member of a value that has none.
    #[error("a value of type {found} has no `.{field}`; only objects have members")]
    NoField {
        /// The name of the member.
        field: String,
        /// The type of the value.
        found: &'static str,
    },
    /// A member gets arguments.
    #[error("`.{field}` is not a function, but has arguments; remove them, or separate them by `|`")]
    FieldArguments {
        /// The name of the member.
        field: String,
    },
    /// Something else that is no function gets arguments.
    #[error("only a function takes arguments; remove them, or write the name of a function first")]
    NotAFunction,
    /// `nil` is used alone.
    #[error("`nil` alone is not a value to use; compare with it, as in `eq .a nil`")]
    NilCommand,
    /// An integer does not fit.
    #[error("`{0}` is larger than any integer; write it with a decimal point")]
    Overflow(String),
    /// A variable has no value: the block that declares it was not entered.
    #[error("`{0}` has no value here; declare it with `:=` before, in the same block or one around it")]
    Variable(String),
    /// A template that is called does not exist.
    #[error("there is no template `{0}`; add it with `define`")]
    Template(String),
    /// A function has too many arguments, or too few.
    #[error("`{function}` takes {takes}, not {found}")]
    Arguments {
        /// The function.
        function: &'static str,
        /// What it takes.
        takes: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A function needs a string.
    #[error("`{function}` needs a string, not {found}; convert the value with `print` or `json`")]
    NotAString {
        /// The function.
        function: &'static str,
        /// The type of the argument.
        found: &'static str,
    },
    /// A comparison without a second value.
    #[error("`eq` needs a value to compare with; write it behind the first")]
    NoComparison,
    /// Two types that cannot be compared with each other.
    #[error("values of types {one} and {other} cannot be compared; convert them with `print`, or compare their `len`")]
    Incompatible {
        /// The type of the first.
        one: &'static str,
        /// The type of the second.
        other: &'static str,
    },
    /// Values of a type that has no order, or that cannot be compared at all.
    #[error("values of type {0} cannot be compared; convert them with `json`, or compare their `len`")]
    Incomparable(&'static str),
    /// A part of a value that has none.
    #[error("`{function}` cannot be used on a value of type {found}; use it on {wanted}")]
    NoParts {
        /// The function.
        function: &'static str,
        /// The type of the value.
        found: &'static str,
        /// The types that it can be used on.
        wanted: &'static str,
    },
    /// An index of the wrong type.
    #[error("a value of type {found} is not an index of {of}; use {wanted}")]
    IndexType {
        /// The type of the index.
        found: &'static str,
        /// What is indexed.
        of: &'static str,
        /// The type that it needs.
        wanted: &'static str,
    },
    /// An index that is out of range.
    #[error("index {index} is out of range, there are {length} elements; test `len` before")]
    IndexRange {
        /// The index.
        index: i64,
        /// How many elements there are.
        length: usize,
    },
    /// Bounds of a slice in the wrong order, or too many.
    #[error("`slice` cannot take these bounds; write at most three, the smallest first, and two for a string")]
    SliceBounds,
    /// A value that is not a collection.
    #[error("`range` cannot go through a value of type {0}; use it on a list, an object or an integer")]
    Range(&'static str),
    /// An integer has no index.
    #[error("`range` over an integer has one variable; remove the other")]
    RangeVariables,
    /// `call` on what is not a function.
    #[error("`call` needs a function, and values of type {0} are none; write the function's name first")]
    Call(&'static str),
    /// A text that is not JSON.
    #[error("`fromJson` got a text that is not JSON: {0}")]
    NotJson(String),
}

// === impl Position ===

impl Position {
    /// An error of the grammar at this place.
    pub(crate) fn syntax(self, problem: SyntaxError) -> ParseError {
        ParseError::Syntax { at: self, problem }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

// === impl EvaluationError ===

impl EvaluationError {
    /// This error at a place of the template.
    pub(crate) fn at(self, at: Position) -> RenderError {
        RenderError { at, problem: self }
    }
}

/// As much of a template's text as an error quotes, in one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED).map(|next| if next.is_control() { ' ' } else { next }).collect();
    if text.chars().nth(QUOTED).is_some() {
        quoted.push('…');
    }
    quoted
}
