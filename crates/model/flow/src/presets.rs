//! The machine descriptions that come with the program.

/// Name and text of each.
pub(crate) const PRESETS: [(&str, &str); 13] = [
    ("mi250x", include_str!("../presets/mi250x.toml")),
    ("hgx-h200", include_str!("../presets/hgx-h200.toml")),
    ("hgx-h100", include_str!("../presets/hgx-h100.toml")),
    ("hgx-b200", include_str!("../presets/hgx-b200.toml")),
    ("hgx-a100", include_str!("../presets/hgx-a100.toml")),
    ("gb200", include_str!("../presets/gb200.toml")),
    ("gh200x4", include_str!("../presets/gh200x4.toml")),
    ("mi350x", include_str!("../presets/mi350x.toml")),
    ("mi325x", include_str!("../presets/mi325x.toml")),
    ("mi300x", include_str!("../presets/mi300x.toml")),
    ("mi300a", include_str!("../presets/mi300a.toml")),
    ("mi100", include_str!("../presets/mi100.toml")),
    ("v100", include_str!("../presets/v100.toml")),
];
