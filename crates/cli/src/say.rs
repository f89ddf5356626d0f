//! Output to standard output and standard error. A reader that closes a pipe early (`pathline run --dry-run
//! | head`) has seen enough: that is no error. A full disk is one, but no reason to lose a run.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pathline_runner::ProcessHooks;
use pathline_schema::{line_words, mask_urls, plain_text};

use crate::args::{Args, ColourChoice};

/// Hooks for processes of this program that measure or try libraries.
pub(crate) const HOOKS: ProcessHooks = ProcessHooks {
    warn: |text| eprint(format_args!("{text}\n")),
    exit: std::process::exit,
    abort: std::process::abort,
};

/// What the command line asks of all output.
#[derive(Debug, Default)]
struct OutputForm {
    colour: bool,
    quiet: bool,
    full: bool,
}

static FORM: OnceLock<OutputForm> = OnceLock::new();

/// Takes what the command line asks of all output.
pub(crate) fn set_form(args: &Args) {
    let paints = || std::env::var_os("TERM").is_some_and(|name| name != "dumb");
    let colour = match args.color {
        ColourChoice::Always => true,
        ColourChoice::Never => false,
        ColourChoice::Auto => {
            paints() && io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
        }
    };
    let _ = FORM.set(OutputForm { colour, quiet: args.quiet, full: args.full });
}

/// Whether standard output takes colour.
pub(crate) fn colour() -> bool {
    FORM.get().is_some_and(|form| form.colour)
}

/// Whether a command measures for another one, which speaks.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Shows nothing of a run, or again what the command line asks for.
pub(crate) fn set_silent(silent: bool) {
    SILENT.store(silent, Relaxed);
}

/// Whether no progress is shown.
pub(crate) fn is_quiet() -> bool {
    SILENT.load(Relaxed) || FORM.get().is_some_and(|form| form.quiet)
}

/// Whether everything is shown, not just the first screen.
pub(crate) fn is_full() -> bool {
    FORM.get().is_some_and(|form| form.full)
}

/// Columns of a page that goes to no terminal.
const PIPED_WIDTH: usize = 100;

/// Columns of standard output: of the terminal, else the environment's `COLUMNS`, else 100.
pub(crate) fn width() -> usize {
    known_width(io::stdout()).unwrap_or(PIPED_WIDTH)
}

/// Columns of the terminal, else of `COLUMNS`.
fn known_width(stream: impl AsFd) -> Option<usize> {
    let terminal = rustix::termios::tcgetwinsize(stream).ok();
    let terminal = terminal.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    let named = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    terminal.or_else(named)
}

/// The lines of a text within a width, broken between words. Commands, also those in backticks, and JSON
/// stay whole, to be copied.
fn fit(text: &str, columns: usize) -> String {
    const KEPT: [&str; 10] =
        ["pathline ", "$ ", "measure it", "predict it", "{", "}", "[{", "[\"", "[\n", "\""];
    let mut fitted = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        let is_kept = KEPT.iter().any(|kept| start.starts_with(kept));
        let lead = line.chars().count() - start.chars().count();
        let mut rest = line.to_owned();
        while !is_kept && rest.trim_end().chars().count() > columns {
            let cut = rest.char_indices().nth(columns + 1).map_or(rest.len(), |(at, _)| at);
            let is_end = |end: &usize| {
                let before = &rest[..*end];
                before.trim().len() > 8 && before.matches('`').count() % 2 == 0
            };
            let ends = || rest.trim_end().match_indices(' ').map(|(at, _)| at).filter(is_end);
            // A word that is wider than the rest of a line stays whole.
            let Some(end) = ends().take_while(|end| *end < cut).last().or_else(|| ends().next())
            else {
                break;
            };
            fitted.push_str(rest[..end].trim_end());
            fitted.push('\n');
            rest = format!("{:1$}{2}", "", lead + 4, rest[end..].trim_start());
        }
        fitted.push_str(&rest);
    }
    fitted
}

/// Lines of at most `columns` characters, broken between words.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line_words(text, columns) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Writes a paragraph to standard output, broken to its width; further lines begin with `indent` blanks.
pub(crate) fn paragraph(text: &str, indent: usize) {
    let columns = width().saturating_sub(indent).max(20);
    for (nth, line) in wrap(text, columns).into_iter().enumerate() {
        let blanks = if nth == 0 { 0 } else { indent };
        print(format_args!("{:blanks$}{line}\n", ""));
    }
}

/// Whether a write to standard output has failed.
static ENDED: AtomicBool = AtomicBool::new(false);

/// The first error of standard output.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a text for people to standard output, within its width if that is known.
pub(crate) fn print_text(text: fmt::Arguments<'_>) {
    let text = plain(text);
    write(&known_width(io::stdout()).map_or_else(|| text.clone(), |most| fit(&text, most.max(40))));
}

/// The same for prose, which is broken in a pipe as well.
pub(crate) fn print_prose(text: fmt::Arguments<'_>) {
    write(&fit(&plain(text), width().max(40)));
}

