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
    // Of two steps with one id, the last counts; that there are two is reported elsewhere.
    let known: BTreeMap<&str, &Step> = steps.iter().map(|step| (step.id.as_str(), step)).collect();
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut dependants: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, step) in &known {
        let before: BTreeSet<&str> =
            step.depends_on.iter().map(String::as_str).filter(|id| known.contains_key(id)).collect();
        for other in &before {
            dependants.entry(other).or_default().push(id);
        }
        waiting.insert(id, before);
    }
    // What waits for nothing is done, and what waited for it waits for one less, until nothing is ready.
    let mut ready: Vec<&str> = waiting.iter().filter(|(_, before)| before.is_empty()).map(|(id, _)| *id).collect();
    while let Some(done) = ready.pop() {
        waiting.remove(done);
        for dependant in dependants.get(done).into_iter().flatten() {
            let Some(before) = waiting.get_mut(dependant) else { continue };
            before.remove(done);
            if before.is_empty() {
                ready.push(dependant);
            }
        }
    }
    // INVARIANT: each step that is left waits for one that is left, so following them comes back to a step of the path.
    let mut path: Vec<&str> = vec![steps.iter().map(|step| step.id.as_str()).find(|id| waiting.contains_key(id))?];
    let mut seen = BTreeMap::from([(*path.first()?, 0)]);
    loop {
        let step = known.get(path.last()?)?;
        let next = step.depends_on.iter().map(String::as_str).find(|id| waiting.contains_key(id))?;
        path.push(next);
        if let Some(start) = seen.insert(next, path.len() - 1) {
            return Some(path.split_off(start));
        }
    }
}
