//! Which machines the systems of published rows are.

/// A name that sources use, and the preset that it is.
#[derive(Debug)]
pub(crate) struct NamedSystem {
    /// Name of the machine description.
    pub(crate) machine: &'static str,
    /// How the row's system begins, in small letters.
    pub(crate) begins: &'static str,
    /// What it holds besides, in small letters.
    pub(crate) holds: &'static str,
    /// Why rows of this system hold for pairs of GPUs alone; none if they hold for all.
    pub(crate) pairs_only: Option<&'static str>,
}

/// The systems of the shipped tables. Others are named by `--system`, or are those of the row whose
/// system is the name of the description.
pub(crate) const SYSTEMS: &[NamedSystem] = &[
    NamedSystem { machine: "mi250x", begins: "mi250x node", holds: "", pairs_only: None },
    NamedSystem { machine: "mi250x", begins: "mi250 node", holds: "8 gcd", pairs_only: None },
    // The same links, numbered otherwise: the description has that numbering under this name.
    NamedSystem {
        machine: "mi250x",
        begins: "mi250 dual-socket",
        holds: "reference enumeration",
        pairs_only: Some("its host link is another one (PCIe), so its rows hold for GPUs alone"),
    },
];