/// Writes to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    write(&plain(text));
}

/// Writes a summary of `explain`, with its colours if it was made with some. Names and texts of
/// files are plain in it already; here only what sets a colour passes.
pub(crate) fn page(text: &str) {
    match colour() {
        true => write(&only_colours(text)),
        // It has its width.
        false => write(&plain(format_args!("{text}"))),
    }
}

/// Writes a message to standard error, within its width.
pub(crate) fn eprint_text(text: fmt::Arguments<'_>) {
    let text = fit(&plain(text), known_width(io::stderr()).unwrap_or(PIPED_WIDTH).max(40));
    eprint(format_args!("{text}"));
}

/// Writes to standard error, without secrets of URLs. A failure cannot be reported anywhere.
pub(crate) fn eprint(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(mask_urls(&plain(text)).as_bytes());
}

/// Removes bytes that control a terminal from any text: of a journal, a library, an argument.
fn plain(text: fmt::Arguments<'_>) -> String {
    plain_text(&text.to_string()).into_owned()
}

/// The text with its colour codes, `ESC [ digits and semicolons m`, and nothing else that steers.
fn only_colours(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, code) = rest.split_at(at);
        kept.push_str(&plain_text(before));
        let end = colour_code(code);
        // Without a code, the escape character alone goes through the filter.
        let (code, after) = code.split_at(end.unwrap_or(1));
        kept.push_str(&if end.is_some() { code.into() } else { plain_text(code) });
        rest = after;
    }
    kept.push_str(&plain_text(rest));
    kept
}

/// Length of the colour code that a text begins with.
fn colour_code(text: &str) -> Option<usize> {
    let of_code = text.strip_prefix("\u{1b}[")?;
    let end = of_code.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    of_code[end..].starts_with('m').then_some(2 + end + 1)
}

fn write(text: &str) {
    keep(io::stdout().lock().write_all(text.as_bytes()));
}

/// Empties the screen of a terminal.
pub(crate) fn clear_screen() {
    write("\x1b[H\x1b[J");
}

/// Whether standard output takes no more: its reader has seen enough, or a disk is full.
pub(crate) fn has_ended() -> bool {
    ENDED.load(Relaxed)
}

/// Ends the output. The first error of it, if any matters.
pub(crate) fn finish() -> Option<&'static io::Error> {
    keep(io::stdout().lock().flush());
    FAILED.get()
}

fn keep(written: io::Result<()>) {
    let Err(error) = written else { return };
    ENDED.store(true, Relaxed);
    if error.kind() != ErrorKind::BrokenPipe {
        let _ = FAILED.set(error);
    }
}

/// `print!` that outlives its reader.
macro_rules! out {
    ($($text:tt)*) => { $crate::say::print(format_args!($($text)*)) };
}
/// `println!` that outlives its reader.
macro_rules! outln {
    ($($text:tt)*) => { $crate::say::print_text(format_args!("{}\n", format_args!($($text)*))) };
}
/// `eprintln!` that outlives its reader.
macro_rules! errln {
    ($($text:tt)*) => { $crate::say::eprint_text(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use {errln, out, outln};

/// A label with its text, wrapped behind it.
pub(crate) fn show_labelled(label: &str, text: &str, columns: usize) {
    for (at, line) in wrap(text, columns - 11).into_iter().enumerate() {
        outln!("  {:<8} {line}", if at == 0 { label } else { "" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_commands_stay_whole() {
        let text =
            "ab  a long cell of words that goes on\n  pathline run --case 'a b c d e f g h i j'\n";
        let fitted = fit(text, 24);
        assert_eq!(
            fitted,
            "ab  a long cell of words\n    that goes on\n  pathline run --case 'a b c d e f g h i j'\n"
        );
        assert_eq!(fit("short\n", 24), "short\n");
        assert_eq!(
            fit("a long word; `run this` or that\n", 20),
            "a long word;\n    `run this` or\n    that\n"
        );
        let wide = "x".repeat(60);
        assert_eq!(fit(&wide, 24), wide);
    }

    #[test]
    fn only_colour_codes_pass() {
        let painted = "\u{1b}[1;30;43m SIMULATED \u{1b}[0m\n";
        assert_eq!(only_colours(painted), painted);
        // Title, clear, cursor, hyperlink, an unfinished code, and the one-character CSI.
        for (text, left) in [
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("\u{1b}[2J", "\u{fffd}[2J"),
            ("\u{1b}[1;1H", "\u{fffd}[1;1H"),
            ("\u{1b}[?25l", "\u{fffd}[?25l"),
            ("\u{1b}[31", "\u{fffd}[31"),
            ("\u{1b}", "\u{fffd}"),
            ("\u{9b}31m", "\u{fffd}31m"),
            ("\u{1b}[\u{1b}[0m", "\u{fffd}[\u{1b}[0m"),
        ] {
            assert_eq!(only_colours(text), left, "{text:?}");
        }
        assert_eq!(plain(format_args!("{}{}", "\u{1b}[", "0m")), "\u{fffd}[0m");
    }
}
