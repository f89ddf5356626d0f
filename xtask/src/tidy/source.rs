//! Rules about Rust sources, on tokens: comments and strings cannot trip them, macros cannot hide.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::edges::may_be_unsafe;
use super::{Finding, Tree};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 100;

/// Places that may read a real clock: the machine's own, timeouts of processes, the progress bar,
/// development tools.
const CLOCK_HOMES: &[&str] = &[
    "crates/machine/host/src/clock.rs",
    "crates/machine/host/benches/",
    "crates/measure/runner/",
    "crates/cli/",
    "crates/act/tuner/tests/",
    "xtask/",
    "fuzz/",
];
/// Crates that know GPUs by what they can do.
const VENDOR_FREE: &[&str] = &[
    "crates/measure/bench/",
    "crates/judge/calibrate/",
    "crates/show/explain/",
    "crates/model/flow/",
    "crates/machine/hal/",
    "crates/model/message/",
    "crates/show/report/",
    "crates/machine/sim/",
];
/// Places that may print or exit.
const PRINT_HOMES: &[&str] = &["crates/cli/", "xtask/", "fuzz/"];

/// A token and its lines; a delimiter is one token at each end.
struct Token {
    text: String,
    line: usize,
    /// Strings may have several lines.
    last_line: usize,
}

/// A Rust source, taken apart once for all rules. One that does not parse is left to the compiler,
/// which says better what is wrong.
pub(super) struct Source {
    path: String,
    lines: Vec<String>,
    tokens: Vec<Token>,
    /// Name, first and last line.
    functions: Vec<(String, usize, usize)>,
    /// Lines that are built for tests only.
    tests: Vec<RangeInclusive<usize>>,
}

impl Source {
    fn of(path: &str, text: &str) -> Self {
        let mut source = Self {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            tokens: Vec::new(),
            functions: Vec::new(),
            tests: Vec::new(),
        };
        // Examples are tools for whoever works on a crate, as tests are.
        if ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder)) {
            source.tests.push(1..=usize::MAX);
        }
        if let Ok(stream) = text.parse::<TokenStream>() {
            if let Ok(file) = syn::parse2::<syn::File>(stream.clone()) {
                source.visit_file(&file);
            }
            flatten(stream, &mut source.tokens);
        }
        source
    }

    /// Every Rust source of a tree.
    pub(super) fn all(tree: &Tree) -> Vec<Self> {
        tree.ending(".rs").map(|(path, text)| Self::of(path, text)).collect()
    }

    /// Lines at which `words` follow each other.
    fn lines_of(&self, words: &[&str]) -> Vec<usize> {
        self.tokens
            .windows(words.len())
            .filter(|window| window.iter().zip(words).all(|(token, word)| token.text == *word))
            .map(|window| window[0].line)
            .collect()
    }

    fn is_test(&self, line: usize) -> bool {
        // A file of tests is declared under an attribute in another file.
        self.path.ends_with("/tests.rs") || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Lines with code on them, of tests or of everything else.
    pub(super) fn code_lines(&self, of_tests: bool) -> usize {
        let is_comment = |line: usize| {
            self.lines.get(line - 1).is_some_and(|l| l.trim_start().starts_with("//"))
        };
        let lines: BTreeSet<usize> =
            self.tokens.iter().flat_map(|token| token.line..=token.last_line).collect();
        lines.into_iter().filter(|&n| self.is_test(n) == of_tests && !is_comment(n)).count()
    }

    /// Names of functions that are not for tests.
    pub(super) fn product_functions(&self) -> impl Iterator<Item = &str> {
        let product = self.functions.iter().filter(|(_, first, _)| !self.is_test(*first));
        product.map(|(name, ..)| name.as_str())
    }

    pub(super) fn line_count(&self) -> usize {
        self.lines.len()
    }

    fn is_in(&self, homes: &[&str]) -> bool {
        homes.iter().any(|home| self.path.starts_with(home))
    }

    fn finding(&self, line: usize, text: impl Into<String>) -> Finding {
        Finding::new(&self.path, line, text)
    }

    fn add(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let (first, last) = (sig.span().start().line, block.span().end().line);
        self.functions.push((sig.ident.to_string(), first, last));
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = |attr: &syn::Attribute| {
            attr.path().is_ident("cfg")
                && attr.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test")
        };
        if item.attrs.iter().any(is_test) {
            let span = item.span();
            self.tests.push(span.start().line..=span.end().line);
        }
        visit::visit_item_mod(self, item);
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let span = tree.span();
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                into.push(Token::of(open, group.span_open()));
                flatten(group.stream(), into);
                into.push(Token::of(close, group.span_close()));
            }
            other => into.push(Token::of(&other.to_string(), span)),
        }
    }
}

