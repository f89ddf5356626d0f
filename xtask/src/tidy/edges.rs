//! The crate graph is the data flow: each edge is allowed by name.

use std::sync::LazyLock;

use toml::{Table, Value};

use super::{Finding, Tree};

/// What a crate may use of this workspace.
struct Crate {
    name: String,
    /// Where it lies, relative to the root: `crates/GROUP/NAME`.
    folder: String,
    /// In the shipped code.
    uses: Vec<String>,
    /// In its tests, besides.
    tests_use: Vec<String>,
    /// Its folders that may hold unsafe code.
    unsafe_in: Vec<String>,
}

/// The allowed edges, group by group. `bench` names no vendor and no simulator; `explain` renders nothing
/// and reaches no device; nothing but tests uses group `testing`, and nothing the tools.
static CRATES: LazyLock<Vec<Crate>> =
    LazyLock::new(|| read_crates(include_str!("../../crates.toml")));

/// Crates in the order of their groups; none of a text that is no such table.
fn read_crates(text: &str) -> Vec<Crate> {
    let table = text.parse::<Table>().unwrap_or_default();
    let mut crates = Vec::new();
    for group in strings(&table, "groups") {
        let Some(entries) = table.get(&group).and_then(Value::as_table) else { continue };
        // The program belongs to no group.
        if group == "cli" {
            crates.push(read_crate("cli", "crates/cli".to_owned(), entries));
            continue;
        }
        for (name, entry) in entries {
            let Some(entry) = entry.as_table() else { continue };
            let folder = match group == "tools" {
                true => name.clone(),
                false => format!("crates/{group}/{name}"),
            };
            crates.push(read_crate(name, folder, entry));
        }
    }
    crates
}

fn read_crate(name: &str, folder: String, entry: &Table) -> Crate {
    let [uses, tests_use, unsafe_in] =
        ["uses", "tests_use", "unsafe_in"].map(|key| strings(entry, key));
    Crate { name: name.to_owned(), folder, uses, tests_use, unsafe_in }
}

/// The strings of an array; none where there is no such array.
fn strings(table: &Table, key: &str) -> Vec<String> {
    let values = table.get(key).and_then(Value::as_array).into_iter().flatten();
    values.filter_map(|value| Some(value.as_str()?.to_owned())).collect()
}

/// Whether a file may hold unsafe code.
pub(super) fn may_be_unsafe(path: &str) -> bool {
    CRATES.iter().any(|known| {
        let inside = path.strip_prefix(&known.folder).and_then(|file| file.strip_prefix('/'));
        let in_folder = |folder: &String| {
            inside.is_some_and(|file| {
                file.strip_prefix(folder.as_str()).is_some_and(|f| f.starts_with('/'))
            })
        };
        known.unsafe_in.iter().any(in_folder)
    })
}

/// Manifests with the crate that each belongs to.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &str, Option<&'static Crate>)> {
    tree.ending("Cargo.toml").filter(|(path, _)| *path != "Cargo.toml").map(|(path, text)| {
        let folder = path.trim_end_matches("/Cargo.toml");
        (path, text, CRATES.iter().find(|known| known.folder == folder))
    })
}

/// Checks every dependency on a crate of this workspace against the table.
pub(super) fn edges(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text, known) in manifests(tree) {
        let Some(known) = known else {
            let say = "is not in the table of crates (xtask/crates.toml); say what it may use";
            findings.push(Finding::new(path, 1, say));
            continue;
        };
        let manifest: Table = match text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(Finding::new(path, 1, format!("is no TOML: {error}")));
                continue;
            }
        };
        for (section, name, _) in dependencies(&manifest, "") {
            let Some(used) = name.strip_prefix("pathline-") else { continue };
            let in_tests = section.ends_with("dev-dependencies");
            if known.uses.iter().any(|u| u == used)
                || (in_tests && known.tests_use.iter().any(|u| u == used))
            {
                continue;
            }
            let line = text.lines().position(|l| l.starts_with(&name)).map_or(1, |at| at + 1);
            let say = format!("{} may not depend on {used} ({section})", known.name);
            findings.push(Finding::new(path, line, say));
        }
    }
    findings
}

