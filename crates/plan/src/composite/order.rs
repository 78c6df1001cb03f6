//! Whether the steps of a composite tool can be put in an order: distinct names, known dependencies, no circle.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::kinds::Step;

use crate::validate::Problems;

/// What keeps the steps from being put in an order.
pub(super) fn problems(steps: &[Step]) -> Problems {
    let mut problems = Problems::default();
    let mut seen = BTreeSet::new();
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| !step.id.is_empty()) {
        let problem = format_args!("`{}` is the id of an earlier step; give each step its own", step.id);
        problems.unless(seen.insert(step.id.as_str()), format_args!("steps[{index}].id"), problem);
    }
    for (index, step) in steps.iter().enumerate() {
        for unknown in step.depends_on.iter().filter(|id| !seen.contains(id.as_str())) {
            let problem = format_args!("there is no step `{unknown}`; name the id of another step");
            problems.add(format_args!("steps[{index}].dependsOn"), problem);
        }
    }
    if let Some(circle) = circle(steps) {
        let steps = circle.join("` → `");
        problems.add("steps", format_args!("`{steps}` wait for each other; remove one of these dependencies"));
    }
    problems
}

/// The first steps that wait for each other in a circle, the first one named again at the end.
fn circle(steps: &[Step]) -> Option<Vec<&str>> {
    let mut waiting: BTreeMap<&str, Vec<&str>> =
        steps.iter().map(|step| (step.id.as_str(), step.depends_on.iter().map(String::as_str).collect())).collect();
    let known: BTreeSet<&str> = waiting.keys().copied().collect();
    for before in waiting.values_mut() {
        before.retain(|id| known.contains(id));
    }
    // Whatever waits for nothing is done, until all are or nothing moves.
    loop {
        let done: BTreeSet<&str> = waiting.iter().filter(|(_, before)| before.is_empty()).map(|(id, _)| *id).collect();
        if done.is_empty() {
            break;
        }
        waiting.retain(|id, _| !done.contains(id));
        for before in waiting.values_mut() {
            before.retain(|id| !done.contains(id));
        }
    }
    // INVARIANT: each step that is left waits for one that is left, so following them comes back to a step of the path.
    let mut path: Vec<&str> = vec![steps.iter().map(|step| step.id.as_str()).find(|id| waiting.contains_key(id))?];
    loop {
        let next = *waiting.get(path.last()?)?.first()?;
        let start = path.iter().position(|id| *id == next);
        path.push(next);
        if let Some(start) = start {
            return Some(path.split_off(start));
        }
    }
}
