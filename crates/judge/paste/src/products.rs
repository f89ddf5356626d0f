//! Products of GPUs by the names that texts have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Products of GPUs, a row each, with what their data sheets say; a longer name stands before its beginning.
pub const PRODUCT_TABLE: &str = include_str!("../data/products.tsv");

/// The rows of a table of cells between tabs; comments, and rows of another number of cells, are left out.
pub fn table_rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let rows = table.lines().filter(|row| !row.starts_with('#'));
    rows.filter_map(|row| row.split('\t').collect::<Vec<_>>().try_into().ok())
}

/// Product names as lists and sentences write them, with their rows, by first byte.
static PRODUCTS: LazyLock<BTreeMap<u8, Vec<(usize, &'static str)>>> = LazyLock::new(|| {
    let rows = PRODUCT_TABLE.lines().filter(|line| !line.starts_with('#'));
    let mut names: BTreeMap<u8, Vec<(usize, &'static str)>> = BTreeMap::new();
    for (at, name) in rows.filter_map(|row| row.split('\t').next()).enumerate() {
        names.entry(name.as_bytes().first().copied().unwrap_or(0)).or_default().push((at, name));
    }
    names
});

/// The product that a text names, with `PCIe` where the card's name has it: `A100-PCIE-40GB`, `A100 80GB PCIe`.
/// `None` if it names none that is known.
pub fn find_product(text: &str) -> Option<&'static str> {
    if !text.bytes().any(|byte| byte.is_ascii_digit() || byte == b'T' || byte == b'V') {
        return None;
    }
    let plain = match text.contains("PCI") || text.contains("40GB") {
        true => text
            .replace("-PCIE", " PCIe")
            .replace(" 40GB PCIe", " PCIe-40GB")
            .replace(" 80GB PCIe", " PCIe")
            .replace("-SXM4-40GB", " 40GB")
            .replace(" SXM4 40GB", " 40GB")
            .into(),
        false => Cow::Borrowed(text),
    };
    let mut last = b' ';
    let found = plain.bytes().enumerate().filter_map(|(at, first)| {
        let before = std::mem::replace(&mut last, first);
        // `8xH100` and `8*H100` count GPUs.
        let is_start = !before.is_ascii_alphanumeric() || before == b'x' || before == b'X';
        let names = PRODUCTS.get(&first.to_ascii_uppercase()).filter(|_| is_start)?;
        names.iter().find(|(_, name)| is_name_at(&plain, at, name))
    });
    found.min().map(|(_, name)| *name)
}

/// Whether a name stands there and is one of a GPU.
fn is_name_at(text: &str, at: usize, name: &str) -> bool {
    let (before, rest) = text.split_at_checked(at).unwrap_or_default();
    // `MI300x`.
    let is_written = |head: &str| match name.starts_with("MI") {
        true => head.eq_ignore_ascii_case(name),
        false => head == name,
    };
    let Some((head, rest)) = rest.split_at_checked(name.len()) else { return false };
    if !is_written(head) {
        return false;
    }
    let joins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    // `I340-T4` is no GPU.
    let is_part = before.ends_with('-')
        && !["nvidia-", "tesla-", "gpu-"]
            .iter()
            .any(|maker| before.to_lowercase().ends_with(maker));
    // Numbers of GeForce cards are numbers elsewhere.
    let is_geforce = !name.chars().all(|c| c.is_ascii_digit())
        || text.contains("RTX")
        || text.contains("GeForce")
        || text.to_lowercase().contains("gpu");
    // `8 H100s`.
    let is_plural = rest.strip_prefix('s').is_some_and(|rest| !joins(rest));
    // A mobile GPU has other chips, lanes and memory than the card of its number.
    let is_mobile =
        [" Laptop", " Mobile", " Max-Q", "M "].iter().any(|kind| rest.starts_with(kind));
    !is_part && (!joins(rest) || is_plural) && is_geforce && !is_mobile
}
