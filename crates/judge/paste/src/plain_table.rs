//! Tables of rates that no reader of a tool knows: the unit stands in a header, above it, in a key or behind a number.

use serde_json::{Map, Value};

use crate::clean::PasteLine;
use crate::fixed_lines::is_rule;
use crate::number::{number, rate_of_name};
use crate::plain_rows::{
    MAX_GAP, MAX_TITLE, PlainColumn, PlainTable, has_aggregate, is_other_quantity, kind_of_rows,
};

/// Rows of a table, and characters of a line that is tried.
const MAX_ROWS: usize = 4096;
const MAX_LINE: usize = 4096;
/// No link, memory or node carries more, GB/s: such a column is no rate.
const MOST: f64 = 1e5;

/// What parts a line into cells.
#[derive(Clone, Copy, PartialEq)]
enum Split {
    Bars,
    Commas,
    Gaps,
    Words,
}

/// A table or list that begins here.
pub(crate) fn read(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    let text = lines.get(at)?.text.trim();
    if text.len() > MAX_LINE {
        return None;
    }
    let unit = rate_of_name(text).or_else(|| Some((1.0, rates_of_line(text).first()?.is_rate)));
    let Some(unit) = unit else { return columns(lines, at, Split::Bars, None) };
    // What parts most rows into as many cells as the header has is what the tool meant.
    let best = |header: usize, unit: Option<(f64, bool)>| {
        let all = [Split::Words, Split::Gaps, Split::Commas, Split::Bars];
        let found = all.iter().filter_map(|split| columns(lines, header, *split, unit));
        found.max_by_key(|(table, _)| table.labels.len())
    };
    // `bandwidth (MB/s)`, `SUMMARY rate (in ops/sec)` above the header.
    // Of `bandwidth (GB/s)   latency (us)` it is not known which columns are whose.
    let is_title = || {
        let parts = || text.split("  ").map(str::trim).filter(|part| !part.is_empty());
        rates_of_line(text).is_empty() && (parts().count() < 2 || !parts().any(is_other_quantity))
    };
    let under_title = || {
        // A later line with a unit begins another table.
        let is_other =
            |at: &usize| lines.get(*at).is_none_or(|line| rate_of_name(&line.text).is_some());
        let mut headers = (at + 1..=at + MAX_GAP).take_while(|at| !is_other(at));
        let found = headers.find_map(|header| best(header, Some(unit)));
        let title = text.trim_end_matches(':').to_owned();
        found.map(|(table, next)| (PlainTable { title, ..table }, next))
    };
    best(at, None)
        .or_else(|| {
            if is_title() && text.split_whitespace().count() <= MAX_TITLE {
                under_title()
            } else {
                None
            }
        })
        .or_else(|| list(lines, at).map(|(table, next)| (table.under_heading(lines, at), next)))
}

fn cells(text: &str, split: Split) -> Vec<String> {
    let text = text.trim().trim_start_matches('#').trim();
    let parts: Vec<&str> = match split {
        Split::Bars if !text.contains('|') => return Vec::new(),
        Split::Bars => text.trim_matches('|').split('|').collect(),
        Split::Commas => text.split([',', ';']).collect(),
        Split::Gaps => text.split("  ").filter(|part| !part.trim().is_empty()).collect(),
        Split::Words => text.split_whitespace().collect(),
    };
    let mut joined: Vec<String> = Vec::new();
    for part in parts {
        let marks: &[char] = if split == Split::Bars { &['*', '`'] } else { &[] };
        let part = part.replace(marks, "");
        let part = part.trim().trim_matches(['"', '*', '`']);
        match joined.last_mut() {
            // `Rate (GB/s)` is one cell.
            Some(last) if split == Split::Words && part.starts_with(['(', '[']) => {
                last.push(' ');
                last.push_str(part);
            }
            _ => joined.push(part.to_owned()),
        }
    }
    joined
}

/// Names of the columns of a header. Units in a line of their own are those of the names above.
fn header(lines: &[PasteLine], at: usize, split: Split) -> Option<Vec<String>> {
    let text = &lines.get(at)?.text;
    let own = cells(text, split);
    let units = match split {
        Split::Words => text.split_whitespace().map(str::to_owned).collect(),
        _ => own.clone(),
    };
    let is_unit = |unit: &String| {
        unit.is_empty()
            || unit.starts_with(['(', '[']) && unit.ends_with([')', ']'])
            || rate_of_name(unit).is_some() && unit.contains("/s")
    };
    let above = lines.get(..at)?.iter().rev().find(|line| !is_rule(line.text.trim()));
    let above = above.map(|line| cells(&line.text, split)).unwrap_or_default();
    let is_named = above.iter().all(|name| number(name).is_none() && rate_of_name(name).is_none());
    if !units.iter().all(is_unit) || above.len() != units.len() || !is_named {
        return Some(own);
    }
    let both = above.iter().zip(&units).map(|(name, unit)| format!("{name} {unit}"));
    Some(both.map(|name| name.trim().to_owned()).collect())
}

