//! Striping of files on Lustre, from the extended attribute `lustre.lov`.
//!
//! Formats: `lov_user_md_v1`, `lov_user_md_v3` and `lov_comp_md_v1` of Lustre's
//! `lustre_user.h`, in little-endian order, as clients on x86 and Arm give them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A layout without a pool name.
const PLAIN: u32 = 0x0bd1_0bd0;
/// A layout with the name of a pool of targets.
const POOLED: u32 = 0x0bd3_0bd0;
/// A layout of several components, one for each range of the file.
const COMPOSITE: u32 = 0x0bd6_0bd0;

/// Bytes before the objects of a plain layout, of a pool's name, and of an object.
const HEAD: usize = 32;
const POOL: usize = 16;
const OBJECT: usize = 24;
/// Bytes of a component's entry in a composite layout.
const COMPONENT: usize = 48;
/// Most components and targets that a layout has (LOV_MAX_STRIPE_COUNT is 2000).
const MAX_COMPONENTS: usize = 256;
const MAX_TARGETS: usize = 2000;

/// How a range of a file is striped over the servers of a parallel file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StripeLayout {
    /// First byte of the range; 0 unless files have several layouts.
    #[serde(default)]
    pub from: Bytes,
    /// Bytes on one target before the next has its turn; 0 is the default of the file system.
    pub size: Bytes,
    /// Targets that a file is striped over: 0 is the default of the file system, [`Self::ALL`] all.
    pub count: u32,
    /// Pool of targets; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Numbers of the targets, of a file that has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<u32>,
}

/// Little-endian fields of an attribute.
struct AttributeBytes<'a>(&'a [u8]);

impl AttributeBytes<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], String> {
        let end = at.checked_add(N);
        let field = end.and_then(|end| self.0.get(at..end)).and_then(|b| b.try_into().ok());
        field.ok_or_else(|| format!("a layout of {} B has no {N} B at {at}", self.0.len()))
    }
    fn u16(&self, at: usize) -> Result<u16, String> {
        self.array(at).map(u16::from_le_bytes)
    }
    fn u32(&self, at: usize) -> Result<u32, String> {
        self.array(at).map(u32::from_le_bytes)
    }
    fn u64(&self, at: usize) -> Result<u64, String> {
        self.array(at).map(u64::from_le_bytes)
    }
}

impl StripeLayout {
    /// A count that stands for all targets of the file system or pool.
    pub const ALL: u32 = u16::MAX as u32;

    /// The layouts of a file, or the default ones of a folder, by first byte.
    ///
    /// # Errors
    /// The bytes are no layout: an unknown magic number, or fewer bytes than it names.
    pub fn parse(attribute: &[u8]) -> Result<Vec<Self>, String> {
        let bytes = AttributeBytes(attribute);
        match bytes.u32(0)? {
            COMPOSITE => Self::parse_components(attribute),
            _ => Ok(vec![Self::parse_plain(attribute, Bytes(0))?]),
        }
    }

    fn parse_plain(layout: &[u8], from: Bytes) -> Result<Self, String> {
        let bytes = AttributeBytes(layout);
        let (pool, objects) = match bytes.u32(0)? {
            PLAIN => (String::new(), HEAD),
            POOLED => {
                let name: [u8; POOL] = bytes.array(HEAD)?;
                let name: Vec<u8> = name.into_iter().take_while(|b| *b != 0).collect();
                (String::from_utf8_lossy(&name).into_owned(), HEAD + POOL)
            }
            magic => return Err(format!("{magic:#010x} is no layout of Lustre")),
        };
        let size = Bytes(bytes.u32(24)?.into());
        let count = u32::from(bytes.u16(28)?);
        // The default of a folder has a count and no objects.
        let present = layout.len().saturating_sub(objects) / OBJECT;
        let present = present.min(count as usize).min(MAX_TARGETS);
        let target = |nth: usize| bytes.u32(objects + nth * OBJECT + OBJECT - 4);
        let targets = (0..present).map(target).collect::<Result<_, _>>()?;
        Ok(Self { from, size, count, pool, targets })
    }

    fn parse_components(attribute: &[u8]) -> Result<Vec<Self>, String> {
        let bytes = AttributeBytes(attribute);
        let count = usize::from(bytes.u16(14)?);
        if count == 0 || count > MAX_COMPONENTS {
            return Err(format!("a layout of {count} components, not 1 to {MAX_COMPONENTS}"));
        }
        let component = |nth: usize| {
            let entry = HEAD + nth * COMPONENT;
            let from = Bytes(bytes.u64(entry + 8)?);
            let (at, size) = (bytes.u32(entry + 24)? as usize, bytes.u32(entry + 28)? as usize);
            let layout = at.checked_add(size).and_then(|end| attribute.get(at..end));
            let layout =
                layout.ok_or_else(|| format!("component {nth} lies outside the layout"))?;
            Self::parse_plain(layout, from)
        };
        let mut all = (0..count).map(component).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|layout| layout.from);
        Ok(all)
    }
}

