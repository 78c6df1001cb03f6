//! The C parts.

use std::path::Path;
use std::process::Command;

/// The names under which a test calls the functions under test. They must differ from those of the C library that the
/// test itself uses.
const NAMES: &[&str] = &["-Dmemcmp=compared", "-Dbcmp=unlike", "-Dmemmove=moved", "-Dmemcpy=upwards"];

/// The compiler that the build needs as well.
fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Builds a function and its test program, and runs that.
fn assert_right(function: &str) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let (program, object) = (place.path().join(function), place.path().join("function.o"));
    let file = |directory: &str| home.join(directory).join(function).with_extension("c");
    let flags = ["-O3", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-c"];
    for command in [
        compiler().args(flags).args(NAMES).arg(file("native")).arg("-o").arg(&object),
        compiler().arg("-O1").arg(file("tests/native")).arg(&object).arg("-o").arg(&program),
        &mut Command::new(&program),
    ] {
        let done = command.output().unwrap();
        let output = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output));
    }
}

#[test]
fn bytes_are_moved_with_any_overlap() {
    assert_right("memmove");
}

#[test]
fn the_first_byte_that_differs_decides() {
    assert_right("memcmp");
}
