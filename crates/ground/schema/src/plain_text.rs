//! Text of files, libraries and users, made fit for a terminal.
//!
//! A terminal obeys what it is given: escape sequences set its title, clear it or hide text, and
//! bidirectional controls show letters in another order than they stand. None of them belongs in a
//! name or an error.

use std::borrow::Cow;

/// Whether a character steers a terminal or the order of letters: C0, DEL, C1, bidirectional
/// controls (Unicode Standard Annex 9). Line ends and tabs count.
pub fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with U+FFFD in the place of what steers; line ends and tabs stay.
pub fn plain_text(text: &str) -> Cow<'_, str> {
    replaced(text, |c| match c {
        '\n' | '\t' => c,
        _ => char::REPLACEMENT_CHARACTER,
    })
}

/// The same in one line: line ends and tabs become spaces, so that no text can pass for a line of
/// its reader's.
pub fn plain_line(text: &str) -> Cow<'_, str> {
    replaced(text, |c| match c {
        '\n' | '\t' => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    })
}

/// Words of a text for lines of `columns`. A command in backticks is one of them, so that it can be copied, unless no line
/// has room for it.
pub fn line_words(text: &str, columns: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut command = None;
    for word in text.split_whitespace() {
        words.push(word.to_owned());
        if word.matches('`').count() % 2 == 0 {
            continue;
        }
        match command.take() {
            None => command = Some(words.len() - 1),
            Some(first) => {
                let whole = words.split_off(first).join(" ");
                match whole.chars().count() <= columns {
                    true => words.push(whole),
                    false => words.extend(whole.split(' ').map(str::to_owned)),
                }
            }
        }
    }
    words
}

fn replaced(text: &str, by: impl Fn(char) -> char) -> Cow<'_, str> {
    if !text.chars().any(is_steering) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_steering(c) { by(c) } else { c }).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_stays_whole_where_a_line_has_room_for_it() {
        let text = "run `pathline health -m x` or `reset` it";
        assert_eq!(line_words(text, 26), ["run", "`pathline health -m x`", "or", "`reset`", "it"]);
        let narrow = ["run", "`pathline", "health", "-m", "x`", "or", "`reset`", "it"];
        assert_eq!(line_words(text, 20), narrow);
        assert_eq!(line_words("a `b c", 20), ["a", "`b", "c"]);
    }

    #[test]
    fn control_characters_are_replaced_and_letters_stay() {
        // One of each kind: C0, DEL, C1 (CSI as one character), marks, embeddings, isolates.
        let all = "a\u{1b}[2J\u{7}\u{7f}\u{9b}\u{61c}\u{200e}\u{202e}\u{2066}b";
        assert_eq!(
            plain_text(all),
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}b"
        );
        assert_eq!(plain_text("two\nlines\tof text\r"), "two\nlines\tof text\u{fffd}");
        assert_eq!(plain_line("two\nlines\tof text"), "two lines of text");
        let kept = "Größe ±1 % 日本 עברית 🙂";
        assert!(matches!(plain_line(kept), Cow::Borrowed(text) if text == kept));
    }
}
