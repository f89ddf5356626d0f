//! The options that the running kernel was built with.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// Bytes of a configuration that are read; those of distributions have 300 KiB.
const MAX_TEXT: u64 = 8 << 20;

/// Options that a kernel needs so that an adapter's driver can import device memory: a GPU driver
/// moves it only after it has notified importers, and PCI devices reach each other.
const IMPORT_OPTIONS: [&str; 2] = ["CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA"];

/// The configuration of a kernel.
#[derive(Debug)]
struct KernelConfig {
    /// The file that it was read from.
    file: PathBuf,
    text: String,
}

impl KernelConfig {
    /// A configuration by its text.
    #[cfg(test)]
    fn of(text: &str) -> Self {
        Self { file: PathBuf::new(), text: text.to_owned() }
    }

    /// Whether an option is built in or a module: `CONFIG_PCI_P2PDMA`.
    fn has(&self, option: &str) -> bool {
        let value =
            |line: &str| Some(line.trim().strip_prefix(option)?.strip_prefix('=')?.to_owned());
        self.text.lines().find_map(value).is_some_and(|value| matches!(value.as_str(), "y" | "m"))
    }
}

/// The options that say whether adapters can import memory of GPUs, as a file of a
/// snapshot: `CONFIG_PCI_P2PDMA=y` if it is built in or a module, else `=n`.
pub(super) fn stated_options(root: &Path) -> Option<String> {
    let config = read(root)?;
    let line = |name| format!("{name}={}\n", if config.has(name) { "y" } else { "n" });
    let lines: String = IMPORT_OPTIONS.into_iter().map(line).collect();
    Some(format!("from {}\n{lines}", config.file.display()))
}

/// The configuration of the running kernel under `root`: `/proc/config.gz`, else the file of its
/// release in `/boot` or with its modules. `None` if none of them can be read.
fn read(root: &Path) -> Option<KernelConfig> {
    let release = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease")).ok();
    let release = release.as_deref().map(str::trim).filter(|r| !r.is_empty() && !r.contains('/'));
    let mut files = vec![root.join("proc/config.gz")];
    files.extend(release.into_iter().flat_map(|release| {
        let modules = root.join("lib/modules").join(release);
        [
            root.join(format!("boot/config-{release}")),
            modules.join("config"),
            modules.join("build/.config"),
        ]
    }));
    files.into_iter().find_map(|file| Some(KernelConfig { text: text(&file)?, file }))
}

/// A file of text, unpacked if its name ends in `.gz`.
fn text(file: &Path) -> Option<String> {
    let opened = File::open(file).ok()?;
    let mut text = String::new();
    let read = match file.extension().is_some_and(|end| end == "gz") {
        true => GzDecoder::new(opened).take(MAX_TEXT).read_to_string(&mut text),
        false => opened.take(MAX_TEXT).read_to_string(&mut text),
    };
    read.ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const TEXT: &str = "CONFIG_PCI_P2PDMA=y\nCONFIG_PCI_P2PDMA_MORE=n\n\
                        # CONFIG_DMABUF_MOVE_NOTIFY is not set\nCONFIG_RDMA=m\n";

    #[test]
    fn an_option_is_there_if_it_is_built_in_or_a_module() {
        let config = KernelConfig::of(TEXT);
        assert!(config.has("CONFIG_PCI_P2PDMA") && config.has("CONFIG_RDMA"));
        assert!(!config.has("CONFIG_DMABUF_MOVE_NOTIFY") && !config.has("CONFIG_PCI_P2PDMA_MORE"));
    }

    #[test]
    fn the_running_kernel_is_looked_up_in_proc_and_then_in_boot() {
        let root = tempfile::tempdir().unwrap();
        assert!(read(root.path()).is_none());
        let write = |path: &str, bytes: &[u8]| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, bytes).unwrap();
        };
        write("proc/sys/kernel/osrelease", b"6.1.0-test\n");
        write("boot/config-6.1.0-other", b"CONFIG_OTHER=y\n");
        assert!(read(root.path()).is_none());
        write("boot/config-6.1.0-test", TEXT.as_bytes());
        assert!(read(root.path()).unwrap().file.ends_with("boot/config-6.1.0-test"));
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(TEXT.as_bytes()).unwrap();
        write("proc/config.gz", &packed.finish().unwrap());
        let config = read(root.path()).unwrap();
        assert!(config.file.ends_with("proc/config.gz") && config.has("CONFIG_PCI_P2PDMA"));
        let stated = stated_options(root.path()).unwrap();
        let ends = "proc/config.gz\nCONFIG_DMABUF_MOVE_NOTIFY=n\nCONFIG_PCI_P2PDMA=y\n";
        assert!(stated.ends_with(ends), "{stated}");
        // A file that is no archive is passed over.
        write("proc/config.gz", b"no archive");
        assert!(read(root.path()).unwrap().file.ends_with("boot/config-6.1.0-test"));
    }
}
