//! Reads the script of a placement, so that what became of a job can be compared with its plan.

use pathline_schema::{CpuSet, PciAddress};

/// A rank of a plan: what its script gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRank {
    /// Its number on its node; with [`Self::node`] its number in the job.
    pub local_rank: u32,
    /// The node of the job, from 0, in a plan of several nodes.
    pub node: Option<u32>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The number of its GPU among those of the node.
    pub gpu: Option<u32>,
    /// The PCI address of that GPU, where the plan has it.
    pub pci: Option<PciAddress>,
}

/// A script that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It has no line of a rank.
    #[error(
        "no line gives a rank its CPUs, as `0) cpus=0-7 gpu=0 ;;`; write a plan with `pathline place \
         --format env > place.sh`"
    )]
    NoRank,
    /// A line of a rank that cannot be read.
    #[error("line {line}: {reason}; expected `RANK) cpus=LIST gpu=NUMBER ;;`")]
    BadLine {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Largest number of ranks in a plan, as `pathline place` takes.
const MAX_RANKS: usize = 4096;

/// Reads the ranks of a script that [`launch_text`](crate::launch_text) wrote.
///
/// # Errors
/// A line of a rank has no CPU list, a rank has two lines, or there is none.
pub fn read_plan(text: &str) -> Result<Vec<PlannedRank>, PlanError> {
    let mut ranks: Vec<PlannedRank> = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let bad = |reason: String| PlanError::BadLine { line: nth + 1, reason };
        let Some((number, rest)) = line.split_once(')') else { continue };
        let Ok(local_rank) = number.trim().parse::<u32>() else { continue };
        let (settings, comment) = rest.split_once(";;").unwrap_or((rest, ""));
        let mut planned =
            PlannedRank { local_rank, node: None, cpus: CpuSet::default(), gpu: None, pci: None };
        for setting in settings.split_whitespace() {
            match setting.split_once('=') {
                Some(("cpus", list)) => {
                    planned.cpus = list.parse().map_err(|error| bad(format!("{error}")))?;
                }
                Some(("gpu", gpu)) => {
                    let number = gpu.parse().map_err(|_| bad(format!("gpu={gpu} is no number")))?;
                    planned.gpu = Some(number);
                }
                Some(("node", node)) => {
                    let number =
                        node.parse().map_err(|_| bad(format!("node={node} is no number")))?;
                    planned.node = Some(number);
                }
                // `where` takes the adapter from the variables that the script sets; launchers number the
                // ranks of a node.
                Some(("nic" | "nth", _)) => {}
                _ => return Err(bad(format!("unknown setting '{setting}'"))),
            }
        }
        if planned.cpus.is_empty() {
            return Err(bad(format!("rank {local_rank} has no CPUs")));
        }
        let pci = comment.trim().strip_prefix('#').and_then(|pci| pci.trim().parse().ok());
        planned.pci = pci.filter(|pci: &PciAddress| !pci.is_empty());
        if ranks.iter().any(|rank| rank.local_rank == local_rank) {
            return Err(bad(format!("a second line for rank {local_rank}")));
        }
        if ranks.len() == MAX_RANKS {
            return Err(bad(format!("more than {MAX_RANKS} ranks")));
        }
        ranks.push(planned);
    }
    if ranks.is_empty() { Err(PlanError::NoRank) } else { Ok(ranks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_ranks_are_read() {
        let text = "#!/bin/sh\n# (a comment) 1\ncase \"$rank\" in\n0) cpus=1-3,9 gpu=4 ;; # 0000:c1:00.0\n\
                    1) cpus=5 nic=hsn1 ;;\n*) echo no; exit 64 ;;\nesac\n";
        let ranks = read_plan(text).unwrap();
        assert_eq!(ranks.len(), 2);
        assert_eq!((ranks[0].cpus.to_string().as_str(), ranks[0].gpu), ("1-3,9", Some(4)));
        assert_eq!(ranks[0].pci.as_deref(), Some("0000:c1:00.0"));
        assert_eq!((ranks[1].local_rank, ranks[1].gpu, ranks[1].pci.clone()), (1, None, None));
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(read_plan("exec \"$@\"\n"), Err(PlanError::NoRank));
        for (text, reason) in [
            ("0) cpus=x ;;", "line 1"),
            ("0) gpu=1 ;;", "has no CPUs"),
            ("\n0) cpus=1 gpu=-1 ;;", "line 2: gpu=-1 is no number"),
            ("0) cpus=1 ;;\n0) cpus=2 ;;", "a second line for rank 0"),
            ("0) cpus=1 mem=4 ;;", "unknown setting 'mem=4'"),
        ] {
            let error = read_plan(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
