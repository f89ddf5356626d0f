//! The name that a user may have meant.

use strsim::osa_distance;

/// The name that is nearest to a text by its letters, if it is near: at most a third of the letters, rounded, are
/// added, left out, changed or exchanged with their neighbour. Upper case, `-` and `_` do not count.
pub fn nearest_name<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = letters(text);
    if text.is_empty() || text.len() > 64 {
        return None;
    }
    let distance = |name: &'a str| {
        let letters = letters(name);
        let most = ((text.len().max(letters.len()) + 1) / 3).max(1);
        let changes = osa_distance(&text, &letters);
        (changes <= most).then_some((changes, name))
    };
    // Of equally near ones the first.
    names.into_iter().filter_map(distance).min_by_key(|(changes, _)| *changes).map(|(_, name)| name)
}

/// The name of which a text is a misspelling: one or two of its letters are added, left out, changed or exchanged
/// with their neighbour. Where it matters that another name may be meant, and none that is listed.
pub fn misspelt_name<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = letters(text);
    // Of two or three letters any could be meant.
    let most = if text.chars().count() < 4 { 1 } else { 2 };
    let distance = |name: &'a str| {
        let changes = osa_distance(&text, &letters(name));
        (1..=most).contains(&changes).then_some((changes, name))
    };
    let near = names.into_iter().filter(|name| name.len() < 2 * text.len() + 4);
    near.filter_map(distance).min_by_key(|(changes, _)| *changes).map(|(_, name)| name)
}

/// `; did you mean 'vram'?`, or nothing if no name is near.
pub fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest_name(text, names).map_or(String::new(), |name| format!("; did you mean '{name}'?"))
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["host", "host-link", "pairs", "all_reduce", "vram", "pinned"];
        let near = |text| nearest_name(text, names);
        assert_eq!(near("hots"), Some("host"));
        assert_eq!(near("vrma"), Some("vram"));
        assert_eq!(near("AllReduce"), Some("all_reduce"));
        assert_eq!(near("pears"), Some("pairs"));
        // 4 of 6 letters differ.
        assert_eq!(near("paging"), None);
        assert_eq!(near(""), None);
        assert_eq!(did_you_mean("pind", names), "; did you mean 'pinned'?");
        assert_eq!(did_you_mean("xyz", names), "");
    }

    #[test]
    fn a_misspelling_has_one_or_two_wrong_letters() {
        let of = |text| misspelt_name(text, ["P2P_DISABLE", "IB_DISABLE", "IB_TC", "ALGO"]);
        assert_eq!(of("P2P_DISABEL"), Some("P2P_DISABLE"));
        assert_eq!(of("ALGOS"), Some("ALGO"));
        // A name itself is not misspelt; three letters more are another name.
        assert_eq!((of("ALGO"), of("IBEXT_DISABLE"), of("BLOCKING_WAIT")), (None, None, None));
    }

    #[test]
    fn letters_that_changed_places_are_one_change() {
        let of = |a: &str, b: &str| osa_distance(&letters(a), &letters(b));
        assert_eq!(
            [of("abcd", "abdc"), of("abc", "abc"), of("", "abc"), of("kitten", "sitting")],
            [1, 0, 3, 3]
        );
    }
}