impl Token {
    fn of(text: &str, span: Span) -> Self {
        Self { text: text.to_owned(), line: span.start().line, last_line: span.end().line }
    }
}

/// Unsafe code only where it may be, and each block with its reason.
pub(super) fn sound(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if !may_be_unsafe(&source.path) {
            for line in source.lines_of(&["unsafe"]) {
                findings.push(source.finding(
                    line,
                    "unsafe code belongs in the crates that the table of crates names",
                ));
            }
            for line in source.lines_of(&["unsafe_code"]) {
                findings.push(source.finding(
                    line,
                    "only crates that the table of crates names may allow unsafe code",
                ));
            }
            continue;
        }
        for word in ["{", "impl"] {
            for line in source.lines_of(&["unsafe", word]) {
                if !has_reason(&source.lines, line) {
                    let say = "needs a '// SAFETY:' line that says why it is sound";
                    findings.push(source.finding(line, say));
                }
            }
        }
    }
    findings
}

/// Whether a SAFETY comment stands in the statement of `line` (1 is the first) or right above it.
fn has_reason(lines: &[String], line: usize) -> bool {
    for (up, text) in lines[..line].iter().rev().enumerate() {
        let text = text.trim();
        if text.contains("// SAFETY:") {
            return true;
        }
        let comment = text.starts_with("//") || text.starts_with("#[");
        let ended = text.is_empty() || text.ends_with([';', '{', '}', ',']);
        if up > 0 && !comment && ended {
            return false;
        }
    }
    false
}

/// Real clocks are read at home only.
pub(super) fn clock(sources: &[Source]) -> Vec<Finding> {
    const CLOCKS: &[&[&str]] = &[
        &["Instant"],
        &["SystemTime"],
        &["Timestamp", ":", ":", "now"],
        &["Zoned", ":", ":", "now"],
        &["thread", ":", ":", "sleep"],
    ];
    banned(
        sources,
        CLOCK_HOMES,
        false,
        CLOCKS,
        "use the machine's Clock; real clocks live in crates/machine/host",
    )
}

/// Only the command line prints and exits. Tests may print.
pub(super) fn printing(sources: &[Source]) -> Vec<Finding> {
    const WAYS: &[&[&str]] = &[
        &["println", "!"],
        &["eprintln", "!"],
        &["print", "!"],
        &["eprint", "!"],
        &["io", ":", ":", "stdout"],
        &["io", ":", ":", "stderr"],
        &["process", ":", ":", "exit"],
        &["process", ":", ":", "abort"],
    ];
    banned(sources, PRINT_HOMES, true, WAYS, "return a value; only crates/cli prints and exits")
}

/// What a GPU can do is asked of `GpuCaps`, never concluded from the name of its vendor.
pub(super) fn vendors(sources: &[Source]) -> Vec<Finding> {
    const NAMES: &[&[&str]] = &[&["\"amd\""], &["\"nvidia\""]];
    let shared: Vec<&Source> = sources.iter().filter(|s| s.is_in(VENDOR_FREE)).collect();
    let mut findings = Vec::new();
    for source in shared {
        for line in NAMES.iter().flat_map(|name| source.lines_of(name)) {
            if !source.is_test(line) {
                let say = "names a vendor: ask Gpu::caps, a row of schema's gpu_caps.rs";
                findings.push(source.finding(line, say));
            }
        }
    }
    findings
}

/// Nothing unfinished is called done.
pub(super) fn unfinished(sources: &[Source]) -> Vec<Finding> {
    const MARKS: &[&[&str]] = &[
        &["dbg", "!"],
        &["todo", "!"],
        &["unimplemented", "!"],
        &["#", "[", "ignore", "]"],
        &["#", "[", "ignore", "="],
    ];
    banned(sources, &[], false, MARKS, "finish it, or return an error that says what is missing")
}

fn banned(
    sources: &[Source],
    homes: &[&str],
    tests_may: bool,
    phrases: &[&[&str]],
    instead: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.is_in(homes)) {
        for phrase in phrases {
            for line in source.lines_of(phrase) {
                if !(tests_may && source.is_test(line)) {
                    findings.push(source.finding(line, format!("{}: {instead}", phrase.concat())));
                }
            }
        }
    }
    findings
}

