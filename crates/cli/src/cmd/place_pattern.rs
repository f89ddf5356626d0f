//! `pathline place --pattern`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use pathline_flow::{Network, RuntimeEnv};
use pathline_place::{
    MappingSearch, PhaseModel, PhaseMover, PhasePattern, PlaceRequest, PlacementPlan, RankTraffic,
    find_mapping, phase_time, place_ranks, read_matrix,
};
use pathline_runner::{MachineModel, read_text};
use pathline_schema::{Bytes, CaseOutcome, Ns, Topology, shell_word};

use super::{ExitKind, run};
use crate::args::{MessageCopier, PlaceArgs};
use crate::files;
use crate::say::{errln, outln};

/// Largest matrix that is read.
const MAX_MATRIX: u64 = 64 << 20;

/// A phase with its best mapping.
pub(super) struct MappedPhase {
    name: String,
    traffic: RankTraffic,
    /// A place for each GPU, or for each rank where they are more.
    places: PlacementPlan,
    model: PhaseModel,
    mover: PhaseMover,
    /// What the rates come from, for people.
    basis: String,
    found: MappingSearch,
}

/// Searches the best mapping of the phase that the words name.
pub(super) fn map(
    args: &PlaceArgs,
    words: &[String],
    topology: &Topology,
    request: &PlaceRequest,
) -> Result<MappedPhase> {
    let gpus = topology.gpus.len();
    if gpus == 0 {
        bail!(
            "a pattern is placed on the GPUs of a node, and this one has none; name another (--machine, \
             --from)"
        );
    }
    let (name, traffic) = read_phase(words, args.ranks, gpus, args.bytes)?;
    let ranks = traffic.ranks();
    let wanted = if ranks > gpus { u32::try_from(ranks).unwrap_or(u32::MAX) } else { 0 };
    let places = place_ranks(topology, &PlaceRequest { ranks: wanted, ..*request })?;
    let on: Option<Vec<u32>> = places.ranks.iter().map(|place| place.gpu).collect();
    let on = on.context("a rank has no GPU")?;
    let mover = mover(args.by);
    let (network, basis) = match &args.machine {
        Some(name) => {
            let model = MachineModel::read(name)?;
            let network = Network::new(model.desc(), RuntimeEnv::default())?;
            (network, format!("model {}", model.desc().name))
        }
        None => (Network::from_topology(topology), "theoretical peaks of links".to_owned()),
    };
    let each: u64 = traffic.messages().iter().map(|message| message.bytes).max().unwrap_or(0);
    let model = PhaseModel::new(&network, &on, mover, Bytes(each))
        .map_err(|error| anyhow!("no phase can be predicted here: {error}"))?;
    let found = find_mapping(&model, &traffic)
        .with_context(|| format!("{ranks} ranks have {} places", on.len()))?;
    Ok(MappedPhase { name, traffic, places, model, mover, basis, found })
}

/// What copies the messages.
pub(super) fn mover(by: MessageCopier) -> PhaseMover {
    match by {
        MessageCopier::Dma => PhaseMover::CopyEngine,
        MessageCopier::Blit => PhaseMover::CopyKernel,
    }
}

/// A pattern, or the matrix of a file of that name.
pub(super) fn read_phase(
    words: &[String],
    ranks: Option<u32>,
    gpus: usize,
    bytes: Bytes,
) -> Result<(String, RankTraffic)> {
    let text = words.join(" ");
    let file = PathBuf::from(&text);
    if file.is_file() {
        let matrix = read_text(&file, MAX_MATRIX).with_context(|| text.clone())?;
        let traffic = read_matrix(&matrix).with_context(|| text.clone())?;
        let own = traffic.ranks();
        if ranks.is_some_and(|ranks| ranks as usize != own) {
            bail!("{text}: a matrix of {own} ranks, and --ranks names another number");
        }
        return Ok((text, traffic));
    }
    let pattern: PhasePattern = text.parse()?;
    let count = ranks.map(|ranks| ranks as usize).or(pattern.ranks()).unwrap_or(gpus);
    Ok((format!("{pattern} of {bytes}"), pattern.traffic(count, bytes)?))
}

impl MappedPhase {
    /// The placement with the best mapping.
    pub(super) fn plan(&self) -> PlacementPlan {
        self.places.reordered(&self.found.best.at)
    }

    /// Prints what the mapping gains over others.
    pub(super) fn show(&self) {
        let MappingSearch { identity, by_distance, best, is_proven, phases } = &self.found;
        outln!("");
        let mover = match self.mover {
            PhaseMover::CopyEngine => "copy engine",
            PhaseMover::CopyKernel => "copy kernel",
        };
        outln!("{}, {mover}: predicted time by {}", self.name, self.basis);
        let rows = [
            ("ranks in order (launchers' default)", identity),
            ("fewest bytes times links (distance only)", by_distance),
            ("this mapping", best),
        ];
        for (what, phase) in rows {
            let gain = phase.time / best.time;
            let time = Ns(phase.time).to_string();
            outln!("  {what:<42} {time:>10}  {gain:.2}x");
        }
        let proof = if *is_proven {
            "all mappings were bounded: none is more than 0.1 % shorter"
        } else {
            "a search by swaps: others may be shorter"
        };
        outln!("  {phases} phases computed; {proof}.");
    }

    /// Measures both mappings as ordinary cases, and compares them.
    pub(super) fn prove(&self, args: &PlaceArgs, dir: &Path) -> Result<ExitKind> {
        let case = |at: &[usize]| {
            let case = self.model.case(&self.traffic, at, self.mover);
            case.map(|case| case.to_string()).context("a rank has no place")
        };
        let (before, after) = (case(&self.found.identity.at)?, case(&self.found.best.at)?);
        if before == after {
            outln!("The best mapping has ranks in order: there is nothing to compare.");
            return Ok(ExitKind::Fine);
        }
        let folder = dir.to_string_lossy().into_owned();
        let mut command = vec!["run", "--out", &folder, "--case", &before, "--case", &after];
        command.extend(args.machine.iter().flat_map(|name| ["--machine", name.as_str()]));
        let ended = run::run_silently(&command)?;
        let journal = files::read(dir)?;
        let time = |text: &str| {
            journal.outcomes.iter().find_map(|outcome| match outcome {
                CaseOutcome::Measured(m) if m.case.to_string() == text => phase_time(&m.series),
                _ => None,
            })
        };
        let (Some(before), Some(after)) = (time(&before), time(&after)) else {
            let folder = shell_word(&folder);
            errln!("pathline: the phases were not both measured; see `pathline report {folder}`");
            return Ok(if ended == ExitKind::Fine { ExitKind::CouldNotJudge } else { ended });
        };
        let predicted = self.found.identity.time / self.found.best.time;
        outln!(
            "measured: {before} with ranks in order, {after} with this mapping, {:.2}x (predicted \
             {predicted:.2}x); the run is in {folder}",
            before.0 / after.0
        );
        Ok(if after.0 < before.0 { ExitKind::Fine } else { ExitKind::Wrong })
    }
}
