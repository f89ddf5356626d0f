//! Registers of PCI functions, from the first bytes of their configuration space as the kernel shows them.
//! Offsets: PCI Express Base Specification, 7.5 (configuration space) and 7.7.11 (ACS).

/// Maximum number of capabilities, above that of any function: a list may be a circle.
const MAX_CAPABILITIES: usize = 48;
/// The capability of PCI Express functions.
const EXPRESS: u8 = 0x10;
/// The extended capability of access control.
const ACCESS_CONTROL: u16 = 0x000d;

/// The configuration space of a function: 64 bytes for a user, 256 or 4096 for root.
pub(super) struct ConfigSpace(Vec<u8>);

impl ConfigSpace {
    /// Of hexadecimal digits, two a byte.
    pub(super) fn parse(hex: &str) -> Option<Self> {
        let digits: Vec<u8> =
            hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        (digits.len() >= 128)
            .then(|| Self(digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect()))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte(at)?, self.byte(at + 1)?]))
    }

    /// Where the registers of PCI Express begin.
    fn express(&self) -> Option<usize> {
        let mut at = usize::from(self.byte(0x34)? & 0xfc);
        for _ in 0..MAX_CAPABILITIES {
            if at < 0x40 {
                return None;
            }
            if self.byte(at)? == EXPRESS {
                return Some(at);
            }
            at = usize::from(self.byte(at + 1)? & 0xfc);
        }
        None
    }

    /// Whether it is a downstream port of a switch, above one device.
    pub(super) fn is_switch_port(&self) -> bool {
        let kind = self.express().and_then(|at| self.word(at + 2)).map(|flags| flags >> 4 & 0xf);
        kind == Some(6)
    }

    /// Payload of its packets, bytes: set, and the most that it could take.
    pub(super) fn payload(&self) -> Option<(u32, u32)> {
        let at = self.express()?;
        let (most, set) = (self.word(at + 4)? & 7, self.word(at + 8)? >> 5 & 7);
        Some((128 << set, 128 << most))
    }

    /// The most that it asks for in one read, bytes.
    pub(super) fn read_request(&self) -> Option<u32> {
        Some(128 << (self.word(self.express()? + 8)? >> 12 & 7))
    }

    /// The control bits of access control: 2 redirects requests, 3 completions, 4 forwards upstream. None if the
    /// function has none, or only root could see it.
    pub(super) fn access_control(&self) -> Option<u16> {
        let mut at = 0x100;
        for _ in 0..MAX_CAPABILITIES {
            let (id, next) = (self.word(at)?, self.word(at + 2)? >> 4);
            if id == ACCESS_CONTROL {
                return self.word(at + 6);
            }
            if next < 0x100 {
                return None;
            }
            at = usize::from(next);
        }
        None
    }

    /// Whether more could be read than the 64 bytes that any user sees.
    pub(super) fn has_capabilities(&self) -> bool {
        self.0.len() > 0x40
    }

    /// Whether the extended space could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.0.len() > 0x100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_cut_spaces_end() {
        let mut bytes = vec![0u8; 4096];
        // A capability that names itself as the next, and an extended one that does.
        (bytes[0x34], bytes[0x40], bytes[0x41]) = (0x40, 0x01, 0x40);
        (bytes[0x100], bytes[0x103]) = (0x01, 0x10);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let space = ConfigSpace::parse(&hex).unwrap();
        assert_eq!((space.payload(), space.access_control()), (None, None));
        for end in [0, 127, 128, 256, 400] {
            let cut = ConfigSpace::parse(&hex[..end]);
            assert!(
                cut.is_none_or(|cut| cut.payload().is_none() && cut.access_control().is_none())
            );
        }
        assert!(ConfigSpace::parse(&"zz".repeat(64)).is_none());
    }
}