/// Files and functions that can be read in one go.
pub(super) fn length(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.lines.len();
        if lines > FILE_LINES {
            let say = format!("{lines} lines; split it, {FILE_LINES} are the most");
            findings.push(source.finding(lines, say));
        }
        for (name, first, last) in &source.functions {
            let lines = last - first + 1;
            if lines > FUNCTION_LINES {
                let say = format!("{name} has {lines} lines; {FUNCTION_LINES} are the most");
                findings.push(source.finding(*first, say));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn one(rule: fn(&[Source]) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        rule(&[Source::of(path, text)]).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_outside_its_home_is_found_even_in_a_macro() {
        let block = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(one(sound, "crates/machine/sim/src/a.rs", block), [2]);
        let hidden = "macro_rules! m { () => {\n    unsafe { g() }\n} }\n";
        assert_eq!(one(sound, "crates/machine/sim/src/a.rs", hidden), [2]);
        let allowed = "#![allow(unsafe_code)]\n";
        assert_eq!(one(sound, "crates/machine/sim/src/a.rs", allowed), [1]);
        let words = "// unsafe { }\nconst A: &str = \"unsafe {\";\n";
        assert_eq!(one(sound, "crates/machine/sim/src/a.rs", words), NONE);
    }

    #[test]
    fn an_unsafe_block_needs_its_reason() {
        let bare = "fn f() {\n    g();\n    unsafe { h() }\n}\n";
        assert_eq!(one(sound, "crates/machine/gpu/src/a.rs", bare), [3]);
        let said =
            "fn f() {\n    g();\n    // SAFETY: h has no conditions.\n    unsafe { h() }\n}\n";
        assert_eq!(one(sound, "crates/machine/gpu/src/a.rs", said), NONE);
        let in_statement =
            "fn f() {\n    // SAFETY: fine.\n    let a =\n        unsafe { h() };\n}\n";
        assert_eq!(one(sound, "crates/machine/gpu/src/a.rs", in_statement), NONE);
        let of_another = "fn f() {\n    // SAFETY: fine.\n    let a = 1;\n    unsafe { h() };\n}\n";
        assert_eq!(one(sound, "crates/machine/gpu/src/a.rs", of_another), [4]);
        assert_eq!(one(sound, "crates/machine/gpu/src/a.rs", "unsafe impl Send for A {}\n"), [1]);
    }

    #[test]
    fn real_clocks_are_found_away_from_home() {
        let read = "use std::time::Instant;\nfn f() { let t = Instant::now(); }\n";
        assert_eq!(one(clock, "crates/machine/sim/src/a.rs", read), [1, 2]);
        assert_eq!(one(clock, "crates/machine/host/src/clock.rs", read), NONE);
        assert_eq!(one(clock, "crates/machine/host/src/team.rs", read), [1, 2]);
        let stamp = "fn f() { jiff::Timestamp::now(); }\n";
        assert_eq!(one(clock, "crates/measure/bench/src/a.rs", stamp), [1]);
        assert_eq!(
            one(clock, "crates/measure/bench/src/a.rs", "fn f(d: std::time::Duration) {}\n"),
            NONE
        );
    }

    #[test]
    fn a_vendor_is_named_in_tests_only() {
        let asks = "fn f(v: &str) -> bool {\n    v == \"amd\"\n}\n";
        assert_eq!(one(vendors, "crates/measure/bench/src/a.rs", asks), [2]);
        assert_eq!(one(vendors, "crates/machine/topo/src/a.rs", asks), NONE);
        let test = format!("#[cfg(test)]\nmod tests {{\n{asks}}}\n");
        assert_eq!(one(vendors, "crates/measure/bench/src/a.rs", &test), NONE);
    }

    #[test]
    fn printing_is_for_the_command_line_and_tests() {
        let print = "fn f() {\n    println!(\"a\");\n    std::process::exit(1);\n}\n";
        assert_eq!(one(printing, "crates/show/explain/src/a.rs", print), [2, 3]);
        assert_eq!(one(printing, "crates/cli/src/a.rs", print), NONE);
        assert_eq!(one(printing, "crates/show/explain/tests/a.rs", print), NONE);
        let tested = format!("#[cfg(test)]\nmod tests {{\n{print}}}\n");
        assert_eq!(one(printing, "crates/show/explain/src/a.rs", &tested), NONE);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = "fn f() {\n    todo!()\n}\n#[test]\n#[ignore]\nfn g() { dbg!(1); }\n";
        assert_eq!(one(unfinished, "crates/cli/src/a.rs", text), [6, 2, 5]);
    }

    #[test]
    fn long_files_and_functions_are_found() {
        let body = "    g();\n".repeat(FUNCTION_LINES - 2);
        let fits = format!("fn f() {{\n{body}}}\n");
        assert_eq!(one(length, "crates/a/src/a.rs", &fits), NONE);
        let long = format!("/// Doc.\nfn f() {{\n{body}    g();\n}}\n");
        assert_eq!(one(length, "crates/a/src/a.rs", &long), [2]);
        let method = format!("struct A;\nimpl A {{\n{long}}}\n");
        assert_eq!(one(length, "crates/a/src/a.rs", &method), [4]);
        let file = "\n".repeat(FILE_LINES + 1);
        assert_eq!(one(length, "crates/a/src/a.rs", &file), [FILE_LINES + 1]);
    }
}
