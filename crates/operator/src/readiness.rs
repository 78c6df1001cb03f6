//! Whether this process can fill its role, as `/readyz` reports it: a standby can take over, a leader has synced its caches.
//!
//! A check that failed makes the process unready. One that is degraded concerns a single kind of resource, which the operator does
//! without: it shows in `/readyz?verbose`, in a metric and in the log, and the rest goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The checks of this process. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, Check>>>);

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// All is well; a detail to show.
    Passed(String),
    /// The process does without it; why.
    Degraded(String),
    /// The process cannot fill its role; why.
    Failed(String),
}

// === impl Readiness ===

impl Readiness {
    /// Sets the result of a check. Returns whether it is another one than before.
    pub fn set(&self, name: &str, check: Check) -> bool {
        let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = checks.get(name) != Some(&check);
        checks.insert(name.to_owned(), check);
        is_new
    }

    /// Whether the process can fill its role. One without any checks has none yet.
    pub fn is_ready(&self) -> bool {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !checks.is_empty() && !checks.values().any(|check| matches!(check, Check::Failed(_)))
    }

    /// All checks, a line each.
    pub fn report(&self) -> String {
        let mut report = String::new();
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, check) in &checks {
            let _infallible = match check {
                Check::Passed(detail) if detail.is_empty() => writeln!(report, "[+]{name} ok"),
                Check::Passed(detail) => writeln!(report, "[+]{name} ok: {detail}"),
                Check::Degraded(why) => writeln!(report, "[!]{name} degraded: {why}"),
                Check::Failed(why) => writeln!(report, "[-]{name} failed: {why}"),
            };
        }
        report.push_str(if self.is_ready() { "readyz check passed\n" } else { "readyz check failed\n" });
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_no_check_failed_and_degraded_ones_are_listed() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready(), "a process without a role");
        assert!(readiness.set("cache/secrets", Check::Failed("not synced yet".into())));
        assert!(readiness.set("cache/mcpservers", Check::Degraded("forbidden".into())));
        assert!(!readiness.is_ready());
        assert!(readiness.set("cache/secrets", Check::Passed(String::new())));
        assert!(!readiness.set("cache/secrets", Check::Passed(String::new())), "nothing new");
        assert!(readiness.is_ready());
        let expected = "[!]cache/mcpservers degraded: forbidden\n[+]cache/secrets ok\nreadyz check passed\n";
        assert_eq!(readiness.report(), expected);
    }
}
