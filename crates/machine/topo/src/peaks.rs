//! Data sheet values: the peak rate of a link, the product with a PCI number.

use pathline_schema::{HostInfo, Rate};

/// Peak of one xGMI link per direction.
///
/// gfx906, gfx90a: 25 GT/s x 16 bit = 50 GB/s; gfx908: 23 GT/s, 46 GB/s (three links, 276 GB/s
/// bidirectional); gfx94x: 32 GT/s, 64 GB/s (AMD CDNA 3 white paper: 128 GB/s bidirectional);
/// gfx950: 38.4 GT/s, 76.8 GB/s (AMD CDNA 4 white paper: 153.6 GB/s bidirectional).
pub(crate) fn xgmi_link(arch: &str) -> Option<Rate> {
    let gbs = match arch {
        "gfx906" | "gfx90a" => 50.0,
        "gfx908" => 46.0,
        "gfx940" | "gfx941" | "gfx942" => 64.0,
        "gfx950" => 76.8,
        _ => return None,
    };
    Some(Rate(gbs))
}

/// Peak of one NVLink per direction (NVIDIA architecture white papers: P100 20, V100, A100 and
/// H100 25, B200 50 GB/s).
pub(crate) fn nvlink_link(arch: &str) -> Option<Rate> {
    let capability: u32 = arch.strip_prefix("sm_")?.parse().ok()?;
    let gbs = match capability {
        60..=69 => 20.0,
        70..=99 => 25.0,
        100..=109 => 50.0,
        _ => return None,
    };
    Some(Rate(gbs))
}

/// NVLinks of an SXM module (NVIDIA data sheets of V100, A100, H100, H200, B200).
pub(crate) fn nvlinks_of(name: &str) -> Option<u32> {
    let sxm = |model: &str| name.contains(model) && !name.contains("PCIe") && !name.contains("NVL");
    [("V100-SXM", 6), ("A100-SXM", 12), ("H100", 18), ("H200", 18), ("B200", 18)]
        .iter()
        .find(|(model, _)| sxm(model))
        .map(|&(_, links)| links)
}

/// Peak of the xGMI link from a Trento CPU to a GCD, per direction: 36 GB/s (Frontier user guide,
/// OLCF: 36+36 GB/s between a GCD and the CPU).
pub(crate) const TRENTO_HOST_LINK: Rate = Rate(36.0);

/// Product and target of AMD accelerators, by PCI device number (pci.ids; amdgpu.ids of libdrm).
pub(crate) fn amd_product(device: u32) -> Option<(&'static str, &'static str)> {
    Some(match device {
        0x66a0..=0x66a1 => ("AMD Instinct MI60/MI50", "gfx906"),
        0x738c | 0x738e => ("AMD Instinct MI100", "gfx908"),
        0x7408 => ("AMD Instinct MI250X", "gfx90a"),
        0x740c => ("AMD Instinct MI250X/MI250", "gfx90a"),
        0x740f => ("AMD Instinct MI210", "gfx90a"),
        0x74a0 => ("AMD Instinct MI300A", "gfx942"),
        0x74a1 => ("AMD Instinct MI300X", "gfx942"),
        0x74a5 => ("AMD Instinct MI325X", "gfx942"),
        0x75a0 => ("AMD Instinct MI350X", "gfx950"),
        0x75a3 => ("AMD Instinct MI355X", "gfx950"),
        _ => return None,
    })
}

/// Product and target of NVIDIA accelerators, by PCI device number (pci.ids).
pub(crate) fn nvidia_product(device: u32) -> Option<(&'static str, &'static str)> {
    Some(match device {
        0x15f9 => ("Tesla P100-SXM2-16GB", "sm_60"),
        0x1db1 => ("Tesla V100-SXM2-16GB", "sm_70"),
        0x1db5 => ("Tesla V100-SXM2-32GB", "sm_70"),
        0x1db8 => ("Tesla V100-SXM3-32GB", "sm_70"),
        0x20b0 => ("NVIDIA A100-SXM4-40GB", "sm_80"),
        0x20b2 => ("NVIDIA A100-SXM4-80GB", "sm_80"),
        0x20b5 => ("NVIDIA A100 80GB PCIe", "sm_80"),
        0x20f1 => ("NVIDIA A100-PCIE-40GB", "sm_80"),
        0x2330 => ("NVIDIA H100 80GB HBM3", "sm_90"),
        0x2331 => ("NVIDIA H100 PCIe", "sm_90"),
        0x2335 => ("NVIDIA H200", "sm_90"),
        0x233b => ("NVIDIA H200 NVL", "sm_90"),
        0x2342 | 0x2345 => ("NVIDIA GH200 480GB", "sm_90"),
        0x2348 => ("NVIDIA GH200 144G HBM3e", "sm_90"),
        0x2901 => ("NVIDIA B200", "sm_100"),
        0x2941 => ("NVIDIA GB200", "sm_100"),
        0x2e12 => ("NVIDIA GB10", "sm_121"),
        0x31c2 => ("NVIDIA GB300", "sm_103"),
        _ => return None,
    })
}

/// Compiler target of an NVIDIA product by its name, as `nvidia-smi -L` prints it.
pub(crate) fn nvidia_arch(name: &str) -> Option<&'static str> {
    const FAMILIES: [(&str, &str); 14] = [
        ("P100", "sm_60"),
        ("V100", "sm_70"),
        ("A100", "sm_80"),
        ("A800", "sm_80"),
        ("A30", "sm_80"),
        ("GH200", "sm_90"),
        ("H100", "sm_90"),
        ("H200", "sm_90"),
        ("H800", "sm_90"),
        ("H20", "sm_90"),
        ("B200", "sm_100"),
        ("B300", "sm_103"),
        ("GB200", "sm_100"),
        ("GB300", "sm_103"),
    ];
    let is_named = |family: &str| name.split([' ', '-']).any(|word| word == family);
    FAMILIES.iter().find(|(family, _)| is_named(family)).map(|family| family.1)
}

/// Whether a GPU is joined to its host by NVLink, whatever its PCI function shows: NVLink-C2C of Grace (data
/// sheets of GH200, GB200, GB300, GB10), NVLink of POWER8 and POWER9 (IBM Redpaper REDP-5472).
pub(crate) fn has_host_nvlink(name: &str, host: &HostInfo) -> bool {
    let is_power = host.arch.starts_with("ppc64") || host.cpu_model.starts_with("POWER");
    let is_grace = ["GH200", "GB200", "GB300", "GB10"].iter().any(|part| name.contains(part));
    is_grace || is_power && name.contains("SXM2")
}

/// Whether the CPU is AMD's third-generation EPYC "Trento", whose GCDs are attached by xGMI: family
/// 19h (NCCL writes base and extended family as one byte, 0xaf = 175), model 30h.
pub(crate) fn is_trento(cpu_model: &str) -> bool {
    cpu_model == "AuthenticAMD family 175 model 48" || cpu_model.contains("EPYC 7A53")
}
