//! What is not Rust.

use std::path::Path;
use std::process::Command;

/// The names under which a test calls what it tests. They must not be those of the C library that the test itself uses.
const NAMES: &[&str] = &["-Dmemcmp=compared", "-Dbcmp=unlike", "-Dmemcpy=copied", "-Dmemmove=moved"];

/// The compiler that the build needs as well.
fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Builds functions of ours and the program that tests them, and runs it.
fn assert_right(test: &str, functions: &[&str]) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join(test);
    let mut commands = Vec::new();
    let mut link = compiler();
    link.arg("-O1").arg(home.join(format!("tests/native/{test}.c")));
    for function in functions {
        let object = place.path().join(format!("{function}.o"));
        let mut compile = compiler();
        compile.args(["-O3", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-c"]).args(NAMES);
        compile.arg(home.join(format!("native/{function}.c"))).arg("-o").arg(&object);
        commands.push(compile);
        link.arg(object);
    }
    link.arg("-o").arg(&program);
    commands.extend([link, Command::new(&program)]);
    for mut command in commands {
        let done = command.output().unwrap();
        let output = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output));
    }
}

#[test]
fn bytes_are_moved_wherever_they_go() {
    assert_right("memmove", &["memmove", "memcpy"]);
}

#[test]
fn bytes_are_copied_and_no_others() {
    assert_right("memcpy", &["memcpy"]);
}

#[test]
fn the_first_byte_that_differs_decides() {
    assert_right("memcmp", &["memcmp"]);
}
