//! Where JSON is kept that a template made while it was rendered, so that values can borrow from it like from data.

use std::cell::{Cell, OnceCell};

use serde_json::Value as Json;

/// A place for one JSON value, and for all that come after it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    json: Json,
    next: OnceCell<Box<Self>>,
}

/// Puts JSON into places that live longer than itself.
#[derive(Debug)]
pub(crate) struct Arena<'r> {
    last: Cell<&'r Place>,
}

// === impl Place ===

impl Drop for Place {
    /// One after the other: a long chain would exhaust the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut place) = next {
            next = place.next.take();
        }
    }
}

// === impl Arena ===

impl<'r> Arena<'r> {
    pub(crate) fn new(first: &'r Place) -> Self {
        Self { last: Cell::new(first) }
    }

    pub(crate) fn keep(&self, json: Json) -> &'r Json {
        // INVARIANT: nothing comes after the last place.
        let place = self.last.get().next.get_or_init(|| Box::new(Place { json, next: OnceCell::new() }));
        self.last.set(place);
        &place.json
    }
}
