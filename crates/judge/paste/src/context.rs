//! What the text around outputs says: settings, commands, products.

use crate::counts;
use crate::document::PasteContext;
use crate::kernel_log::is_kernel_line;
use crate::number::size;
use crate::products::find_product;
use crate::stated_rates;

/// Kept of each kind.
const MAX_KEPT: usize = 256;
/// Sizes outside of tables that are kept.
const MAX_SIZES: usize = 64;
/// Text that is kept for exact messages, bytes.
const MAX_PROSE: usize = 64 << 10;

/// Lines of a kernel log that are kept.
const MAX_KERNEL_LINES: usize = 4096;

/// Variables that settings of the libraries begin with.
const VARIABLES: &str = concat!(
    "NCCL_ RCCL_ UCX_ HSA_ HIP_ ROCR_ CUDA_ OMPI_ MPICH_ FI_ GPU_ MV2_ I_MPI_ GDRCOPY_ ",
    "CUFILE_ MELLANOX_",
);

/// Programs whose command lines are kept.
const PROGRAMS: &str = concat!(
    "srun |sbatch |#SBATCH |mpirun |mpiexec |ucx_perftest|_perf|osu_|nvbandwidth|",
    "p2pBandwidthLatencyTest|bandwidthTest|TransferBench|rocm-bandwidth-test|",
    "rocm_bandwidth_test|ib_write_|ib_read_|ib_send_|elbencho|fio |gdsio",
);

/// Takes what a line says.
pub(crate) fn take(context: &mut PasteContext, text: &str) {
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    settings(context, text);
    if context.kernel_log.len() < MAX_KERNEL_LINES && is_kernel_line(text) {
        context.kernel_log.push(text.to_owned());
    }
    const MAKERS: [&str; 7] =
        ["EPYC", "Xeon", "Ryzen", "Threadripper", "Core(TM)", "POWER9", " i7-"];
    if context.processor.len() < 2000
        && text.len() < 400
        && MAKERS.iter().any(|name| text.contains(name))
    {
        context.processor.push_str(text);
        context.processor.push('\n');
    }
    let is_command = PROGRAMS.split('|').any(|program| text.contains(program));
    let has_option = text.contains(" -") || text.starts_with("./") || text.contains("mpirun");
    if is_command && has_option && text.len() < 2000 && context.commands.len() < MAX_KEPT {
        context.commands.push(text.to_owned());
    }
    // Sentences count; what follows 64 KiB of loose text is none.
    let is_prose = context.prose.len() + text.len() < MAX_PROSE;
    if is_prose {
        counts::take(context, text);
    }
    products(context, text);
    stated_rates::take(context, text);
    sizes(context, text);
    if is_prose {
        context.prose.push_str(&text.to_lowercase());
        context.prose.push('\n');
    }
}

/// `512 MiB`, `64MB`: sizes of which no table says what they are.
fn sizes(context: &mut PasteContext, text: &str) {
    if !text.contains(['B', 'b']) || context.sizes.len() >= MAX_SIZES {
        return;
    }
    let mut words = text.split_whitespace().take(512).peekable();
    while let Some(word) = words.next() {
        let word = word.trim_start_matches(['(', '~', '`', '"', '[', '*']);
        let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (digits, glued) = word.split_at(end);
        if digits.is_empty() {
            continue;
        }
        let unit = if glued.is_empty() { words.peek().copied().unwrap_or_default() } else { glued };
        let unit = unit.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_size = unit.ends_with(['B', 'b']) || unit.contains("iB");
        let bytes = size(&format!("{digits}{unit}")).filter(|bytes| is_size && *bytes >= 1024);
        if let Some(bytes) = bytes.filter(|bytes| !context.sizes.contains(bytes)) {
            context.sizes.push(bytes);
        }
    }
}

