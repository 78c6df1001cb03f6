//! Every command line in the documentation is accepted by this program, in a fresh clone.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Placeholders in the documentation for the reader's own files.
const PLACEHOLDERS: [&str; 2] = ["my-servers/", "more.yaml"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages, by their paths in the repository.
fn pages() -> Vec<(String, String)> {
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        pages.extend(is_page.then(|| format!("docs/{}", path.file_name().unwrap().display())));
    }
    pages.sort();
    pages.into_iter().map(|page| (page.clone(), fs::read_to_string(repository().join(&page)).unwrap())).collect()
}

/// The lines of the blocks for a shell, without comments, each command of a pipe by itself.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_shell = false;
    for line in page.lines() {
        match line.trim_end() {
            "```sh" => is_shell = true,
            fence if fence.starts_with("```") => is_shell = false,
            line if is_shell => {
                let line = line.split(" #").next().unwrap_or_default();
                let line = line.replace("source <(", "").replace(')', "");
                commands.extend(line.split('|').map(|command| command.trim().to_owned()));
            }
            _ => {}
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// The arguments of `skep`, if a command runs it.
fn arguments(command: &str) -> Option<Vec<String>> {
    let words = || command.split_whitespace().map(str::to_owned);
    match words().next()?.as_str() {
        "skep" => Some(words().collect()),
        "cargo" if command.contains(" run ") => {
            Some(std::iter::once("skep".to_owned()).chain(words().skip_while(|word| word != "--").skip(1)).collect())
        }
        _ => None,
    }
}

#[test]
fn every_command_line_in_the_documentation_is_accepted() {
    let mut count = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            let Some(arguments) = arguments(&command) else { continue };
            let parsed = Cli::try_parse_from(&arguments);
            let parsed = parsed.unwrap_or_else(|error| panic!("{page}: `{command}`: {error}"));
            count += 1;
            let files = match parsed.command {
                Command::Check(check) => check.files,
                Command::Run(run) => run.files,
                _ => Vec::new(),
            };
            for file in files {
                let is_placeholder = page != "README.md" && PLACEHOLDERS.iter().any(|known| file == Path::new(known));
                let exists = repository().join(&file).exists();
                assert!(exists || is_placeholder, "{page}: `{command}`: there is no {}", file.display());
            }
        }
    }
    assert!(count >= 12, "only {count} commands were found");
}

#[test]
fn every_path_that_other_commands_name_exists() {
    let mut count = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            for word in
                command.split_whitespace().filter(|word| word.starts_with("charts/") || word.starts_with("crates/"))
            {
                assert!(repository().join(word).exists(), "{page}: `{command}`: there is no {word}");
                count += 1;
            }
        }
    }
    assert!(count >= 4, "only {count} paths were found");
}

/// The README says how to install the program that its examples run.
#[test]
fn programs_of_the_examples_are_installed_by_the_readme() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let install = readme.find("cargo install --path crates/skep --locked").expect("how to install skep");
    assert!(install < readme.find("skep run -f examples/").expect("an example to run"), "install comes first");
    let entries = fs::read_dir(repository().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")) {
        let text = fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("image: exec://")) {
            assert_eq!(line.trim(), "image: exec://skep", "a program that the README does not install");
        }
    }
}

/// A first build must not take minutes more for a few percent; a release build may.
#[test]
fn only_what_ships_is_built_with_link_time_optimisation() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let profile = |name: &str| {
        let section = manifest.split(&format!("[profile.{name}]\n")).nth(1).unwrap_or_default();
        section.split("\n[").next().unwrap_or_default().to_owned()
    };
    assert!(!profile("release").contains("lto"), "{}", profile("release"));
    assert!(profile("dist").contains("lto = \"fat\""), "{}", profile("dist"));
}
