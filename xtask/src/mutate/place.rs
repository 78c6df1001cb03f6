//! From what an entry of the list names to the one place in the sources that it changes.
//!
//! ```text
//!   crate + function or item (+ module) ─▶ items of that name, anywhere below the crate's src ─┐
//!   file (of any other kind) ──────────────────────────────────────────────────────────────────┴─▶ marker, exactly once
//! ```
//!
//! White space does not count in a marker, so neither a moved function nor a line that rustfmt breaks needs an edit of the list.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, bail, ensure};

use super::Mutation;
use super::items::{self, Item, Kind};

/// A piece of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Place {
    /// Below the workspace.
    pub(super) file: PathBuf,
    /// In bytes.
    pub(super) range: Range<usize>,
    /// The piece around it that may stand in several variants.
    pub(super) block: Option<Range<usize>>,
}

/// The sources of the workspace, parsed crate by crate when they are first asked for.
pub(super) struct Sources {
    root: PathBuf,
    crates: BTreeMap<String, Rc<[Source]>>,
}

/// A file of a crate that is built for more than tests.
struct Source {
    path: PathBuf,
    text: String,
    items: Vec<Item>,
}

/// The item that an entry names.
struct Target<'a> {
    kind: Kind,
    name: &'a str,
    /// The last modules of its path, where the name alone does not decide.
    module: Option<&'a str>,
}

// === impl Sources ===

impl Sources {
    pub(super) fn of(root: PathBuf) -> Self {
        Self { root, crates: BTreeMap::new() }
    }

    /// The one place where the marker of a mutation stands.
    pub(super) fn place(&mut self, mutation: &Mutation) -> Result<Place> {
        let Mutation { file, package, function, item, module, marker, .. } = mutation;
        let module = module.as_deref();
        let (places, within) = match (file, package, function, item) {
            (Some(file), None, None, None) => (self.in_file(file, marker)?, format!("`{file}`")),
            (None, Some(package), Some(name), None) => {
                let wanted = Target { kind: Kind::Function, name, module };
                (self.in_crate(package, &wanted, marker)?, format!("function `{name}` of `{package}`"))
            }
            (None, Some(package), None, Some(name)) => {
                let wanted = Target { kind: Kind::Other, name, module };
                (self.in_crate(package, &wanted, marker)?, format!("`{name}` of `{package}`"))
            }
            _ => bail!("an entry names a `crate` with a `function` or an `item`, or else a `file` that is not Rust"),
        };
        let [place] = <[Place; 1]>::try_from(places).map_err(|places| {
            let files: Vec<_> = places.iter().map(|place| place.file.display().to_string()).collect();
            anyhow::anyhow!("marker `{marker}` stands {} times in {within}: {}", files.len(), files.join(", "))
        })?;
        Ok(place)
    }

    fn in_file(&self, file: &str, marker: &str) -> Result<Vec<Place>> {
        let path = PathBuf::from(file);
        ensure!(path.extension().is_none_or(|kind| kind != "rs"), "`{file}` is Rust: name a `crate` and a `function`");
        let text = fs::read_to_string(self.root.join(&path)).with_context(|| format!("cannot read `{file}`"))?;
        let found = occurrences(&text, marker).into_iter();
        Ok(found.map(|range| Place { file: path.clone(), range, block: None }).collect())
    }

    fn in_crate(&mut self, package: &str, wanted: &Target<'_>, marker: &str) -> Result<Vec<Place>> {
        let sources = self.sources(package)?;
        let mut is_known = false;
        let mut places = Vec::new();
        for Source { path, text, items } in sources.iter() {
            for item in items.iter().filter(|item| wanted.is(item)) {
                is_known = true;
                let inside = text.get(item.range.clone()).unwrap_or_default();
                places.extend(occurrences(inside, marker).into_iter().map(|found| {
                    let range = item.range.start + found.start..item.range.start + found.end;
                    let around = |block: &&Range<usize>| block.start <= range.start && range.end <= block.end;
                    let block = item.blocks.iter().find(around).cloned();
                    Place { file: path.clone(), range, block }
                }));
            }
        }
        let Target { name, module, .. } = wanted;
        let within = module.map(|module| format!(" in a module `{module}`")).unwrap_or_default();
        ensure!(is_known, "crate `{package}` has no `{name}`{within}");
        Ok(places)
    }

    fn sources(&mut self, package: &str) -> Result<Rc<[Source]>> {
        if let Some(known) = self.crates.get(package) {
            return Ok(Rc::clone(known));
        }
        let directory = PathBuf::from("crates").join(package.strip_prefix("skep-").unwrap_or(package)).join("src");
        let mut sources = Vec::new();
        read(&self.root, &directory, "", &mut sources).with_context(|| format!("crate `{package}`"))?;
        let sources: Rc<[Source]> = sources.into();
        self.crates.insert(package.to_owned(), Rc::clone(&sources));
        Ok(sources)
    }
}

// === impl Target ===