impl fmt::Display for StripeLayout {
    /// `striped over 4 targets by 1MiB, pool flash, from 1GiB on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets = match self.count {
            0 => "the default number of targets".to_owned(),
            Self::ALL => "all targets".to_owned(),
            1 => "1 target".to_owned(),
            n => format!("{n} targets"),
        };
        write!(f, "striped over {targets}")?;
        if self.size.0 > 0 {
            write!(f, " by {}", self.size)?;
        }
        if !self.targets.is_empty() {
            let numbers: Vec<String> = self.targets.iter().map(u32::to_string).collect();
            write!(f, " ({})", numbers.join(" "))?;
        }
        if !self.pool.is_empty() {
            write!(f, ", pool {}", self.pool)?;
        }
        if self.from.0 > 0 {
            write!(f, ", from {} on", self.from)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain layout: magic, pattern, object id, sequence, stripe size, count, generation, objects.
    fn plain(size: u32, count: u16, pool: Option<&str>, targets: &[u32]) -> Vec<u8> {
        let magic = if pool.is_some() { POOLED } else { PLAIN };
        let mut bytes = [magic.to_le_bytes(), 1u32.to_le_bytes()].concat();
        bytes.extend([0; 16]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; 2]);
        if let Some(pool) = pool {
            let mut name = pool.as_bytes().to_vec();
            name.resize(POOL, 0);
            bytes.extend(name);
        }
        for target in targets {
            bytes.extend([7; 20]);
            bytes.extend(target.to_le_bytes());
        }
        bytes
    }

    fn composite(parts: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = COMPOSITE.to_le_bytes().to_vec();
        bytes.extend([0; 10]);
        bytes.extend((parts.len() as u16).to_le_bytes());
        bytes.resize(HEAD, 0);
        let mut at = HEAD + parts.len() * COMPONENT;
        for (from, part) in parts {
            let mut entry = vec![0; 8];
            entry.extend(from.to_le_bytes());
            entry.extend(u64::MAX.to_le_bytes());
            entry.extend((at as u32).to_le_bytes());
            entry.extend((part.len() as u32).to_le_bytes());
            entry.resize(COMPONENT, 0);
            bytes.extend(entry);
            at += part.len();
        }
        parts.iter().for_each(|(_, part)| bytes.extend(part));
        bytes
    }

    #[test]
    fn plain_layouts_are_read() {
        let file = StripeLayout::parse(&plain(1 << 20, 2, None, &[3, 11])).unwrap();
        assert_eq!(file[0].targets, [3, 11]);
        assert_eq!(file[0].to_string(), "striped over 2 targets by 1MiB (3 11)");
        // The default of a folder: a count, no objects.
        let folder = StripeLayout::parse(&plain(4 << 20, 8, Some("flash"), &[])).unwrap();
        assert_eq!(folder[0].to_string(), "striped over 8 targets by 4MiB, pool flash");
        let all = StripeLayout::parse(&plain(0, u16::MAX, None, &[])).unwrap();
        assert_eq!(all[0].to_string(), "striped over all targets");
        let usual = StripeLayout::parse(&plain(0, 0, None, &[])).unwrap();
        assert_eq!(usual[0].to_string(), "striped over the default number of targets");
    }

    /// A progressive layout: the first GiB on one target, the rest on four.
    #[test]
    fn components_are_read_in_order() {
        let parts = [(1 << 30, plain(4 << 20, 4, None, &[])), (0, plain(1 << 20, 1, None, &[5]))];
        let all = StripeLayout::parse(&composite(&parts)).unwrap();
        let texts: Vec<String> = all.iter().map(StripeLayout::to_string).collect();
        assert_eq!(
            texts,
            ["striped over 1 target by 1MiB (5)", "striped over 4 targets by 4MiB, from 1GiB on"]
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        for (bytes, why) in [
            (Vec::new(), "no 4 B at 0"),
            (plain(1, 1, None, &[])[..29].to_vec(), "no 2 B at 28"),
            (plain(1, 1, Some("x"), &[])[..40].to_vec(), "no 16 B at 32"),
            (b"user.mime".to_vec(), "is no layout of Lustre"),
            (composite(&[]), "a layout of 0 components"),
            (composite(&[(0, plain(1, 1, None, &[]))])[..100].to_vec(), "lies outside"),
        ] {
            let error = StripeLayout::parse(&bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    proptest::proptest! {
        /// Any layout that is written is read as it was, and no bytes break the parser.
        #[test]
        fn layouts_come_back(
            size in 0u32..=1 << 30,
            targets in proptest::collection::vec(0u32..5000, 0..40),
            pool in proptest::option::of("[a-z]{1,15}"),
            tail in proptest::collection::vec(0u8.., 0..200),
        ) {
            let count = targets.len() as u16;
            let bytes = plain(size, count, pool.as_deref(), &targets);
            let layout = StripeLayout {
                from: Bytes(0),
                size: Bytes(size.into()),
                count: count.into(),
                pool: pool.clone().unwrap_or_default(),
                targets,
            };
            proptest::prop_assert_eq!(StripeLayout::parse(&bytes).unwrap(), vec![layout.clone()]);
            let parts = [(0, bytes), (1 << 40, plain(1, 0, None, &[]))];
            proptest::prop_assert_eq!(&StripeLayout::parse(&composite(&parts)).unwrap()[0], &layout);
            for magic in [PLAIN, POOLED, COMPOSITE] {
                let any = [magic.to_le_bytes().to_vec(), tail.clone()].concat();
                let _ = StripeLayout::parse(&any);
            }
        }
    }
}
