//! Which resources a change of one concerns: itself, and those that refer to it.

use skep_api::kinds::DiscoveredBackend;
use skep_plan::kinds;

use super::Entry;

/// Whether a resource itself must be reconciled: everything but its own status counts.
pub(super) fn concerns_itself(before: &Entry, after: &Entry) -> bool {
    let (old, new) = (before.metadata(), after.metadata());
    old.uid != new.uid
        || old.generation != new.generation
        || old.annotations != new.annotations
        || old.finalizers != new.finalizers
        || old.deletion_timestamp != new.deletion_timestamp
        || matches!(before, Entry::Unreadable { .. }) != matches!(after, Entry::Unreadable { .. })
        || reported(before) != reported(after)
}

/// The part of a status that another program writes and a plan reads.
fn reported(entry: &Entry) -> Option<Vec<DiscoveredBackend>> {
    entry.resource().and_then(|resource| kinds::reported(&resource).map(<[_]>::to_vec))
}

/// Whether those that refer to a resource must be reconciled: its spec, its end, and the little of its status that others read.
pub(super) fn concerns_others(before: &Entry, after: &Entry) -> bool {
    let (old, new) = (before.metadata(), after.metadata());
    let shown = |entry: &Entry| match entry {
        Entry::Readable(_) => entry.resource().and_then(|resource| kinds::shown(&resource)),
        Entry::Unreadable { problem, .. } => Some((problem.clone(), None)),
    };
    old.uid != new.uid
        || old.generation != new.generation
        || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
        || shown(before) != shown(after)
}
