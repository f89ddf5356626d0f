//! Rows of the tuner and their text, which NCCL's example tuner and RCCL read too.

use std::fmt;

/// Most bytes of a file of rows.
pub const MAX_ROWS_BYTES: u64 = 256 << 10;
/// Most rows of a file: the lookup is built in time that grows with their square.
const MAX_ROWS: usize = 1024;
/// Most characters of a line: NCCL's example tuner reads lines into a buffer of 256 characters.
const MAX_LINE: usize = 255;

/// Declares an enum whose members have a word in files and the library's number, which is their place.
macro_rules! numbered_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// All, in the order of the library's numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in files.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The number in calls of the library.
            pub const fn number(self) -> usize {
                self as usize
            }

            /// From the word in files.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.word() == word)
            }
        }
    };
}

numbered_words! {
    /// A collective that tuners are asked about: `ncclFunc_t` of NCCL's `nccl_tuner.h`.
    TunedCollective {
        /// One rank's buffer to all.
        Broadcast => "broadcast",
        /// A sum at one rank.
        Reduce => "reduce",
        /// Each rank's part to all.
        AllGather => "allgather",
        /// A part of the sum at each rank.
        ReduceScatter => "reducescatter",
        /// The sum at all ranks.
        AllReduce => "allreduce",
    }
}

numbered_words! {
    /// An algorithm: `NCCL_ALGO_*` of NCCL's `nccl_tuner.h`.
    TunedAlgorithm {
        /// Double binary trees.
        Tree => "tree",
        /// Rings.
        Ring => "ring",
        /// Switches of the network reduce, each GPU of a node a part.
        CollnetDirect => "collnet_direct",
        /// Switches of the network reduce, after a chain in the node.
        CollnetChain => "collnet_chain",
        /// NVSwitches reduce and multiply.
        Nvls => "nvls",
        /// NVSwitches in the node, trees between nodes.
        NvlsTree => "nvls_tree",
        /// Parallel aggregated trees.
        Pat => "pat",
    }
}

numbered_words! {
    /// A protocol: `NCCL_PROTO_*` of NCCL's `nccl_tuner.h`.
    TunedProtocol {
        /// 4 bytes of data with 4 bytes of flag.
        Ll => "ll",
        /// 120 bytes of data with 8 bytes of flag.
        Ll128 => "ll128",
        /// Data without flags, and a counter for each step.
        Simple => "simple",
    }
}

/// The choice for one collective and a range of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunerRow {
    /// The collective.
    pub collective: TunedCollective,
    /// Least size in bytes, of the larger of a rank's buffers.
    pub least_bytes: u64,
    /// Largest size in bytes.
    pub most_bytes: u64,
    /// The algorithm.
    pub algorithm: TunedAlgorithm,
    /// The protocol.
    pub protocol: TunedProtocol,
    /// Channels, at most 127; 0 leaves them to the library.
    pub channels: u8,
    /// Nodes of the communicator; none for any number.
    pub nodes: Option<u32>,
    /// Ranks of the communicator; none for any number.
    pub ranks: Option<u32>,
}

impl TunerRow {
    /// Most channels of a row: NCCL keeps them in a signed field of 8 bits.
    pub const MAX_CHANNELS: u8 = 127;
}

/// `allreduce,0,65536,tree,ll,0,1,8`.
impl fmt::Display for TunerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least_bytes, most_bytes, channels, .. } = self;
        let [collective, algorithm, protocol] =
            [self.collective.word(), self.algorithm.word(), self.protocol.word()];
        write!(f, "{collective},{least_bytes},{most_bytes},{algorithm},{protocol},{channels}")?;
        for count in [self.nodes, self.ranks] {
            match count {
                Some(count) => write!(f, ",{count}")?,
                None => f.write_str(",-1")?,
            }
        }
        Ok(())
    }
}

/// Why a file of rows cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunerRowsError {
    /// A line is no row.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There are too many rows.
    #[error("more than {MAX_ROWS} rows; merge ranges of sizes")]
    TooMany,
    /// There are too many bytes.
    #[error("more than {MAX_ROWS_BYTES} bytes; shorten its comments")]
    TooLong,
}

