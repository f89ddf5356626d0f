//! Command lines that can be pasted into a shell.

use std::borrow::Cow;

/// Quotes an argument for POSIX shells: unchanged if it has no special character, else in single
/// quotes.
pub fn quote(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// Quotes and joins arguments.
pub fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_of_a_shell_as_they_went_in() {
        for word in [
            "",
            "plain",
            "/a/b.toml",
            "two words",
            "it's",
            "'",
            "$HOME",
            "a;b",
            "*",
            "~",
            "!x",
            "a\nb",
            "\\",
        ] {
            let line = format!("printf %s {}", quote(word));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{line}");
        }
        assert_eq!(join(["a", "b c", "1GiB"]), "a 'b c' 1GiB");
    }
}
