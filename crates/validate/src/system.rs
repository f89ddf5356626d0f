//! Which machines the systems of published rows are.

/// A name that sources use, and the preset that it is.
#[derive(Debug)]
pub(crate) struct System {
    /// Name of the machine description.
    pub(crate) machine: &'static str,
    /// How the row's system begins, in small letters.
    pub(crate) begins: &'static str,
    /// What it holds besides, in small letters.
    pub(crate) holds: &'static str,
    /// Why rows of this system hold for pairs of GPUs alone; none if they hold for all.
    pub(crate) pairs_only: Option<&'static str>,
    /// Its GPU number n is GPU `numbering[n]` of the description; as there if empty.
    pub(crate) numbering: &'static [u32],
}

/// The systems of the shipped tables. Others are named by `--system`, or are those of the row whose
/// system is the name of the description.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        machine: "mi250x",
        begins: "mi250x node",
        holds: "",
        pairs_only: None,
        numbering: &[],
    },
    System {
        machine: "mi250x",
        begins: "mi250 node",
        holds: "8 gcd",
        pairs_only: None,
        numbering: &[],
    },
    // AMD's reference servers join the same GPUs alike and number them otherwise. Their duals are
    // 0-4 and 2-6, their singles 0-6 1-3 1-7 2-4 3-5 5-7, their packages 0-1 2-3 4-5 6-7. With
    // 2 3 4 5 6 7 taken as 4 5 6 7 2 3 these are 0-6 4-2 and 0-2 1-5 1-3 4-6 5-7 7-3: the links of
    // the description.
    System {
        machine: "mi250x",
        begins: "mi250 dual-socket",
        holds: "reference enumeration",
        pairs_only: Some("its host link is another one (PCIe), so its rows hold for GPUs alone"),
        numbering: &[0, 1, 4, 5, 6, 7, 2, 3],
    },
];
