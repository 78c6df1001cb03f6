//! The results of a suite on one path, and how the paths differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The time that ends the name of a directory, such as `-2026-11-16T02-24-52-224Z`.
const TIME: usize = 25;
/// Scenarios of an extension that the fixture's SDK does not serve. They count for no revision.
const NOT_SERVED: &str = "tasks-";

/// Scenarios for servers on this machine only, which count as failures of others.
const ELSEWHERE: &str = "non-localhost-url";

/// Closing the stream of a response, so that its client resumes it. Impossible for a stdio server; and a virtual server resumes the streams of
/// its backends by itself, so that those of its clients do not break.
const RESUMING: &str = "server-sse-disconnect-resume";

/// What came out of each scenario.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<String, Vec<Check>>);

/// One check of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    id: String,
    status: String,
    #[serde(default)]
    error_message: Option<String>,
    #[serde(default)]
    details: Value,
}

// === impl Check ===

impl Check {
    /// Whether the suite does not try this at such a URL.
    fn was_not_run(&self) -> bool {
        self.details.get("reason").and_then(Value::as_str) == Some(ELSEWHERE)
    }

    /// Whether it is impossible on this path, which the suite only reports.
    fn cannot_be(&self, way: &str) -> bool {
        let has_none = way.ends_with("stdio") || way == "vmcp";
        self.was_not_run() || (has_none && self.id == RESUMING && self.status == "INFO")
    }

    fn passed(&self) -> bool {
        self.status == "SUCCESS"
    }

    fn failed(&self) -> bool {
        self.status == "FAILURE"
    }

    fn words(&self) -> &str {
        let beside = || self.details.get("message")?.as_str();
        self.error_message.as_deref().or_else(beside).unwrap_or("it does not say why")
    }
}

// === impl Results ===

impl Results {
    /// Reads what a suite wrote: a directory for each scenario, with a list of checks.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let mut scenarios = BTreeMap::new();
        for entry in fs::read_dir(directory).context("the suite wrote no results")? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = name.strip_prefix("server-").unwrap_or(&name);
            let scenario = name.get(..name.len().saturating_sub(TIME)).unwrap_or(name).to_owned();
            let text = fs::read_to_string(entry.path().join("checks.json"))?;
            let mut checks: Vec<Check> =
                serde_json::from_str(&text).with_context(|| format!("the checks of `{scenario}`"))?;
            for check in checks.iter_mut().filter(|check| check.was_not_run()) {
                "INFO".clone_into(&mut check.status);
            }
            if !scenario.starts_with(NOT_SERVED) {
                scenarios.insert(scenario, checks);
            }
        }
        ensure!(!scenarios.is_empty(), "the suite ran no scenario");
        Ok(Self(scenarios))
    }

    fn checks(&self, scenario: &str) -> &[Check] {
        self.0.get(scenario).map_or(&[], Vec::as_slice)
    }

    fn count(&self, which: impl Fn(&Check) -> bool) -> usize {
        self.0.values().flatten().filter(|check| which(check)).count()
    }
}

/// Scenarios by ways: how many checks passed, and how many failed if any did.
pub(super) fn table(all: &[(&str, Results)]) -> String {
    let cell = |passed: usize, failed: usize| match failed {
        0 => format!("{passed}"),
        _ => format!("{passed}, {failed} failed"),
    };
    let mut table = format!("{:<46}", "");
    // Writing to a text does not fail.
    let mut row = |name: &str, cells: Vec<String>| {
        let _written = write!(table, "\n{name:<46}");
        for cell in cells {
            let _written = write!(table, " {cell:>13}");
        }
    };
    row("passed checks", all.iter().map(|(name, _)| (*name).to_owned()).collect());
    let scenarios: BTreeSet<&String> = all.iter().flat_map(|(_, results)| results.0.keys()).collect();
    for scenario in scenarios {
        let cells = all.iter().map(|(_, results)| {
            let checks = results.checks(scenario);
            let count = |which: fn(&Check) -> bool| checks.iter().filter(|check| which(check)).count();
            cell(count(Check::passed), count(Check::failed))
        });
        row(scenario, cells.collect());
    }
    row(
        "all",
        all.iter().map(|(_, results)| cell(results.count(Check::passed), results.count(Check::failed))).collect(),
    );
    table.trim_start().to_owned()
}

/// How a path falls short of the first one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Worse {
    /// Checks that do not pass or are left out, as text.
    pub(super) failures: Vec<String>,
    /// Checks that are impossible on a path, as text.
    pub(super) warnings: Vec<String>,
}

