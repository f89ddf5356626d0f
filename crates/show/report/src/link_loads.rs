//! What links carry during an exchange: a table by level, and all of them as CSV and JSON.

use std::collections::BTreeMap;

use pathline_explain::fmt;
use pathline_message::LinkLoad;
use serde_json::{Value, json};

/// The links of one level.
struct LevelLoad<'a> {
    busiest: &'a LinkLoad,
    links: usize,
    busy: f64,
}

/// Levels, the busiest first. `links` are in the order of their load.
fn levels(links: &[LinkLoad]) -> Vec<LevelLoad<'_>> {
    let mut levels: Vec<LevelLoad<'_>> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for link in links {
        let at = *known.entry(link.level).or_insert_with(|| {
            levels.push(LevelLoad { busiest: link, links: 0, busy: 0.0 });
            levels.len() - 1
        });
        if let Some(level) = levels.get_mut(at) {
            level.links += 1;
            level.busy += link.busy;
        }
    }
    levels
}

/// A line for each level of the network with its busiest link; empty without links.
pub fn table(links: &[LinkLoad]) -> String {
    let rows: Vec<[String; 5]> = levels(links)
        .iter()
        .map(|level| {
            [
                level.busiest.level.to_owned(),
                level.links.to_string(),
                fmt::percent(level.busiest.busy),
                fmt::percent(level.busy / level.links.max(1) as f64),
                level.busiest.name.clone(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["level", "used", "busiest", "mean", "busiest of them"].map(str::to_owned);
    let all = || std::iter::once(&head).chain(&rows);
    let wide = |column: usize| {
        all().filter_map(|row| row.get(column)).map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let (level, used, busy, mean) = (wide(0), wide(1), wide(2), wide(3));
    let line = |[a, b, c, d, name]: &[String; 5]| {
        format!("  {a:<level$}  {b:>used$}  {c:>busy$}  {d:>mean$}  {name}\n")
    };
    all().map(line).collect()
}

/// The levels as JSON.
pub fn levels_json(links: &[LinkLoad]) -> Value {
    let level = |level: &LevelLoad<'_>| {
        json!({
            "level": level.busiest.level,
            "links": level.links,
            "busiest": level.busiest.name,
            "busy": level.busiest.busy,
            "mean_busy": level.busy / level.links.max(1) as f64,
        })
    };
    levels(links).iter().map(level).collect()
}

/// One link as JSON.
fn link_json(of: &str, link: &LinkLoad) -> Value {
    json!({
        "of": of,
        "level": link.level,
        "link": link.name,
        "capacity_gbs": link.capacity.0,
        "bytes": link.bytes,
        "busy": link.busy,
    })
}

/// A row for each link of each exchange, or of a trace, by its name.
///
/// # Errors
/// A row cannot be written, which memory allows.
pub fn csv(all: &[(String, Vec<LinkLoad>)]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["of", "level", "link", "capacity_gbs", "bytes", "busy"])?;
    for (of, link) in all.iter().flat_map(|(of, links)| links.iter().map(move |l| (of, l))) {
        let numbers = [link.capacity.0, link.bytes, link.busy].map(|n| n.to_string());
        let [capacity, bytes, busy] = &numbers;
        writer.write_record([of, link.level, &link.name, capacity, bytes, busy])?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same as JSON.
pub fn json(all: &[(String, Vec<LinkLoad>)]) -> Value {
    let links = all.iter().flat_map(|(of, links)| links.iter().map(|link| link_json(of, link)));
    links.collect()
}

#[cfg(test)]
mod tests {
    use pathline_schema::Rate;

    use super::*;

    fn load(level: &'static str, name: &str, busy: f64) -> LinkLoad {
        LinkLoad { name: name.to_owned(), level, capacity: Rate(25.0), bytes: 1e6, busy }
    }

    /// Two adapters at 0.5 and 0.25: 0.375 in the mean.
    #[test]
    fn levels_have_their_busiest_link() {
        let links = [
            load("edge", "edge0 > core", 1.0),
            load("adapter", "n0 a", 0.5),
            load("adapter", "b", 0.25),
        ];
        let text = table(&links);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("  edge") && lines[1].ends_with("edge0 > core"), "{text}");
        assert!(lines[2].contains("38 %") && lines[2].ends_with("n0 a"), "{text}");
        let rows = csv(&[("x, y".to_owned(), links.to_vec())]).unwrap();
        assert_eq!(rows.lines().nth(1), Some("\"x, y\",edge,edge0 > core,25,1000000,1"));
        assert_eq!(levels_json(&links)[1]["mean_busy"], 0.375);
        assert_eq!(table(&[]), "");
    }
}
