//! Where the functions lie in the program of the image: those that a proxy runs first, in one piece, then the operator's.
//!
//! The kernel maps a program by 64 KiB around each page that is used. A proxy runs an eighth of the code, and spread over all of
//! it that would keep most of the program in the memory of each proxy.
//!
//! ```text
//!   cargo xtask order                proxies and an operator under valgrind ─▶ order.txt in the target directory
//!   cargo xtask image --order FILE   cargo ─▶ rustc ─▶ skep-cc ─▶ cargo xtask link ─▶ the C compiler, with lld and the order
//! ```
//!
//! The file holds names without the numbers that compilers put into them. A name that is gone does nothing; a function that is new
//! lies where the linker puts it, until the order is recorded again. Without a file, the linker chooses the order.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::binary::Binary;
use crate::program::{self, capture, is_installed};
use crate::{host, root, target_dir, ui};

/// The linker, and rustc's option for it: by its name, so that no path goes into the build.
const LINKER: &str = "skep-cc";
pub(super) const FLAG: &str = "-Clinker=skep-cc";
/// The variable with the order file, for `cargo xtask link` and the build script of `skep`.
pub(super) const VARIABLE: &str = "SKEP_ORDER";
/// How much of a name counts, in characters. What is made of generic functions can have names of many thousands.
const LONGEST: usize = 400;
const HEAD: &str = "\
# The functions of proxies, and then those of the operator, as they were seen to run: they lie together in the program.
# Written by `cargo xtask order`.
";

/// What to watch.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The `skep` to watch, with the names of its functions. Left out, it is built as for the image.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Build no images: those of the last run are in the cluster.
    #[arg(long)]
    no_images: bool,
}

/// A part of the program's code: what some process runs.
struct Part {
    name: &'static str,
    /// What is run of the bench, with a program that records in the place of ours.
    bench: &'static [&'static str],
}

const PARTS: [Part; 2] = [
    Part { name: "proxy", bench: &["proxy", "--pods", "--seconds", "1", "--sessions", "100", "--open", "50"] },
    Part { name: "operator", bench: &["operator", "--servers", "20", "--idle", "1"] },
];

// --- linking

/// The file that a user names, as a path that is the same in every directory.
pub(super) fn file(named: &Path) -> Result<PathBuf> {
    named.canonicalize().with_context(|| format!("there is no `{}`", named.display()))
}

/// Has cargo link with the order in a file: rustc finds [`LINKER`] on the PATH.
pub(super) fn link_with(cargo: &mut Command, file: &Path) -> Result<()> {
    // Before the build: a linker that is missing should not cost minutes.
    lld()?;
    let directory = target_dir()?.join("link");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
    let this = std::env::current_exe()?;
    write_program(&directory.join(LINKER), &format!("exec '{}' link -- \"$@\"", this.display()))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(directory).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).context("the PATH cannot be added to")?;
    cargo.env("PATH", path).env(VARIABLE, file);
    Ok(())
}

/// Links as rustc requests, with functions in the order of the file that [`VARIABLE`] names.
pub(crate) fn link(arguments: &[OsString]) -> Result<()> {
    let directory = lld()?;
    let output = arguments.iter().skip_while(|argument| *argument != "-o").nth(1);
    let order = Path::new(output.context("rustc names no output")?).with_extension("order");
    let file = std::env::var_os(VARIABLE).with_context(|| format!("{VARIABLE} names no file"))?;
    let wanted = fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let is_input =
        |argument: &&OsString| Path::new(argument).extension().is_some_and(|kind| kind == "o" || kind == "rlib");
    let defined = Command::new("nm")
        .args(["--defined-only", "--format=posix"])
        .args(arguments.iter().filter(is_input))
        .output()
        .context("cannot start `nm`")?;
    // It complains of files that are not of its kind; what it could read is what counts.
    let defined = String::from_utf8_lossy(&defined.stdout);
    let functions = defined.lines().filter_map(function);
    fs::write(&order, in_order(&wanted, functions)).with_context(|| format!("cannot write `{}`", order.display()))?;
    let mut prefix = OsString::from("-B");
    prefix.push(directory);
    let mut keep = OsString::from("-Wl,--no-warn-symbol-ordering,--symbol-ordering-file=");
    keep.push(&order);
    program::run(Command::new("cc").args(arguments).arg("-fuse-ld=lld").arg(prefix).arg(keep))
}

/// The symbols of functions, those that are wanted, in the order in which they are wanted.
fn in_order<'a>(wanted: &str, functions: impl Iterator<Item = &'a str>) -> String {
    let mut found: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for symbol in functions {
        found.entry(plain(symbol)).or_default().insert(symbol);
    }
    let wanted = wanted.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    // What is not in our objects may be in the C library.
    let symbols = wanted.flat_map(|name| match found.get(name) {
        Some(symbols) => symbols.iter().copied().collect(),
        None => vec![name],
    });
    symbols.flat_map(|symbol| [symbol, "\n"]).collect()
}

/// The symbol in a line of `nm`, if it is a function's.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let (symbol, kind) = (words.next()?, words.next()?);
    matches!(kind, "t" | "T" | "w" | "W").then_some(symbol)
}

