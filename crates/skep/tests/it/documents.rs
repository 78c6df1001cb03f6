//! The manifests in the documentation and the examples are valid.

use std::fs;

use crate::{repository, skep_with_input};

/// Every page, by its path, and the YAML blocks in it.
fn blocks() -> Vec<(String, String)> {
    let mut pages = vec![repository().join("README.md")];
    for directory in ["docs", "docs/guides"] {
        pages.extend(fs::read_dir(repository().join(directory)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let mut blocks = Vec::new();
    for page in pages.into_iter().filter(|page| page.extension().is_some_and(|ending| ending == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("```yaml\n") {
            let (block, more) = after.split_once("```").expect("an end of the block");
            blocks.push((page.display().to_string(), block.to_owned()));
            rest = more;
        }
    }
    blocks
}

#[test]
fn every_manifest_in_the_documentation_is_valid() {
    let blocks = blocks();
    assert!(!blocks.is_empty(), "no YAML was found");
    for (page, block) in blocks.iter().filter(|(_, block)| block.contains("kind: ")) {
        let run = skep_with_input(&["check", "-f", "-"], block);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{page}: {}", run.out);
    }
}
