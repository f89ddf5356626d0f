//! Identity of a run: node, devices, versions, time. The head of every report.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Gpu, Journal, RunBegin, Topology, WorldKind, shell_line};

use crate::figure::RunIdentity;
use crate::part_rows::part_rows;
use crate::rank_gpus::name_rank_gpus;

/// The machine as the command of a simulated run names it: `mi250x`, `node/sick.toml`.
pub fn machine_of(begin: &RunBegin) -> Option<&str> {
    let mut words = begin.command.iter();
    words.find(|word| ["-m", "--machine"].contains(&word.as_str()))?;
    words.next().map(String::as_str)
}

/// The same without its folder, else the name in its description.
pub(crate) fn machine_name<'a>(begin: &'a RunBegin, described: &'a str) -> &'a str {
    machine_of(begin).and_then(|path| path.rsplit('/').next()).unwrap_or(described)
}

/// Maximum number of cases in a shortened command line.
const MAX_CASES: usize = 10;

/// The identity of a run.
pub(crate) fn identify(journal: &Journal) -> RunIdentity {
    let (begin, topology) = (&journal.begin, &journal.topology);
    let node = match &begin.world {
        WorldKind::Simulated(machine) => format!("machine {}", machine_name(begin, machine)),
        WorldKind::Real if begin.host.is_empty() => "this host".into(),
        WorldKind::Real => begin.host.clone(),
    };
    RunIdentity {
        node,
        gpus: count_gpus(topology),
        packages: name_packages(topology),
        rank_gpus: match begin.ranks.is_empty() {
            true => topology.renumbered_gpus().unwrap_or_default(),
            false => name_rank_gpus(&begin.ranks),
        },
        processor: topology.host.cpu_model.clone(),
        driver: driver(journal),
        ranks: begin.ranks.len(),
        nodes: begin.ranks.iter().map(|rank| rank.node).collect::<BTreeSet<_>>().len(),
        started: started(&begin.started),
        duration: duration(journal),
        version: begin.version.clone(),
        command: shorten_command(&begin.command),
        parts: part_rows(journal),
    }
}

/// `2026-11-22 05:04 UTC` for a time in RFC 3339; other texts unchanged.
fn started(time: &str) -> String {
    let date_and_time = time.strip_suffix('Z').and_then(|time| time.split_once('T'));
    match date_and_time.and_then(|(date, time)| Some((date, time.get(..5)?))) {
        Some((date, time)) => format!("{date} {time} UTC"),
        None => time.to_owned(),
    }
}

/// Duration; of a simulated run in virtual time.
fn duration(journal: &Journal) -> String {
    let Some(end) = &journal.end else { return String::new() };
    match journal.begin.world {
        WorldKind::Simulated(_) => format!("{} of virtual time", end.elapsed),
        WorldKind::Real => end.elapsed.to_string(),
    }
}

/// Driver of the GPUs: `driver 580.159.04` if the source of their facts states a version, else that
/// source. Empty for a model.
fn driver(journal: &Journal) -> String {
    let simulated = matches!(journal.begin.world, WorldKind::Simulated(_));
    let Some(facts) = journal.begin.gpus.values().next().filter(|_| !simulated) else {
        return String::new();
    };
    let version =
        facts.source.split(' ').find(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    version.map_or_else(|| facts.source.clone(), |version| format!("driver {version}"))
}

/// GPUs by package, in order; `None` if a GPU's package is unknown.
fn packages(topology: &Topology) -> Option<BTreeMap<u32, Vec<&Gpu>>> {
    let mut packages: BTreeMap<u32, Vec<&Gpu>> = BTreeMap::new();
    for gpu in &topology.gpus {
        packages.entry(gpu.package?).or_default().push(gpu);
    }
    (!packages.is_empty()).then_some(packages)
}

/// Product of a GPU, else its target. Without the suffix that some drivers append for a part.
fn product(gpu: &Gpu) -> &str {
    let name = gpu.name.strip_suffix(gpu.caps().part_name).unwrap_or(&gpu.name).trim_end();
    let names = [name, gpu.arch.as_str(), gpu.caps().label];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}

/// Name of a part if packages have several GPUs: `GCD`.
fn part_name(gpus: &[&Gpu]) -> &'static str {
    gpus.first().map_or("GPU", |gpu| gpu.caps().part_name)
}

