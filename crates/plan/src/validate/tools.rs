//! `MCPToolConfig`: names that no two tools share, and no entry that means nothing.

use std::collections::BTreeMap;

use skep_api::kinds::MCPToolConfigSpec;

use super::Problems;

pub(super) fn problems(spec: &MCPToolConfigSpec) -> Problems {
    let mut problems = Problems::default();
    for (index, name) in spec.tools_filter.iter().enumerate() {
        problems.filled(format_args!("spec.toolsFilter[{index}]"), name, "name a tool, or remove the entry");
    }
    // By the name that clients see, the tool that has it.
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (tool, changes) in &spec.tools_override {
        let place = format!("spec.toolsOverride[{tool}]");
        problems.unless(
            !tool.trim().is_empty(),
            "spec.toolsOverride",
            "a key is empty; write the server's name of the tool",
        );
        let name = changes.name.as_deref().filter(|name| !name.is_empty());
        let description = changes.description.as_deref().filter(|text| !text.is_empty());
        let changes_something = name.is_some() || description.is_some() || changes.annotations.is_some();
        problems.unless(
            changes_something,
            &place,
            "it changes nothing; set name, description or annotations, or remove it",
        );
        if let Some(other) = seen.insert(name.unwrap_or(tool), tool) {
            let name = name.unwrap_or(tool);
            problems.add(
                &place,
                format_args!("`{name}` would be the name of `{other}` too; give one of them another name"),
            );
        }
    }
    problems
}