fn settings(context: &mut PasteContext, text: &str) {
    let mut before = "";
    for word in text.split_whitespace().take(512) {
        // `hangs without NCCL_P2P_DISABLE=1`.
        let is_absent = std::mem::replace(&mut before, word).eq_ignore_ascii_case("without");
        let word = word.trim_matches(['`', '"', '\'', ',', ';', '(', ')']);
        let Some((name, value)) = word.split_once('=') else { continue };
        let name = name.trim_start_matches("-x").trim_start_matches("--env").trim_start();
        let is_name =
            name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        if is_name
            && !is_absent
            && VARIABLES.split(' ').any(|start| name.starts_with(start))
            && context.settings.len() < MAX_KEPT
        {
            let value = value.trim_matches(['`', '"', '\'', ',', '.']);
            context.settings.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Takes the product of a line that has nothing else to say, and the number of its device.
pub(crate) fn take_device(context: &mut PasteContext, text: &str) {
    let listed = find_product(text).filter(|_| context.listed_gpus.len() < 16);
    if let Some(name) = listed.filter(|name| context.listed_gpus.iter().all(|known| known != name))
    {
        // A list of devices counts before sentences.
        context
            .gpus
            .retain(|known| context.listed_gpus.contains(known) || !is_kind_of(name, known));
        context.gpus.insert(context.listed_gpus.len().min(context.gpus.len()), name.to_owned());
        context.listed_gpus.push(name.to_owned());
    }
    // `Device 0: GeForce GT 710`, `Device: 0, Quadro K2200, pciBusID: 3`.
    let name = text.trim().strip_prefix("Device").and_then(|rest| {
        let (_, name) = rest.trim_start_matches(':').trim_start().split_once([':', ','])?;
        Some(name.split([',', '(']).next()?.trim())
    });
    let name = name.filter(|name| find_product(name).is_none() && (3..64).contains(&name.len()));
    if let Some(name) = name.filter(|_| context.unknown_gpu.is_empty()) {
        name.clone_into(&mut context.unknown_gpu);
    }
    // `Device=0 CAN Access Peer Device=1`, `Device=0 CANNOT Access Peer Device=4`.
    context.has_access |= text.contains(" CAN Access Peer Device");
    let pair = text.trim().strip_prefix("Device=").and_then(|rest| {
        let (a, b) = rest.split_once(" CANNOT Access Peer Device=")?;
        Some((a.parse().ok()?, b.parse().ok()?))
    });
    context.no_access.extend(pair.filter(|_| context.no_access.len() < 1 << 16));
    let number = text
        .trim()
        .strip_prefix("Device ")
        .and_then(|rest| rest.split(':').next()?.parse::<u32>().ok());
    if let Some(number) = number.filter(|number| *number < 512) {
        context.gpu_count = context.gpu_count.max(Some(number + 1));
    }
}

fn products(context: &mut PasteContext, text: &str) {
    let Some(name) = find_product(text) else { return };
    if context.gpus.iter().any(|known| is_kind_of(known, name)) {
        return;
    }
    let listed = &context.listed_gpus;
    let is_less = |known: &String| !listed.contains(known) && is_kind_of(name, known);
    let is_full = context.gpus.len() >= 16;
    match context.gpus.iter_mut().find(|known| is_less(known)) {
        Some(known) => name.clone_into(known),
        None if !is_full => context.gpus.push(name.to_owned()),
        None => {}
    }
}

/// Whether a name is another one or says more than it: `A100 40GB` and `A100`.
fn is_kind_of(name: &str, other: &str) -> bool {
    let joins = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    name.strip_prefix(other).is_some_and(|rest| !joins(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(text: &str) -> PasteContext {
        let mut context = PasteContext::default();
        for line in text.lines() {
            take(&mut context, line);
        }
        context
    }

    #[test]
    fn products_are_whole_words() {
        assert_eq!(find_product("8xH100 SXM"), Some("H100"));
        assert_eq!(find_product("NVIDIA H100 PCIe"), Some("H100 PCIe"));
        assert_eq!(find_product("NVIDIA A100-SXM4-80GB"), Some("A100"));
        assert_eq!(find_product("NVIDIA A100-PCIE-40GB"), Some("A100 PCIe-40GB"));
        assert_eq!(find_product("A100-SXM4-40GB"), Some("A100 40GB"));
        assert_eq!(find_product("GeForce GTX 1070"), Some("GTX 1070"));
        assert_eq!(find_product("RTX 3060 Ti and TITAN Xp"), Some("TITAN Xp"));
        assert_eq!(find_product("Vega 20 [Radeon VII]"), Some("Radeon VII"));
        assert_eq!(find_product("A100 80GB PCIe"), Some("A100 PCIe"));
        assert_eq!(find_product("NVIDIA L40S"), Some("L40S"));
        assert_eq!(find_product("AMD instinct MI300x"), Some("MI300X"));
        assert_eq!(find_product("4090 bytes"), None);
        assert_eq!(find_product("GeForce RTX 4090"), Some("4090"));
        assert_eq!(find_product("MH100X"), None);
        assert_eq!(find_product("Intel I340-T4"), None);
        assert_eq!(find_product("Tesla-T4"), Some("T4"));
    }

    #[test]
    fn lists_of_devices_and_longer_names_count() {
        let found = context("our A100 nodes\none B200\nthey have A100-SXM4-40GB, not A100\n");
        assert_eq!(found.gpus, ["A100 40GB", "B200"]);
        let mut found = context("faster than a GB200 or an H100?");
        take_device(&mut found, "Device 0: NVIDIA H100 NVL");
        assert_eq!(found.gpus, ["H100 NVL", "GB200"]);
    }

    #[test]
    fn sizes_outside_of_tables_are_read() {
        assert_eq!(
            context("copies of 512 MiB, 64KB each, at 55 GB/s").sizes,
            [512 << 20, 64 << 10]
        );
    }

    #[test]
    fn settings_and_pcie_are_read() {
        let hung = context("hangs without NCCL_P2P_DISABLE=1, works with NCCL_SHM_DISABLE=1");
        assert_eq!(hung.settings.keys().collect::<Vec<_>>(), ["NCCL_SHM_DISABLE"]);
        let found = context(
            "mpirun -x NCCL_ALGO=Ring -np 8 ./all_reduce_perf -b 8\nLnkSta: Speed 8GT/s (downgraded), Width x8\n",
        );
        assert_eq!(found.settings["NCCL_ALGO"], "Ring");
        assert_eq!((found.commands.len(), found.pcie), (1, Some((8.0, 8))));
    }
}