/// The number of a cell and the unit behind it: `391.2`, `**391.2 GB/s** (of 400)`.
fn value(cell: &str) -> Option<(f64, Option<f64>)> {
    let (cell, remark) = cell.split_once(" (").unwrap_or((cell, ")"));
    let mut words = cell.split_whitespace();
    let first = number(words.next()?.trim_start_matches('~'))?;
    let unit = match words.next() {
        Some(unit) => Some(rate_of_name(unit)?.0),
        None => None,
    };
    // The name of what was counted may follow: `216 GB/s busbw`.
    let is_whole = remark.ends_with(')') && unit.is_some() && words.clone().count() <= 1;
    (words.next().is_none() || is_whole).then_some((first, unit))
}

/// A header whose columns name units, or the one of a title, and its rows.
fn columns(
    lines: &[PasteLine],
    at: usize,
    split: Split,
    of_title: Option<(f64, bool)>,
) -> Option<(PlainTable, usize)> {
    let mut names = header(lines, at, split)?;
    let rule = |text: &str| is_rule(text.trim()) || of_title.is_some() && text.trim().is_empty();
    let first = lines.iter().skip(at + 1).take(MAX_GAP).find(|line| !rule(&line.text))?;
    let first = cells(&first.text, split);
    let form = |name: &String| name.replace(|c: char| c.is_ascii_digit(), "");
    // Above the labels of the rows the header of a matrix may have nothing.
    if of_title.is_some()
        && first.len() == names.len() + 1
        && names.len() > 1
        && names
            .iter()
            .all(|name| has_aggregate(name) || Some(form(name)) == names.first().map(form))
    {
        names.insert(0, String::new());
    }
    let unit = |(at, name): (usize, &String)| match of_title {
        Some(unit) => (at > 0 && !is_other_quantity(name)).then_some(unit),
        None => rate_of_name(name),
    };
    let mut units: Vec<_> = names.iter().enumerate().map(unit).collect();
    // `| test | result |` with the unit in each cell.
    if split == Split::Bars && of_title.is_none() && units.iter().all(Option::is_none) {
        let has_unit = |cell: &String| value(cell).is_some_and(|(_, unit)| unit.is_some());
        units = first.iter().map(|cell| has_unit(cell).then_some((0.0, true))).collect();
        units.resize(names.len(), None);
    }
    let has_own_units = units.iter().flatten().any(|(scale, _)| *scale == 0.0);
    // Numbers that follow each other are ends of a matrix, others are the first row.
    let ends = names.iter().skip(1).filter(|name| !has_aggregate(name));
    let ends: Option<Vec<f64>> = ends.map(|name| number(name)).collect();
    let is_numbered = of_title.is_some()
        && ends
            .is_some_and(|ends| ends.windows(2).all(|pair| matches!(pair, [a, b] if b - a == 1.0)));
    let is_named = is_numbered || names.iter().all(|name| number(name).is_none());
    let text = &lines.get(at)?.text;
    if names.len() < 2 || !is_named || is_rule(text) || !rates_of_line(text).is_empty() {
        return None;
    }
    let is_cell = |cell: &String| value(cell).is_some() || ["N/A", "-", "X"].contains(&&**cell);
    let (mut rows, mut next) = (Vec::new(), at + 1);
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(MAX_ROWS) {
        if rule(&line.text) && (is_rule(line.text.trim()) || rows.is_empty()) {
            continue;
        }
        let row = cells(&line.text, split);
        let mut figures = units.iter().zip(&row).filter(|(unit, _)| unit.is_some());
        let fits = match of_title {
            Some(_) => figures.all(|(_, cell)| is_cell(cell)),
            None if has_own_units => true,
            None => figures.any(|(_, cell)| value(cell).is_some()),
        };
        if row.len() != names.len() || !fits {
            break;
        }
        next = index + 1;
        // `latency  12` below a title of rates.
        if of_title.is_none() || row.first().is_none_or(|name| !is_other_quantity(name)) {
            rows.push(row);
        }
    }
    let is_part = |row: &Vec<String>| !row.iter().any(|cell| has_aggregate(cell));
    if rows.iter().any(is_part) {
        rows.retain(is_part);
    }
    let column = |(at, unit): (usize, &Option<(f64, bool)>)| {
        let (scale, is_rate) = (*unit)?;
        let cell = |row: &Vec<String>| {
            let (value, own) = value(row.get(at)?)?;
            Some(value * own.or(Some(scale).filter(|scale| *scale > 0.0))?)
        };
        let name = names.get(at)?.clone();
        Some(PlainColumn { name, is_rate, values: rows.iter().map(cell).collect() })
    };
    let columns: Vec<PlainColumn> = units.iter().enumerate().filter_map(column).collect();
    // Words of a sentence are as many as those of another now and then.
    let least = if is_numbered || matches!(split, Split::Bars | Split::Commas) { 1 } else { 2 };
    if rows.len() < least || columns.is_empty() {
        return None;
    }
    let ends = rows.iter().filter_map(|row| row.first().map(|end| end.trim_end_matches(" to")));
    let heads: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_matrix = rows.len() == columns.len()
        && ends.clone().zip(&columns).all(|(row, column)| row == column.name);
    let labels = match is_matrix {
        true => ends.map(str::to_owned).collect(),
        false => labels(&names, &units, &rows),
    };
    Some((PlainTable { is_matrix, ..table(labels, columns, &heads)? }, next))
}

