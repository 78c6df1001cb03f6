//! The functions of the language: their names, and the arguments that they take.

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    And,
    Call,
    Eq,
    FromJson,
    Ge,
    Gt,
    Html,
    Index,
    Js,
    Json,
    Le,
    Len,
    Lt,
    Ne,
    Not,
    Or,
    Print,
    Printf,
    Println,
    Quote,
    Slice,
    UrlQuery,
}

/// How many arguments a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arity {
    Any,
    AtLeastOne,
    One,
    Two,
}

/// Every function with its name, in the order of names.
const FUNCTIONS: [(&str, Function, Arity); 22] = [
    ("and", Function::And, Arity::AtLeastOne),
    ("call", Function::Call, Arity::AtLeastOne),
    ("eq", Function::Eq, Arity::AtLeastOne),
    ("fromJson", Function::FromJson, Arity::One),
    ("ge", Function::Ge, Arity::Two),
    ("gt", Function::Gt, Arity::Two),
    ("html", Function::Html, Arity::Any),
    ("index", Function::Index, Arity::AtLeastOne),
    ("js", Function::Js, Arity::Any),
    ("json", Function::Json, Arity::One),
    ("le", Function::Le, Arity::Two),
    ("len", Function::Len, Arity::One),
    ("lt", Function::Lt, Arity::Two),
    ("ne", Function::Ne, Arity::Two),
    ("not", Function::Not, Arity::One),
    ("or", Function::Or, Arity::AtLeastOne),
    ("print", Function::Print, Arity::Any),
    ("printf", Function::Printf, Arity::AtLeastOne),
    ("println", Function::Println, Arity::Any),
    ("quote", Function::Quote, Arity::One),
    ("slice", Function::Slice, Arity::AtLeastOne),
    ("urlquery", Function::UrlQuery, Arity::Any),
];

// === impl Function ===

impl Function {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        FUNCTIONS.iter().find(|(known, _, _)| *known == name).map(|(_, function, _)| *function)
    }

    /// All names, in order.
    pub(crate) fn names() -> Vec<&'static str> {
        FUNCTIONS.iter().map(|(name, _, _)| *name).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().map_or("", |(name, _, _)| name)
    }

    pub(crate) fn arity(self) -> Arity {
        self.row().map_or(Arity::Any, |(_, _, arity)| *arity)
    }

    /// Whether its first argument must be a string.
    pub(crate) fn needs_text(self) -> bool {
        matches!(self, Self::FromJson | Self::Printf | Self::Quote)
    }

    fn row(self) -> Option<&'static (&'static str, Self, Arity)> {
        FUNCTIONS.iter().find(|(_, function, _)| *function == self)
    }
}

// === impl Arity ===

impl Arity {
    pub(crate) fn allows(self, count: usize) -> bool {
        match self {
            Self::Any => true,
            Self::AtLeastOne => count >= 1,
            Self::One => count == 1,
            Self::Two => count == 2,
        }
    }

    /// What it allows, in words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Any => "any number of arguments",
            Self::AtLeastOne => "one argument or more",
            Self::One => "one argument",
            Self::Two => "two arguments",
        }
    }
}
