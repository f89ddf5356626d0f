//! What dma-buf, by which a network adapter reads and writes device memory, needs of libraries. What it needs of
//! the kernel is a setting.

use super::{MISSING, NONE, OK};
use crate::say::outln;

/// The state of one prerequisite.
enum Prerequisite {
    Met(String),
    /// Why not, what that costs, and what to do.
    Unmet {
        why: String,
        costs: &'static str,
        way_out: &'static str,
    },
    /// Why it cannot be checked.
    Unknown(String),
}

/// Prints each prerequisite with what its absence costs.
pub(super) fn print(export: &Result<String, String>, registers: Option<bool>) {
    lines(export, registers).iter().for_each(|line| outln!("{line}"));
}

fn lines(export: &Result<String, String>, registers: Option<bool>) -> Vec<String> {
    let all = [
        ("GPU runtime exports device memory", exporting(export)),
        ("libibverbs registers it", registering(registers)),
    ];
    let lines = |(what, state): (&str, Prerequisite)| match state {
        Prerequisite::Met(by) => vec![format!("{OK} dma-buf: {what}: {by}")],
        Prerequisite::Unknown(why) => vec![format!("{NONE} dma-buf: {what}: {why}")],
        Prerequisite::Unmet { why, costs, way_out } => vec![
            format!("{MISSING} dma-buf: {what}: {why}"),
            format!("    so:      {costs}"),
            format!("    do this: {way_out}"),
        ],
    };
    all.into_iter().flat_map(lines).collect()
}

fn exporting(export: &Result<String, String>) -> Prerequisite {
    match export {
        Ok(call) => Prerequisite::Met(call.clone()),
        Err(why) => Prerequisite::Unmet {
            why: why.clone(),
            costs: "adapters reach device memory only by a module that knows both drivers \
                    (nvidia-peermem, amdgpu with peer-direct); else messages are staged in host memory",
            way_out: "ROCm 5.5 or later, or a driver of CUDA 11.7 or later",
        },
    }
}

fn registering(registers: Option<bool>) -> Prerequisite {
    match registers {
        Some(true) => Prerequisite::Met("ibv_reg_dmabuf_mr".to_owned()),
        None => Prerequisite::Unknown("libibverbs was not opened".to_owned()),
        Some(false) => Prerequisite::Unmet {
            why: "it lacks ibv_reg_dmabuf_mr".to_owned(),
            costs: "device memory is registered by address only, which needs nvidia-peermem or \
                    peer-direct",
            way_out: "install rdma-core 34 or later",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prerequisite_has_a_line_and_an_absent_one_its_cost() {
        let export = Ok("cuMemGetHandleForAddressRange".to_owned());
        let all = lines(&export, Some(true));
        assert!(all.len() == 2 && all.iter().all(|line| line.starts_with(OK)), "{all:?}");
        // Two lines more for each of two that are absent.
        let none = lines(&Err("no such call".to_owned()), Some(false));
        assert_eq!(none.len(), 6);
        assert!(none.iter().filter(|line| line.starts_with("    so: ")).count() == 2, "{none:?}");
        let unknown = lines(&export, None);
        assert!(unknown[1].starts_with(NONE), "{unknown:?}");
    }
}
