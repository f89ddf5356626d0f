//! The data that a process sends to the others about its part of a case.

/// The data that peers need to reach a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UcxOffer {
    /// This process's number of the exchange.
    pub(super) serial: u32,
    /// Its worker's address.
    pub(super) address: Vec<u8>,
    /// Memory that peers write or read.
    pub(super) exposed: Vec<UcxExport>,
}

/// Memory that another process writes or reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UcxExport {
    /// Index of the part.
    pub(super) part: usize,
    /// The position in its group.
    pub(super) position: usize,
    /// The address in the exporting process.
    pub(super) address: u64,
    /// Its packed remote key.
    pub(super) key: Vec<u8>,
}

impl UcxOffer {
    /// Encodes the offer.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = u64::from(self.serial).to_le_bytes().to_vec();
        let mut put = |text: &[u8]| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text);
        };
        put(&self.address);
        for exposed in &self.exposed {
            let numbers = [exposed.part as u64, exposed.position as u64, exposed.address];
            put(&numbers.map(u64::to_le_bytes).concat());
            put(&exposed.key);
        }
        bytes
    }

    /// Decodes an offer; `None` if the bytes are invalid.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let serial = u32::try_from(number(&mut rest)?).ok()?;
        let address = text(&mut rest)?.to_vec();
        let mut exposed = Vec::new();
        while !rest.is_empty() {
            let mut numbers = text(&mut rest)?;
            let mut next = || number(&mut numbers);
            let (part, position, address) = (next()?, next()?, next()?);
            exposed.push(UcxExport {
                part: usize::try_from(part).ok()?,
                position: usize::try_from(position).ok()?,
                address,
                key: text(&mut rest)?.to_vec(),
            });
        }
        (!address.is_empty()).then_some(Self { serial, address, exposed })
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, others) = rest.split_first_chunk::<8>()?;
    *rest = others;
    Some(u64::from_le_bytes(*first))
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (first, others) = rest.split_at_checked(length)?;
    *rest = others;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_and_nothing_less() {
        let exposed =
            UcxExport { part: 1, position: 0, address: 0x7f00_0000_1000, key: vec![7; 33] };
        let offer = UcxOffer { serial: 9, address: vec![1, 2, 3], exposed: vec![exposed] };
        let bytes = offer.write();
        // 8 serial, 8 + 3 address, 8 + 24 numbers, 8 + 33 key.
        assert_eq!(bytes.len(), 8 + 11 + 32 + 41);
        assert_eq!(UcxOffer::read(&bytes).as_ref(), Some(&offer));
        // Cut after the address it is an offer without memory; any other cut is invalid.
        let whole = |cut: &usize| UcxOffer::read(&bytes[..*cut]).is_some();
        assert_eq!((0..bytes.len()).filter(whole).collect::<Vec<_>>(), [19]);
        let idle = UcxOffer { address: Vec::new(), exposed: Vec::new(), serial: 0 };
        assert_eq!(UcxOffer::read(&idle.write()), None);
    }
}
