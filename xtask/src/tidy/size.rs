//! How large the project is: `cargo xtask size`, and the ratchet that tidy holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

use super::source::Source;
use super::{Finding, Tree};

/// The largest value that each figure may have. A commit lowers one freely (`cargo xtask size --lower`)
/// and raises one only with its reason as a comment above the line.
const RATCHET: &str = "xtask/size.toml";

/// A figure of the whole tree: its key in the ratchet, and what it counts.
struct SizeFigure {
    key: &'static str,
    what: &'static str,
    value: f64,
}

/// Every figure, in display order.
fn figures(tree: &Tree, sources: &[Source]) -> Vec<SizeFigure> {
    let product = sources.iter().map(|source| source.code_lines(false)).sum::<usize>();
    let tests = sources.iter().map(|source| source.code_lines(true)).sum::<usize>();
    let names: Vec<&str> = sources.iter().flat_map(Source::product_functions).collect();
    let one_word = names.iter().filter(|name| !name.trim_matches('_').contains('_')).count();
    let share = 1000.0 * one_word as f64 / names.len().max(1) as f64;
    let lengths = || sources.iter().map(Source::line_count);
    let documents =
        tree.ending(".md").filter(|(path, _)| *path == "README.md" || path.starts_with("docs/"));
    let words = documents.map(|(_, text)| text.split_whitespace().count()).sum::<usize>();
    let crates = tree.ending("/Cargo.toml").count();
    let circles = module_circles(tree);
    let in_circles = circles.iter().map(|circle| circle.modules.len()).sum();
    let figure = |key, what, value: usize| SizeFigure { key, what, value: value as f64 };
    vec![
        figure("code-lines", "lines of code without tests, comments and blanks", product),
        figure("test-lines", "lines of code of tests, benches and examples", tests),
        figure("crates", "crates", crates),
        figure("circles", "circles of modules", circles.len()),
        figure("modules-in-circles", "modules that are in one", in_circles),
        SizeFigure {
            key: "one-word-functions",
            what: "percent of functions whose name is one word",
            value: share.round() / 10.0,
        },
        figure("largest-file", "lines of the largest file", lengths().max().unwrap_or(0)),
        figure(
            "large-files",
            "files of more than 500 lines",
            lengths().filter(|&n| n > 500).count(),
        ),
        figure("document-words", "words of README.md and docs", words),
    ]
}

/// Figures that exceed the ratchet, and figures that it lacks.
pub(super) fn ratchet(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let text = tree.get(RATCHET).unwrap_or_default();
    let Ok(limits) = text.parse::<toml::Table>() else {
        return vec![Finding::new(RATCHET, 1, "is no TOML")];
    };
    let mut findings = Vec::new();
    for SizeFigure { key, what, value } in figures(tree, sources) {
        let line = 1 + text.lines().position(|line| line.starts_with(key)).unwrap_or(0);
        match limits.get(key).and_then(number) {
            None => {
                findings.push(Finding::new(RATCHET, line, format!("{key} = {value} is missing")))
            }
            Some(limit) if value > limit => findings.push(Finding::new(
                RATCHET,
                line,
                format!("{value} {what}, at most {limit}: delete, or raise it with the reason"),
            )),
            Some(_) => {}
        }
    }
    findings
}

fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// `cargo xtask size [--lower] [--circles]`: prints every figure with its limit; `--lower` writes lower
/// limits, `--circles` lists the modules of each circle with what they use of each other.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let tree = Tree::read(root)?;
    if args.iter().any(|arg| arg == "--circles") {
        for Circle { package, modules, uses } in module_circles(&tree) {
            println!("{package}: {} modules\n  {}", modules.len(), uses.join("\n  "));
        }
        return Ok(());
    }
    let figures = figures(&tree, &Source::all(&tree));
    let text = tree.get(RATCHET).unwrap_or_default();
    let limits: toml::Table = text.parse().with_context(|| RATCHET.to_owned())?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for SizeFigure { key, what, value } in &figures {
        let limit = limits.get(*key).and_then(number);
        println!(
            "{value:>9}  {what}{}",
            limit.map_or(String::new(), |l| format!(" (at most {l})"))
        );
        let old = lines.iter_mut().find(|line| line.starts_with(&format!("{key} = ")));
        if let (Some(line), Some(limit)) = (old, limit)
            && *value < limit
        {
            *line = format!("{key} = {value}");
        }
    }
    for built in ["target/release/pathline", "target/dist/pathline"] {
        if let Ok(file) = fs::metadata(root.join(built)) {
            println!("{:>9.1}  MB of {built}", file.len() as f64 / 1e6);
        }
    }
    if args.iter().any(|arg| arg == "--lower") {
        fs::write(root.join(RATCHET), lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// Files of one crate that use each other in a circle.
struct Circle {
    package: String,
    modules: BTreeSet<Vec<String>>,
    /// `a -> b: names`, for each file that uses another of the circle.
    uses: Vec<String>,
}

/// What a file uses of other files: names by module.
type Uses = BTreeMap<Vec<String>, BTreeSet<String>>;

/// Every circle. A file uses another if a path of it leads there; what a file re-exports counts as its
/// own.
fn module_circles(tree: &Tree) -> Vec<Circle> {
    let mut crates: BTreeMap<&str, BTreeMap<Vec<String>, &str>> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        if let Some((package, file)) = path.split_once("/src/")
            && !file.starts_with("bin/")
        {
            crates.entry(package).or_default().insert(module_path(file), text);
        }
    }
    let mut circles: Vec<Circle> = Vec::new();
    for (package, modules) in crates {
        let edges: BTreeMap<&Vec<String>, Uses> = modules
            .iter()
            .filter_map(|(module, text)| {
                let mut uses = ModuleUses { module, modules: &modules, found: Uses::new() };
                uses.visit_file(&syn::parse_file(text).ok()?);
                uses.found.remove(module);
                Some((module, uses.found))
            })
            .collect();
        let reached: BTreeMap<_, _> =
            edges.keys().map(|from| (*from, reachable_modules(&edges, from))).collect();
        let mut seen = BTreeSet::new();
        for from in edges.keys() {
            let leads_back =
                |to: &&Vec<String>| reached.get(*to).is_some_and(|back| back.contains(*from));
            let circle: BTreeSet<_> = reached[from].iter().filter(leads_back).cloned().collect();
            if circle.len() > 1 && !seen.contains(*from) {
                seen.extend(circle.clone());
                let uses =
                    circle.iter().flat_map(|from| describe_uses(from, &edges[from], &circle));
                circles.push(Circle {
                    package: package.to_owned(),
                    uses: uses.collect(),
                    modules: circle,
                });
            }
        }
    }
    circles
}

fn describe_uses(from: &[String], uses: &Uses, circle: &BTreeSet<Vec<String>>) -> Vec<String> {
    let inside = uses.iter().filter(|(to, _)| circle.contains(*to));
    let line = |(to, names): (&Vec<String>, &BTreeSet<String>)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("{} -> {}: {}", from.join("::"), to.join("::"), names.join(", "))
    };
    inside.map(line).collect()
}