/// What names a row: its cells that are no figures and not the same in all rows.
fn labels(names: &[String], units: &[Option<(f64, bool)>], rows: &[Vec<String>]) -> Vec<String> {
    let names_row = |at: &usize| {
        let cells = || rows.iter().filter_map(|row| row.get(*at));
        let is_name = |cell: &String| number(cell).is_none_or(|n| n.fract() == 0.0);
        units.get(*at).is_some_and(Option::is_none)
            && cells().all(is_name)
            && (rows.len() == 1 || cells().any(|cell| Some(cell) != cells().next()))
    };
    let kept: Vec<usize> = (0..names.len()).filter(names_row).collect();
    let label = |row: &Vec<String>| {
        let cells = kept.iter().filter_map(|at| Some((names.get(*at)?, row.get(*at)?)));
        let each = cells.map(|(name, cell)| match number(cell) {
            Some(_) => format!("{name} {cell}").trim().to_owned(),
            None => cell.trim_end_matches(':').to_owned(),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    rows.iter().map(label).collect()
}

/// Rates of a line: the word at which each begins, its key where it has one, GB/s or counts a second.
pub(crate) fn rates_of_line(text: &str) -> Vec<LineRate> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let (key, digits) = match word.split_once(['=', ':']) {
            Some((key, "")) => (key.trim_matches(['"', '{', '\'']), next),
            Some((key, digits)) => (key, digits),
            None => ("", *word),
        };
        let digits = digits.trim_end_matches([',', ';', '}']);
        let (digits, glued) =
            digits.split_at(digits.find(|c: char| c.is_alphabetic()).unwrap_or(digits.len()));
        let unit = match (glued.is_empty(), key.is_empty()) {
            (false, _) => glued,
            (true, false) => key,
            // A key of the next figure is no unit of this one.
            (true, true) if next.contains(['=', ':']) => continue,
            (true, true) => next,
        };
        if let Some((value, (scale, is_rate))) = number(digits).zip(rate_of_name(unit)) {
            found.push(LineRate { at, key: key.to_owned(), value: value * scale, is_rate });
        }
    }
    found
}

/// A rate in a line.
pub(crate) struct LineRate {
    pub(crate) at: usize,
    key: String,
    pub(crate) value: f64,
    pub(crate) is_rate: bool,
}

/// Lines of one form with rates: `GPU 3: 24.9 GB/s`, `size_mb=64 busbw_gbps=1421.2` behind the words of a logger.
fn list(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    // `512 MiB` and `1 GiB` are of one form.
    let letters = |text: &str| {
        let kept: String = text.chars().filter(|c| c.is_alphabetic() || *c == '=').collect();
        ["KiB", "MiB", "GiB", "TiB"].iter().fold(kept, |text, unit| text.replace(unit, "iB"))
    };
    let first = lines.get(at)?.text.trim();
    let named: Vec<String> = rates_of_line(first).into_iter().map(|rate| rate.key).collect();
    if named.is_empty() {
        return None;
    }
    let (form, is_keyed) = (letters(first), named.iter().all(|key| !key.is_empty()));
    let mut rows: Vec<(Vec<&str>, Vec<LineRate>)> = Vec::new();
    let mut last = at;
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_ROWS) {
        let text = line.text.trim();
        let rates = if text.len() > MAX_LINE { Vec::new() } else { rates_of_line(text) };
        let has_keys = rates.len() == named.len()
            && rates.iter().zip(&named).all(|(rate, key)| rate.key == *key);
        if has_keys && (is_keyed || letters(text) == form) {
            rows.push((text.split_whitespace().collect(), rates));
            last = index;
        } else if index > last + 1 {
            break;
        }
    }
    if rows.len() < 2 {
        return None;
    }
    // Of keyed lines the words that differ name the row; of others what stands before the figure.
    let head = rows.first().map(|row| row.0.clone()).unwrap_or_default();
    let differs = |at: usize| rows.iter().any(|row| row.0.get(at) != head.get(at));
    let varying: Vec<bool> = (0..head.len()).map(differs).collect();
    let label = |(words, rates): &(Vec<&str>, Vec<LineRate>)| {
        let end = rates.first().map_or(0, |rate| rate.at);
        let is_name = |at: usize, word: &str| match is_keyed {
            true => {
                varying.get(at) == Some(&true)
                    && !word.contains(':')
                    && number(word.trim_end_matches(',')).is_none()
                    && rates.iter().all(|rate| rate.at != at)
            }
            false => at < end,
        };
        let kept = words.iter().enumerate().filter(|(at, word)| is_name(*at, word));
        let kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
        kept.join(" ").trim_matches([' ', ':', '=', '|', '-']).to_owned()
    };
    let labels = rows.iter().map(label).collect();
    let column = |(at, key): (usize, &String)| {
        let is_rate = rows.iter().any(|row| row.1.get(at).is_some_and(|rate| rate.is_rate));
        let values = rows.iter().map(|row| row.1.get(at).map(|rate| rate.value)).collect();
        PlainColumn::new(key, is_rate, values)
    };
    let columns = named.iter().enumerate().map(column).collect();
    // Keys that are the same in all lines say what they are about.
    let same = head.iter().zip(&varying).filter(|(word, varies)| !**varies && word.contains('='));
    let same: Vec<&str> =
        same.map(|(word, _)| *word).filter(|word| rates_of_line(word).is_empty()).collect();
    let title = if is_keyed { same.join(" ") } else { String::new() };
    Some((PlainTable { title, ..table(labels, columns, &[])? }, last + 1))
}

