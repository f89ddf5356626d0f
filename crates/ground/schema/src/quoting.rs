//! One escaping function for each format that a machine reads. Text of a file, a library or a user gets into a script,
//! a table or a page through these alone.

use std::borrow::Cow;

use crate::{is_steering, plain_line};

/// A text that a format cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be written as {what}: {expected}")]
pub struct UnwritableText {
    /// What it was to become.
    pub what: &'static str,
    /// The text, cut to a readable length.
    pub text: String,
    /// What can be written.
    pub expected: &'static str,
}

impl UnwritableText {
    /// Of a text and what was expected instead.
    pub fn new(what: &'static str, text: &str, expected: &'static str) -> Self {
        Self { what, text: text.chars().take(80).collect(), expected }
    }
}

/// A word for POSIX shells: unchanged if it has no special character, else in single quotes. NUL, which no argument
/// can have, becomes U+FFFD.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\0', "\u{fffd}").replace('\'', r"'\''")))
}

/// A command line for POSIX shells.
pub fn shell_line<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    arguments.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

/// The command of a shell that sets a variable, or unsets it if the value is empty.
///
/// # Errors
/// The name is none of a variable, or the value has a NUL.
pub fn shell_setting(name: &str, value: &str) -> Result<String, UnwritableText> {
    if !is_variable_name(name) {
        let expected = "a letter or '_', then letters, digits and '_'";
        return Err(UnwritableText::new("the name of a variable", name, expected));
    }
    match value {
        "" => Ok(format!("unset {name}")),
        value if value.contains('\0') => {
            Err(UnwritableText::new("the value of a variable", value, "a text without NUL"))
        }
        value => Ok(format!("export {name}={}", shell_word(value))),
    }
}

/// Whether a text is the name of a variable of the environment.
pub fn is_variable_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    text.bytes().next().is_some_and(letter) && text.bytes().all(|b| letter(b) || b.is_ascii_digit())
}

/// A line of a comment in scripts, rankfiles and TOML, with its line end. No text ends it early.
pub fn comment_line(text: &str) -> String {
    format!("# {}\n", plain_line(text))
}

