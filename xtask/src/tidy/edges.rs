//! The crate graph is the data flow: each edge is allowed by name.

use toml::{Table, Value};

use super::{Finding, Tree};

/// What a crate may use of this workspace.
struct Crate {
    name: &'static str,
    /// In the shipped code.
    uses: &'static [&'static str],
    /// In its tests, besides.
    tests_use: &'static [&'static str],
    /// Its folders that may hold unsafe code.
    unsafe_in: &'static [&'static str],
}

/// The allowed edges. `bench` names no vendor and no simulator; `explain` renders nothing
/// and reaches no device.
const CRATES: &[Crate] = &[
    Crate { name: "schema", uses: &[], tests_use: &[], unsafe_in: &[] },
    Crate { name: "stats", uses: &[], tests_use: &[], unsafe_in: &[] },
    Crate { name: "flow", uses: &["schema", "stats"], tests_use: &[], unsafe_in: &[] },
    Crate { name: "message", uses: &["schema", "flow"], tests_use: &[], unsafe_in: &[] },
    Crate { name: "hal", uses: &["schema"], tests_use: &[], unsafe_in: &[] },
    Crate { name: "dylib", uses: &[], tests_use: &[], unsafe_in: &["src"] },
    Crate { name: "tuner", uses: &[], tests_use: &["dylib"], unsafe_in: &["src", "tests"] },
    Crate {
        name: "host",
        uses: &["schema", "hal"],
        tests_use: &["stats"],
        unsafe_in: &["src", "benches/loops"],
    },
    Crate {
        name: "gpu",
        uses: &["schema", "hal", "dylib", "host"],
        tests_use: &["stub"],
        unsafe_in: &["src", "examples/hip_over_cuda"],
    },
    Crate {
        name: "transport",
        uses: &["schema", "hal", "dylib", "host", "gpu"],
        tests_use: &["stats", "stub"],
        unsafe_in: &["src", "benches/messages"],
    },
    Crate {
        name: "storage",
        uses: &["schema", "hal", "dylib", "host", "gpu"],
        tests_use: &[],
        unsafe_in: &["src"],
    },
    Crate {
        name: "live",
        uses: &["schema", "hal", "host", "gpu", "transport", "storage"],
        tests_use: &["stub"],
        unsafe_in: &[],
    },
    Crate {
        name: "sim",
        uses: &["schema", "hal", "flow", "message"],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate { name: "topo", uses: &["schema"], tests_use: &[], unsafe_in: &[] },
    Crate {
        name: "multipath",
        uses: &["schema", "hal"],
        tests_use: &["flow", "sim", "stats"],
        unsafe_in: &[],
    },
    Crate {
        name: "capi",
        uses: &["schema", "flow", "hal", "host", "gpu", "topo", "multipath"],
        tests_use: &["sim", "stub"],
        unsafe_in: &["src", "tests"],
    },
    Crate {
        name: "diagnose",
        uses: &["schema", "stats", "flow", "message"],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate {
        name: "bench",
        uses: &["schema", "stats", "flow", "hal", "diagnose", "multipath"],
        tests_use: &["sim"],
        unsafe_in: &[],
    },
    Crate {
        name: "published",
        uses: &["schema", "stats", "flow", "message"],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate {
        name: "explain",
        uses: &["schema", "stats", "flow", "message", "published"],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate {
        name: "advise",
        uses: &["schema", "stats", "flow", "tuner"],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate { name: "place", uses: &["schema", "flow"], tests_use: &[], unsafe_in: &[] },
    Crate { name: "paste", uses: &["schema", "topo"], tests_use: &[], unsafe_in: &[] },
    Crate {
        name: "reason",
        uses: &["schema", "stats", "flow", "message", "diagnose", "paste"],
        tests_use: &["topo"],
        unsafe_in: &[],
    },
    Crate {
        name: "findings",
        uses: &["schema", "stats", "flow", "message", "published", "explain", "diagnose"],
        tests_use: &["hal", "sim", "bench"],
        unsafe_in: &[],
    },
    Crate {
        name: "report",
        uses: &[
            "schema",
            "stats",
            "flow",
            "message",
            "published",
            "explain",
            "findings",
            "diagnose",
        ],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate {
        name: "calibrate",
        uses: &["schema", "stats", "flow", "diagnose"],
        tests_use: &["hal", "sim", "bench"],
        unsafe_in: &[],
    },
    Crate {
        name: "runner",
        uses: &[
            "schema",
            "flow",
            "hal",
            "dylib",
            "host",
            "gpu",
            "transport",
            "storage",
            "live",
            "sim",
            "topo",
            "bench",
            "diagnose",
            "advise",
            "stats",
            "place",
        ],
        tests_use: &[],
        unsafe_in: &[],
    },
    Crate {
        name: "cli",
        uses: &[
            "schema",
            "stats",
            "flow",
            "dylib",
            "gpu",
            "transport",
            "storage",
            "sim",
            "topo",
            "bench",
            "runner",
            "explain",
            "diagnose",
            "advise",
            "place",
            "paste",
            "reason",
            "findings",
            "report",
            "calibrate",
            "message",
            "published",
        ],
        tests_use: &["stub", "guard"],
        unsafe_in: &[],
    },
    // Never shipped: only tests may use them.
    Crate {
        name: "stub",
        uses: &["schema", "hal", "flow", "sim"],
        tests_use: &[],
        unsafe_in: &["src"],
    },
    Crate { name: "stub/guard", uses: &[], tests_use: &[], unsafe_in: &["src", "tests"] },
];

/// Development tools beside the crates; nothing may use them.
const TOOLS: &[Crate] = &[
    Crate { name: "xtask", uses: &["schema"], tests_use: &[], unsafe_in: &[] },
    Crate {
        name: "fuzz",
        uses: &[
            "schema",
            "flow",
            "message",
            "topo",
            "published",
            "advise",
            "paste",
            "reason",
            "place",
            "storage",
            "tuner",
            "capi",
            "stub",
        ],
        tests_use: &[],
        unsafe_in: &["src"],
    },
];

/// Whether a file may hold unsafe code.
pub(super) fn may_be_unsafe(path: &str) -> bool {
    let crates = CRATES.iter().map(|c| ("crates/", c)).chain(TOOLS.iter().map(|tool| ("", tool)));
    let mut folders =
        crates.flat_map(|(at, c)| c.unsafe_in.iter().map(move |inner| (at, c.name, inner)));
    folders.any(|(at, name, inner)| path.starts_with(&format!("{at}{name}/{inner}/")))
}

/// Manifests with the crate that each belongs to.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &str, Option<&'static Crate>)> {
    tree.ending("Cargo.toml").filter(|(path, _)| *path != "Cargo.toml").map(|(path, text)| {
        let folder = path.trim_end_matches("/Cargo.toml");
        let known = match folder.strip_prefix("crates/") {
            Some(name) => CRATES.iter().find(|c| c.name == name),
            None => TOOLS.iter().find(|c| c.name == folder),
        };
        (path, text, known)
    })
}

/// Checks every dependency on a crate of this workspace against the table.
pub(super) fn edges(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text, known) in manifests(tree) {
        let Some(known) = known else {
            let say =
                "is not in the table of crates (xtask/src/tidy/edges.rs); say what it may use";
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
            if known.uses.contains(&used) || (in_tests && known.tests_use.contains(&used)) {
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
        let found = edges(&Tree::of([("crates/bench/Cargo.toml", manifest)]));
        assert_eq!(
            found,
            [Finding::new(
                "crates/bench/Cargo.toml",
                4,
                "bench may not depend on sim (dependencies)"
            )]
        );
        // The same edge in its tests is allowed, and explain may not have it even there.
        let dev = manifest.replace("[dependencies]", "[dev-dependencies]");
        assert_eq!(edges(&Tree::of([("crates/bench/Cargo.toml", &dev)])), []);
        assert_eq!(edges(&Tree::of([("crates/explain/Cargo.toml", &dev)])).len(), 1);
    }

    #[test]
    fn edges_do_not_hide_behind_names_or_targets() {
        let renamed = "[dependencies]\nphysics = { package = \"pathline-gpu\", path = \"x\" }\n";
        assert_eq!(edges(&Tree::of([("crates/explain/Cargo.toml", renamed)])).len(), 1);
        let target = "[target.'cfg(unix)'.dependencies]\npathline-hal.workspace = true\n";
        assert_eq!(edges(&Tree::of([("crates/schema/Cargo.toml", target)])).len(), 1);
        assert_eq!(edges(&Tree::of([("crates/news/Cargo.toml", "")])).len(), 1, "unknown crate");
        assert_eq!(edges(&Tree::of([("crates/hal/Cargo.toml", "[[")])).len(), 1, "no TOML");
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let manifest = "[dependencies]\nserde.workspace = true\n\
                        [dev-dependencies]\nproptest = \"1\"\n";
        let root = "[workspace.dependencies]\nserde = \"1\"\n";
        let found = |lib: &str, test: &str| {
            unused(&Tree::of([
                ("Cargo.toml", root),
                ("crates/hal/Cargo.toml", manifest),
                ("crates/hal/src/lib.rs", lib),
                ("crates/hal/tests/it/a.rs", test),
                // Of another crate.
                ("crates/sim/src/lib.rs", "use serde::Serialize;\nuse proptest::prelude::*;\n"),
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
            [Finding::new("crates/hal/Cargo.toml", 2, say)]
        );
        assert_eq!(found(lib, "").len(), 1);
        assert_eq!(found("use serde as s;\n", test), []);
        // A shared object that tests load.
        assert_eq!(found(lib, "fn f() { pathline_stub::built(\"proptest\"); }\n"), []);
        let bare = Tree::of([("Cargo.toml", root), ("crates/hal/Cargo.toml", "")]);
        let say = "no crate depends on serde; take it out";
        assert_eq!(unused(&bare), [Finding::new("Cargo.toml", 1, say)]);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"deny\"\n";
        let good = "[lints]\nworkspace = true\n";
        assert_eq!(lints(&Tree::of([("Cargo.toml", root), ("crates/hal/Cargo.toml", good)])), []);
        assert_eq!(
            lints(&Tree::of([("Cargo.toml", root), ("crates/hal/Cargo.toml", "")])).len(),
            1
        );
        assert_eq!(lints(&Tree::of([("Cargo.toml", "")])).len(), 1);
    }

    #[test]
    fn the_table_has_no_circle() {
        // Every crate uses only crates that stand before it.
        for (at, known) in CRATES.iter().enumerate() {
            for used in known.uses {
                assert!(CRATES[..at].iter().any(|c| c.name == *used), "{} uses {used}", known.name);
            }
        }
    }
}