/// A function's name without what differs from one build to the next, and not beyond [`LONGEST`].
fn plain(symbol: &str) -> String {
    // Copies of a function that the optimizer made for one call site are distinguished by a number.
    let symbol = symbol.split_once(".llvm.").map_or(symbol, |(symbol, _)| symbol);
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{name:#}").chars().take(LONGEST).collect(),
        Err(_) => symbol.to_owned(),
    }
}

/// Where the Rust toolchain keeps a linker that can keep an order, for the C compiler to find.
fn lld() -> Result<PathBuf> {
    let sysroot = capture(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let host = capture(Command::new("rustc").args(["--print", "host-tuple"]).current_dir(root()))?;
    let directory = Path::new(sysroot.trim()).join("lib/rustlib").join(host.trim()).join("bin/gcc-ld");
    ensure!(directory.join("ld.lld").is_file(), "the Rust toolchain has no lld: build without `--order`");
    Ok(directory)
}

// --- recording

/// Records the order, for `cargo xtask image --order`.
pub(crate) fn record(arguments: &Arguments) -> Result<()> {
    if !is_installed("valgrind") {
        host::install(&["valgrind"])?;
    }
    let program = match &arguments.binary {
        Some(named) => named.canonicalize().with_context(|| format!("there is no `{}`", named.display()))?,
        None => Binary::skep("dist").with_symbols().build()?,
    };
    let place = target_dir()?.join("order");
    let mut known = BTreeSet::new();
    let mut file = HEAD.to_owned();
    for Part { name, bench } in PARTS {
        let runs = place.join(name);
        if runs.exists() {
            fs::remove_dir_all(&runs)?;
        }
        fs::create_dir_all(&runs)?;
        let recorder = runs.join("skep");
        let tool = "valgrind --tool=callgrind --demangle=no --quiet";
        let (to, program) = (runs.display(), program.display());
        // The bench wants no logs; what runs in earnest writes some.
        let call = format!("SKEP_LOG=info exec {tool} --callgrind-out-file='{to}'/%p '{program}' \"$@\"");
        write_program(&recorder, &call)?;
        ui::progress(&format!("the {name} under valgrind…"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench").args(bench).arg("--binary").arg(&recorder);
        if arguments.no_images && bench.contains(&"--pods") {
            command.arg("--no-images");
        }
        program::run(&mut command)?;
        let mut seen = BTreeSet::new();
        for run in fs::read_dir(&runs)? {
            let run = run?.path();
            if run.file_stem() != Some(OsStr::new("skep")) {
                seen.extend(fs::read_to_string(&run)?.lines().filter_map(called).map(plain));
            }
        }
        let new: Vec<&String> = seen.difference(&known).collect();
        if new.is_empty() {
            bail!("nothing was recorded of the {name}");
        }
        file.extend(["\n# ", name, "\n"]);
        file.extend(new.into_iter().flat_map(|name| [name, "\n"]));
        known.extend(seen);
    }
    let path = target_dir()?.join("order.txt");
    fs::write(&path, file).with_context(|| format!("cannot write `{}`", path.display()))?;
    ui::result(&format!("{}: {} functions; link with it by `cargo xtask image --order`", path.display(), known.len()));
    Ok(())
}

/// The function in a line of what callgrind wrote, where it is named. Elsewhere it is only numbered.
fn called(line: &str) -> Option<&str> {
    let named = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="))?;
    let name = named.split_once(") ")?.1;
    // A function that calls itself has a number after its name.
    let name = name.split_once('\'').map_or(name, |(name, _)| name);
    (!name.starts_with("0x") && !name.starts_with('(')).then_some(name)
}

/// Writes a program of one line for the shell.
fn write_program(path: &Path, line: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: &str = "_RNvNtCs1234_4skep3net4send";

    #[test]
    fn names_have_nothing_of_the_build() {
        for (symbol, name) in [
            (SEND, "skep::net::send"),
            ("_RNvNtCsAbCdEfG_4skep3net4send", "skep::net::send"),
            ("_RNvNtCs1234_4skep3net4send.llvm.123456", "skep::net::send"),
            ("_RINvNtCs1234_4skep3net4sendhE", "skep::net::send::<u8>"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(plain(symbol), name);
        }
    }

    #[test]
    fn symbols_are_found_by_their_names_and_come_in_the_order_of_the_file() {
        let wanted = "# a part\nmemcpy\n\nskep::net::send\nskep::gone\n";
        let functions = ["_RNvNtCs9_4skep3net5other", SEND, "_RNvNtCs9_4skep3net4send"];
        let expected = format!("memcpy\n{SEND}\n_RNvNtCs9_4skep3net4send\nskep::gone\n");
        assert_eq!(in_order(wanted, functions.into_iter()), expected);
    }

    #[test]
    fn functions_are_read_from_what_the_tools_write() {
        assert_eq!(function("_RNv1a1b T 0 2a"), Some("_RNv1a1b"));
        assert_eq!(function("table r 0 8"), None);
        assert_eq!(function("libx.rlib[x.o]:"), None);
        assert_eq!(called("fn=(12) _RNv1a1b'2"), Some("_RNv1a1b"));
        assert_eq!(called("cfn=(12) memcpy"), Some("memcpy"));
        for line in ["fn=(12)", "fn=(3) 0x0000", "fn=(4) (below main)", "fl=(1) ???", "16 3"] {
            assert_eq!(called(line), None, "{line}");
        }
    }
}
