//! Classes of matrix cells with equal expected values, and the deviation of each cell from its
//! class.

use crate::figure::{BetterWhen, FigureCell, LossKind, MatrixBody};
use crate::loss_breakdown::general;

/// Minimum number of cells to compare.
const MIN_PEERS: usize = 3;

/// Peers of the cells of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerView {
    /// Speed of each cell divided by the median speed of its class, `cells[row][col]`; `None`
    /// without a value, or with fewer than three cells in the class.
    pub speeds: Vec<Vec<Option<f64>>>,
    /// Parallel links of the narrowest hop, `cells[row][col]`; `None` if unknown.
    pub links: Vec<Vec<Option<u32>>>,
}

impl PeerView {
    /// Compares the cells of a matrix. A class has the same narrowest hop except for the numbers of
    /// its units, the same number of hops and the same bound; in a matrix whose rows and columns
    /// differ, also the same row.
    pub fn from_matrix(matrix: &MatrixBody) -> Self {
        let square = matrix.rows == matrix.cols;
        let class = |row: usize, cell: &FigureCell| {
            let value = cell.value.filter(|v| v.is_finite() && *v > 0.0)?;
            let row = if square { 0 } else { row };
            Some((value, (row, path_class(cell))))
        };
        let classed: Vec<Vec<_>> = matrix
            .cells
            .iter()
            .enumerate()
            .map(|(row, cells)| cells.iter().map(|cell| class(row, cell)).collect())
            .collect();
        let speed = |cell: &Option<(f64, (usize, String))>| {
            let (value, class) = cell.as_ref()?;
            let peers = classed.iter().flatten().flatten().filter(|(_, other)| other == class);
            let peers: Vec<f64> = peers.map(|(value, _)| *value).collect();
            let enough = peers.len() >= MIN_PEERS;
            let median = pathline_stats::interpolated(&pathline_stats::ascending(peers), 0.5)?;
            let speed = match matrix.better {
                BetterWhen::Higher => value / median,
                BetterWhen::Lower => median / value,
                BetterWhen::Neither => return None,
            };
            (enough && speed.is_finite()).then_some(speed)
        };
        let each = |cells: &Vec<Option<_>>| cells.iter().map(speed).collect();
        let links = |cells: &Vec<FigureCell>| cells.iter().map(parallel_links).collect();
        Self {
            speeds: classed.iter().map(each).collect(),
            links: matrix.cells.iter().map(links).collect(),
        }
    }

    /// Numbers of parallel links in descending order.
    pub fn widths(&self) -> Vec<u32> {
        let mut widths: Vec<u32> = self.links.iter().flatten().flatten().copied().collect();
        widths.sort_unstable_by(|a, b| b.cmp(a));
        widths.dedup();
        widths
    }
}

/// Key of a cell's class.
fn path_class(cell: &FigureCell) -> String {
    let Some(path) = &cell.path else { return String::new() };
    let hops = path.route.matches('-').count();
    // The level of a message step is a measured value, which differs between equal paths.
    let known = path.losses.iter().rev().find(|loss| loss.kind != LossKind::Message);
    let level = known.map(|loss| loss.to).or(cell.ceiling).unwrap_or(0.0);
    format!("{} {hops} {level:.1}", general(&path.narrowest))
}

/// Parallel links of the narrowest hop: 4 of `xGMI gpu0-gpu1, 4 links`.
fn parallel_links(cell: &FigureCell) -> Option<u32> {
    let (_, width) = cell.path.as_ref()?.narrowest.rsplit_once(", ")?;
    let (number, noun) = width.split_once(' ')?;
    matches!(noun, "link" | "links").then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::LossBreakdown;

    fn cell(value: f64, narrowest: &str) -> FigureCell {
        let path =
            LossBreakdown { route: "0-1".into(), narrowest: narrowest.into(), losses: Vec::new() };
        FigureCell { value: Some(value), path: Some(path), ..FigureCell::default() }
    }

    fn square(better: BetterWhen, cells: Vec<Vec<FigureCell>>) -> MatrixBody {
        let labels: Vec<String> = (0..cells.len()).map(|i| i.to_string()).collect();
        MatrixBody {
            unit: "GB/s".into(),
            row_axis: "from".into(),
            col_axis: "to".into(),
            rows: labels.clone(),
            cols: labels,
            cells,
            better,
        }
    }

    #[test]
    fn a_slow_pair_is_compared_with_pairs_of_as_many_links() {
        let single = |v, a, b| cell(v, &format!("xGMI gpu{a}-gpu{b}, 1 link"));
        let view = PeerView::from_matrix(&square(
            BetterWhen::Higher,
            vec![
                vec![FigureCell::default(), single(40.0, 0, 1), single(40.0, 0, 2)],
                vec![
                    single(30.0, 1, 0),
                    FigureCell::default(),
                    cell(150.0, "xGMI gpu1-gpu2, 4 links"),
                ],
                vec![single(40.0, 2, 0), FigureCell::default(), FigureCell::default()],
            ],
        ));
        // 30 over the median 40 of four single links; the pair of four links has no peer.
        assert_eq!(view.speeds[1][0], Some(0.75));
        assert_eq!(
            (view.speeds[0][1], view.speeds[1][2], view.speeds[0][0]),
            (Some(1.0), None, None)
        );
        assert_eq!((view.links[0][1], view.links[1][2]), (Some(1), Some(4)));
        assert_eq!(view.widths(), [4, 1]);
    }

    #[test]
    fn a_longer_latency_is_a_lower_speed_and_hops_have_no_speed() {
        let cells = || vec![vec![cell(2.0, "a"), cell(1.0, "a"), cell(1.0, "a")]];
        let of = |better| PeerView::from_matrix(&square(better, cells())).speeds[0][0];
        assert_eq!(of(BetterWhen::Lower), Some(0.5));
        assert_eq!(of(BetterWhen::Neither), None);
    }

    #[test]
    fn rows_of_other_kinds_are_not_peers() {
        let mut matrix = square(
            BetterWhen::Higher,
            vec![vec![cell(10.0, "a"), cell(10.0, "a"), cell(8.0, "a")], vec![cell(90.0, "a")]],
        );
        matrix.cols = vec!["gpu0".into(), "gpu1".into(), "gpu2".into()];
        let view = PeerView::from_matrix(&matrix);
        assert_eq!((view.speeds[0][2], view.speeds[1][0]), (Some(0.8), None));
    }
}
