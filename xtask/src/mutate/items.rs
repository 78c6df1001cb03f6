//! The items of a source file, by name, and where each stands in the text.
//!
//! A function is called `name`, `Type::name` or `Trait::name`. Every other item is called by its own name: `Type`, `CONSTANT`,
//! `Type::CONSTANT`, `macro!`, `impl Type`, `impl Trait for Type`. Attributes and doc comments belong to the item that they decorate, and
//! what is nested in a function belongs to that function. Items for tests are left out.

use std::ops::Range;

use anyhow::{Context as _, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Expr, ExprAsync, ExprClosure, ImplItem, ItemImpl, ItemTrait, Meta, Signature, TraitItem, Type,
    TypeImplTrait,
};

/// An item and its place in the text.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// The modules it is in, such as `store::state`; empty at the root of its crate.
    pub(super) module: String,
    /// From its first attribute to its end, in bytes.
    pub(super) range: Range<usize>,
    /// The pieces of it that may stand in several variants of which the program chooses one as it runs, the preferred ones first:
    /// the body of a function. None in what the compiler evaluates.
    pub(super) blocks: Vec<Range<usize>>,
}

/// What an item is to a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Other,
}

/// The items of a file that is the module `module`.
pub(super) fn items(text: &str, module: &str) -> Result<Vec<Item>> {
    let file = syn::parse_file(text).context("cannot be parsed")?;
    let mut found = Items { found: Vec::new() };
    found.add_all(&file.items, module);
    Ok(found.found)
}

struct Items {
    found: Vec<Item>,
}

// === impl Items ===

impl Items {
    fn add_all(&mut self, items: &[syn::Item], module: &str) {
        for item in items {
            self.add(item, module);
        }
    }

    fn add(&mut self, item: &syn::Item, module: &str) {
        use syn::Item as I;
        match item {
            I::Fn(one) => {
                let blocks = blocks(&one.sig, &one.block);
                self.push_function(one.sig.ident.to_string(), module, one, &one.attrs, blocks);
            }
            I::Impl(one) => self.add_impl(one, module),
            I::Trait(one) => self.add_trait(one, module),
            I::Mod(one) if !is_for_tests(&one.attrs) => {
                let inner = if module.is_empty() { one.ident.to_string() } else { format!("{module}::{}", one.ident) };
                self.add_all(one.content.as_ref().map_or(&[], |(_, items)| items), &inner);
            }
            I::Const(one) => self.push(Kind::Other, one.ident.to_string(), module, one, &one.attrs),
            I::Static(one) => self.push(Kind::Other, one.ident.to_string(), module, one, &one.attrs),
            I::Struct(one) => self.push(Kind::Other, one.ident.to_string(), module, one, &one.attrs),
            I::Enum(one) => self.push(Kind::Other, one.ident.to_string(), module, one, &one.attrs),
            I::Type(one) => self.push(Kind::Other, one.ident.to_string(), module, one, &one.attrs),
            I::Macro(one) => {
                let name = one.ident.as_ref().or_else(|| one.mac.path.segments.last().map(|last| &last.ident));
                let name = name.map(|name| format!("{name}!")).unwrap_or_default();
                self.push(Kind::Other, name, module, one, &one.attrs);
            }
            _ => {}
        }
    }

    fn add_impl(&mut self, one: &ItemImpl, module: &str) {
        if is_for_tests(&one.attrs) {
            return;
        }
        let owner = type_name(&one.self_ty);
        let implemented = one.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        let name = match implemented {
            Some(implemented) => format!("impl {} for {owner}", implemented.ident),
            None => format!("impl {owner}"),
        };
        self.push(Kind::Other, name, module, one, &one.attrs);
        for part in &one.items {
            match part {
                ImplItem::Fn(part) => {
                    let name = format!("{owner}::{}", part.sig.ident);
                    self.push_function(name, module, part, &part.attrs, blocks(&part.sig, &part.block));
                }
                ImplItem::Const(part) => {
                    self.push(Kind::Other, format!("{owner}::{}", part.ident), module, part, &part.attrs);
                }
                _ => {}
            }
        }
    }

    fn add_trait(&mut self, one: &ItemTrait, module: &str) {
        let owner = one.ident.to_string();
        self.push(Kind::Other, owner.clone(), module, one, &one.attrs);
        for part in &one.items {
            if let TraitItem::Fn(part) = part {
                let name = format!("{owner}::{}", part.sig.ident);
                let blocks = part.default.as_ref().map(|body| blocks(&part.sig, body)).unwrap_or_default();
                self.push_function(name, module, part, &part.attrs, blocks);
            }
        }
    }

    fn push(&mut self, kind: Kind, name: String, module: &str, spanned: &impl Spanned, attributes: &[Attribute]) {
        if !is_for_tests(attributes) {
            let range = spanned.span().byte_range();
            self.found.push(Item { kind, name, module: module.to_owned(), range, blocks: Vec::new() });
        }
    }

