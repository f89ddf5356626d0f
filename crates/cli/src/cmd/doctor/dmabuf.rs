//! The three prerequisites of dma-buf: a network adapter that reads and writes device memory.

use super::kernel_config::KernelConfig;
use super::{MISSING, NONE, OK};
use crate::say::outln;

/// Options that a kernel needs so that an adapter's driver can import device memory: a GPU driver
/// moves it only after it has notified importers, and PCI devices reach each other.
const OPTIONS: [&str; 2] = ["CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA"];

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
pub(super) fn print(
    export: &Result<String, String>,
    registers: Option<bool>,
    config: Option<&KernelConfig>,
) {
    lines(export, registers, config).iter().for_each(|line| outln!("{line}"));
}

fn lines(
    export: &Result<String, String>,
    registers: Option<bool>,
    config: Option<&KernelConfig>,
) -> Vec<String> {
    let all = [
        ("GPU runtime exports device memory", exporting(export)),
        ("libibverbs registers it", registering(registers)),
        ("kernel lets adapters import it", importing(config)),
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

fn importing(config: Option<&KernelConfig>) -> Prerequisite {
    let Some(config) = config else {
        return Prerequisite::Unknown(
            "unknown: no /proc/config.gz and no /boot/config of this kernel".to_owned(),
        );
    };
    let file = config.file.display();
    let absent: Vec<&str> = OPTIONS.into_iter().filter(|option| !config.has(option)).collect();
    match absent.as_slice() {
        [] => Prerequisite::Met(format!("{} ({file})", OPTIONS.join(", "))),
        absent => Prerequisite::Unmet {
            why: format!("{} not set ({file})", absent.join(", ")),
            costs: "ibv_reg_dmabuf_mr of device memory fails, and UCX does not try it \
                    (UCX_ROCM_COPY_DMABUF, UCX_CUDA_COPY_DMABUF)",
            way_out: "boot a kernel with both options; they cannot be set at run time",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prerequisite_has_a_line_and_an_absent_one_its_cost() {
        let export = Ok("cuMemGetHandleForAddressRange".to_owned());
        let met = KernelConfig::of("CONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y\n");
        let all = lines(&export, Some(true), Some(&met));
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|line| line.starts_with(OK)), "{all:?}");
        // Two lines more for each of three that are absent.
        let half = KernelConfig::of("CONFIG_PCI_P2PDMA=y\n");
        let none = lines(&Err("no such call".to_owned()), Some(false), Some(&half));
        assert_eq!(none.len(), 9);
        assert!(none[6].contains("CONFIG_DMABUF_MOVE_NOTIFY not set"), "{none:?}");
        assert!(none.iter().filter(|line| line.starts_with("    so: ")).count() == 3, "{none:?}");
        let unknown = lines(&export, None, None);
        assert!(unknown[1].starts_with(NONE) && unknown[2].starts_with(NONE), "{unknown:?}");
    }
}
