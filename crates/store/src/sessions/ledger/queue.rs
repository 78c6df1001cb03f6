//! A linked queue with removal at any position. The links are kept with the members.

/// The neighbours of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    before: Option<u64>,
    after: Option<u64>,
}

/// The ends of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    first: Option<u64>,
    last: Option<u64>,
}

impl Links {
    /// Whether this member is the last one.
    pub(super) fn is_last(self) -> bool {
        self.after.is_none()
    }
}

impl Queue {
    pub(super) fn first(&self) -> Option<u64> {
        self.first
    }

    /// Appends a member. `change` changes the links of a member.
    pub(super) fn push(&mut self, key: u64, mut change: impl FnMut(u64, &mut dyn FnMut(&mut Links))) {
        let before = self.last.replace(key);
        match before {
            Some(before) => change(before, &mut |links| links.after = Some(key)),
            None => self.first = Some(key),
        }
        change(key, &mut |links| *links = Links { before, after: None });
    }

    /// Removes the member with these links.
    pub(super) fn remove(&mut self, member: Links, mut change: impl FnMut(u64, &mut dyn FnMut(&mut Links))) {
        let Links { before, after } = member;
        match before {
            Some(before) => change(before, &mut |links| links.after = after),
            None => self.first = after,
        }
        match after {
            Some(after) => change(after, &mut |links| links.before = before),
            None => self.last = before,
        }
    }
}
