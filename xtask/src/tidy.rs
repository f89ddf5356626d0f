//! Style rules that can be tests. Each finding names file and line and says what to do instead.

mod commands;
mod edges;
pub(crate) mod names;
pub(crate) mod size;
mod source;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::Check::{All, Files, Sources};
use self::source::Source;

/// A rule that holds for the whole tree.
struct Rule {
    name: &'static str,
    check: Check,
}

/// What a rule looks at.
enum Check {
    /// Text files of any kind.
    Files(fn(&Tree) -> Vec<Finding>),
    /// Rust sources, taken apart.
    Sources(fn(&[Source]) -> Vec<Finding>),
    /// Both.
    All(fn(&Tree, &[Source]) -> Vec<Finding>),
}

/// Every rule, in display order.
const RULES: &[Rule] = &[
    Rule { name: "edges", check: Files(edges::edges) },
    Rule { name: "lints", check: Files(edges::lints) },
    Rule { name: "unused", check: Files(edges::unused) },
    Rule { name: "unsafe", check: Sources(source::sound) },
    Rule { name: "clock", check: Sources(source::clock) },
    Rule { name: "printing", check: Sources(source::printing) },
    Rule { name: "vendors", check: Sources(source::vendors) },
    Rule { name: "unfinished", check: Sources(source::unfinished) },
    Rule { name: "length", check: Sources(source::length) },
    Rule { name: "blanks", check: Files(text::blanks) },
    Rule { name: "width", check: Files(text::width) },
    Rule { name: "names", check: Files(names::names) },
    Rule { name: "paths", check: Files(text::paths) },
    Rule { name: "links", check: Files(text::links) },
    Rule { name: "commands", check: Files(commands::commands) },
    Rule { name: "fields", check: Files(fields) },
    Rule { name: "size", check: All(size::ratchet) },
];

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(file: &str, line: usize, text: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// The files of the repository, by path relative to its root.
#[derive(Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    /// Pictures and archives.
    others: BTreeSet<String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, root: &Path, folder: &str) -> Result<()> {
        let entries = fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            let built = ["target", "runs", "artifacts"].contains(&name.as_str())
                || name.starts_with("target-")
                || (name.starts_with('.') && ![".ci", ".cargo"].contains(&name.as_str()));
            if built {
                continue;
            } else if kind.is_dir() {
                self.add(root, &path)?;
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                self.texts.insert(path, text);
            } else {
                self.others.insert(path);
            }
        }
        Ok(())
    }

    /// Files whose name ends so, with their text.
    fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| path.ends_with(end))
    }

    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether there is a file or a folder of this path.
    fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.texts.contains_key(path)
            || self.others.contains(path)
            || self
                .texts
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    #[cfg(test)]
    fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let texts = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        Self { texts, others: BTreeSet::new() }
    }
}

/// Every field of the journal is explained where the format is, and the example there is right.
fn fields(tree: &Tree) -> Vec<Finding> {
    const HOME: &str = "docs/understand/records.md";
    let Some(text) = tree.get(HOME) else {
        return vec![Finding::new(HOME, 1, "is missing; it explains the fields of the journal")];
    };
    let mut findings: Vec<Finding> = crate::schema::fields()
        .into_iter()
        .filter(|field| !text.contains(&format!("`{field}`")))
        .map(|field| Finding::new(HOME, 1, format!("does not explain the field `{field}`")))
        .collect();
    let text = crate::schema::unfold(text);
    for line in crate::schema::lines().unwrap_or_default() {
        if !text.lines().any(|shown| shown == line) {
            let kind: String = line.chars().take(24).collect();
            let say = format!("example {kind}.. is not what cargo xtask schema prints");
            findings.push(Finding::new(HOME, 1, say));
        }
    }
    findings
}

/// Checks every rule; fails if one is broken.
pub(crate) fn run(root: &Path, _args: &[String]) -> Result<()> {
    let tree = Tree::read(root)?;
    let sources = Source::all(&tree);
    let mut count = 0;
    for rule in RULES {
        let mut findings = match rule.check {
            Files(check) => check(&tree),
            Sources(check) => check(&sources),
            All(check) => check(&tree, &sources),
        };
        findings.sort();
        for finding in &findings {
            println!("{finding} [{}]", rule.name);
        }
        count += findings.len();
    }
    if count > 0 {
        bail!("{count} findings");
    }
    println!("tidy: {} rules hold over {} files", RULES.len(), tree.texts.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_or_an_example_that_is_not_in_the_document_is_found() {
        let names: Vec<String> =
            crate::schema::fields().iter().map(|field| format!("`{field}` ")).collect();
        let all = names.concat() + "\n" + &crate::schema::lines().unwrap().join("\n");
        assert_eq!(fields(&Tree::of([("docs/understand/records.md", &all)])), []);
        let folded = all.lines().map(crate::schema::fold).collect::<Vec<_>>().join("\n");
        assert_ne!(folded, all);
        assert_eq!(fields(&Tree::of([("docs/understand/records.md", &folded)])), []);
        let less = all.replace("`samples_ns`", "");
        let found = fields(&Tree::of([("docs/understand/records.md", &less)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("samples_ns"));
        let stale = all.replace("\"schema\":", "\"format\":");
        assert_eq!(fields(&Tree::of([("docs/understand/records.md", &stale)])).len(), 1);
        assert_eq!(fields(&Tree::default()).len(), 1, "no file at all");
    }

    #[test]
    fn folders_exist_as_far_as_they_hold_files() {
        let tree = Tree::of([("docs/a.md", ""), ("docs-old/b.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/a.md") && !tree.exists("doc"));
    }
}
