//! Lines of the kernel log.

/// Who writes such lines, besides those with a stamp of the kernel.
const WRITERS: [&str; 9] = [
    "NVRM: ",
    "amdgpu 0000:",
    "amdgpu: ",
    " kernel: ",
    "pcieport 0000:",
    "DMAR: ",
    "EDAC MC",
    "[Hardware Error]",
    "mce: ",
];

/// Whether a line has the form of the kernel log: `[  812.113456] text`, `[Tue Mar  5 10:11:12 2024] text`, or the
/// name of a writer. Sentences about such lines have not.
pub(crate) fn is_kernel_line(line: &str) -> bool {
    let line = line.trim_start();
    let is_stamp = |stamp: &str| {
        let is_time = stamp.split(' ').any(|word| word.split(':').count() == 3);
        is_time || stamp.trim().parse::<f64>().is_ok()
    };
    let stamp = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    stamp.is_some_and(|(stamp, _)| is_stamp(stamp))
        || line.starts_with("kernel: ")
        || WRITERS.iter().any(|writer| line.contains(writer))
}
