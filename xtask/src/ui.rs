//! What the user sees. Results go to standard output, progress and errors to standard error, so that
//! `$(cargo xtask cluster kubeconfig)` is a path and nothing else.

use std::io::Write as _;

/// A result, for people and for scripts.
pub(crate) fn result(line: &str) {
    // A closed pipe is the reader's choice: `… | head` is not an error.
    let _unread = writeln!(std::io::stdout(), "{line}");
}

/// What is being done now.
pub(crate) fn progress(line: &str) {
    let _unread = writeln!(std::io::stderr(), "{line}");
}

/// What went wrong, with its causes on the same line.
pub(crate) fn error(error: &anyhow::Error) {
    let _unread = writeln!(std::io::stderr(), "error: {error:#}");
}

/// A number of bytes as people read it.
pub(crate) fn size(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal() {
        assert_eq!(size(0), "0.0 MiB");
        assert_eq!(size(1024 * 1024 * 3 / 2), "1.5 MiB");
    }
}
