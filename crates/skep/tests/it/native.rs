//! What is not Rust.

use std::path::Path;
use std::process::Command;

/// The compiler that the build needs as well.
fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

#[test]
fn bytes_are_moved_wherever_they_go() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("memmove");
    let object = place.path().join("memmove.o");
    let flags = ["-O3", "-fno-builtin", "-fno-tree-loop-distribute-patterns"];
    for command in [
        compiler()
            .args(flags)
            .args(["-Dmemmove=moved", "-Dmemcpy=upwards", "-c"])
            .arg(home.join("native/memmove.c"))
            .arg("-o")
            .arg(&object),
        compiler().arg("-O1").arg(home.join("tests/native/memmove.c")).arg(&object).arg("-o").arg(&program),
        &mut Command::new(&program),
    ] {
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
    }
}
