//! Tables of a profiler: times and shares of kernels and copies.

use pathline_paste::{MatrixEnd, MatrixTool, ProfileRow, ProfileTable, RateMatrix};

use crate::checks::CheckPath;
use crate::copies;
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::figures::figure;
use crate::node_facts::AnswerBasis;

/// Rows of a profile that are named.
const MAX_PROFILED: usize = 3;

/// The rate of its copies where one follows, else its times.
pub(crate) fn explain(profile: &ProfileTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let copies = copies_of_profile(profile, basis);
    copies.unwrap_or_else(|| explain_profile(profile))
}

/// The rate of a profile's host copies, where the text states the one size that a copy has.
fn copies_of_profile(profile: &ProfileTable, basis: AnswerBasis<'_>) -> Option<DraftAnswer> {
    let [bytes] = basis.context.sizes.as_slice() else { return None };
    let ends = |name: &str| {
        let (host, gpu) = (MatrixEnd::Host(None), MatrixEnd::Gpu(0));
        match name {
            _ if name.contains("HtoD") || name.contains("HostToDevice") => Some((host, gpu)),
            _ if name.contains("DtoH") || name.contains("DeviceToHost") => Some((gpu, host)),
            _ => None,
        }
    };
    let most = basis.limits.map_or(f64::INFINITY, |limits| limits.pcie_gbs.max(limits.c2c_gbs));
    let cell = |row: &ProfileRow| {
        let (from, to) = ends(&row.name)?;
        let gbs = *bytes as f64 / (row.total_us / row.calls.max(1) as f64) / 1e3;
        // Copies that would be faster than their link have another size.
        Some((from, to, gbs)).filter(|(.., gbs)| *gbs <= most)
    };
    let cells: Vec<_> = profile.rows.iter().filter_map(cell).collect();
    let matrix = RateMatrix {
        cells,
        ..RateMatrix::new(MatrixTool::BandwidthSample, format!("copies of {bytes} B"))
    };
    let mut draft = copies::explain_matrices(&[&matrix], basis).into_iter().next()?;
    let meaning = explain_profile(profile).meaning;
    draft.also.push(format!("if each moves the {bytes} B of the text; {meaning}"));
    draft.subject = ProbeSubject::Nothing;
    Some(draft)
}

/// Times and shares, from which no rate follows without bytes.
fn explain_profile(profile: &ProfileTable) -> DraftAnswer {
    let mut rows: Vec<_> = profile.rows.iter().collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    let named = rows.iter().take(MAX_PROFILED).map(|row| {
        let name: String = row.name.chars().take(40).collect();
        let (share, calls) = (row.share * 100.0, row.calls);
        let [ms, each] = [row.total_us / 1e3, row.total_us / calls.max(1) as f64].map(figure);
        format!("{name} {share:.1} %, {ms} ms in {calls} calls of {each} us")
    });
    let (count, named) = (rows.len(), named.collect::<Vec<_>>().join("; "));
    let meaning = format!("profile, {count} kernels, copies and calls: {named}");
    DraftAnswer {
        limit: "none: a profile has times and no bytes".to_owned(),
        ask: "how many bytes does a copy move?".to_owned(),
        ..DraftAnswer::new(CheckPath::Profile, meaning, None)
    }
}
