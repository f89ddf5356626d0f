//! How types are named: `cargo xtask names`, and what tidy holds of it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use syn::visit::{self, Visit};

use super::{Finding, Tree};

/// A named type of the product: where it stands and who can see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TypeName {
    name: String,
    path: String,
    line: usize,
    /// Declared `pub`: other crates may meet it.
    is_public: bool,
}

impl TypeName {
    /// `MemoryKind` has two words, `Kind` and `GPU` have one.
    fn is_one_word(&self) -> bool {
        let humps = self.name.chars().zip(self.name.chars().skip(1));
        humps.filter(|(before, after)| !before.is_uppercase() && after.is_uppercase()).count() == 0
    }
}

/// Collects every struct, enum, union, trait and type alias outside of tests.
struct TypeNames<'a> {
    path: &'a str,
    found: Vec<TypeName>,
}

impl TypeNames<'_> {
    fn add(&mut self, visibility: &syn::Visibility, ident: &syn::Ident) {
        self.found.push(TypeName {
            name: ident.to_string(),
            path: self.path.to_owned(),
            line: ident.span().start().line,
            is_public: matches!(visibility, syn::Visibility::Public(_)),
        });
    }
}

impl<'ast> Visit<'ast> for TypeNames<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = item.attrs.iter().any(|attr| {
            attr.path().is_ident("cfg")
                && attr.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test")
        });
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.vis, &item.ident);
        visit::visit_item_struct(self, item);
    }
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.vis, &item.ident);
        visit::visit_item_enum(self, item);
    }
    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add(&item.vis, &item.ident);
        visit::visit_item_union(self, item);
    }
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.vis, &item.ident);
        visit::visit_item_trait(self, item);
    }
    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.vis, &item.ident);
        visit::visit_item_type(self, item);
    }
}

/// Types of the crates' sources; tests, benches, examples and tools are left out.
fn types(tree: &Tree) -> Vec<TypeName> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let is_source = path.starts_with("crates/") && path.contains("/src/");
        if !is_source || path.contains("/tests/") || path.ends_with("/tests.rs") {
            continue;
        }
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut names = TypeNames { path, found: Vec::new() };
        names.visit_file(&file);
        found.append(&mut names.found);
    }
    found
}

/// The same name and everybody who has it.
fn by_name(types: &[TypeName]) -> BTreeMap<&str, Vec<&TypeName>> {
    let mut groups: BTreeMap<&str, Vec<&TypeName>> = BTreeMap::new();
    for t in types {
        groups.entry(&t.name).or_default().push(t);
    }
    groups
}

/// A public type's name is its own in the whole workspace: a reader who meets it need not look which
/// module is meant.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let types = types(tree);
    let mut findings = Vec::new();
    for (name, all) in by_name(&types) {
        for public in all.iter().filter(|t| t.is_public && all.len() > 1) {
            let other = all.iter().find(|t| t.path != public.path || t.line != public.line);
            let at = other.map_or(String::new(), |t| format!("{}:{}", t.path, t.line));
            let say =
                format!("public type {name} has the name of another type ({at}); say what it is");
            findings.push(Finding::new(&public.path, public.line, say));
        }
    }
    findings
}

/// `cargo xtask names [--list]`: the share of one-word names and of names that stand twice.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let tree = Tree::read(root)?;
    let types = types(&tree);
    let groups = by_name(&types);
    let one_word = types.iter().filter(|t| t.is_one_word()).count();
    let twice: Vec<_> = groups.iter().filter(|(_, all)| all.len() > 1).collect();
    let shared: usize = twice.iter().map(|(_, all)| all.len()).sum();
    let share = |count: usize| 100.0 * count as f64 / types.len().max(1) as f64;
    println!("{} types", types.len());
    println!("{one_word} of one word ({:.1} %)", share(one_word));
    println!("{shared} share their name with another type ({:.1} %)", share(shared));
    if args.iter().any(|arg| arg == "--list") {
        for t in types.iter().filter(|t| t.is_one_word() || groups[t.name.as_str()].len() > 1) {
            let public = if t.is_public { "pub " } else { "" };
            let count = groups[t.name.as_str()].len();
            println!("{}:{}: {public}{} x{count}", t.path, t.line, t.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_their_capitals() {
        let types = types(&Tree::of([
            ("crates/a/src/x.rs", "pub struct Kind; enum MemoryKind {}\ntrait GPU {}"),
            ("crates/b/src/y.rs", "type Kind = u8;\n#[cfg(test)]\nmod tests { struct Helper; }"),
            ("crates/b/tests/z.rs", "struct Left;"),
        ]));
        let names: Vec<&str> = types.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["Kind", "MemoryKind", "GPU", "Kind"]);
        let one_word = types.iter().filter(|t| t.is_one_word()).count();
        assert_eq!(one_word, 3, "all but MemoryKind");
        assert_eq!(by_name(&types)["Kind"].len(), 2);
    }

    #[test]
    fn a_public_name_stands_once() {
        let lines = |files: [(&str, &str); 2]| -> Vec<usize> {
            names(&Tree::of(files)).iter().map(|finding| finding.line).collect()
        };
        let one = ("crates/a/src/x.rs", "struct Local;\npub struct Shared;");
        assert_eq!(lines([one, ("crates/b/src/y.rs", "pub enum Shared {}")]), [2, 1]);
        // A private type may hide behind a public one's name no more than the reverse.
        assert_eq!(lines([one, ("crates/b/src/y.rs", "struct Shared;")]), [2]);
        assert_eq!(lines([one, ("crates/b/src/y.rs", "struct Local;")]), Vec::<usize>::new());
    }
}
