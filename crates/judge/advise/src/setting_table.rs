//! What is known of the variables that libraries read: names, values and defaults, as data with a source in each row.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pathline_schema::misspelt_name;

const TABLE: &str = include_str!("../data/settings.tsv");

/// Prefixes under which MPICH reads the same variable.
const MPICH_PREFIXES: [&str; 3] = ["MPIR_CVAR_", "MPIR_PARAM_", "MPICH_"];
/// Words of switches, off and on.
const OFF: [&str; 5] = ["0", "n", "no", "off", "false"];
const ON: [&str; 5] = ["1", "y", "yes", "on", "true"];

/// A row of the table. Unknown cells are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingRow {
    pub(crate) name: &'static str,
    /// The libraries that read it.
    pub(crate) reader: &'static str,
    /// `2.17-`, `2.1-2.4`, `-2.3`.
    pub(crate) versions: &'static str,
    pub(crate) values: &'static str,
    pub(crate) default: &'static str,
    pub(crate) effect: &'static str,
    pub(crate) helps: &'static str,
    harms: &'static str,
    /// Title of the document.
    pub(crate) source: &'static str,
}

/// What a manual states of a value of a variable, or of an option of a launcher or benchmark.
#[derive(Debug, Clone, Copy)]
pub struct StatedValue {
    /// `NAME=VALUE|OTHER`, `--option` with any value, or `--option=VALUE|OTHER:`, of which one with a colon stands for
    /// all values that begin so.
    pub pattern: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// Title of the manual.
    pub source: &'static str,
    /// The message that it explains; empty if none.
    pub explains: &'static str,
}

impl StatedValue {
    /// The name of the variable or option.
    pub fn name(&self) -> &'static str {
        self.pattern.split_once('=').map_or(self.pattern, |(name, _)| name)
    }

    /// Whether the row is about this value. A row without a value is about any.
    pub fn is_of(&self, value: &str) -> bool {
        let Some((_, values)) = self.pattern.split_once('=') else { return true };
        values.split('|').any(|one| match one.ends_with(':') {
            true => value.starts_with(one),
            false => value.eq_ignore_ascii_case(one),
        })
    }
}

/// All values and options of which a manual states the effect.
pub fn stated_values() -> &'static [StatedValue] {
    &table().values
}

/// The table, read once.
struct SettingTable {
    rows: BTreeMap<&'static str, SettingRow>,
    /// Further names that libraries read, of which no more is known.
    names: BTreeMap<&'static str, &'static str>,
    values: Vec<StatedValue>,
}

fn table() -> &'static SettingTable {
    static READ: OnceLock<SettingTable> = OnceLock::new();
    READ.get_or_init(|| {
        let mut found =
            SettingTable { rows: BTreeMap::new(), names: BTreeMap::new(), values: Vec::new() };
        let mut titles = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let cells: Vec<&'static str> = line.split('\t').collect();
            match cells[..] {
                ["source", key, title, _] => drop(titles.insert(key, title)),
                ["names", reader, _, names] => {
                    found.names.extend(names.split(' ').map(|name| (name, reader)));
                }
                ["value", pattern, meaning, action, key, explains] => {
                    let source = titles.get(key).copied().unwrap_or_default();
                    found.values.push(StatedValue { pattern, meaning, action, source, explains });
                }
                [name, reader, versions, values, default, effect, helps, harms, key] => {
                    let source = titles.get(key).copied().unwrap_or_default();
                    let row = SettingRow {
                        name,
                        reader,
                        versions,
                        values,
                        default,
                        effect,
                        helps,
                        harms,
                        source,
                    };
                    found.rows.insert(name, row);
                }
                _ => {}
            }
        }
        found
    })
}

/// Another spelling of a name by which MPICH reads the same variable.
fn mpich_name(name: &str) -> Option<String> {
    let rest = MPICH_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    Some(format!("{}{rest}", MPICH_PREFIXES[0]))
}

/// What is known of a variable.
pub(crate) fn setting_row(name: &str) -> Option<&'static SettingRow> {
    let rows = &table().rows;
    rows.get(name).or_else(|| rows.get(mpich_name(name)?.as_str()))
}

/// The library that reads a variable of this name.
pub(crate) fn reader_of(name: &str) -> Option<&'static str> {
    let listed = |name: &str| table().names.get(name).copied();
    let known = setting_row(name).map(|row| row.reader).or_else(|| listed(name));
    known.or_else(|| listed(&mpich_name(name)?))
}

/// Whether a library reads a variable of this name.
pub(crate) fn is_known_name(name: &str) -> bool {
    reader_of(name).is_some()
}

/// Names of variables of Cray MPICH, without `MPICH_`.
pub(crate) fn cray_names() -> impl Iterator<Item = &'static str> {
    let SettingTable { rows, names, .. } = table();
    let readers = rows.values().map(|row| (row.name, row.reader));
    let all = readers.chain(names.iter().map(|(name, reader)| (*name, *reader)));
    all.filter(|(_, reader)| *reader == "Cray MPICH")
        .filter_map(|(name, _)| name.strip_prefix("MPICH_"))
}