/// `(section, package, name in sources)` of every dependency, those of single targets included.
fn dependencies(table: &Table, prefix: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (key, value) in table {
        let Value::Table(inner) = value else { continue };
        let section = format!("{prefix}{key}");
        if key.ends_with("dependencies") {
            found.extend(inner.iter().map(|(alias, spec)| {
                let package = spec.get("package").and_then(Value::as_str).unwrap_or(alias);
                (section.clone(), package.to_owned(), alias.clone())
            }));
        } else if key == "target" || prefix.starts_with("target") {
            found.extend(dependencies(inner, &format!("{section}.")));
        }
    }
    found
}

/// Every dependency is named in the sources that it is for: of the crate, or also of its tests. One
/// that is not costs a build on every machine.
pub(super) fn unused(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut of_workspace = workspace_dependencies(tree);
    for (path, text, _) in manifests(tree) {
        let folder = path.trim_end_matches("Cargo.toml");
        let Ok(manifest) = text.parse::<Table>() else { continue };
        for (section, _, alias) in dependencies(&manifest, "") {
            of_workspace.retain(|name| *name != alias);
            let homes: &[&str] = match section.ends_with("dev-dependencies") {
                true => &["src/", "tests/", "benches/", "examples/"],
                false => &["src/", "build.rs"],
            };
            let is_home = |file: &str| {
                let inside = file.strip_prefix(folder);
                inside.is_some_and(|file| homes.iter().any(|home| file.starts_with(home)))
            };
            let mut sources = tree.ending(".rs").filter(|(file, _)| is_home(file));
            if !sources.any(|(_, source)| names(source, &alias)) {
                let line = text.lines().position(|l| l.starts_with(&alias)).map_or(1, |at| at + 1);
                let say = format!("{alias} is not used ({section}); take it out");
                findings.push(Finding::new(path, line, say));
            }
        }
    }
    for name in of_workspace {
        let say = format!("no crate depends on {name}; take it out");
        findings.push(Finding::new("Cargo.toml", 1, say));
    }
    findings
}

