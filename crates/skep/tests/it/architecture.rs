//! Every file and every function that `docs/architecture.md` names exists.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of a line that are written as code.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a word names a file, or with `*` all files of a directory.
fn is_file(word: &str) -> bool {
    !word.contains(' ') && ["rs", "*"].iter().any(|end| word.rsplit(['.', '/']).next() == Some(end))
}

/// The files that a paragraph or a row names. A path that does not begin with `crates/` is relative to the last one that does.
fn files(line: &str) -> Vec<PathBuf> {
    let mut directory = PathBuf::new();
    let named = code(line).filter(|word| is_file(word)).map(|word| {
        if word.starts_with("crates/") {
            Path::new(word).parent().unwrap().clone_into(&mut directory);
            return PathBuf::from(word);
        }
        directory.join(word)
    });
    named.map(|path| if path.ends_with("*") { path.parent().unwrap().to_owned() } else { path }).collect()
}

/// The functions that a paragraph or a row names as `Type::function`.
fn functions(line: &str) -> impl Iterator<Item = &str> {
    code(line).filter_map(|word| word.split_once("::")).map(|(_, function)| function)
}

/// The files that a paragraph or a row links to, beside the page.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

#[test]
fn every_file_and_function_that_the_architecture_names_exists() {
    let page = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    // Rows are lines; what else belongs together is a paragraph of several.
    let rows = page.lines().filter(|line| line.starts_with('|')).map(str::to_owned);
    let paragraphs = page.split("\n\n").filter(|text| !text.starts_with('|')).map(|text| text.replace('\n', " "));
    let (mut file_count, mut function_count) = (0, 0);
    for line in rows.chain(paragraphs) {
        let files = files(&line);
        for file in &files {
            assert!(repository().join(file).exists(), "{} does not exist: {line}", file.display());
        }
        for function in functions(&line) {
            let definition = format!("fn {function}(");
            let texts = files.iter().map(|file| fs::read_to_string(repository().join(file)).unwrap_or_default());
            assert!(texts.into_iter().any(|text| text.contains(&definition)), "no file has `{function}`: {line}");
            function_count += 1;
        }
        for link in links(&line) {
            assert!(repository().join("docs").join(link).exists(), "{link} does not exist: {line}");
        }
        file_count += files.len();
    }
    assert!(file_count > 60 && function_count > 1, "{file_count} files and {function_count} functions were found");
}
