//! Builds what is not Rust: a `memmove` for the static program of the image. See `native/memmove.c`.

const SOURCE: &str = "native/memmove.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("ENV") != "musl" || target("ARCH") != "x86_64" {
        return;
    }
    cc::Build::new()
        .file(SOURCE)
        .opt_level(3)
        // The compiler would make a call of memmove out of what it takes for one.
        .flag("-fno-builtin")
        .flag_if_supported("-fno-tree-loop-distribute-patterns")
        .compile("skep_native");
}
