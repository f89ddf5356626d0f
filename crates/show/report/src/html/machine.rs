//! Text about the node next to its map, and the conditions during the run.

use pathline_schema::Conditions;

use super::build::HtmlBuilder;
use super::number::num;
use crate::scores::signed;

/// Writes the map, and what drivers say of the GPUs.
pub(super) fn write(h: &mut HtmlBuilder, gpus: &[(String, String)], map_svg: &str) {
    // pathline draws the map and escapes its labels; any other text is rejected.
    if let Some(picture) = picture(map_svg) {
        h.el("div", &[("class", &"map scroll")], |h| {
            h.trusted(picture);
        });
    }
    write_facts(h, gpus);
}

pub(super) fn write_facts(h: &mut HtmlBuilder, facts: &[(String, String)]) {
    h.el("dl", &[("class", &"facts")], |h| {
        for (name, text) in facts {
            h.el("div", &[], |h| {
                h.leaf("dt", &[], name).leaf("dd", &[], text);
            });
        }
    });
}

/// The `<svg>` element of a drawing, without the XML declaration at the start of a file.
fn picture(drawing: &str) -> Option<&str> {
    let drawing = drawing.trim_start();
    let is_drawing = ["<svg", "<?xml"].iter().any(|start| drawing.starts_with(start));
    drawing.get(drawing.find("<svg").filter(|_| is_drawing)?..)
}

/// Writes the settings of the run, and changes of the machine's state.
pub(super) fn write_conditions(
    h: &mut HtmlBuilder,
    conditions: &[(String, String)],
    state: Option<&(Conditions, Conditions)>,
) {
    write_facts(h, conditions);
    let Some((first, last)) = state else { return };
    if first.0.is_empty() && last.0.is_empty() {
        return;
    }
    h.leaf("h3", &[], "State of the machine over the run");
    let mut names: Vec<&String> = first.0.keys().chain(last.0.keys()).collect();
    names.sort();
    names.dedup();
    let row = |name: &String| {
        let (a, b) = (first.0.get(name).copied(), last.0.get(name).copied());
        let change = a.zip(b).filter(|(a, _)| *a != 0.0).map(|(a, b)| (b - a) / a.abs());
        let show = |v: Option<f64>| v.map(num).unwrap_or_default();
        vec![name.clone(), show(a), show(b), change.map(signed).unwrap_or_default()]
    };
    let columns = [("reading", ""), ("first", "n"), ("last", "n"), ("change", "n")];
    h.table("rows", &columns, names.into_iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_picture_is_not_let_in() {
        assert_eq!(picture(" <?xml version=\"1.0\"?>\n<svg></svg>"), Some("<svg></svg>"));
        assert_eq!(picture("<script></script><svg></svg>"), None);
        let mut h = HtmlBuilder::default();
        write(&mut h, &[], "<script>alert(1)</script>");
        assert!(!h.finish().contains("script"));
    }

    #[test]
    fn a_reading_that_appears_late_has_no_change() {
        let map = |pairs: &[(&str, f64)]| {
            Conditions(pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect())
        };
        let state = (map(&[("cpu_mhz", 2000.0)]), map(&[("cpu_mhz", 1900.0), ("late_c", 40.0)]));
        let mut h = HtmlBuilder::default();
        write_conditions(&mut h, &[], Some(&state));
        let page = h.finish();
        assert!(page.contains("-5.0 %"), "{page}");
        assert!(page.contains(
            "late_c</th><td class=\"n\"></td><td class=\"n\">40.0</td><td class=\"n\"></td>"
        ));
    }
}