fn reachable_modules(
    edges: &BTreeMap<&Vec<String>, Uses>,
    from: &Vec<String>,
) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for to in edges.get(at).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    reached
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; `lib.rs` and `main.rs` are the root.
fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].contains(&path.last().map_or("", String::as_str)) {
        path.pop();
    }
    path
}

/// Collects the modules that one file names. Modules that stand in it are it.
struct ModuleUses<'a> {
    module: &'a Vec<String>,
    modules: &'a BTreeMap<Vec<String>, &'a str>,
    found: Uses,
}

impl ModuleUses<'_> {
    /// Only paths below the root count: names of the root are re-exports of what stands elsewhere.
    fn add(&mut self, path: &[String]) {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => self.module[..self.module.len().saturating_sub(1)].to_vec(),
            _ => return,
        };
        let mut name = "*";
        for part in &path[1..] {
            if part == "super" {
                at.pop();
                continue;
            }
            at.push(part.clone());
            if !self.modules.contains_key(&at) {
                at.pop();
                name = part;
                break;
            }
        }
        if !at.is_empty() {
            self.found.entry(at).or_default().insert(name.to_owned());
        }
    }

    fn add_tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_tree(&path.tree, prefix);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_tree(item, prefix));
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                prefix.push(ident.to_string());
                self.add(prefix);
                prefix.pop();
            }
            syn::UseTree::Glob(_) => self.add(prefix),
        }
    }
}

impl<'ast> Visit<'ast> for ModuleUses<'_> {
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &mut Vec::new());
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(&path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_neither_comment_nor_blank_nor_test() {
        let text = "//! Doc.\n\n/// Doc.\nfn read_it() {\n    // Why.\n    let a = \"x\n    y\";\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        let tree = Tree::of([("crates/a/src/lib.rs", text)]);
        let sources = Source::all(&tree);
        // fn, let, y" and }; of tests the attribute, mod, f and }.
        assert_eq!((sources[0].code_lines(false), sources[0].code_lines(true)), (4, 4));
        assert_eq!(sources[0].product_functions().collect::<Vec<_>>(), ["read_it"]);
    }

    #[test]
    fn files_that_use_each_other_are_one_circle() {
        let a = ("crates/x/src/a.rs", "use crate::{b::B, c};");
        let b = ("crates/x/src/b/mod.rs", "fn f() { super::a::g() }");
        let apart =
            [a, b, ("crates/x/src/c.rs", "use std::fmt;"), ("crates/x/src/lib.rs", "mod a;")];
        let found = module_circles(&Tree::of(apart));
        assert_eq!(found[0].uses, ["a -> b: B", "b -> a: g"]);
        let sizes = |files| {
            let circles = module_circles(&Tree::of(files)).into_iter();
            circles.map(|circle| circle.modules.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(apart), [2], "a and b");
        let closed = [a, b, ("crates/x/src/c.rs", "use super::b::B;"), ("crates/x/src/d.rs", "")];
        assert_eq!(sizes(closed), [3], "a, b and c");
        let line = [a, ("crates/x/src/b.rs", "use crate::c::C;"), ("crates/x/src/c.rs", "")];
        assert!(module_circles(&Tree::of(line)).is_empty());
    }

    #[test]
    fn a_figure_above_its_limit_is_found_and_so_is_one_without() {
        let text = ("crates/a/src/lib.rs", "fn f() {}\nfn g_h() {}\n");
        let (tree, mut limits) = (Tree::of([text]), String::new());
        let sources = Source::all(&tree);
        assert_eq!(ratchet(&tree, &sources).len(), figures(&tree, &sources).len());
        for figure in figures(&tree, &sources) {
            limits += &format!("{} = {}\n", figure.key, figure.value);
        }
        let held = Tree::of([text, (RATCHET, &limits)]);
        assert_eq!(ratchet(&held, &sources), []);
        assert!(
            limits.contains("one-word-functions = 50\n") && limits.contains("code-lines = 2\n")
        );
        let lower = limits.replace("code-lines = 2", "code-lines = 1");
        let found = ratchet(&Tree::of([text, (RATCHET, &lower)]), &sources);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}
