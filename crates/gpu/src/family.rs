//! Whose runtime it is, and how its calls end.

/// A status with the name of the function that gave it.
pub type CallStatus = (&'static str, i32);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeFamily {
    /// NVIDIA's driver API.
    Cuda,
    /// AMD's runtime.
    Hip,
}

impl RuntimeFamily {
    /// As `hal::Driver::name` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }
}