/// The rows of a file; of several that match, the first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TunerRows {
    /// The rows, in the order of the file.
    pub rows: Vec<TunerRow>,
    /// A hash of the bytes of the file (64-bit FNV-1a), by which ranks compare what they read.
    pub content_hash: u64,
}

impl TunerRows {
    /// Reads a file: a row a line, `#` before comments. Anything else refuses the whole file, since ranks that
    /// read different parts of it would choose different algorithms.
    ///
    /// # Errors
    /// A line is no row, or there is too much of it.
    pub fn parse(text: &str) -> Result<Self, TunerRowsError> {
        if text.len() as u64 > MAX_ROWS_BYTES {
            return Err(TunerRowsError::TooLong);
        }
        let mut rows = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let fault = |reason: String| TunerRowsError::Line { line: at + 1, reason };
            if line.len() > MAX_LINE {
                return Err(fault(format!("longer than {MAX_LINE} characters")));
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if rows.len() == MAX_ROWS {
                return Err(TunerRowsError::TooMany);
            }
            rows.push(parse_row(line).map_err(fault)?);
        }
        Ok(Self { rows, content_hash: fnv1a(text.as_bytes()) })
    }
}

fn parse_row(line: &str) -> Result<TunerRow, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[collective, least, most, algorithm, protocol, channels, nodes, ranks] = fields.as_slice()
    else {
        return Err(format!(
            "{} fields; expected collective,least,most,algorithm,protocol,channels,nodes,ranks",
            fields.len()
        ));
    };
    let bytes =
        |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no number of bytes"));
    let row = TunerRow {
        collective: TunedCollective::from_word(collective)
            .ok_or_else(|| unknown("collective", collective, TunedCollective::ALL, |w| w.word()))?,
        least_bytes: bytes(least)?,
        most_bytes: bytes(most)?,
        algorithm: TunedAlgorithm::from_word(algorithm)
            .ok_or_else(|| unknown("algorithm", algorithm, TunedAlgorithm::ALL, |w| w.word()))?,
        protocol: TunedProtocol::from_word(protocol)
            .ok_or_else(|| unknown("protocol", protocol, TunedProtocol::ALL, |w| w.word()))?,
        channels: channel_count(channels)?,
        nodes: member_count(nodes, "nodes")?,
        ranks: member_count(ranks, "ranks")?,
    };
    if row.least_bytes > row.most_bytes {
        return Err(format!("its least size {least} is above its largest, {most}"));
    }
    Ok(row)
}

fn unknown<T: Copy>(what: &str, word: &str, all: &[T], name: fn(T) -> &'static str) -> String {
    let all: Vec<&str> = all.iter().map(|&known| name(known)).collect();
    format!("'{word}' is no {what}; expected one of {}", all.join(", "))
}

/// A number of channels; `-1` leaves them to the library, as it does in NCCL's example tuner.
fn channel_count(text: &str) -> Result<u8, String> {
    if text == "-1" {
        return Ok(0);
    }
    let most = TunerRow::MAX_CHANNELS;
    let count = text.parse::<u8>().ok().filter(|&count| count <= most);
    count.ok_or_else(|| format!("'{text}' is no number of channels from 0 to {most}"))
}

/// A number of nodes or ranks; `-1` for any.
fn member_count(text: &str, what: &str) -> Result<Option<u32>, String> {
    if text == "-1" {
        return Ok(None);
    }
    let count = text.parse::<u32>().ok().filter(|&count| count > 0);
    count.map(Some).ok_or_else(|| format!("'{text}' is no number of {what}, nor -1 for any"))
}

