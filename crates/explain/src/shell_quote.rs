//! Quotes command lines for POSIX shells.

use std::borrow::Cow;

/// Quotes an argument for POSIX shells: unchanged if it has no special character, else in single
/// quotes.
pub fn quote(argument: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return Cow::Borrowed(argument);
    }
    Cow::Owned(format!("'{}'", argument.replace('\'', "'\\''")))
}

/// Quotes and joins arguments.
pub fn join<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    arguments.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_of_a_shell_as_they_went_in() {
        for argument in [
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
            let line = format!("printf %s {}", quote(argument));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), argument, "{line}");
        }
        assert_eq!(join(["a", "b c", "1GiB"]), "a 'b c' 1GiB");
    }
}
