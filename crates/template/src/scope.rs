//! Variables by name, and the blocks that end their life.

use std::collections::BTreeMap;

/// The variable that every template has: the value that it is rendered with.
pub(crate) const ROOT: &str = "$";

/// The variables that are known at a place of a template. An inner one hides an outer one of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Scope<'t, T> {
    // INVARIANT: `declared` has each name as often as `values` has values of it.
    values: BTreeMap<&'t str, Vec<T>>,
    /// Names in the order in which they were declared.
    declared: Vec<&'t str>,
}

// === impl Scope ===

impl<'t, T> Scope<'t, T> {
    /// The scope at the beginning of a template.
    pub(crate) fn new(root: T) -> Self {
        Self { values: BTreeMap::from([(ROOT, vec![root])]), declared: vec![ROOT] }
    }

    pub(crate) fn declare(&mut self, name: &'t str, value: T) {
        self.values.entry(name).or_default().push(value);
        self.declared.push(name);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.values.get(name).and_then(|values| values.last())
    }

    /// The last variable of this name.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.values.get_mut(name).and_then(|values| values.last_mut())
    }

    /// Where a block begins.
    pub(crate) fn mark(&self) -> usize {
        self.declared.len()
    }

    /// Ends a block that began at a mark.
    pub(crate) fn leave(&mut self, mark: usize) {
        for name in self.declared.drain(mark.min(self.declared.len())..) {
            if let Some(values) = self.values.get_mut(name) {
                values.pop();
            }
        }
    }
}
