//! The pods of each resource, and what runs for it.
//!
//! Why the kubelet rejected or evicted a pod is remembered beyond the pod: the controller of a StatefulSet deletes it and makes another
//! of the same name, and the reason is the same until one of them is ready.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::kinds::Backend;
use skep_plan::world::{Live, LivePod, LiveWorkload, PodState};

use super::{ChildFacts, ChildId, PodFacts, PodId, State, Wake, backend_owner, owner_key};

impl State {
    pub(in crate::store) fn put_pod(&mut self, mut facts: PodFacts) -> Wake {
        let id = facts.id.clone();
        let before = self.pods.get(&id);
        let known = before.filter(|before| before.uid == facts.uid).and_then(|before| before.settling.as_ref());
        facts.settling = facts.settling.map(|settling| settling.observed(known, Timestamp::now()));
        if before == Some(&facts) {
            return Wake::default();
        }
        let mut wake = Wake::default();
        if let Some(before) = before.cloned() {
            self.forget_ends_before(&before);
            if before.owner != facts.owner {
                // Its labels were changed: it runs for another resource now, and its ends are none of the first one's.
                wake = self.remove_pod(&id);
                self.retain_ends(&before.owner, |end| end.id != before.id);
            }
        }
        self.note_end(&facts);
        let owner = facts.owner.clone();
        self.pods_of.entry(owner.clone()).or_default().insert(id.clone());
        self.pods.insert(id, facts);
        wake.now.insert(owner);
        self.known_only(wake)
    }

    pub(in crate::store) fn remove_pod(&mut self, id: &PodId) -> Wake {
        let Some(facts) = self.pods.remove(id) else { return Wake::default() };
        if let Some(ids) = self.pods_of.get_mut(&facts.owner) {
            ids.remove(id);
            if ids.is_empty() {
                self.pods_of.remove(&facts.owner);
            }
        }
        self.forget_ends_before(&facts);
        if !facts.keeps_name || !self.resources.contains_key(&facts.owner) {
            self.retain_ends(&facts.owner, |end| end.id != facts.id);
        }
        self.known_only(Wake { now: BTreeSet::from([facts.owner]), soon: BTreeSet::new() })
    }

    /// What runs for a resource, and when that changes by itself.
    pub(super) fn live(&self, key: &Key, children: &BTreeMap<ChildId, ChildFacts>) -> (Live, Option<Timestamp>) {
        let mine = |kind| children.iter().find(|(id, _)| id.kind == kind).and_then(|(_, facts)| facts.workload.clone());
        let uid = self.resources.get(key).and_then(|entry| entry.metadata().uid.as_deref());
        let (backend, theirs) = match self.stateful_set_of(key) {
            Some(facts) if !facts.is_backend_of(&key.name, uid) => (None, Some(facts)),
            backend => (backend, None),
        };
        let conflict = theirs.map(|facts| (Backend::KIND, key.name.clone(), facts.owner_text()));
        let mut live = Live {
            workload: mine(ChildKind::Deployment).or_else(|| mine(ChildKind::StatefulSet)),
            backend: backend.and_then(|facts| facts.workload.clone()),
            unmade: children
                .iter()
                .filter(|(id, _)| id.kind == ChildKind::Service)
                .find_map(|(_, facts)| facts.upstream.clone()),
            name_conflicts: conflict.into_iter().collect(),
            services: children.keys().filter(|id| id.kind == ChildKind::Service).map(|id| id.name.clone()).collect(),
            possible_users: self.possible_users(key),
            unlisted: self.unlisted(&key.namespace),
            ..Live::default()
        };
        let (now, mut settles) = (Timestamp::now(), None::<Timestamp>);
        for facts in self.pods_of.get(key).into_iter().flatten().filter_map(|id| self.pods.get(id)) {
            if let Some(from) = facts.hangs_from {
                let workload = if facts.is_backend { &mut live.backend } else { &mut live.workload };
                match workload {
                    Some(workload) if from <= now => workload.hanging.push(facts.id.name.clone()),
                    _ => settles = settles.into_iter().chain(Some(from).filter(|from| *from > now)).min(),
                }
            }
            let Some((pod, until)) = facts.live(now) else { continue };
            settles = settles.into_iter().chain(until).min();
            let pods = if facts.is_backend { &mut live.backend_pods } else { &mut live.pods };
            pods.push(pod);
        }
        count_settled(live.workload.as_mut(), &live.pods);
        count_settled(live.backend.as_mut(), &live.backend_pods);
        for facts in self.ends.get(key).into_iter().flat_map(BTreeMap::values) {
            let workload = if facts.is_backend { &mut live.backend } else { &mut live.workload };
            if let Some(workload) = workload {
                workload.ended.extend(facts.ended());
            }
        }
        (live, settles)
    }

    /// The StatefulSet with the name under which the proxy of a resource makes one, whichever its owner is; nothing for a kind whose
    /// proxies make none.
    fn stateful_set_of(&self, key: &Key) -> Option<&ChildFacts> {
        let id = ChildId { kind: Backend::KIND, namespace: key.namespace.clone(), name: key.name.clone() };
        self.children.get(&id).filter(|_| backend_owner(&id).as_ref() == Some(key))
    }

    /// Remembers why the kubelet rejected or evicted a pod. The first of several ends of one name that have the same reason stands for
    /// all of them: their messages count what was in use at the time, and each would be a write of the status.
    fn note_end(&mut self, facts: &PodFacts) {
        let Some(end) = &facts.end else { return };
        let ends = self.ends.entry(facts.owner.clone()).or_default();
        let is_known = ends.get(&facts.id).is_some_and(|known| {
            known.is_sibling(facts) && known.end.as_ref().is_some_and(|known| known.reason == end.reason)
        });
        if !is_known {
            ends.insert(facts.id.clone(), facts.clone());
        }
    }

    /// A pod changes or goes. If it was ready until now, its template has got over the ends of the pods before it.
    fn forget_ends_before(&mut self, pod: &PodFacts) {
        if pod.is_ready(Timestamp::now()) {
            self.retain_ends(&pod.owner, |end| !end.is_sibling(pod));
        }
    }

    /// A workload is gone, and no pod of it comes back under its name.
    pub(super) fn forget_ends_of_workload(&mut self, id: &ChildId, facts: &ChildFacts) {
        if id.kind != ChildKind::StatefulSet {
            return;
        }
        let served = facts.serves.as_ref().and_then(|name| Backend::owner(&id.namespace, name));
        for owner in owner_key(id, facts).into_iter().chain(served) {
            self.retain_ends(&owner, |end| !end.keeps_name);
        }
    }

    fn retain_ends(&mut self, owner: &Key, is_kept: impl Fn(&PodFacts) -> bool) {
        let Some(ends) = self.ends.get_mut(owner) else { return };
        ends.retain(|_, end| is_kept(end));
        if ends.is_empty() {
            self.ends.remove(owner);
        }
    }
}

/// Takes those pods out of a workload's count of ready ones that do not count as ready yet. Its controller counts a container without a
/// readiness probe from its start, in a crash loop again and again.
fn count_settled(workload: Option<&mut LiveWorkload>, pods: &[LivePod]) {
    // Where no pod is seen, the count says what there is to know.
    let Some(workload) = workload.filter(|_| !pods.is_empty()) else { return };
    let ready = pods.iter().filter(|pod| pod.state == PodState::Ready).count();
    workload.ready = workload.ready.min(i32::try_from(ready).unwrap_or(i32::MAX));
}