/// 64-bit FNV-1a: offset basis and prime of the FNV reference (Fowler, Noll, Vo).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A file of rows. Each line of `comments` becomes a comment.
pub fn tuner_rows_text(comments: &str, rows: &[TunerRow]) -> String {
    let mut text = String::new();
    let all =
        comments.lines().chain(["collective,least,most,algorithm,protocol,channels,nodes,ranks"]);
    for comment in all {
        // A reader's buffer bounds lines, and a comment must not become a row behind it.
        let comment: String = comment.chars().filter(char::is_ascii).take(MAX_LINE - 2).collect();
        text.push_str(format!("# {comment}").trim_end());
        text.push('\n');
    }
    for row in rows {
        text.push_str(&format!("{row}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(text: &str) -> String {
        TunerRows::parse(text).map_err(|e| e.to_string()).expect_err("refused")
    }

    #[test]
    fn a_file_is_rows_and_comments() {
        let text =
            "# c\n\n allreduce , 0,65536, tree,ll,-1,1,8\nbroadcast,1,2,nvls,simple,16,-1,-1\n";
        let rows = TunerRows::parse(text).unwrap().rows;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].to_string(), "allreduce,0,65536,tree,ll,0,1,8");
        assert_eq!((rows[1].channels, rows[1].nodes, rows[1].ranks), (16, None, None));
        let numbers =
            (rows[0].collective.number(), rows[1].algorithm.number(), rows[1].protocol.number());
        assert_eq!(numbers, (4, 4, 2), "nccl_tuner.h: ncclFuncAllReduce, NCCL_ALGO_NVLS, _SIMPLE");
    }

    #[test]
    fn anything_else_refuses_the_file() {
        let row = "allreduce,0,65536,tree,ll,0,1,8";
        for (from, to, why) in [
            ("allreduce", "alltoall", "is no collective; expected one of broadcast, reduce"),
            ("65536", "-1", "'-1' is no number of bytes"),
            ("65536", "99999999999999999999", "is no number of bytes"),
            ("tree", "Tree", "is no algorithm"),
            ("ll", "ll256", "is no protocol"),
            (",0,1,8", ",128,1,8", "channels from 0 to 127"),
            (",1,8", ",0,8", "is no number of nodes"),
            (",1,8", ",1,8,-1", "9 fields"),
            (",0,65536", ",9,8", "its least size 9 is above its largest, 8"),
        ] {
            let end = row.rfind(from).unwrap_or_default();
            let bad = format!("{}{}", &row[..end], row[end..].replacen(from, to, 1));
            let text = reason(&format!("# x\n{bad}\n"));
            assert!(text.starts_with("line 2: ") && text.contains(why), "{bad}: {text}");
        }
        assert!(reason(&"#".repeat(256)).contains("longer than 255"));
        assert_eq!(TunerRows::parse(&format!("{row}\n").repeat(1024)).unwrap().rows.len(), 1024);
        assert!(reason(&format!("{row}\n").repeat(1025)).contains("more than 1024 rows"));
        assert!(reason(&"#\n".repeat(131_073)).contains("more than 262144 bytes"));
    }

    #[test]
    fn the_hash_is_fnv1a_of_the_file() {
        // Published test vectors of FNV-1a 64: "" and "a".
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        let hash = |text: &str| TunerRows::parse(text).unwrap().content_hash;
        assert_ne!(hash("# a\n"), hash("# b\n"));
    }

    fn row() -> impl Strategy<Value = TunerRow> {
        let member = || proptest::option::of(1..u32::MAX);
        let choice = (0..5_usize, 0..7_usize, 0..3_usize, 0..=127_u8);
        (choice, any::<(u64, u64)>(), member(), member()).prop_map(
            |(choice, (a, b), nodes, ranks)| {
                let (collective, algorithm, protocol, channels) = choice;
                TunerRow {
                    collective: TunedCollective::ALL[collective],
                    least_bytes: a.min(b),
                    most_bytes: a.max(b),
                    algorithm: TunedAlgorithm::ALL[algorithm],
                    protocol: TunedProtocol::ALL[protocol],
                    channels,
                    nodes,
                    ranks,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn rows_are_read_back(rows in proptest::collection::vec(row(), 0..20), comment in ".*") {
            let text = tuner_rows_text(&comment, &rows);
            prop_assert!(text.lines().all(|line| line.len() < 256));
            prop_assert_eq!(TunerRows::parse(&text).unwrap().rows, rows);
        }
    }
}
