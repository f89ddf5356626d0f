//! Commands that the documents show exist, and so do their options.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use super::{Finding, Tree};
use crate::TASKS;

/// Where the command line is defined, ...
const ARGS: &str = "crates/cli/src/args.rs";
/// ... and the arguments of some commands.
const MORE_ARGS: &str = "crates/cli/src/args/";
/// Where the GPU runtimes are described, with the options that name their libraries.
const RUNTIMES: &str = "crates/machine/gpu/src/runtimes/";

/// Commands and long options of the program.
struct Cli {
    commands: BTreeSet<String>,
    options: BTreeSet<String>,
}

impl Default for Cli {
    fn default() -> Self {
        let own = |words: [&str; 2]| words.map(str::to_owned).into();
        Self { commands: BTreeSet::new(), options: own(["help", "version"]) }
    }
}

/// `TimeLimit` and `time_limit` as the command line spells them: `time-limit`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out.replace('_', "-")
}

impl<'ast> Visit<'ast> for Cli {
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let derives = |attr: &syn::Attribute| {
            let mut found = false;
            if attr.path().is_ident("derive") {
                // A derive list that does not parse is the compiler's matter.
                let _ = attr.parse_nested_meta(|meta| {
                    found |= meta.path.segments.last().is_some_and(|s| s.ident == "Subcommand");
                    Ok(())
                });
            }
            found
        };
        if item.attrs.iter().any(derives) {
            self.commands.extend(item.variants.iter().map(|v| kebab(&v.ident.to_string())));
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_expr_struct(&mut self, value: &'ast syn::ExprStruct) {
        let is_option = value.path.segments.last().is_some_and(|s| s.ident == "LibraryOption");
        for field in value.fields.iter().filter(|_| is_option) {
            let is_name = matches!(&field.member, syn::Member::Named(member) if member == "name");
            if let (true, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. })) =
                (is_name, &field.expr)
            {
                self.options.insert(name.value());
            }
        }
        visit::visit_expr_struct(self, value);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("arg")) {
            let Ok(list) = attr.meta.require_list() else { continue };
            let words: Vec<String> =
                list.tokens.clone().into_iter().map(|t| t.to_string()).collect();
            let Some(at) = words.iter().position(|word| word == "long") else { continue };
            let given = (words.get(at + 1).map(String::as_str) == Some("="))
                .then(|| words.get(at + 2).map(|name| name.trim_matches('"').to_owned()));
            let own = field.ident.as_ref().map(|ident| kebab(&ident.to_string()));
            self.options.extend(given.flatten().or(own));
        }
        visit::visit_field(self, field);
    }
}

/// Checks `pathline ...`, `cargo run -- ...` and `cargo xtask ...` in every document.
pub(super) fn commands(tree: &Tree) -> Vec<Finding> {
    let mut cli = Cli::default();
    let runtimes = tree.ending(".rs").filter(|(path, _)| path.starts_with(RUNTIMES));
    let more = tree.files().filter(|(path, _)| path.starts_with(MORE_ARGS));
    let texts = runtimes.chain(more).map(|(_, text)| text);
    for text in tree.get(ARGS).into_iter().chain(texts) {
        if let Ok(file) = syn::parse_file(text) {
            cli.visit_file(&file);
        }
    }
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (line, code) in code(text) {
            let words: Vec<&str> = code.split_whitespace().collect();
            if let Some(say) = wrong(&words, &cli) {
                findings.push(Finding::new(path, line, say));
            }
        }
    }
    findings
}

/// Code spans and lines of code blocks, fenced or indented, each up to a pipe or a comment.
fn code(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            found.push((at + 1, line.trim().trim_start_matches("$ ")));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (at + 1, span)));
        }
    }
    for (_, code) in &mut found {
        *code = code.split([';', '#', '|']).next().unwrap_or_default();
    }
    found
}

/// What is wrong with a command, if it is one of ours.
fn wrong(words: &[&str], cli: &Cli) -> Option<String> {
    let args = match words {
        ["cargo", "xtask", task, ..] => {
            let known = TASKS.iter().any(|t| t.name == *task);
            return (!known).then(|| format!("there is no 'cargo xtask {task}'"));
        }
        ["cargo", "run", rest @ ..] => {
            rest.iter().position(|w| *w == "--").map(|at| &rest[at + 1..])?
        }
        ["pathline", rest @ ..] => rest,
        _ => return None,
    };
    if let Some(command) = args.first().filter(|word| word.starts_with(char::is_alphabetic)) {
        // Capitals stand for something that the reader puts in.
        let shown = command.chars().all(|c| c.is_uppercase());
        if !shown && !cli.commands.contains(*command) {
            return Some(format!("there is no 'pathline {command}'"));
        }
    }
    let option = |word: &&str| {
        let name = word.strip_prefix("--")?.split(['=', ']', ',']).next()?;
        (!name.is_empty() && !cli.options.contains(name)).then(|| name.to_owned())
    };
    args.iter().find_map(option).map(|name| format!("pathline has no option --{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLI: &str = "
        #[derive(Debug, clap::Subcommand)]
        enum Command { Run(RunArgs), TwoWords }
        struct RunArgs {
            #[arg(long, short, value_name = \"N\")]
            time_limit: f64,
            #[arg(long = \"json\")]
            as_json: bool,
            #[arg(value_name = \"FILE\")]
            file: String,
        }";

    fn found(doc: &str) -> Vec<String> {
        commands(&Tree::of([(ARGS, CLI), ("README.md", doc)]))
            .iter()
            .map(|f| f.text.clone())
            .collect()
    }

    #[test]
    fn commands_and_options_that_exist_are_fine() {
        let doc = "`pathline` and `pathline run --time-limit 60 --json`\n```sh\n$ pathline two-words\n\
                   cargo run --release -- run --json # say it\ncargo xtask tidy\ncargo test\n```\n\
                   `pathline COMMAND --help`\n";
        assert_eq!(found(doc), [""; 0]);
    }

    #[test]
    fn commands_and_options_that_do_not_are_found() {
        assert_eq!(found("`pathline fly`\n"), ["there is no 'pathline fly'"]);
        assert_eq!(found("```\npathline run --file x\n```\n"), ["pathline has no option --file"]);
        assert_eq!(found("`cargo run -- walk`\n"), ["there is no 'pathline walk'"]);
        assert_eq!(found("    pathline swim\n"), ["there is no 'pathline swim'"]);
        assert_eq!(found("`cargo xtask dance`\n"), ["there is no 'cargo xtask dance'"]);
    }
}