/// `names` are those of all columns. Rows that stand for all others are no peers; `None` if no column is a rate.
fn table(
    mut labels: Vec<String>,
    mut columns: Vec<PlainColumn>,
    names: &[&str],
) -> Option<PlainTable> {
    columns.retain(|c| !c.is_rate || c.values.iter().flatten().all(|value| value.abs() <= MOST));
    let kept: Vec<bool> = labels.iter().map(|label| !has_aggregate(label)).collect();
    if kept.contains(&true) {
        let mut keep = kept.iter();
        labels.retain(|_| keep.next() == Some(&true));
        for column in &mut columns {
            let mut keep = kept.iter();
            column.values.retain(|_| keep.next() == Some(&true));
        }
    }
    let rows = kind_of_rows(&labels, names);
    let table = PlainTable::new("table", "", labels, columns);
    (!table.columns.is_empty()).then_some(PlainTable { rows, ..table })
}

/// The values of a list or an object, with their keys.
pub(crate) fn children(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let (list, object) = (value.as_array(), value.as_object());
    let list = list.into_iter().flatten().map(|one| ("", one));
    list.chain(object.into_iter().flatten().map(|(key, one)| (key.as_str(), one)))
}
/// The first list of objects that have the same rates: an array, or an object of objects.
pub(crate) fn from_json(root: &Value) -> Option<PlainTable> {
    let named: Vec<(&str, &Map<String, Value>)> = children(root)
        .take(MAX_ROWS)
        .filter_map(|(key, one)| Some((key, one.as_object()?)))
        .collect();
    let first = named.first().filter(|_| named.len() > 1);
    let keys = first.iter().flat_map(|(_, one)| one.iter());
    let keys = keys.filter(|(key, value)| value.is_number() && rate_of_name(key).is_some());
    let keys: Vec<&String> = keys.map(|(key, _)| key).collect();
    if keys.is_empty() {
        return children(root).find_map(|(_, one)| from_json(one));
    }
    let label = |(key, one): &(&str, &Map<String, Value>)| {
        let names = one.iter().filter_map(|(name, value)| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(n) if n.is_u64() && rate_of_name(name).is_none() => {
                Some(format!("{name} {n}"))
            }
            _ => None,
        });
        let key = Some((*key).to_owned()).filter(|key| !key.is_empty());
        key.into_iter().chain(names).collect::<Vec<_>>().join(", ")
    };
    let column = |key: &&String| {
        let (scale, is_rate) = rate_of_name(key)?;
        let values = named.iter().map(|(_, one)| Some(one.get(*key)?.as_f64()? * scale)).collect();
        Some(PlainColumn { name: (*key).clone(), is_rate, values })
    };
    let columns = keys.iter().filter_map(column).collect();
    table(named.iter().map(label).collect(), columns, &[])
}

#[cfg(test)]
pub(crate) mod tests;
