//! Maximum payload share of an NVLink's line rate, for nodes without a description.

use pathline_schema::Rate;

/// A packet is one header flit and up to 16 flits of data, 128 bits each (WikiChip, "NVLink", for
/// its first generations; none is published for later ones, where it stays an upper bound).
const DATA_FLITS: f64 = 16.0 / 17.0;

/// Line rate over that of the data sheet from NVLink 4 on: a lane's 106.25 Gbit/s carry 100, the rest corrects errors.
/// 18 links of 25 GB/s, marketed as 900 for both directions, run at 18 x 26.5625 = 478 GB/s each way.
pub const NVLINK_CODING: f64 = 106.25 / 100.0;

/// Rates per link and direction of NVIDIA's data sheets, GB/s: P100, then V100 to H200, then B200.
const SHEET: [f64; 3] = [20.0, 25.0, 50.0];

/// The share and why. The line rate of one link per direction, as it is trained, is above the data
/// sheet's where the line is coded ([`NVLINK_CODING`]). With the header, 16/17 x 16/17 = 88.6 %.
pub(crate) fn payload(line: Rate) -> (f64, String) {
    let coded = |sheet: &&f64| (1.0005..=1.07).contains(&(line.0 / **sheet));
    let sheet = SHEET.iter().find(coded);
    let share = sheet.map_or(1.0, |sheet| sheet / line.0) * DATA_FLITS;
    let takes = if sheet.is_some() { "line coding and headers" } else { "headers" };
    (share, format!("NVLink: {:.0} % is payload after {takes}", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_coding_and_headers_are_taken_off() {
        // 25 / 26.562 x 16/17 = 0.8858: 18 links of 26.562 GB/s carry at most 423.5 GB/s.
        let (share, why) = payload(Rate(26.562));
        assert!((share * 18.0 * 26.562 - 423.53).abs() < 0.01, "{share}");
        assert_eq!(why, "NVLink: 89 % is payload after line coding and headers");
        // V100: 8 lanes of 25.78125 Gbit/s; 25 / 25.78125 x 16/17.
        assert!((payload(Rate(25.781)).0 - 0.9127).abs() < 1e-4);
        for line in [25.0, 20.0, 50.0, 14.0625] {
            assert_eq!(payload(Rate(line)).0, 16.0 / 17.0, "{line}");
        }
        assert_eq!(payload(Rate(25.0)).1, "NVLink: 94 % is payload after headers");
    }
}