/// The name that was meant, if this one is a slip of the pen: the words between `_` are those of a known name, but
/// for one or two letters of a word of at least four, or letters that changed places.
pub(crate) fn meant_name(name: &str) -> Option<&'static str> {
    let words = |text: &str| text.split('_').map(str::to_owned).collect::<Vec<_>>();
    let sorted = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    let is_slip = |candidate: &str| {
        let (mine, theirs) = (words(name), words(candidate));
        // A library's own prefix of another spelling is another prefix, unless its letters changed places.
        let may_differ = |at: usize, a: &str, b: &str| {
            a == b
                || sorted(a) == sorted(b)
                || at > 0
                    && a.len().max(b.len()) >= 4
                    && !a.ends_with(|c: char| c.is_ascii_digit())
                    && misspelt_name(a, [b]).is_some()
        };
        mine.len() == theirs.len()
            && mine.iter().zip(&theirs).enumerate().all(|(at, (a, b))| may_differ(at, a, b))
    };
    let SettingTable { rows, names, .. } = table();
    let all = rows.keys().chain(names.keys()).copied();
    // Most names differ in length.
    let near = all.filter(|candidate| candidate.len().abs_diff(name.len()) <= 2);
    misspelt_name(name, near.filter(|candidate| is_slip(candidate)))
}

fn truth(value: &str) -> Option<bool> {
    let is_of = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    if is_of(&ON) { Some(true) } else { is_of(&OFF).then_some(false) }
}

