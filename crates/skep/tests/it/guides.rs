//! The guide to policies: its commands are run, and print what the guide says; its manifests hold the policies that it explains.
//!
//! A `json` block with a name beside the language is a file of that name, and a manifest is one by the name of its object. In a `console`
//! block each line after `$ ` is a command, and the lines below it are its output.

use std::path::Path;
use std::process::Command;

use skep_api::manifest;

use crate::repository;

/// The fewest policies that the guide is expected to have, so that a page which is not understood is not a page without mistakes.
const FEWEST: usize = 10;

/// A fenced block of a page.
struct Block {
    language: String,
    /// What stands beside the language.
    name: String,
    text: String,
}

/// A command, and what it prints.
struct Step {
    command: String,
    output: String,
}

/// The parts of a page, each with its heading and its blocks.
fn sections(page: &str) -> Vec<(String, Vec<Block>)> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let parts = text.split("\n## ").map(|part| (part.lines().next().unwrap_or_default().to_owned(), blocks(part)));
    parts.collect()
}

fn blocks(part: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = part;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (first, after) = after.split_once('\n').expect("a block after its fence");
        let (text, after) = after.split_once("```").expect("an end of the block");
        let (language, name) = first.split_once(' ').unwrap_or((first, ""));
        blocks.push(Block { language: language.to_owned(), name: name.to_owned(), text: text.to_owned() });
        rest = after;
    }
    blocks
}

fn steps(console: &str) -> Vec<Step> {
    format!("\n{console}").split("\n$ ").skip(1).map(step).collect()
}

/// A command goes on as long as its lines end in a backslash.
fn step(text: &str) -> Step {
    let text = format!("{}\n", text.trim_end());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let last = lines.iter().position(|line| !line.ends_with("\\\n")).expect("an end of the command");
    Step { command: lines[..=last].concat(), output: lines[last + 1..].concat() }
}

/// The name of a manifest of policies, and the policies as one text.
fn policies(text: &str) -> Option<(String, String)> {
    let document = manifest::parse_one(text).unwrap();
    (document["kind"] == "MCPAuthzConfig").then_some(())?;
    let list = document["spec"]["config"]["policies"].as_array().unwrap();
    let list: Vec<&str> = list.iter().map(|policy| policy.as_str().unwrap().trim_end()).collect();
    Some((document["metadata"]["name"].as_str().unwrap().to_owned(), list.join("\n")))
}

/// Runs a command as a user would, in a directory, with the `skep` of this build. Its exit code, and what it prints.
fn run(command: &str, directory: &Path) -> (i32, String) {
    assert!(command.starts_with("skep authz explain "), "{command}");
    let programs = Path::new(env!("CARGO_BIN_EXE_skep")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-c", command]).current_dir(directory).env("PATH", path).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn every_policy_of_the_guide_decides_as_the_guide_says() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let (mut explained, mut differences) = (0, Vec::new());
    for (heading, blocks) in sections("docs/guides/policies.md") {
        let of = |language: &'static str| blocks.iter().filter(move |block| block.language == language);
        of("json").for_each(|block| write(&block.name, &block.text));
        for (block, (name, text)) in of("yaml").filter_map(|block| Some((block, policies(&block.text)?))) {
            write(&format!("{name}.yaml"), &block.text);
            let cedar: Vec<&str> = of("cedar").map(|block| block.text.trim_end()).collect();
            assert_eq!(cedar, [text.as_str()], "{heading}: the manifest holds other policies than the text");
            explained += 1;
        }
        let steps: Vec<Step> = of("console").flat_map(|block| steps(&block.text)).collect();
        assert_eq!(of("cedar").next().is_some(), !steps.is_empty(), "{heading}: a policy, and what shows it");
        for Step { command, output } in steps {
            let (code, printed) = run(&command, directory.path());
            assert_eq!(code, i32::from(printed.contains(": denied, ")), "{command}{printed}");
            if printed != output {
                differences.push(format!("$ {command}{printed}"));
            }
        }
    }
    assert!(differences.is_empty(), "the guide says otherwise about:\n{}", differences.concat());
    assert!(explained >= FEWEST, "{explained} policies were found");
}
