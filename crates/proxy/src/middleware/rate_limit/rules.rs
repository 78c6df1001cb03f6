//! Which buckets a request takes from. Pure.

use std::collections::BTreeMap;

use skep_mcp::{Kind, Message};
use skep_runconfig::GoDuration;
use skep_runconfig::run_config::{RateLimitBucket, RateLimitConfig, ToolRateLimit};
use skep_store::buckets::{Bucket, Limit};

/// The name that stands for all that have no entry of their own, for prompts and resources.
const ANY: &str = "*";

/// The limits of one server.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) namespace: String,
    pub(super) server: String,
    /// Of calls of tools, whichever.
    all: Pair,
    tools: BTreeMap<String, Pair>,
    prompts: BTreeMap<String, Pair>,
    resources: BTreeMap<String, Pair>,
}

/// A limit for all clients together, and one for each.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    shared: Option<Limit>,
    per_user: Option<Limit>,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A tool is called.
    Tool,
    /// A prompt is requested.
    Prompt,
    /// A resource is read.
    Resource,
}

/// Which limit a bucket is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All clients, all tools.
    SharedServer,
    /// All clients, one name.
    SharedNamed(Operation),
    /// One client, all tools.
    UserServer,
    /// One client, one name.
    UserNamed(Operation),
}

/// A token of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) scope: Scope,
    pub(super) bucket: Bucket,
}

// === impl Rules ===

impl Rules {
    pub(super) fn new(limits: &RateLimitConfig, namespace: &str, server: &str) -> Result<Self, String> {
        let rules = Self {
            namespace: namespace.to_owned(),
            server: server.to_owned(),
            all: Pair::new(limits.shared.as_ref(), limits.per_user.as_ref())?,
            tools: named("tools", &limits.tools)?,
            prompts: named("prompts", &limits.prompts)?,
            resources: named("resources", &limits.resources)?,
        };
        let is_empty =
            rules.all.is_empty() && [&rules.tools, &rules.prompts, &rules.resources].iter().all(|list| list.is_empty());
        if is_empty {
            Err("there is no limit; set shared, perUser, tools, prompts or resources".to_owned())
        } else {
            Ok(rules)
        }
    }

    /// The buckets that a request takes from, in the order in which an empty one is named. Without a subject there are none of users.
    pub(super) fn charges(&self, operation: Operation, name: &str, subject: Option<&str>) -> Vec<Charge> {
        let (list, kind) = match operation {
            Operation::Tool => (&self.tools, "tool"),
            Operation::Prompt => (&self.prompts, "prompt"),
            Operation::Resource => (&self.resources, "resource"),
        };
        let all = if operation == Operation::Tool { self.all } else { Pair::default() };
        // The key of an entry for all names is of that entry: clients choose names, and cannot choose buckets by them.
        let (name, entry) = match list.get(name) {
            Some(entry) => (name, *entry),
            None if operation == Operation::Tool => (name, Pair::default()),
            None => (ANY, list.get(ANY).copied().unwrap_or_default()),
        };
        let user = |limit: Option<Limit>| limit.zip(subject);
        let taken = [
            all.shared.map(|limit| (Scope::SharedServer, "shared".to_owned(), limit)),
            entry.shared.map(|limit| (Scope::SharedNamed(operation), format!("shared:{kind}:{name}"), limit)),
            user(all.per_user).map(|(limit, subject)| (Scope::UserServer, format!("user:{subject}"), limit)),
            user(entry.per_user)
                .map(|(limit, subject)| (Scope::UserNamed(operation), format!("user-{kind}:{name}:{subject}"), limit)),
        ];
        let charge =
            |(scope, key, limit): (_, String, _)| Charge { scope, bucket: Bucket { key: self.key(&key), limit } };
        taken.into_iter().flatten().map(charge).collect()
    }

    /// The hash tag keeps all buckets of a server in one slot of a cluster, so that one script can take from all.
    fn key(&self, rest: &str) -> String {
        format!("thv:rl:{{{}:{}}}:{rest}", self.namespace, self.server)
    }
}

fn named(list: &str, entries: &[ToolRateLimit]) -> Result<BTreeMap<String, Pair>, String> {
    let pair = |entry: &ToolRateLimit| {
        let pair = Pair::new(entry.shared.as_ref(), entry.per_user.as_ref());
        match pair {
            Ok(pair) if !pair.is_empty() => Ok((entry.name.clone(), pair)),
            Ok(_) => Err(format!("{list} `{}`: set shared or perUser", entry.name)),
            Err(problem) => Err(format!("{list} `{}`: {problem}", entry.name)),
        }
    };
    entries.iter().map(pair).collect()
}

// === impl Pair ===

