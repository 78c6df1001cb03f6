//! How long the files and functions of the data plane may be, so that each can be read as a whole.
//!
//! In `crates/proxy` and `crates/upstream`, without what is built for tests alone: a file has at most [`FILE`] lines, and a function at most
//! [`FUNCTION`] lines and [`RETURNS`] `return`s.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, ItemFn, ItemImpl, ItemMod, Signature, TraitItemFn};

const FILE: usize = 400;
const FUNCTION: usize = 60;
const RETURNS: usize = 5;

/// Where the rule holds.
const CRATES: [&str; 2] = ["crates/proxy/src/", "crates/upstream/src/"];

pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let is_rust = std::path::Path::new(path).extension().is_some_and(|extension| extension == "rs");
    if !is_rust
        || !CRATES.iter().any(|directory| path.starts_with(directory))
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
    {
        return Vec::new();
    }
    let Ok(file) = syn::parse_file(text) else { return vec![format!("{path}: cannot be parsed")] };
    let mut functions = Functions { path, complaints: Vec::new(), lines_of_tests: 0 };
    functions.visit_file(&file);
    let lines = text.lines().count() - functions.lines_of_tests;
    let too_long =
        (lines > FILE).then(|| format!("{path}: {lines} lines without tests are more than {FILE}: split it"));
    too_long.into_iter().chain(functions.complaints).collect()
}

/// Measures the functions of a file, and leaves out what is built for tests alone.
struct Functions<'a> {
    path: &'a str,
    complaints: Vec<String>,
    lines_of_tests: usize,
}

// === impl Functions ===

impl Functions<'_> {
    fn measure(&mut self, signature: &Signature, block: &Block) {
        let (start, end) = (signature.span().start().line, block.span().end().line);
        let lines = end + 1 - start;
        let place = format!("{}:{start}: `{}`", self.path, signature.ident);
        if lines > FUNCTION {
            self.complaints.push(format!("{place} has {lines} lines, more than {FUNCTION}: split it"));
        }
        let mut returns = Returns(0);
        returns.visit_block(block);
        if returns.0 > RETURNS {
            let count = returns.0;
            self.complaints.push(format!("{place} has {count} `return`s, more than {RETURNS}: split it, or use `?`"));
        }
    }

    /// Whether an item is built for tests alone; its lines do not count then.
    fn leaves_out(&mut self, attributes: &[Attribute], item: &impl syn::spanned::Spanned) -> bool {
        let is_for_tests = attributes.iter().any(is_for_tests);
        if is_for_tests {
            let span = item.span();
            self.lines_of_tests += span.end().line + 1 - span.start().line;
        }
        is_for_tests
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, one: &'ast ItemMod) {
        if !self.leaves_out(&one.attrs, one) {
            visit::visit_item_mod(self, one);
        }
    }

    fn visit_item_impl(&mut self, one: &'ast ItemImpl) {
        if !self.leaves_out(&one.attrs, one) {
            visit::visit_item_impl(self, one);
        }
    }

    fn visit_item_fn(&mut self, one: &'ast ItemFn) {
        if !self.leaves_out(&one.attrs, one) {
            self.measure(&one.sig, &one.block);
            visit::visit_item_fn(self, one);
        }
    }

    fn visit_impl_item_fn(&mut self, one: &'ast ImplItemFn) {
        if !self.leaves_out(&one.attrs, one) {
            self.measure(&one.sig, &one.block);
            visit::visit_impl_item_fn(self, one);
        }
    }

    fn visit_trait_item_fn(&mut self, one: &'ast TraitItemFn) {
        if let Some(block) = &one.default {
            self.measure(&one.sig, block);
        }
        visit::visit_trait_item_fn(self, one);
    }
}

/// Counts the `return`s of a function, but for those of closures, `async` blocks and functions in it: they leave another body.
struct Returns(usize);

impl<'ast> Visit<'ast> for Returns {
    fn visit_expr_return(&mut self, one: &'ast syn::ExprReturn) {
        self.0 += 1;
        visit::visit_expr_return(self, one);
    }

    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}

    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}

    fn visit_item_fn(&mut self, _: &'ast ItemFn) {}

    /// `tokio::select!` and its like: syn does not parse what is in a macro.
    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        self.0 += returns_in(one.tokens.clone());
    }
}

fn returns_in(tokens: TokenStream) -> usize {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Group(group) => returns_in(group.stream()),
            TokenTree::Ident(name) => usize::from(name == "return"),
            TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
        })
        .sum()
}

/// `#[cfg(test)]` or `#[test]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let is_test = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "test");
    let is_cfg =
        || attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|of| is_test(&of));
    is_test(attribute.path()) || is_cfg()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/proxy/src/a.rs";

    fn complaints(text: &str) -> Vec<String> {
        check(PATH, text)
    }

    /// A function of so many lines.
    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_has_so_many_lines_without_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a\n".repeat(500));
        let source = |lines: usize| format!("{}{tests}", "// a\n".repeat(lines));
        assert!(complaints(&source(FILE)).is_empty());
        let found = complaints(&source(FILE + 1));
        assert!(found.len() == 1 && found[0].contains("401 lines"), "{found:?}");
    }

    #[test]
    fn a_function_has_so_many_lines_wherever_it_is() {
        assert!(complaints(&function("a", FUNCTION)).is_empty());
        for (before, after) in
            [("", ""), ("impl A {\n", "}"), ("trait A {\n", "}"), ("mod a {\n", "}"), ("fn b() {\n", "}")]
        {
            let found = complaints(&format!("{before}{}{after}", function("long", FUNCTION + 1)));
            assert!(found.iter().any(|one| one.contains("`long` has 61 lines")), "{before}: {found:?}");
        }
        // Comments and attributes before a function are not of its body.
        let described = format!("{}#[inline]\n{}", "/// a\n".repeat(30), function("a", FUNCTION));
        assert!(complaints(&described).is_empty());
    }

    #[test]
    fn a_function_has_so_many_returns_of_its_own() {
        let of = |returns: usize, more: &str| format!("fn a() {{ {} {more} }}", "if b { return; }".repeat(returns));
        assert!(complaints(&of(RETURNS, "")).is_empty());
        assert!(complaints(&of(RETURNS + 1, ""))[0].contains("6 `return`s"));
        for inner in ["let c = || { return; };", "let c = async { return; };", "fn c() { return; }"] {
            assert!(complaints(&of(RETURNS, inner)).is_empty(), "{inner}");
        }
        assert_eq!(complaints(&of(RETURNS, "tokio::select! { () = b => return, }")).len(), 1);
    }

    #[test]
    fn tests_and_other_crates_are_free() {
        let long = function("a", 500);
        for path in ["crates/proxy/src/a/tests.rs", "crates/proxy/tests/it/a.rs", "crates/plan/src/a.rs", "docs/a.md"] {
            assert!(check(path, &long).is_empty(), "{path}");
        }
        assert_eq!(check("crates/upstream/src/a.rs", &long).len(), 2);
        assert!(complaints(&format!("#[test]\n{}", function("a", 300))).is_empty());
        assert!(complaints(&format!("#[tokio::test(start_paused = true)]\nasync {}", function("a", 300))).is_empty());
        assert_eq!(complaints("fn"), [format!("{PATH}: cannot be parsed")]);
    }
}
