//! Origins of the constants of a machine description: `[origin]`, checked against the file, and
//! counted.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::ConstantOrigin;
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use crate::stack::STACK_SECTIONS;

/// The sections whose numbers are physics besides [`STACK_SECTIONS`]. Peaks of links and memories are in
/// other sections.
const OTHER_SECTIONS: [&str; 5] = ["calls", "store", "io", "software", "stack"];
const PEAKS: [(&str, &str); 4] =
    [("links", "width"), ("links", "each_gbs"), ("numa", "memory_gbs"), ("gpus", "memory_gbs")];

/// The numbers under one key of a machine description.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConstant {
    /// Sections and name: `fabric.read.header_bytes`. Rows of one table share a key.
    pub key: String,
    /// In the order of the file; of the peaks of links and memories each different one once. In the
    /// unit that the key names.
    pub values: Vec<f64>,
    /// `None` where the description states none.
    pub origin: Option<ConstantOrigin>,
}

impl ModelConstant {
    /// Whether its numbers are times, rates or shares, which may change by a little; else they are counts,
    /// or sizes at which a mechanism changes.
    pub fn is_quantity(&self) -> bool {
        is_quantity(&self.key)
    }
    /// Whether it is of a message library, not of the hardware and its runtime.
    pub fn is_software(&self) -> bool {
        let of_stack = self.key.strip_prefix("stack.").and_then(|key| key.split_once('.'));
        is_under(of_stack.map_or(&self.key, |(_, key)| key), "software")
    }
}

/// `[origin]`: keys by origin. A key names a number, or a section with all that is in it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOrigin {
    #[serde(default)]
    datasheet: Vec<Spanned<String>>,
    #[serde(default)]
    fitted: Vec<Spanned<String>>,
    #[serde(default)]
    data: Vec<Spanned<String>>,
    #[serde(default)]
    assumed: Vec<Spanned<String>>,
}

impl RawOrigin {
    fn listed(&self) -> impl Iterator<Item = (ConstantOrigin, &Spanned<String>)> {
        [
            (ConstantOrigin::Datasheet, &self.datasheet),
            (ConstantOrigin::Fitted, &self.fitted),
            (ConstantOrigin::Data, &self.data),
            (ConstantOrigin::Assumed, &self.assumed),
        ]
        .into_iter()
        .flat_map(|(origin, keys)| keys.iter().map(move |key| (origin, key)))
    }
}

/// An error in an entry of `[origin]`, and its place.
pub(crate) struct OriginError {
    pub span: std::ops::Range<usize>,
    pub reason: String,
}

/// The constants of a description with their origins. `table` is the whole file.
pub(crate) fn constants(
    table: &Table,
    origin: &RawOrigin,
) -> Result<Vec<ModelConstant>, OriginError> {
    let mut all = found(table);
    let mut known: BTreeMap<String, (ConstantOrigin, &str)> = BTreeMap::new();
    for (origin, listed) in origin.listed() {
        let key = listed.get_ref().as_str();
        let misfit = |reason: String| OriginError { span: listed.span(), reason };
        let mut covers = false;
        for constant in all.iter_mut().filter(|c| is_under(&c.key, key)) {
            covers = true;
            if let Some((other, by)) = known.insert(constant.key.clone(), (origin, key)) {
                return Err(misfit(format!(
                    "origin: {} is listed twice, as {other} by '{by}' and as {origin} by '{key}'",
                    constant.key
                )));
            }
            constant.origin = Some(origin);
        }
        if !covers {
            return Err(misfit(format!(
                "origin: no number of this file is called '{key}'; expected the key of a number or of a section, as 'fabric.read.header_bytes'"
            )));
        }
    }
    Ok(all)
}

