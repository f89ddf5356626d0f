//! Matrices of `nvidia-smi topo -p2p`: what the driver allows between GPUs.

use pathline_paste::{LinkMatrix, PEER_STATUSES};

use crate::cause_table::cause;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;

/// What a matrix of statuses says: of the driver, and not of any link.
pub(crate) fn peer_access(shown: &LinkMatrix) -> DraftAnswer {
    let count = |status: &str| {
        shown.pairs.iter().filter(|((a, b), text)| a < b && text.as_str() == status).count()
    };
    let counted = PEER_STATUSES.iter().map(|(status, text)| (count(status), status, text));
    let counted = counted.filter(|one| one.0 > 0);
    let kinds: Vec<String> =
        counted.map(|(n, status, text)| format!("{n} x {status} ({text})")).collect();
    DraftAnswer {
        edits: vec![cause("wiring.peer-access")],
        meaning: format!("peer access of GPU pairs, as the driver allows it: {}", kinds.join(", ")),
        limit: "none shown; where reads or writes (-p2p r, w) are refused, copies go through host memory"
            .to_owned(),
        is_description: true,
        path: CheckPath::Wiring,
        ..DraftAnswer::default()
    }
}