impl Target<'_> {
    fn is(&self, item: &Item) -> bool {
        let is_in = |module: &str| item.module == module || item.module.ends_with(&format!("::{module}"));
        item.kind == self.kind && item.name == self.name && self.module.is_none_or(is_in)
    }
}

/// Reads the files of a directory that holds the children of a module, without tests.
fn read(root: &Path, directory: &Path, module: &str, sources: &mut Vec<Source>) -> Result<()> {
    let full = root.join(directory);
    let entries = fs::read_dir(&full).with_context(|| format!("cannot read `{}`", directory.display()))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let path = directory.join(&name);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" {
            continue;
        }
        let own = match stem.as_str() {
            "lib" | "main" | "mod" => module.to_owned(),
            _ if module.is_empty() => stem,
            _ => format!("{module}::{stem}"),
        };
        if full.join(&name).is_dir() {
            read(root, &path, &own, sources)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(root.join(&path)).with_context(|| format!("{}", path.display()))?;
            let items = items::items(&text, &own).with_context(|| format!("{}", path.display()))?;
            sources.push(Source { path, text, items });
        }
    }
    Ok(())
}

/// Where a marker stands in a text, white space aside.
fn occurrences(text: &str, marker: &str) -> Vec<Range<usize>> {
    let solid = |text: &str| -> Vec<(usize, char)> {
        text.char_indices().filter(|(_, character)| !character.is_whitespace()).collect()
    };
    let (text, marker) = (solid(text), solid(marker));
    if marker.is_empty() {
        return Vec::new();
    }
    let is_marker = |window: &[(usize, char)]| window.iter().zip(&marker).all(|((_, one), (_, other))| one == other);
    let found = text.windows(marker.len()).filter(|window| is_marker(window));
    let range = |window: &[(usize, char)]| {
        let (start, end) = (window.first()?, window.last()?);
        Some(start.0..end.0 + end.1.len_utf8())
    };
    found.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_does_not_count_in_a_marker() {
        let text = "a\n    .get(\"ä\")\n    .map(b)";
        let found = occurrences(text, "get(\"ä\").map(b)");
        assert_eq!(found.len(), 1);
        assert_eq!(text.get(found[0].clone()), Some("get(\"ä\")\n    .map(b)"));
        assert_eq!(occurrences("if a { } else if a { }", "if a {").len(), 2);
        assert!(occurrences(text, "  ").is_empty());
    }

    fn workspace() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("crates/mcp/src");
        fs::create_dir_all(source.join("store")).unwrap();
        fs::write(source.join("lib.rs"), "fn start() { if true {} }\n").unwrap();
        fs::write(source.join("store/one.rs"), "impl One { fn new() { a(); b(); } }\nconst MOST: u8 = 1;").unwrap();
        fs::write(source.join("store/two.rs"), "impl One { fn new() { a(); c(); } }").unwrap();
        fs::write(source.join("store/tests.rs"), "not Rust at all").unwrap();
        fs::write(directory.path().join("policy.yaml"), "rule: a\n").unwrap();
        directory
    }

    fn find(entry: &str) -> Result<(String, String)> {
        let directory = workspace();
        let entry = format!("{{point: p, what: w, with: '', test: t, {entry}}}");
        let place = Sources::of(directory.path().to_owned()).place(&serde_saphyr::from_str(&entry)?)?;
        let text = fs::read_to_string(directory.path().join(&place.file))?;
        Ok((place.file.display().to_string(), text.get(place.range).unwrap_or_default().to_owned()))
    }

    #[test]
    fn a_marker_is_found_in_the_item_that_has_it() {
        let (file, text) = find("crate: skep-mcp, function: 'One::new', marker: b();").unwrap();
        assert_eq!((file.as_str(), text.as_str()), ("crates/mcp/src/store/one.rs", "b();"));
        let (file, _) = find("crate: skep-mcp, function: 'One::new', module: 'store::two', marker: a();").unwrap();
        assert_eq!(file, "crates/mcp/src/store/two.rs");
        let (_, text) = find("crate: skep-mcp, item: MOST, marker: '= 1'").unwrap();
        assert_eq!(text, "= 1");
        assert_eq!(find("file: policy.yaml, marker: a").unwrap().1, "a");
    }

    #[test]
    fn an_entry_that_is_stale_says_why() {
        for (entry, why) in [
            (
                "crate: skep-mcp, function: 'One::new', marker: a();",
                "marker `a();` stands 2 times in function `One::new`",
            ),
            ("crate: skep-mcp, function: start, marker: while", "marker `while` stands 0 times"),
            ("crate: skep-mcp, function: gone, marker: a", "crate `skep-mcp` has no `gone`"),
            ("crate: skep-mcp, function: start, module: store, marker: if", "no `start` in a module `store`"),
            ("crate: skep-mcp, marker: a", "an entry names"),
            ("file: crates/mcp/src/lib.rs, marker: if", "is Rust"),
        ] {
            let error = format!("{:#}", find(entry).unwrap_err());
            assert!(error.contains(why), "{entry}: {error}");
        }
    }
}