/// A text in double quotes as TOML has it.
pub fn toml_text(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if is_steering(c) => format!("\\u{:04X}", c as u32),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// Text for HTML and XML, also within quotes. What neither can hold, and what hides text, becomes U+FFFD.
pub fn markup_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(c),
            c if is_steering(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The value of a label in Prometheus' text format, in one line.
pub fn label_text(text: &str) -> String {
    plain_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Stands in the words of a script for what only a shell can compute: `$NAME`, `$(...)`, backticks.
pub const COMPUTED: char = '\0';

/// The words of a script for a POSIX shell, without comments, redirections and separators of commands. Nothing is
/// computed. A quote that its line does not close is left out, as in the text of a document within a script (`<<`); what
/// follows is read like the rest.
pub fn shell_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied();
        let escapes = c == '\\' && (!quoted || next.is_some_and(|next| "$`\"\\\n".contains(next)));
        let is_closed = || rest.clone().take_while(|c| *c != '\n').any(|other| other == c);
        match c {
            _ if escapes && next == Some('\n') => drop(rest.next()),
            _ if escapes => word.get_or_insert_default().extend(rest.next()),
            '"' if quoted || is_closed() => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\n' => {
                quoted = false;
                words.extend(word.take());
            }
            '$' | '`' => word.get_or_insert_default().push(COMPUTED),
            c if quoted => word.get_or_insert_default().push(c),
            '"' => {}
            '\'' if is_closed() => {
                word.get_or_insert_default().extend(rest.by_ref().take_while(|c| *c != '\''));
            }
            '\'' => {}
            '#' if word.is_none() => while rest.next_if(|c| *c != '\n').is_some() {},
            c if c.is_ascii_whitespace() || "<>;&|()".contains(c) => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use proptest::prelude::*;

    /// What has broken scripts, tables and pages.
    const HOSTILE: [&str; 26] = [
        "",
        "plain",
        "/a/b.toml",
        "two words",
        "it's",
        "'",
        "''",
        "\"",
        "$HOME",
        "$(touch canary)",
        "`touch canary`",
        "a;touch canary",
        "a|b&c",
        "*",
        "~",
        "!x",
        "#x",
        "a\nb",
        "\r\nesac\ntouch canary\n",
        "\\",
        "\\'",
        "%n%s",
        "-rf",
        "\u{2028}\u{85}\u{202e}",
        "\u{7f}\u{1b}]0;x\u{7}",
        ";; # \n*) touch canary ;;",
    ];

    /// The arguments as /bin/sh has them.
    fn of_shell(line: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("printf '%s\\0' {line}");
        let output =
            Command::new("/bin/sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{line}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn words_come_out_of_a_shell_as_they_went_in() {
        let line = shell_line(HOSTILE);
        assert_eq!(of_shell(&line), HOSTILE);
        let of_one_line: Vec<&str> = HOSTILE.into_iter().filter(|t| !t.contains('\n')).collect();
        assert_eq!(shell_words(&shell_line(of_one_line.iter().copied())), of_one_line);
        assert_eq!(shell_line(["a", "b c", "1GiB"]), "a 'b c' 1GiB");
        assert_eq!(shell_word("a\0b"), "'a\u{fffd}b'");
        let long = "'x ".repeat(33_000);
        assert_eq!(shell_words(&shell_word(&long)), [long]);
    }

    #[test]
    fn settings_come_out_of_a_shell_as_they_went_in() {
        for value in HOSTILE.into_iter().filter(|value| !value.is_empty()) {
            let line = shell_setting("A", value).unwrap();
            assert_eq!(of_shell(&format!("x; {line}; printf '%s\\0' \"$A\"")), ["x", value]);
        }
        assert_eq!(shell_setting("A_1", "").unwrap(), "unset A_1");
        for name in ["", "1A", "A B", "A=1;touch canary", "A\n"] {
            let error = shell_setting(name, "1").unwrap_err().to_string();
            assert!(error.contains("cannot be written as the name of a variable"), "{error}");
        }
        let error = shell_setting("A", "x\0y").unwrap_err().to_string();
        assert!(error.contains(r#""x\0y" cannot be written as the value"#), "{error}");
    }

    #[test]
    fn a_comment_is_one_line_that_does_nothing() {
        for text in HOSTILE {
            let line = comment_line(text);
            assert_eq!(line.lines().count(), 1, "{line:?}");
            assert_eq!(of_shell(&format!("x\n{line}")), ["x"]);
            assert_eq!(shell_words(&line), [""; 0]);
        }
    }

    #[test]
    fn words_of_scripts_are_those_of_the_shell() {
        for (script, words) in [
            (
                "export A=\"AWS Libfabric\" B='x y'\\''z'",
                &["export", "A=AWS Libfabric", "B=x y'z"][..],
            ),
            ("A=a\\ b cmd # A=2\nA=3", &["A=a b", "cmd", "A=3"]),
            ("A=x#y;B=2&&C=\"a\\\"b\\n\"", &["A=x#y", "B=2", "C=a\"b\\n"]),
            ("a --x='1 2' \\\n  b", &["a", "--x=1 2", "b"]),
            ("A=\"$B c\" `d`", &["A=\0B c", "\0d\0"]),
            ("cat <<E >f\ndon't A=1\nE\nB='2 3'", &["cat", "E", "f", "dont", "A=1", "E", "B=2 3"]),
            ("sh -c '\nA=1 b\n'\nC=\"\\\"x\ny", &["sh", "-c", "A=1", "b", "C=\"x", "y"]),
        ] {
            assert_eq!(shell_words(script), words, "{script}");
        }
    }

    proptest! {
        #[test]
        fn every_text_is_one_word(text in "[^\0\n]{0,40}", ascii in "[ -~\t]{0,40}") {
            for text in [&text, &ascii] {
                prop_assert_eq!(&shell_words(&shell_word(text)), &[text.as_str()]);
                prop_assert_eq!(comment_line(text).lines().count(), 1);
                let line = label_text(text);
                prop_assert!(!line.contains('\n') && !line.replace("\\\\", "").replace("\\\"", "").contains('"'));
            }
            let _ = shell_words(&ascii);
        }

        #[test]
        fn the_shell_agrees(texts in proptest::collection::vec("[ -~\n\t]{0,12}", 1..40)) {
            let line = shell_line(texts.iter().map(String::as_str));
            prop_assert_eq!(of_shell(&line), texts);
        }
    }
}
