//! Compiles the C parts: functions of the C library for the static binary of the image, each with its reason in its
//! file.

const SOURCES: &[&str] = &["native/memcmp.c", "native/memmove.c"];

/// The variable with the symbol ordering file of `cargo xtask image --order`: the binary is linked again when it changes.
const ORDER: &str = "SKEP_ORDER";

fn main() {
    println!("cargo::rerun-if-env-changed={ORDER}");
    if let Ok(file) = std::env::var(ORDER) {
        println!("cargo::rerun-if-changed={file}");
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("ENV") != "musl" || target("ARCH") != "x86_64" {
        return;
    }
    cc::Build::new()
        .files(SOURCES)
        .opt_level(3)
        // Otherwise the compiler would replace their bodies by calls to the functions themselves.
        .flag("-fno-builtin")
        .flag_if_supported("-fno-tree-loop-distribute-patterns")
        .compile("skep_native");
}
