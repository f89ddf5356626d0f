//! Texts of a topology that other programs take as they stand: in scripts, paths and lists of hosts. Their types
//! hold no other characters than such a text needs, whoever made the file that they are read from.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::{ParseError, serde_as_text};

/// A text that `$parse` has brought into its canonical form, or none at all.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $parse:path, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(String);

        impl $name {
            /// The text; empty if unknown.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    "" => Ok(Self::default()),
                    _ => $parse(s).map(Self).ok_or_else(|| ParseError::new($what, s, $expected)),
                }
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        serde_as_text!($name);
    };
}

checked_text!(
    /// A PCI address with its domain as Linux writes it, `0000:c1:00.0`; empty if unknown.
    PciAddress,
    "PCI address",
    pci_address,
    "DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal digits, such as 0000:c1:00.0"
);

checked_text!(
    /// A name of a host; empty if unknown.
    HostName,
    "name of a host",
    host_name,
    "up to 253 ASCII letters, digits, '.', '_' and '-', the first of them no '-'"
);

impl PciAddress {
    /// From the numbers that drivers report.
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Self {
        Self(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

/// Libraries write capital digits, and up to eight of the domain.
fn pci_address(text: &str) -> Option<String> {
    let hex = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        let fits = lengths.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| u32::from_str_radix(part, 16).ok()).flatten()
    };
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let small = |part, length| u8::try_from(hex(part, length..=length)?).ok();
    let (bus, device, function) = (small(bus, 2)?, small(device, 2)?, small(function, 1)?);
    Some(PciAddress::new(hex(domain, 4..=8)?, bus, device, function).0)
}

fn host_name(text: &str) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let fits = text.len() <= 253 && !text.starts_with('-') && text.bytes().all(is_plain);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_have_one_spelling() {
        let read = |text: &str| text.parse::<PciAddress>().map(|a| a.to_string());
        assert_eq!(read("0000:c1:00.0").as_deref(), Ok("0000:c1:00.0"));
        assert_eq!(read("00000000:C1:00.0").as_deref(), Ok("0000:c1:00.0"));
        assert_eq!(read("10000:e1:1f.7").as_deref(), Ok("10000:e1:1f.7"));
        assert_eq!(read("").as_deref(), Ok(""));
        for text in ["pci0000:c0", "0000:c1:00", "0000:c1:00.0\n", " 0000:c1:00.0", "+000:c1:00.0"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
        let error = "x\nesac".parse::<PciAddress>().unwrap_err().to_string();
        assert!(error.contains("is no PCI address: DOMAIN:BUS"), "{error}");
    }

    #[test]
    fn names_of_hosts_are_plain() {
        for text in ["n1", "nid00_12.cluster", "", "x-1"] {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), text);
        }
        for text in ["h\nrank 1=x", "-oProxyCommand=x", "a b", "a,b", "$(x)", "ä", "a#b", "a:1"] {
            assert!(text.parse::<HostName>().is_err(), "{text:?}");
        }
        assert!("x".repeat(254).parse::<HostName>().is_err());
    }

    proptest! {
        #[test]
        fn nothing_else_gets_in(text in "[0-9a-fA-FxG:.\\n;# -]{0,20}", free in ".{0,20}") {
            for text in [text, free] {
                let address = text.parse::<PciAddress>().unwrap_or_default();
                prop_assert!(address.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b)));
                prop_assert_eq!(address.parse::<PciAddress>().unwrap(), address);
                let host = text.parse::<HostName>().unwrap_or_default();
                prop_assert!(host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
            }
        }
    }
}
