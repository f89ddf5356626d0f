//! Rules about text files: blanks, paths of somebody's machine, links.

use super::{Finding, Tree};

/// Files that people write. Recorded and foreign data is as it is.
fn written(path: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".css", ".js", ".sh"];
    (ends.iter().any(|end| path.ends_with(end)) || path.starts_with(".ci/"))
        && !path.contains("/data/")
}

/// No tabs, no blanks at the end of a line, one line end at the end of a file.
pub(super) fn blanks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| written(path)) {
        for (at, line) in text.lines().enumerate() {
            if line.contains('\t') {
                findings.push(Finding::new(path, at + 1, "tab; indent with blanks"));
            }
            if line.ends_with([' ', '\r']) {
                findings.push(Finding::new(path, at + 1, "blank at the end of the line"));
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            let last = text.lines().count();
            findings.push(Finding::new(path, last, "end the file with one line end"));
        }
    }
    findings
}

/// Columns of prose in a document.
const COLUMNS: usize = 110;

/// Prose of documents fits [`COLUMNS`]. Rows of a table cannot be broken, nor can what is quoted
/// between fences.
pub(super) fn width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| written(path)) {
        let mut is_fenced = false;
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            }
            let breaks = !is_fenced && !line.starts_with('|') && !line.starts_with("    ");
            let columns = line.chars().count();
            if breaks && columns > COLUMNS {
                let say = format!("{columns} columns; break the line, {COLUMNS} are the most");
                findings.push(Finding::new(path, at + 1, say));
            }
        }
    }
    findings
}

/// Folders that exist on one machine only, as first part of an absolute path.
const PRIVATE: [&str; 4] = ["home", "root", "work", "Users"];

/// No path of the machine that somebody worked on.
pub(super) fn paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !path.contains("/data/")) {
        for (at, line) in text.lines().enumerate() {
            if let Some(private) = PRIVATE.iter().find(|name| names_path(line, name)) {
                let say = format!("path below /{private} means one machine; say it relatively");
                findings.push(Finding::new(path, at + 1, say));
            }
        }
    }
    findings
}

/// Whether an absolute path below `/name/` begins somewhere in the line.
fn names_path(line: &str, name: &str) -> bool {
    let start = format!("/{name}/");
    line.match_indices(&start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "/.-_*}~".contains(c)))
    })
}

/// Relative links in Markdown lead to a file, and to a heading of it.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.to_owned() } else { join(folder, file) };
            if !tree.exists(&file) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("link to {file}, which is not there"),
                ));
            } else if !heading.is_empty()
                && !tree.get(&file).is_some_and(|text| headings(text).any(|h| h == heading))
            {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("{file} has no heading #{heading}"),
                ));
            }
        }
    }
    findings
}

/// Targets of `[text](target)` outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Code spans are every other piece between backticks.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            if let Some((target, _)) = piece.split_once(')') {
                let target = target.split_whitespace().next().unwrap_or_default();
                found.push((at + 1, target.to_owned()));
            }
        }
    }
    found
}

/// Headings as a link names them.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

/// A path relative to a folder, without `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn one(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::of([(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_prose_is_found_and_tables_are_not() {
        let long = "word ".repeat(23).trim_end().to_owned();
        assert_eq!(long.len(), 23 * 5 - 1, "114 columns");
        assert_eq!(one(width, "docs/a.md", &format!("short\n{long}\n")), [2]);
        assert_eq!(one(width, "docs/a.md", &format!("| {long} |\n```\n{long}\n```\n")), NONE);
        assert_eq!(one(width, "a.rs", &long), NONE);
    }

    #[test]
    fn blanks_are_found() {
        assert_eq!(one(blanks, "a.rs", "a\n\tb\nc \nd\n"), [2, 3]);
        assert_eq!(one(blanks, "a.md", "a"), [1]);
        assert_eq!(one(blanks, "a.md", "a\n\n"), [2]);
        assert_eq!(one(blanks, "crates/topo/tests/data/a.md", "\ta \n"), NONE, "foreign data");
        assert_eq!(one(blanks, ".ci/run", "if x\n\tthen\n"), [2]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let path = |name: &str| format!("see \"/{name}/me/file\"\n");
        for name in PRIVATE {
            assert_eq!(one(paths, "a.md", &path(name)), [1], "{name}");
        }
        assert_eq!(one(paths, "a.md", &format!("{}\n", path("sys"))), NONE);
        // Part of a longer path, or of an address.
        let inner = format!("docs/{0}/a and https://example.org/{0}/a\n", "work");
        assert_eq!(one(paths, "a.md", &inner), NONE);
    }

    #[test]
    fn dead_links_are_found() {
        let tree = Tree::of([
            (
                "docs/a.md",
                "[b](b.md) [up](../README.md#how-it-works) [web](https://x.y)\n[c](c.md)\n",
            ),
            ("docs/b.md", "`[code](nothing.md)`\n```\n[code](nothing.md)\n```\n[in](#missing)\n"),
            ("README.md", "# How it works\n[docs](docs) [src](crates/)\n"),
        ]);
        let found: Vec<String> = links(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "README.md:2: link to crates, which is not there",
                "docs/a.md:2: link to docs/c.md, which is not there",
                "docs/b.md:5: docs/b.md has no heading #missing",
            ]
        );
    }
}
