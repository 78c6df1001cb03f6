//! Which failures of a server are reported. A server that is restarted fails with almost the same message: a part that
//! changes with every attempt, such as the time in the name of a log file, does not make it a new failure.

use std::collections::BTreeSet;

use super::report::State;

/// How many different failures are remembered until the server recovers. Beyond that, each is reported.
const MOST: usize = 32;
/// So many digits in one word are a time, a process id, a hash, or a generated name.
const DIGITS: usize = 6;
/// So many digits in a row are a process id.
const NUMBER: usize = 4;
/// So many hexadecimal digits in a row, one of them a digit, are a hash.
const HASH: usize = 8;

/// The failures of one server that were reported since it last recovered.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeSet<String>);

impl Failures {
    /// Whether a state is to be reported: every one is but for a failure that was reported already.
    pub(super) fn is_news(&mut self, state: &State) -> bool {
        match state {
            State::Failing(why) => {
                if self.0.len() >= MOST {
                    self.0.clear();
                }
                self.0.insert(normalized(why))
            }
            State::Ready | State::Listening => {
                self.0.clear();
                true
            }
            _ => true,
        }
    }
}

/// A reason without the parts that change with every attempt.
fn normalized(why: &str) -> String {
    let mut words = Vec::new();
    let mut before = "";
    for word in why.split_whitespace() {
        words.push(stable(word, before));
        before = word;
    }
    words.join(" ")
}

/// The part of a word that stays the same.
fn stable(word: &str, before: &str) -> String {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let names_process = before.trim_matches(|one: char| !one.is_alphabetic()).eq_ignore_ascii_case("pid");
    if word.contains('/') || digits >= DIGITS || is_time(word) || (names_process && digits > 0) {
        return "#".to_owned();
    }
    let mut stable = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|one: char| !one.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (run, more) = rest.split_at(if end == 0 { first.len_utf8() } else { end });
        let is_hash = run.len() >= HASH && run.chars().all(|one| one.is_ascii_hexdigit());
        let has_digit = run.chars().any(|one| one.is_ascii_digit());
        let is_bracketed = stable.ends_with('[') && more.starts_with(']');
        let is_number = run.chars().all(|one| one.is_ascii_digit()) && (run.len() >= NUMBER || is_bracketed);
        stable.push_str(if has_digit && (is_hash || is_number) { "#" } else { run });
        rest = more;
    }
    stable
}

/// Whether a word is a time of day, or a duration.
fn is_time(word: &str) -> bool {
    let word = word.trim_matches(|one: char| matches!(one, '[' | ']' | '(' | ')' | ',' | ';'));
    let starts_with_digit = word.starts_with(|one: char| one.is_ascii_digit());
    let is_clock = word.contains(':') && word.chars().all(|one| one.is_ascii_digit() || ":.,-+TZ".contains(one));
    let unit = word.trim_start_matches(|one: char| one.is_ascii_digit() || one == '.');
    starts_with_digit && (is_clock || matches!(unit, "s" | "ms" | "µs" | "ns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(why: &str) -> State {
        State::Failing(why.to_owned())
    }

    #[test]
    fn a_failure_is_news_once_until_the_server_recovers() {
        let mut failures = Failures::default();
        let (one, two) = (failing("exit status: 1"), failing("exit status: 2"));
        for (state, is_news) in [
            (&State::Starting, true),
            (&one, true),
            (&one, false),
            (&two, true),
            // Two alternating failures are each reported once.
            (&one, false),
            (&two, false),
            (&State::Ready, true),
            (&one, true),
        ] {
            assert_eq!(failures.is_news(state), is_news, "{state:?}");
        }
    }

    #[test]
    fn parts_that_change_with_every_attempt_make_no_new_failure() {
        for (first, second) in [
            (
                "exit status: 1 | npm error 404 | npm error A complete log of this run can be found in: /var/cache/npm/_logs/2026-11-17T22_26_49_123Z-debug-0.log",
                "exit status: 1 | npm error 404 | npm error A complete log of this run can be found in: /var/cache/npm/_logs/2026-11-17T22_27_01_007Z-debug-0.log",
            ),
            ("2026-11-17T22:26:49.123Z ERROR no token", "2026-11-17T22:26:50Z ERROR no token"),
            ("22:26:49 no token", "22:27:01 no token"),
            ("[9:05] no token", "[9:06] no token"),
            ("server[77]: no token", "server[78]: no token"),
            ("pid 77 ended", "pid 8 ended"),
            ("worker 12345 ended", "worker 54321 ended"),
            ("request 3f2a9c01 failed", "request 9c3f2a07 failed"),
            ("id 550e8400-e29b-41d4-a716-446655440000", "id 650e8400-e29b-41d4-a716-446655440001"),
            ("gave up after 1.25s", "gave up after 1.31s"),
            ("at 0x7ffd1234abcd", "at 0x7ffe0000abcd"),
            ("File \"/tmp/tmpab12/x.py\", line 3", "File \"/tmp/tmpcd34/x.py\", line 3"),
        ] {
            assert_eq!(normalized(first), normalized(second));
        }
    }

    #[test]
    fn a_different_failure_stays_different() {
        for (first, second) in [
            ("exit status: 1", "exit status: 2"),
            ("exit status: 1", "signal: 9 (SIGKILL)"),
            ("npm error 404", "npm error 500"),
            ("cannot start `a`", "cannot start `b`"),
            ("missing variable TOKEN", "missing variable SECRET"),
            ("deadbeef is no word", "feedbeef is no word"),
        ] {
            assert_ne!(normalized(first), normalized(second));
        }
    }
}
