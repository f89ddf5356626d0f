//! The vendor of GPUs by the words of a text that names no product.

/// The vendor that words name: a runtime, a library, a kind of link, a part of a product. Empty if none or both do.
pub(crate) fn vendor_of<'t>(texts: impl Iterator<Item = &'t str>) -> &'static str {
    let (mut is_amd, mut is_nvidia) = (false, false);
    for text in texts {
        let text = text.to_lowercase();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let has_number = |name: &str, digits: usize| {
                let rest = word.strip_prefix(name).unwrap_or_default();
                rest.chars().take_while(char::is_ascii_digit).count() >= digits
            };
            is_amd |= AMD_WORDS.contains(&word)
                || ["hip", "rocm", "rccl"].iter().any(|name| word.starts_with(name))
                || has_number("gfx", 3)
                || has_number("mi", 3);
            is_nvidia |= NVIDIA_WORDS.contains(&word) || word.starts_with("cuda");
        }
    }
    match (is_amd, is_nvidia) {
        (true, false) => "amd",
        (false, true) => "nvidia",
        _ => "",
    }
}

/// Words of one vendor's GPUs, their links and their tools.
const AMD_WORDS: [&str; 6] = ["gcd", "gcds", "xgmi", "amdgpu", "instinct", "hsa"];
const NVIDIA_WORDS: [&str; 7] =
    ["nvidia", "nvlink", "nvlinks", "nvswitch", "nvml", "nvbandwidth", "nvls"];

#[cfg(test)]
mod tests {
    use super::vendor_of;

    #[test]
    fn words_of_one_vendor_name_it() {
        for (text, vendor) in [
            ("rccl-tests", "amd"),
            ("copy from GCD 0 to GCD 3: 12 GB/s", "amd"),
            ("hipMemcpyPeer between two gfx90a", "amd"),
            ("ROCm 6.2 on an MI455X, HSA_ENABLE_SDMA=0", "amd"),
            ("rocm-smi --showtopo", "amd"),
            ("cudaMemcpy over NVLink", "nvidia"),
            ("nvidia-smi topo -m", "nvidia"),
            // Words of both, of a library that both have, and of neither.
            ("the port from CUDA to HIP", ""),
            ("NCCL_DEBUG=INFO", ""),
            ("a chip, a ship and a mile, mi 250", ""),
        ] {
            assert_eq!(vendor_of([text].into_iter()), vendor, "{text}");
        }
    }
}