impl Pair {
    fn new(shared: Option<&RateLimitBucket>, per_user: Option<&RateLimitBucket>) -> Result<Self, String> {
        let limit = |place: &str, bucket: Option<&RateLimitBucket>| {
            bucket.map(|bucket| limit(bucket).map_err(|problem| format!("{place}: {problem}"))).transpose()
        };
        Ok(Self { shared: limit("shared", shared)?, per_user: limit("perUser", per_user)? })
    }

    fn is_empty(&self) -> bool {
        self.shared.is_none() && self.per_user.is_none()
    }
}

fn limit(bucket: &RateLimitBucket) -> Result<Limit, String> {
    let text = &bucket.refill_period;
    let period = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
    let period = period.ok_or_else(|| format!("refillPeriod `{text}` is not a duration; write it like `1m`"))?;
    let tokens = u32::try_from(bucket.max_tokens).unwrap_or_default();
    Limit::new(tokens, period).map_err(|error| error.to_string())
}

// === impl Operation ===

impl Operation {
    /// What a message does, if that is limited. A notification is counted like a request.
    pub(super) fn of(message: &Message) -> Option<Self> {
        if !matches!(message.kind(), Kind::Request | Kind::Notification) {
            return None;
        }
        match message.method()? {
            "tools/call" => Some(Self::Tool),
            "prompts/get" => Some(Self::Prompt),
            "resources/read" => Some(Self::Resource),
            _ => None,
        }
    }

    /// Its name in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
        }
    }
}

// === impl Scope ===

impl Scope {
    /// Its name in metrics and logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SharedServer => "shared_server",
            Self::SharedNamed(Operation::Tool) => "shared_tool",
            Self::SharedNamed(Operation::Prompt) => "shared_prompt",
            Self::SharedNamed(Operation::Resource) => "shared_resource",
            Self::UserServer => "per_user_server",
            Self::UserNamed(Operation::Tool) => "per_user_tool",
            Self::UserNamed(Operation::Prompt) => "per_user_prompt",
            Self::UserNamed(Operation::Resource) => "per_user_resource",
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_runconfig::{Field as _, Json};

    use super::*;

    fn rules(json: &str) -> Rules {
        let limits = RateLimitConfig::read(Json::from_slice(json.as_bytes()).unwrap()).unwrap();
        Rules::new(&limits, "ns", "srv").unwrap()
    }

    fn keys(rules: &Rules, operation: Operation, name: &str, subject: Option<&str>) -> Vec<String> {
        let charges = rules.charges(operation, name, subject);
        charges
            .into_iter()
            .map(|charge| charge.bucket.key.strip_prefix("thv:rl:{ns:srv}:").unwrap().to_owned())
            .collect()
    }

    const ALL: &str = r#"{"shared":{"maxTokens":1,"refillPeriod":"1m0s"},"perUser":{"maxTokens":2,"refillPeriod":"1h"},
        "tools":[{"name":"a","shared":{"maxTokens":3,"refillPeriod":"1s"},"perUser":{"maxTokens":4,"refillPeriod":"1s"}}],
        "prompts":[{"name":"p","perUser":{"maxTokens":1,"refillPeriod":"1s"}}],
        "resources":[{"name":"*","shared":{"maxTokens":1,"refillPeriod":"1s"}},{"name":"db://x","perUser":{"maxTokens":1,"refillPeriod":"1s"}}]}"#;

    #[test]
    fn the_keys_and_their_order_are_those_of_the_original() {
        let rules = rules(ALL);
        let all = ["shared", "shared:tool:a", "user:ada", "user-tool:a:ada"];
        assert_eq!(keys(&rules, Operation::Tool, "a", Some("ada")), all);
        assert_eq!(keys(&rules, Operation::Tool, "b", Some("ada")), ["shared", "user:ada"]);
        assert_eq!(keys(&rules, Operation::Tool, "a", None), ["shared", "shared:tool:a"]);
        let scopes: Vec<_> =
            rules.charges(Operation::Tool, "a", Some("ada")).iter().map(|charge| charge.scope.name()).collect();
        assert_eq!(scopes, ["shared_server", "shared_tool", "per_user_server", "per_user_tool"]);
    }

    #[test]
    fn prompts_and_resources_have_limits_of_their_own_only() {
        let rules = rules(ALL);
        assert_eq!(keys(&rules, Operation::Prompt, "p", Some("ada")), ["user-prompt:p:ada"]);
        assert!(keys(&rules, Operation::Prompt, "q", Some("ada")).is_empty());
        assert_eq!(keys(&rules, Operation::Resource, "db://x", Some("ada")), ["user-resource:db://x:ada"]);
        for name in ["db://y", "db://z", "*"] {
            assert_eq!(keys(&rules, Operation::Resource, name, Some("ada")), ["shared:resource:*"], "{name}");
        }
    }
}