/// `4 x AMD Instinct MI250X, 8 GCDs`; `8 x NVIDIA H200`; empty without GPUs.
pub(crate) fn count_gpus(topology: &Topology) -> String {
    topology.gpus_in_words(|gpu| (product(gpu).to_owned(), String::new())).join(", ")
}

/// Part and package of each GPU: `gpu0+1 = GCD 0+1 of MI250X #0, gpu2+3 = #1`; empty if each GPU is
/// a package.
fn name_packages(topology: &Topology) -> String {
    let Some(all) = packages(topology).filter(|all| all.values().any(|gpus| gpus.len() > 1)) else {
        return String::new();
    };
    let one = |(at, (package, gpus)): (usize, (&u32, &Vec<&Gpu>))| {
        let join = |numbers: Vec<String>| numbers.join("+");
        let names = join(gpus.iter().map(|gpu| gpu.index.to_string()).collect());
        if at > 0 {
            return format!("gpu{names} = #{package}");
        }
        let parts = join((0..gpus.len()).map(|part| part.to_string()).collect());
        // The last word of a product name is its usual short form.
        let name = gpus.first().map_or("", |gpu| product(gpu));
        let name = name.rsplit(' ').next().unwrap_or(name);
        format!("gpu{names} = {} {parts} of {name} #{package}", part_name(gpus))
    };
    all.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

/// A command line for a shell, with the first [`MAX_CASES`] cases and, as a comment, where the others stand.
pub(crate) fn shorten_command(arguments: &[String]) -> String {
    let (mut shown, mut cases) = (Vec::new(), 0_usize);
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let value = if ["--case", "-c"].contains(&argument) { rest.next() } else { None };
        let is_case = value.is_some() || argument.starts_with("--case=");
        cases += usize::from(is_case);
        if !is_case || cases <= MAX_CASES {
            shown.extend([argument].into_iter().chain(value));
        }
    }
    let line = shell_line(shown);
    match cases.saturating_sub(MAX_CASES) {
        0 => line,
        more => format!("{line} # and {more} more --case: see the first line of run.jsonl"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::MachineDesc;
    use pathline_schema::shell_words;

    #[test]
    fn gpus_are_counted_as_their_vendor_counts_them() {
        let mi250x = MachineDesc::preset("mi250x").unwrap().topology();
        assert_eq!(count_gpus(&mi250x), "4 x AMD Instinct MI250X, 8 GCDs");
        assert_eq!(
            name_packages(&mi250x),
            "gpu0+1 = GCD 0+1 of MI250X #0, gpu2+3 = #1, gpu4+5 = #2, gpu6+7 = #3"
        );
        let hgx = MachineDesc::preset("hgx-h200").unwrap().topology();
        assert_eq!(
            (count_gpus(&hgx).as_str(), name_packages(&hgx).as_str()),
            ("8 x NVIDIA H200", "")
        );
        assert_eq!(count_gpus(&Topology::default()), "");
    }

    #[test]
    fn a_command_of_many_cases_is_shortened() {
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(shorten_command(&arguments("pathline run -s pairs")), "pathline run -s pairs");
        let cases: String = (0..12).map(|nth| format!("--case a{nth} ")).collect();
        let many = arguments(&format!("pathline run {cases}-c b --case=c -q"));
        let shown: String = (0..10).map(|nth| format!("--case a{nth} ")).collect();
        let more = "# and 4 more --case: see the first line of run.jsonl";
        assert_eq!(shorten_command(&many), format!("pathline run {shown}-q {more}"));
        // The comment is none of a shell's words.
        assert_eq!(shell_words(&shorten_command(&many)).len(), 23);
        let case = ["pathline", "run", "--case", "a > b & c > d"].map(str::to_owned);
        assert_eq!(shell_words(&shorten_command(&case)), case);
    }

    #[test]
    fn a_start_is_shown_to_the_minute() {
        assert_eq!(started("2026-11-22T05:04:27Z"), "2026-11-22 05:04 UTC");
        assert_eq!(started("yesterday"), "yesterday");
    }
}