/// Names under `[workspace.dependencies]`.
fn workspace_dependencies(tree: &Tree) -> Vec<String> {
    let manifest = tree.get("Cargo.toml").and_then(|text| text.parse::<Table>().ok());
    let table = manifest.as_ref().and_then(|t| t.get("workspace")?.get("dependencies")?.as_table());
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

/// Whether code, not a comment, has a path into a crate, imports it whole, or loads the shared object
/// that it is built as.
fn names(source: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let loads = format!("built(\"{name}\")");
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.into_iter().any(|line| {
        let is_loaded = line.contains(&loads);
        is_loaded
            || line.match_indices(&name).any(|(at, _)| {
                let (before, after) = (&line[..at], &line[at + name.len()..]);
                let begins = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let imports = before.trim_end().ends_with("use")
                    && after.trim_start().starts_with([';', 'a']);
                begins && (after.starts_with("::") || imports)
            })
    })
}

/// Every crate takes the lints of the workspace, and those forbid unsafe code.
pub(super) fn lints(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text, _) in manifests(tree) {
        let takes = text
            .parse::<Table>()
            .ok()
            .and_then(|t| t.get("lints")?.get("workspace")?.as_bool())
            .unwrap_or(false);
        if !takes {
            findings.push(Finding::new(path, 1, "needs [lints] workspace = true"));
        }
    }
    let denied = tree
        .get("Cargo.toml")
        .and_then(|text| text.parse::<Table>().ok())
        .and_then(|t| {
            let level = t.get("workspace")?.get("lints")?.get("rust")?.get("unsafe_code")?;
            Some(["deny", "forbid"].contains(&level.as_str()?))
        })
        .unwrap_or(false);
    if !denied {
        let say = "needs unsafe_code = \"deny\" in [workspace.lints.rust]";
        findings.push(Finding::new("Cargo.toml", 1, say));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_against_the_flow_is_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\npathline-sim.workspace = true\n";
        let found = edges(&Tree::of([("crates/measure/bench/Cargo.toml", manifest)]));
        assert_eq!(
            found,
            [Finding::new(
                "crates/measure/bench/Cargo.toml",
                4,
                "bench may not depend on sim (dependencies)"
            )]
        );
        // The same edge in its tests is allowed, and explain may not have it even there.
        let dev = manifest.replace("[dependencies]", "[dev-dependencies]");
        assert_eq!(edges(&Tree::of([("crates/measure/bench/Cargo.toml", &dev)])), []);
        assert_eq!(edges(&Tree::of([("crates/show/explain/Cargo.toml", &dev)])).len(), 1);
    }

    #[test]
    fn edges_do_not_hide_behind_names_or_targets() {
        let renamed = "[dependencies]\nphysics = { package = \"pathline-gpu\", path = \"x\" }\n";
        assert_eq!(edges(&Tree::of([("crates/show/explain/Cargo.toml", renamed)])).len(), 1);
        let target = "[target.'cfg(unix)'.dependencies]\npathline-hal.workspace = true\n";
        assert_eq!(edges(&Tree::of([("crates/ground/schema/Cargo.toml", target)])).len(), 1);
        assert_eq!(edges(&Tree::of([("crates/news/Cargo.toml", "")])).len(), 1, "unknown crate");
        assert_eq!(edges(&Tree::of([("crates/machine/hal/Cargo.toml", "[[")])).len(), 1, "no TOML");
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let manifest = "[dependencies]\nserde.workspace = true\n\
                        [dev-dependencies]\nproptest = \"1\"\n";
        let root = "[workspace.dependencies]\nserde = \"1\"\n";
        let found = |lib: &str, test: &str| {
            unused(&Tree::of([
                ("Cargo.toml", root),
                ("crates/machine/hal/Cargo.toml", manifest),
                ("crates/machine/hal/src/lib.rs", lib),
                ("crates/machine/hal/tests/it/a.rs", test),
                // Of another crate.
                (
                    "crates/machine/sim/src/lib.rs",
                    "use serde::Serialize;\nuse proptest::prelude::*;\n",
                ),
            ]))
        };
        let (lib, test) = ("use serde::Serialize;\n", "fn f() { proptest::proptest!(); }\n");
        assert_eq!(found(lib, test), []);
        // A comment, an attribute of a derive and a longer name are no use, nor is a test one for
        // what ships.
        let idle = "// serde::Serialize\nuse pathline_serde::x;\n#[serde(default)]\n";
        let say = "serde is not used (dependencies); take it out";
        assert_eq!(
            found(idle, &format!("{lib}{test}")),
            [Finding::new("crates/machine/hal/Cargo.toml", 2, say)]
        );
        assert_eq!(found(lib, "").len(), 1);
        assert_eq!(found("use serde as s;\n", test), []);
        // A shared object that tests load.
        assert_eq!(found(lib, "fn f() { pathline_stub::built(\"proptest\"); }\n"), []);
        let bare = Tree::of([("Cargo.toml", root), ("crates/machine/hal/Cargo.toml", "")]);
        let say = "no crate depends on serde; take it out";
        assert_eq!(unused(&bare), [Finding::new("Cargo.toml", 1, say)]);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"deny\"\n";
        let good = "[lints]\nworkspace = true\n";
        assert_eq!(
            lints(&Tree::of([("Cargo.toml", root), ("crates/machine/hal/Cargo.toml", good)])),
            []
        );
        assert_eq!(
            lints(&Tree::of([("Cargo.toml", root), ("crates/machine/hal/Cargo.toml", "")])).len(),
            1
        );
        assert_eq!(lints(&Tree::of([("Cargo.toml", "")])).len(), 1);
    }

    #[test]
    fn every_edge_stays_in_its_group_or_leads_to_one_before() {
        // Crates stand in the order of their groups: the last of a group comes before the first of the next.
        let group =
            |known: &Crate| known.folder.rsplit_once('/').map(|(group, _)| group.to_owned());
        for (at, known) in CRATES.iter().enumerate() {
            for used in &known.uses {
                let before = CRATES.iter().position(|c| c.name == *used);
                let allowed =
                    before.is_some_and(|to| to < at || group(&CRATES[to]) == group(known));
                assert!(allowed, "{} uses {used}", known.name);
            }
        }
        assert_eq!(CRATES.len(), include_str!("../../crates.toml").matches("\n[").count());
    }
}