/// What the first way gives and another does not, and what the first one lacks itself.
pub(super) fn worse(all: &[(&str, Results)]) -> Worse {
    let mut worse = Worse::default();
    let Some(((direct_name, direct), others)) = all.split_first() else { return worse };
    // A fixture that fails by itself proves nothing about the paths to it.
    for (scenario, checks) in &direct.0 {
        for check in checks.iter().filter(|check| check.failed()) {
            worse.failures.push(format!("{scenario}, {direct_name}: {} fails: {}", check.id, check.words()));
        }
    }
    for (name, results) in others {
        for (scenario, expected) in &direct.0 {
            let checks = results.checks(scenario);
            let fails_anyway = |id: &str| expected.iter().any(|check| check.id == id && check.failed());
            for check in checks.iter().filter(|check| check.failed() && !fails_anyway(&check.id)) {
                worse.failures.push(format!("{scenario}, {name}: {} fails: {}", check.id, check.words()));
            }
            let passed: BTreeSet<&String> =
                expected.iter().filter(|check| check.passed()).map(|check| &check.id).collect();
            for id in passed {
                let found: Vec<&Check> = checks.iter().filter(|check| check.id == *id).collect();
                // One id may stand for several checks, of which some are only informational on the first path, too.
                let is_new = |check: &Check| !expected.iter().any(|one| one.id == *id && one.status == check.status);
                let less = |check: &Check| matches!(check.status.as_str(), "WARNING" | "INFO") && is_new(check);
                match found.iter().find(|check| less(check)) {
                    Some(check) if check.cannot_be(name) => {
                        worse.warnings.push(format!("{scenario}, {name}: {id} cannot be: {}", check.words()));
                    }
                    Some(check) => {
                        let (status, words) = (check.status.to_lowercase(), check.words());
                        worse.failures.push(format!("{scenario}, {name}: {id} is only of status {status}: {words}"));
                    }
                    None if found.iter().any(|check| check.passed() || check.failed()) => {}
                    None => worse.failures.push(format!("{scenario}, {name}: {id} was not checked")),
                }
            }
        }
    }
    worse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(checks: &[(&str, &str)]) -> Results {
        let checks = checks.iter().map(|(id, status)| Check {
            id: (*id).to_owned(),
            status: (*status).to_owned(),
            error_message: (*status == "FAILURE").then(|| "broken".to_owned()),
            details: Value::Null,
        });
        Results(BTreeMap::from([("ping".to_owned(), checks.collect())]))
    }

    #[test]
    fn a_check_that_was_not_run_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("server-a-2026-11-16T02-24-52-224Z");
        fs::create_dir(&place).unwrap();
        let checks = r#"[{"id":"x","status":"FAILURE","errorMessage":"no","details":{"reason":"non-localhost-url"}}]"#;
        fs::write(place.join("checks.json"), checks).unwrap();
        let elsewhere = Results::read(directory.path()).unwrap();
        assert_eq!((elsewhere.count(Check::failed), elsewhere.count(Check::passed)), (0, 0));
    }

    #[test]
    fn a_way_is_worse_by_what_only_it_fails_or_leaves_out() {
        let direct = results(&[
            ("a", "SUCCESS"),
            ("b", "FAILURE"),
            ("c", "SUCCESS"),
            ("d", "SKIPPED"),
            ("e", "SUCCESS"),
            ("f", "SUCCESS"),
            ("g", "SUCCESS"),
        ]);
        let mut proxied = results(&[
            ("a", "FAILURE"),
            ("b", "FAILURE"),
            ("d", "SKIPPED"),
            ("e", "WARNING"),
            ("f", "INFO"),
            ("g", "INFO"),
        ]);
        // The last one is not tried at such a URL.
        proxied.0.get_mut("ping").unwrap().last_mut().unwrap().details = serde_json::json!({ "reason": ELSEWHERE });
        let found = worse(&[("direct", direct), ("stdio", proxied)]);
        assert_eq!(
            found.failures,
            [
                "ping, direct: b fails: broken",
                "ping, stdio: a fails: broken",
                "ping, stdio: c was not checked",
                "ping, stdio: e is only of status warning: it does not say why",
                "ping, stdio: f is only of status info: it does not say why",
            ]
        );
        assert_eq!(found.warnings, ["ping, stdio: g cannot be: it does not say why"]);
    }

    #[test]
    fn a_stream_that_is_never_resumed_is_reported_and_no_failure() {
        for (way, status, failures) in
            [("stdio", "INFO", 0), ("vmcp", "INFO", 0), ("stdio", "WARNING", 1), ("remote", "INFO", 1)]
        {
            let direct = results(&[(RESUMING, "SUCCESS")]);
            let found = worse(&[("direct", direct), (way, results(&[(RESUMING, status)]))]);
            assert_eq!((found.failures.len(), found.warnings.len()), (failures, 1 - failures), "{way} {status}");
        }
    }

    #[test]
    fn a_check_that_also_tells_something_on_the_first_way_is_not_worse_for_it() {
        let checks = [("a", "SUCCESS"), ("a", "INFO")];
        assert_eq!(worse(&[("direct", results(&checks)), ("stdio", results(&checks))]), Worse::default());
        let found = worse(&[("direct", results(&checks)), ("stdio", results(&[("a", "INFO")]))]);
        assert_eq!(found.failures, ["ping, stdio: a was not checked"]);
    }

    #[test]
    fn equal_ways_are_not_worse() {
        let checks = [("a", "SUCCESS"), ("b", "SKIPPED"), ("c", "WARNING")];
        assert_eq!(worse(&[("direct", results(&checks)), ("remote", results(&checks))]), Worse::default());
    }

    #[test]
    fn results_are_read_by_scenario() {
        let directory = tempfile::tempdir().unwrap();
        for (scenario, status) in [("tools-list", "SUCCESS"), ("tasks-lifecycle", "FAILURE")] {
            let place = directory.path().join(format!("server-{scenario}-2026-11-16T02-24-52-224Z"));
            fs::create_dir(&place).unwrap();
            fs::write(place.join("checks.json"), format!(r#"[{{"id":"x","status":"{status}"}}]"#)).unwrap();
        }
        let results = Results::read(directory.path()).unwrap();
        let table = table(&[("direct", results)]);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [vec!["passed", "checks", "direct"], vec!["tools-list", "1"], vec!["all", "1"]]);
    }
}