/// Whether `key` is `section` or lies in it.
fn is_under(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// All numbers of the physics, by key, [`STACK_SECTIONS`] first.
fn found(table: &Table) -> Vec<ModelConstant> {
    let mut all: Vec<ModelConstant> = Vec::new();
    for (section, name) in PEAKS {
        let mut values = Vec::new();
        if let Some(value) = table.get(section) {
            collect(value, section, &mut |key, value| {
                if key.strip_prefix(section).and_then(|k| k.strip_prefix('.')) == Some(name) {
                    values.push(value);
                }
            });
        }
        let mut seen = BTreeSet::new();
        values.retain(|v: &f64| seen.insert(v.to_bits()));
        if !values.is_empty() {
            all.push(ModelConstant { key: format!("{section}.{name}"), values, origin: None });
        }
    }
    for section in STACK_SECTIONS.into_iter().chain(OTHER_SECTIONS) {
        let Some(value) = table.get(section) else { continue };
        let first = all.len();
        collect(value, section, &mut |key, value| {
            let same = all.iter_mut().skip(first).find(|c| c.key == key);
            match same {
                Some(constant) => constant.values.push(value),
                None => {
                    all.push(ModelConstant { key: key.into(), values: vec![value], origin: None })
                }
            }
        });
    }
    all
}

/// Calls `each` with every number under `value`; entries of a list have the key of the list.
fn collect(value: &Value, key: &str, each: &mut impl FnMut(&str, f64)) {
    match value {
        Value::Integer(number) => each(key, *number as f64),
        Value::Float(number) => each(key, *number),
        Value::Array(values) => values.iter().for_each(|value| collect(value, key, each)),
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| collect(value, &format!("{key}.{name}"), each));
        }
        Value::String(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// Endings of keys of times, rates and shares, and of the bytes that a protocol adds to each packet.
/// Other numbers are counts and sizes at which a mechanism changes.
const QUANTITIES: [&str; 11] = [
    "us",
    "ns",
    "gbs",
    "iops",
    "efficiency",
    "us_per_mib",
    "per_hop",
    "share",
    "header_bytes",
    "reverse_bytes",
    "apart_bytes",
];

/// Whether the numbers of a key are times, rates or shares; else they are counts, or sizes at which a
/// mechanism changes.
fn is_quantity(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    // `copy_us_matrix`: a unit, then the shape of the value.
    let name = name.strip_suffix("_matrix").unwrap_or(name);
    QUANTITIES
        .iter()
        .any(|q| name.strip_suffix(q).is_some_and(|n| n.is_empty() || n.ends_with('_')))
        || name == "forwarded_bytes"
}

/// Multiplies by `factor` every time, rate and share of `table` whose origin is `origin`.
pub(crate) fn scale(
    table: &mut Table,
    known: &[ModelConstant],
    origin: ConstantOrigin,
    factor: f64,
) {
    let of = |key: &str| known.iter().find(|c| c.key == key).and_then(|c| c.origin);
    for (section, value) in table.iter_mut() {
        change(value, section, &mut |key, number| {
            if of(key) == Some(origin) && is_quantity(key) { number * factor } else { number }
        });
    }
}

/// Multiplies the numbers under each key by its factor. Counts and sizes stay integers, and change by 1 at
/// least.
pub(crate) fn scale_each(table: &mut Table, factor: &dyn Fn(&str) -> f64) {
    for (section, value) in table.iter_mut() {
        change(value, section, &mut |key, number| {
            let factor = factor(key);
            let scaled = number * factor;
            if factor == 1.0 || is_quantity(key) || number.fract() != 0.0 {
                scaled
            } else if scaled.round() == number {
                number + (factor - 1.0).signum()
            } else {
                scaled.round()
            }
        });
    }
}

/// Replaces every number under `value`; keys as for [`collect`].
fn change(value: &mut Value, key: &str, to: &mut impl FnMut(&str, f64) -> f64) {
    match value {
        Value::Integer(number) => {
            let (old, new) = (*number as f64, to(key, *number as f64));
            if new != old && new.fract() == 0.0 && !is_quantity(key) {
                *value = Value::Integer(new as i64);
            } else if new != old {
                *value = Value::Float(new);
            }
        }
        Value::Float(number) => *number = to(key, *number),
        Value::Array(values) => values.iter_mut().for_each(|value| change(value, key, to)),
        Value::Table(table) => {
            for (name, value) in table.iter_mut() {
                change(value, &format!("{key}.{name}"), to);
            }
        }
        Value::String(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// Another numbering of the same GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuNumbering {
    /// Its name in sources: `reference enumeration`.
    pub name: String,
    /// Their GPU n is our `gpus[n]`.
    pub gpus: Vec<u32>,
}

impl GpuNumbering {
    /// Our number of their GPU `n`; none if they have no such GPU.
    pub fn ours(&self, n: u32) -> Option<u32> {
        self.gpus.get(n as usize).copied()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawNumbering {
    pub name: String,
    pub gpus: Spanned<Vec<u32>>,
}

/// Checks that each list names each of `gpus` once.
pub(crate) fn numberings(
    raw: Vec<RawNumbering>,
    gpus: &[u32],
) -> Result<Vec<GpuNumbering>, OriginError> {
    let mut ours = gpus.to_vec();
    ours.sort_unstable();
    let mut all: Vec<GpuNumbering> = Vec::new();
    for RawNumbering { name, gpus } in raw {
        let span = gpus.span();
        let mut theirs = gpus.get_ref().clone();
        theirs.sort_unstable();
        if theirs != ours {
            let reason = format!(
                "numbering '{name}': expected each of the {} GPUs of this file once",
                ours.len()
            );
            return Err(OriginError { span, reason });
        }
        if name.is_empty() || all.iter().any(|n| n.name == name) {
            let reason = format!("numbering '{name}': expected a name that is there once");
            return Err(OriginError { span, reason });
        }
        all.push(GpuNumbering { name, gpus: gpus.into_inner() });
    }
    Ok(all)
}
