//! Versions, completions, and invalid command lines.

use serde_json::Value;

use crate::skep;

#[test]
fn the_version_is_for_people_and_for_programs() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(skep(&["version"]).succeeded().starts_with(&format!("skep {version} (")));
    let json: Value = serde_json::from_str(skep(&["version", "-o", "json"]).succeeded()).unwrap();
    assert_eq!(json["version"], version);
    assert_eq!(json["apiGroup"], "toolhive.stacklok.dev");
    assert!(skep(&["--version"]).succeeded().contains(version));
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for (shell, word) in [("bash", "complete"), ("zsh", "#compdef skep"), ("fish", "complete -c skep")] {
        assert!(skep(&["completions", shell]).succeeded().contains(word), "{shell}");
    }
}

#[test]
fn a_wrong_command_line_is_one_clear_line() {
    skep(&["--bogus"]).refused(2, &["--bogus", "see --help"]);
    skep(&["crds", "--bogus"]).refused(2, &["--bogus", "see --help"]);
    skep(&["verson"]).refused(2, &["verson", "version"]);
    skep(&["check"]).refused(2, &["--file"]);
    skep(&["version", "-o", "xml"]).refused(2, &["xml", "json"]);
}

#[test]
fn without_arguments_the_help_is_shown() {
    let run = skep(&[]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("Usage: skep") && run.err.contains("check"), "{}", run.err);
    assert!(skep(&["--help"]).succeeded().contains("Exit codes"));
}
