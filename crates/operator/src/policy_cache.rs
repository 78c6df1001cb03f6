//! A cache of the verdicts of the policy engines, by the policies that they are about.
//!
//! Every plan of a workload checks the policies that it refers to, and a thousand workloads may refer to the same 256 KiB of them:
//! parsing those each time would keep the operator from all other objects.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use skep_plan::canonical;
use skep_plan::world::{Policies, PolicyError};

/// How many verdicts the cache holds; the oldest one is evicted.
const MOST: usize = 1024;

/// The policy engines, with a cache of their verdicts.
#[derive(Debug)]
pub(crate) struct PolicyCache {
    engines: Box<dyn Policies>,
    verdicts: Mutex<Verdicts>,
}

#[derive(Debug, Default)]
struct Verdicts {
    known: HashMap<String, Result<(), PolicyError>>,
    /// The oldest one first.
    order: VecDeque<String>,
}

// === impl PolicyCache ===

impl PolicyCache {
    /// A cache in front of these engines.
    pub(crate) fn new(engines: Box<dyn Policies>) -> Self {
        Self { engines, verdicts: Mutex::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Verdicts) -> T) -> T {
        act(&mut self.verdicts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Policies for PolicyCache {
    fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError> {
        let digest = digest(engine, config);
        if let Some(known) = self.with(|verdicts| verdicts.known.get(&digest).cloned()) {
            return known;
        }
        let verdict = self.engines.check(engine, config);
        self.with(|verdicts| verdicts.add(digest, verdict.clone()));
        verdict
    }
}

// === impl Verdicts ===

impl Verdicts {
    fn add(&mut self, digest: String, verdict: Result<(), PolicyError>) {
        if self.known.insert(digest.clone(), verdict).is_none() {
            self.order.push_back(digest);
        }
        while self.order.len() > MOST {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
    }
}

/// No engine has a line break in its name.
fn digest(engine: &str, config: &Value) -> String {
    canonical::sha256_hex(format!("{engine}\n{config}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// Refuses what says so, and counts what it is asked.
    #[derive(Debug)]
    struct Counting(Arc<AtomicUsize>);

    impl Policies for Counting {
        fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            if config["valid"] == true { Ok(()) } else { Err(PolicyError(format!("{engine}: {config}"))) }
        }
    }

    #[test]
    fn a_policy_is_parsed_once_however_many_workloads_refer_to_it() {
        let count = Arc::new(AtomicUsize::new(0));
        let policies = PolicyCache::new(Box::new(Counting(Arc::clone(&count))));
        let (valid, invalid) = (json!({ "valid": true }), json!({ "valid": false }));
        for _ in 0..100 {
            assert_eq!(policies.check("cedarv1", &valid), Ok(()));
            assert_eq!(policies.check("cedarv1", &invalid).unwrap_err().0, r#"cedarv1: {"valid":false}"#);
            assert_eq!(policies.check("httpv1", &invalid).unwrap_err().0, r#"httpv1: {"valid":false}"#);
        }
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn verdicts_are_bounded() {
        let count = Arc::new(AtomicUsize::new(0));
        let policies = PolicyCache::new(Box::new(Counting(Arc::clone(&count))));
        let check = |number: usize| policies.check("cedarv1", &json!({ "valid": true, "number": number }));
        (0..=MOST).for_each(|number| check(number).unwrap());
        assert_eq!(policies.with(|verdicts| (verdicts.known.len(), verdicts.order.len())), (MOST, MOST));
        check(MOST).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), MOST + 1, "the newest is known");
        check(0).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), MOST + 2, "the oldest was forgotten");
    }
}