fn whole_number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl SettingRow {
    /// Why the library does not know a value. `None` if it does, or that is not known.
    pub(crate) fn misfit(&self, value: &str) -> Option<String> {
        let (form, words) = self.values.split_once(':').unwrap_or((self.values, ""));
        let words: Vec<&str> = words.split(',').filter(|word| !word.is_empty()).collect();
        let listed = || format!("it takes {}", words.join(", "));
        let has = |word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        let items = |text: &str| -> Vec<String> {
            let items = text.split(',').map(|item| item.trim().trim_start_matches(['^', '\\']));
            // `rc:aux` of UCX.
            items.map(|item| item.split(':').next().unwrap_or(item).to_owned()).collect()
        };
        match form {
            "" | "text" => None,
            "int" => {
                let Some(number) = whole_number(value) else {
                    return Some("it takes a whole number, without a unit".to_owned());
                };
                let (low, high) = words.first()?.split_once("..")?;
                let (low, high) = (whole_number(low)?, whole_number(high));
                (number < low || high.is_some_and(|high| number > high)).then(|| match high {
                    Some(high) => format!("it takes {low} to {high}"),
                    None => format!("it takes {low} or more"),
                })
            }
            "size" => {
                let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let word = ["inf", "auto"].iter().any(|word| value.eq_ignore_ascii_case(word));
                (!word && number.parse::<f64>().is_err()).then(|| "it takes a size".to_owned())
            }
            "case" => {
                let digits = words.contains(&"0..") && whole_number(value).is_some();
                let shown: Vec<&str> =
                    words.iter().copied().filter(|word| *word != "0..").collect();
                (!digits && !words.contains(&value))
                    .then(|| format!("it takes {}, in capitals", shown.join(", ")))
            }
            "like" => items(value).iter().find_map(|item| {
                let near = misspelt_name(item, words.iter().copied()).filter(|_| !has(item))?;
                Some(format!("'{item}' is none of its words; did you mean {near}?"))
            }),
            "list" => items(value).iter().any(|item| !has(item)).then(listed),
            "algo" => {
                let list = |part: &str| part.rsplit(':').next().unwrap_or(part).to_owned();
                let unknown = |part: &str| items(&list(part)).iter().any(|item| !has(item));
                value.split(';').any(unknown).then(listed)
            }
            _ if form.starts_with("bool") => {
                let more =
                    self.values.split(',').skip(1).any(|word| word.eq_ignore_ascii_case(value));
                let known = more || truth(value).is_some();
                (!known).then(|| "it takes 0 or 1, yes or no".to_owned())
            }
            _ => {
                let words: Vec<&str> = self.values.split('|').collect();
                let known = words.iter().any(|word| word.eq_ignore_ascii_case(value));
                (!known).then(|| format!("it takes {}", words.join(", ")))
            }
        }
    }

    /// Whether a value is the default of all versions.
    pub(crate) fn is_default(&self, value: &str) -> bool {
        !self.default.is_empty()
            && !self.default.starts_with('~')
            && self.equals(self.default, value)
    }

    fn equals(&self, known: &str, value: &str) -> bool {
        let numbers = whole_number(known).zip(whole_number(value));
        let switches = truth(known).zip(truth(value)).filter(|_| self.values.starts_with("bool"));
        known.eq_ignore_ascii_case(value)
            || numbers.is_some_and(|(a, b)| a == b)
            || switches.is_some_and(|(a, b)| a == b)
    }

    /// What a value slows or harms whatever else is set; of a list without words for GPU memory only in jobs that
    /// pass some.
    pub(crate) fn certain_harm(
        &self,
        value: &str,
        passes_gpu_memory: bool,
    ) -> Option<&'static str> {
        let (values, text) = self.harms.strip_prefix('!')?.split_once(": ")?;
        let applies = match values.strip_prefix('-') {
            Some(_) if !passes_gpu_memory => false,
            Some(words) => {
                let items: Vec<&str> = value.split(',').collect();
                let has = |word: &str| items.iter().any(|item| item.trim().starts_with(word));
                !value.contains(['^', '*', '?']) && !words.split(',').any(has)
            }
            None => values.split(',').any(|known| self.equals(known, value)),
        };
        applies.then_some(text)
    }

    /// What it costs.
    pub(crate) fn costs(&self) -> &'static str {
        match self.harms.strip_prefix("!-") {
            Some(rest) => rest.split_once(": ").map_or(rest, |(_, text)| text),
            None => self.harms.trim_start_matches('!'),
        }
    }

    /// What it does, when it helps and what it costs: a sentence without a full stop, empty if nothing is known.
    pub(crate) fn about(&self) -> String {
        let (harms, effect, versions) = (self.costs(), self.effect, self.versions);
        let parts =
            [("", effect), ("helps: ", self.helps), ("costs: ", harms), ("versions ", versions)];
        let parts = parts.iter().filter(|(_, text)| !text.is_empty());
        parts.map(|(label, text)| format!("{label}{text}")).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_whole_and_its_default_fits() {
        let mut lines = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let cells = line.split('\t').count();
            assert!(
                line.starts_with("source\t")
                    || line.starts_with("names\t")
                    || line.starts_with("value\t") && cells == 6
                    || cells == 9,
                "{line}"
            );
            lines += usize::from(cells == 9);
        }
        let rows = &table().rows;
        assert_eq!(rows.len(), lines, "no name twice");
        assert!(rows.values().filter(|row| !row.effect.is_empty()).count() >= 300);
        assert!(
            stated_values().iter().all(|row| !row.source.is_empty()) && stated_values().len() > 20
        );
        for row in rows.values() {
            assert!(!row.source.is_empty(), "{}: its source is not listed", row.name);
            let default = row.default.trim_start_matches('~');
            assert_eq!(row.misfit(default).filter(|_| !default.is_empty()), None, "{}", row.name);
            let harmful = row.harms.strip_prefix('!').and_then(|rest| rest.split_once(": "));
            let values = harmful.filter(|(values, _)| !values.starts_with('-'));
            for value in values.iter().flat_map(|(values, _)| values.split(',')) {
                let is_harmful = row.certain_harm(value, false).is_some();
                assert!(is_harmful && !row.is_default(value), "{}={value}", row.name);
            }
        }
    }

    #[test]
    fn slips_and_other_names_differ() {
        for (name, meant) in [
            ("NCCL_CHECK_DISABLE", Some("NCCL_CHECKS_DISABLE")),
            ("FI_CXI_RDV_PROTO", Some("FI_CXI_RDZV_PROTO")),
            ("UXC_TLS", Some("UCX_TLS")),
            // Another word, another library, another number, and a plugin's own.
            ("NCCL_IB_QP", None),
            ("ROCM_VISIBLE_DEVICES", None),
            ("UCX_IB_SM", None),
            ("NCCL_IBEXT_QPS_PER_CONNECTION", None),
            ("OMPI_MCA_btl_tcp_links", None),
        ] {
            assert_eq!(meant_name(name), meant, "{name}");
        }
        assert!(
            is_known_name("MPICH_ALLREDUCE_INTRA_ALGORITHM") && is_known_name("NCCL_IBEXT_DISABLE")
        );
    }

    #[test]
    fn values_are_read_as_libraries_read_them() {
        let row = |name: &str| setting_row(name).expect("a row");
        for (name, good, bad) in [
            ("NCCL_ALGO", "ring,CollnetDirect;allreduce:^tree", "allreduce:trea"),
            ("NCCL_DEBUG", "info", "DEBUG"),
            ("NCCL_NET_GDR_LEVEL", "3", "sys"),
            ("NCCL_IB_PCI_RELAXED_ORDERING", "0x1", "3"),
            ("NCCL_DEBUG_SUBSYS", "^INIT,coll", "COLLECTIVES"),
            ("UCX_TLS", "^rc,ud:aux", "rc,cuda_icp"),
            ("UCX_TLS", "rc,new_transport", "sysvv"),
            ("UCX_RCACHE_ENABLE", "try", "maybe"),
            ("UCX_SEG_SIZE", "8k", "big"),
            ("UCX_SEG_SIZE", "INF", "infinite"),
            ("UCX_SEG_SIZE", "auto", "k"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1", "0"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32", "33"),
            ("MPICH_BCAST_INTRA_ALGORITHM", "gentran_tree", "binomail"),
            ("FI_CXI_OPTIMIZED_MRS", "false", "none"),
        ] {
            assert_eq!(row(name).misfit(good), None, "{name}={good}");
            assert!(row(name).misfit(bad).is_some(), "{name}={bad}");
        }
        assert!(
            row("NCCL_CROSS_NIC").is_default("0x2") && !row("NCCL_IB_TIMEOUT").is_default("20")
        );
    }
}