    fn push_function(
        &mut self,
        name: String,
        module: &str,
        spanned: &impl Spanned,
        attributes: &[Attribute],
        blocks: Vec<Range<usize>>,
    ) {
        if !is_for_tests(attributes) {
            let range = spanned.span().byte_range();
            self.found.push(Item { kind: Kind::Function, name, module: module.to_owned(), range, blocks });
        }
    }
}

/// The pieces of a function that may stand in several variants. Two variants of a body that returns an opaque type would return two
/// types, so there it is rather the closure or the `async` block within.
fn blocks(signature: &Signature, body: &Block) -> Vec<Range<usize>> {
    if signature.constness.is_some() {
        return Vec::new();
    }
    let mut opaque = Opaque(false);
    opaque.visit_return_type(&signature.output);
    let mut inner = Inner(Vec::new());
    if opaque.0 {
        inner.visit_block(body);
    }
    inner.0.push(body.span().byte_range());
    inner.0
}

/// Whether a type is opaque in part.
struct Opaque(bool);

/// The bodies of the outermost closures and `async` blocks.
struct Inner(Vec<Range<usize>>);

// === impl Opaque ===

impl Visit<'_> for Opaque {
    fn visit_type_impl_trait(&mut self, _: &TypeImplTrait) {
        self.0 = true;
    }
}

// === impl Inner ===

impl Visit<'_> for Inner {
    fn visit_expr_async(&mut self, one: &ExprAsync) {
        self.0.push(one.block.span().byte_range());
    }

    fn visit_expr_closure(&mut self, one: &ExprClosure) {
        match &*one.body {
            Expr::Async(_) | Expr::Closure(_) => visit::visit_expr(self, &one.body),
            body => self.0.push(body.span().byte_range()),
        }
    }

    fn visit_item(&mut self, _: &syn::Item) {}
}

/// Whether an item is built for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::NameValue(_) => false,
    })
}

/// The name of a type without its path, its generic arguments and the references to it.
fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
//! About.

/// A bound.
#[must_use]
const LIMIT: usize = 10;

struct Chain<T> {
    /// The rest.
    #[serde(default)]
    rest: T,
}

impl<T> Chain<T> {
    const START: usize = 0;

    /// Adds «ä».
    pub(crate) async fn add(&self) -> usize {
        fn nested() {}
        1 + 1
    }
}

impl std::fmt::Display for Chain<u8> {
    fn fmt(&self) {}
}

mod inner {
    pub(super) fn free() {}
}

kinds!["a", "b"];

#[cfg(test)]
mod tests {
    fn free() {}
}
"#;

    fn text_of(name: &str) -> &'static str {
        let found = items(SOURCE, "chain").unwrap();
        let named: Vec<_> = found.iter().filter(|item| item.name == name).collect();
        assert_eq!(named.len(), 1, "{name}: {found:?}");
        SOURCE.get(named[0].range.clone()).unwrap()
    }

    #[test]
    fn items_are_found_with_their_attributes() {
        assert_eq!(text_of("LIMIT"), "/// A bound.\n#[must_use]\nconst LIMIT: usize = 10;");
        assert!(text_of("Chain").contains("#[serde(default)]"));
        assert_eq!(text_of("Chain::START"), "const START: usize = 0;");
        assert!(text_of("Chain::add").starts_with("/// Adds «ä».\n"));
        assert!(text_of("Chain::add").ends_with("1 + 1\n    }"));
        assert_eq!(text_of("Chain::fmt"), "fn fmt(&self) {}");
        assert!(text_of("impl Display for Chain").starts_with("impl std::fmt::Display"));
        assert_eq!(text_of("kinds!"), "kinds![\"a\", \"b\"];");
    }

    fn blocks_of(source: &str) -> Vec<&str> {
        let found = items(source, "").unwrap();
        found[0].blocks.iter().map(|range| source.get(range.clone()).unwrap()).collect()
    }

    #[test]
    fn the_body_of_a_function_may_stand_in_variants() {
        assert_eq!(blocks_of("async fn one(of: impl Copy) -> u8 { of() }"), ["{ of() }"]);
        assert!(blocks_of("const fn one() -> u8 { 1 }").is_empty());
        assert!(blocks_of("const ONE: u8 = { 1 };").is_empty());
        assert!(blocks_of("macro_rules! one { () => {} }").is_empty());
    }

    #[test]
    fn of_a_body_of_an_opaque_type_it_is_what_is_within() {
        let source =
            "fn one() -> Box<impl Fn()> { a(|x| x + 1); b(|y| async move { y }); Box::new(async { c(|| d).await }) }";
        let body = source.split_once("> { ").unwrap().1;
        assert_eq!(blocks_of(source), ["x + 1", "{ y }", "{ c(|| d).await }", &format!("{{ {body}")]);
    }

    #[test]
    fn tests_are_left_out_and_modules_are_named() {
        let found = items(SOURCE, "chain").unwrap();
        let free: Vec<_> = found.iter().filter(|item| item.name == "free").collect();
        assert_eq!(free.len(), 1);
        assert_eq!(free[0].module, "chain::inner");
        assert_eq!(free[0].kind, Kind::Function);
    }
}
