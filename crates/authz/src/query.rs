//! A query for the engines: may this caller do this to that?

use serde_json::{Map, Value};
use skep_mcp::list::List;
use skep_mcp::value;

/// The hints of a tool about itself, by the names of the protocol.
pub const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// A kind of thing that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Tools.
    Tool,
    /// Prompts.
    Prompt,
    /// Resources, and templates of them.
    Resource,
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A tool is called.
    Call,
    /// A prompt is fetched.
    Get,
    /// A resource is read, or watched.
    Read,
    /// All of a kind are listed.
    List,
}

/// How messages of a method are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// They are always let through.
    Allow,
    /// A decision is made about what they name.
    Decide(Feature),
    /// A decision is made about each resource that they subscribe to.
    DecideEach(Feature),
    /// They are let through, and a decision is made about each element of the response.
    Filter(List),
    /// They are never let through.
    Deny,
}

/// One query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// What kind of thing it is about.
    pub feature: Feature,
    /// What is done with it.
    pub operation: Operation,
    /// Its name or URI, as it was sent.
    pub id: &'a str,
    /// The arguments of a call.
    pub arguments: Option<&'a Map<String, Value>>,
    /// What is known of a tool.
    pub annotations: Annotations,
    /// The server that it belongs to, where the one that decides is several.
    pub backend: Option<&'a str>,
}

/// What a tool says about itself. What it does not say stays unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Doing it twice is like doing it once.
    pub idempotent: Option<bool>,
    /// It reaches outside of the server.
    pub open_world: Option<bool>,
}

// === impl Feature ===

impl Feature {
    /// Its name in policies and in requests to decision points.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
        }
    }

    /// What a client does with one of its kind.
    pub const fn operation(self) -> Operation {
        match self {
            Self::Tool => Operation::Call,
            Self::Prompt => Operation::Get,
            Self::Resource => Operation::Read,
        }
    }

    /// The kind of the elements of a list.
    pub const fn of_list(list: List) -> Self {
        match list {
            List::Tools => Self::Tool,
            List::Prompts => Self::Prompt,
            List::Resources | List::ResourceTemplates => Self::Resource,
        }
    }
}

// === impl Operation ===

impl Operation {
    /// Its name in policies and in requests to decision points.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Get => "get",
            Self::Read => "read",
            Self::List => "list",
        }
    }
}

// === impl Treatment ===

impl Treatment {
    /// How messages of a method are treated. What is not known is denied: a method of a later protocol may do anything.
    pub fn of(method: &str) -> Self {
        if let Some(list) = List::of(method) {
            return Self::Filter(list);
        }
        match method {
            "tools/call" => Self::Decide(Feature::Tool),
            "prompts/get" => Self::Decide(Feature::Prompt),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Self::Decide(Feature::Resource),
            "subscriptions/listen" => Self::DecideEach(Feature::Resource),
            "initialize"
            | "ping"
            | "roots/list"
            | "features/list"
            | "server/discover"
            | "logging/setLevel"
            | "completion/complete"
            | "notifications/message"
            | "notifications/initialized"
            | "notifications/progress"
            | "notifications/cancelled"
            | "notifications/roots/list_changed"
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/tasks/status" => Self::Allow,
            _ => Self::Deny,
        }
    }
}

// === impl Query ===

impl<'a> Query<'a> {
    /// Whether an element of a list may be used, with arguments that are not known yet.
    pub fn of_element(feature: Feature, id: &'a str, annotations: Annotations) -> Self {
        Self { feature, operation: feature.operation(), id, arguments: None, annotations, backend: None }
    }
}

// === impl Annotations ===

impl Annotations {
    /// The hints of a tool, from its JSON. Other members, and hints that are not booleans, are ignored.
    pub fn of_json(text: &str) -> Self {
        let hint = |name: &str| match value::find(text.as_bytes(), &[name]) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        Self {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        }
    }

    /// The hints that are known, by the names of the protocol.
    pub fn known(self) -> impl Iterator<Item = (&'static str, bool)> {
        let all = [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ];
        all.into_iter().filter_map(|(name, hint)| Some((name, hint?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_treated_as_the_specification_says_and_unknown_ones_are_denied() {
        for (method, treatment) in [
            ("initialize", Treatment::Allow),
            ("ping", Treatment::Allow),
            ("roots/list", Treatment::Allow),
            ("server/discover", Treatment::Allow),
            // The original allows it, whatever it subscribes to.
            ("subscriptions/listen", Treatment::DecideEach(Feature::Resource)),
            ("logging/setLevel", Treatment::Allow),
            ("completion/complete", Treatment::Allow),
            ("features/list", Treatment::Allow),
            ("notifications/message", Treatment::Allow),
            ("notifications/initialized", Treatment::Allow),
            ("notifications/progress", Treatment::Allow),
            ("notifications/cancelled", Treatment::Allow),
            ("notifications/roots/list_changed", Treatment::Allow),
            ("notifications/tools/list_changed", Treatment::Allow),
            ("notifications/prompts/list_changed", Treatment::Allow),
            ("notifications/resources/list_changed", Treatment::Allow),
            ("notifications/resources/updated", Treatment::Allow),
            ("notifications/tasks/status", Treatment::Allow),
            ("tools/call", Treatment::Decide(Feature::Tool)),
            ("prompts/get", Treatment::Decide(Feature::Prompt)),
            ("resources/read", Treatment::Decide(Feature::Resource)),
            ("resources/subscribe", Treatment::Decide(Feature::Resource)),
            ("resources/unsubscribe", Treatment::Decide(Feature::Resource)),
            ("tools/list", Treatment::Filter(List::Tools)),
            ("prompts/list", Treatment::Filter(List::Prompts)),
            ("resources/list", Treatment::Filter(List::Resources)),
            // The original does not filter these.
            ("resources/templates/list", Treatment::Filter(List::ResourceTemplates)),
            ("elicitation/create", Treatment::Deny),
            ("sampling/createMessage", Treatment::Deny),
            ("tasks/get", Treatment::Deny),
            ("tasks/cancel", Treatment::Deny),
            ("tasks/result", Treatment::Deny),
            ("tasks/list", Treatment::Deny),
            ("notifications/elicitation/complete", Treatment::Deny),
            ("notifications/unknown", Treatment::Deny),
            ("Tools/call", Treatment::Deny),
            ("TOOLS/LIST", Treatment::Deny),
            ("Ping", Treatment::Deny),
            ("tools/call ", Treatment::Deny),
            ("", Treatment::Deny),
        ] {
            assert_eq!(Treatment::of(method), treatment, "{method}");
        }
    }

    #[test]
    fn only_hints_that_are_booleans_are_known() {
        let annotations =
            Annotations::of_json(r#"{"readOnlyHint":true,"destructiveHint":"no","title":"x","name":"y"}"#);
        assert_eq!(annotations.known().collect::<Vec<_>>(), [("readOnlyHint", true)]);
        assert_eq!(Annotations::of_json("[]"), Annotations::default());
    }
}
