//! What a configuration says about aggregation.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::kinds::ToolOverride;
use skep_api::virtual_config::{Aggregation, ConflictResolution, ToolVisibility, WorkloadTools};
use skep_mcp::list::List;

use super::names::kept;

/// What is put in front of a name unless the configuration says otherwise.
const PREFIX: &str = "{workload}_";

/// The rules of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What happens to names.
    pub strategy: Strategy,
    /// What is put in front of names, where that is; `{workload}` stands for the backend.
    pub prefix: String,
    tools: BTreeMap<String, WorkloadRules>,
    hides_all: bool,
    hides_others: bool,
}

/// What happens to names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Every name gets a prefix.
    Prefix,
    /// Of backends with the same name, the first in this order wins.
    Priority(Vec<String>),
    /// Names stay as they are; those of two backends are not offered.
    Manual,
    /// Names of two backends get a prefix, others stay as they are.
    PrefixOnConflict,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WorkloadRules {
    filter: BTreeSet<String>,
    overrides: BTreeMap<String, ToolOverride>,
    hides_all: bool,
}

// === impl Rules ===

impl Default for Rules {
    fn default() -> Self {
        Self::of(&Aggregation::default())
    }
}

impl Rules {
    /// The rules of a configuration.
    pub fn of(aggregation: &Aggregation) -> Self {
        let config = aggregation.conflict_resolution_config.as_ref();
        let strategy = match aggregation.conflict_resolution {
            ConflictResolution::Prefix => Strategy::Prefix,
            ConflictResolution::Priority => {
                Strategy::Priority(config.map(|config| config.priority_order.clone()).unwrap_or_default())
            }
            ConflictResolution::Manual => Strategy::Manual,
            ConflictResolution::PrefixOnConflict => Strategy::PrefixOnConflict,
        };
        let prefix = config.map(|config| config.prefix_format.as_str()).filter(|prefix| !prefix.is_empty());
        Self {
            strategy,
            prefix: prefix.unwrap_or(PREFIX).to_owned(),
            tools: aggregation.tools.iter().map(|tools| (tools.workload.clone(), WorkloadRules::of(tools))).collect(),
            hides_all: aggregation.exclude_all_tools,
            hides_others: aggregation.default_tool_visibility == Some(ToolVisibility::Deny),
        }
    }

    /// A name with the prefix of a backend.
    pub(super) fn prefixed(&self, backend: &str, name: &str) -> String {
        format!("{}{name}", self.prefix.replace("{workload}", backend))
    }

    /// What clients see instead of a tool of a backend.
    pub(super) fn of_tool(&self, backend: &str, original: &str) -> Option<&ToolOverride> {
        self.tools.get(backend)?.overrides.get(original)
    }

    /// Whether clients do not see a tool, by its name after overrides.
    pub(super) fn hides(&self, backend: &str, name: &str) -> bool {
        if self.hides_all {
            return true;
        }
        match self.tools.get(backend) {
            None => self.hides_others,
            Some(rules) => rules.hides_all || !rules.filter.is_empty() && !rules.filter.contains(name),
        }
    }

    /// Whether a backend of which nothing is known yet may turn out to have what another one has by this name. Then it would be wrong to call that.
    pub(crate) fn may_claim(&self, backend: &str, list: List, name: &str, owner: &str) -> bool {
        if matches!(list, List::Resources | List::ResourceTemplates) {
            return backend < owner;
        }
        let place = |backend: &str| self.rank(backend).unwrap_or(usize::MAX);
        place(backend) < place(owner) || name.starts_with(kept(&self.prefixed(backend, "")))
    }

    /// The place of a backend in the order of priority; the first is 0.
    pub(super) fn rank(&self, backend: &str) -> Option<usize> {
        match &self.strategy {
            Strategy::Priority(order) => order.iter().position(|name| name == backend),
            Strategy::Prefix | Strategy::Manual | Strategy::PrefixOnConflict => None,
        }
    }
}

// === impl WorkloadRules ===

impl WorkloadRules {
    fn of(tools: &WorkloadTools) -> Self {
        Self {
            filter: tools.filter.iter().cloned().collect(),
            overrides: tools.overrides.clone(),
            hides_all: tools.exclude_all,
        }
    }
}
