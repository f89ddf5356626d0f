//! What profilers sum up.

/// A table of a profiler: rocprof, nvprof.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileTable {
    /// `rocprof` or `nvprof`.
    pub tool: &'static str,
    /// Kernels, copies and calls.
    pub rows: Vec<ProfileRow>,
}

/// What a profiler summed up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileRow {
    /// Kernel, call or `[CUDA memcpy HtoD]`.
    pub name: String,
    /// How often.
    pub calls: u64,
    /// All of them, us.
    pub total_us: f64,
    /// Share of the time, 0 to 1.
    pub share: f64,
}
