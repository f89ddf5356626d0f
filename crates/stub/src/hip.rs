//! The HIP runtime.
#![allow(non_snake_case)]

use crate::spec::Spec;

/// The major version that is pretended: as told, or as the library's file is called.
pub(crate) fn major(spec: &Spec) -> i32 {
    spec.hip.or_else(by_file_name).unwrap_or(6)
}

fn by_file_name() -> Option<i32> {
    None
}
