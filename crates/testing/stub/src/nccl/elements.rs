//! Reductions of elements by their definition: each element becomes a number, numbers are reduced, and
//! the result becomes the nearest element. The numbers of `ncclDataType_t` and `ncclRedOp_t`.

/// A number format of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Signed,
    Unsigned,
    /// Bits of mantissa, and bias of the exponent.
    Float(u32, u32),
}

/// Bytes and format of a type.
fn format(kind: i32) -> Option<(usize, Format)> {
    Some(match kind {
        0 => (1, Format::Signed),
        1 => (1, Format::Unsigned),
        2 => (4, Format::Signed),
        3 => (4, Format::Unsigned),
        4 => (8, Format::Signed),
        5 => (8, Format::Unsigned),
        6 => (2, Format::Float(10, 15)),
        7 => (4, Format::Float(23, 127)),
        8 => (8, Format::Float(52, 1023)),
        9 => (2, Format::Float(7, 127)),
        10 => (1, Format::Float(3, 7)),
        11 => (1, Format::Float(2, 15)),
        _ => return None,
    })
}

fn word(element: &[u8]) -> u64 {
    element.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The value of a floating point number that is neither infinite nor no number.
fn decode(bits: u64, width: u32, (mantissa, bias): (u32, u32)) -> f64 {
    let field = bits & ((1 << mantissa) - 1);
    let exponent = (bits & !(1 << (width - 1))) >> mantissa;
    let scale = 2f64.powi(exponent.max(1) as i32 - bias as i32 - mantissa as i32);
    let whole = if exponent > 0 { field | 1 << mantissa } else { field };
    let value = whole as f64 * scale;
    if bits >> (width - 1) == 1 { -value } else { value }
}

/// The nearest number of a format; ties go to the even one.
fn encode(value: f64, width: u32, (mantissa, bias): (u32, u32)) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (width - 1);
    let size = value.abs();
    if size == 0.0 {
        return sign;
    }
    let exponent = (((size.to_bits() >> 52) as i32) - 1023).max(1 - bias as i32);
    let scaled = (size * 2f64.powi(mantissa as i32 - exponent)).round_ties_even() as u64;
    let biased = (exponent + bias as i32) as u64;
    // A carry out of the mantissa raises the exponent; a number without its upper bit is subnormal.
    sign | ((biased << mantissa) + scaled).wrapping_sub(1 << mantissa)
}

fn of_integers(op: i32, all: &[i128]) -> Option<i128> {
    Some(match op {
        0 => all.iter().sum(),
        // It wraps as the type does, whose lower bits are the same.
        1 => all.iter().fold(1, |product: i128, x| product.wrapping_mul(*x)),
        2 => all.iter().copied().max()?,
        3 => all.iter().copied().min()?,
        4 => all.iter().sum::<i128>() / i128::try_from(all.len()).ok()?,
        _ => return None,
    })
}

fn of_floats(op: i32, all: &[f64]) -> Option<f64> {
    Some(match op {
        0 => all.iter().sum(),
        1 => all.iter().product(),
        2 => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        3 => all.iter().copied().fold(f64::INFINITY, f64::min),
        4 => all.iter().sum::<f64>() / all.len() as f64,
        _ => return None,
    })
}

/// The sum of 64-bit integers, which wraps. Large buffers are summed in this type.
fn sum_of_words(inputs: &[&[u8]]) -> Vec<u8> {
    let word = |w: &[u8]| w.try_into().map_or(0, u64::from_ne_bytes);
    let words = |bytes: &[u8]| bytes.chunks_exact(8).map(word).collect::<Vec<u64>>();
    let mut total = inputs.first().map(|first| words(first)).unwrap_or_default();
    for input in inputs.iter().skip(1) {
        total.iter_mut().zip(input.chunks_exact(8)).for_each(|(a, b)| *a = a.wrapping_add(word(b)));
    }
    total.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// The reduction of equally long inputs; `None` if the library has no such type or operation.
pub(super) fn reduced(kind: i32, op: i32, inputs: &[&[u8]]) -> Option<Vec<u8>> {
    let (size, format) = format(kind)?;
    if matches!(kind, 4 | 5) && op == 0 {
        return Some(sum_of_words(inputs));
    }
    let (width, length) = (8 * size as u32, inputs.first().map_or(0, |first| first.len()));
    let mut result = Vec::with_capacity(length);
    let mut bits = vec![0; inputs.len()];
    for at in (0..length).step_by(size) {
        for (bits, input) in bits.iter_mut().zip(inputs) {
            *bits = word(input.get(at..at + size)?);
        }
        let up = 64 - width;
        let element = match format {
            Format::Float(mantissa, bias) => {
                let form = (mantissa, bias);
                let all: Vec<f64> = bits.iter().map(|&bits| decode(bits, width, form)).collect();
                encode(of_floats(op, &all)?, width, form)
            }
            Format::Signed => {
                let all: Vec<i128> =
                    bits.iter().map(|&bits| i128::from((bits << up).cast_signed() >> up)).collect();
                of_integers(op, &all)? as u64
            }
            Format::Unsigned => {
                let all: Vec<i128> = bits.iter().map(|&bits| i128::from(bits)).collect();
                of_integers(op, &all)? as u64
            }
        };
        result.extend(element.to_le_bytes().get(..size)?);
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_the_processor() {
        for value in [1.0f32, -1.5, 0.1, 3.0e38, 1.0e-40, 0.0, 8.0] {
            let bits = u64::from(value.to_bits());
            assert_eq!(decode(bits, 32, (23, 127)), f64::from(value));
            assert_eq!(encode(f64::from(value), 32, (23, 127)), bits, "{value}");
        }
        assert_eq!(encode(0.1, 64, (52, 1023)), 0.1f64.to_bits());
        // 1 + 2^-11 is midway between two half numbers: to the even one.
        assert_eq!(encode(1.0 + 2f64.powi(-11), 16, (10, 15)), 0x3c00);
        // The least subnormal number of E5M2 is 2^-16.
        assert_eq!(decode(1, 8, (2, 15)), 2f64.powi(-16));
    }

    #[test]
    fn each_operation_is_of_its_type() {
        // Of int8, -1 is the least; of uint8 its bits, 255, are the greatest.
        let inputs: [&[u8]; 2] = [&[0xff, 2], &[1, 3]];
        assert_eq!(reduced(0, 2, &inputs), Some(vec![1, 3]));
        assert_eq!(reduced(1, 2, &inputs), Some(vec![0xff, 3]));
        assert_eq!(reduced(0, 1, &inputs), Some(vec![0xff, 6]));
        assert_eq!(reduced(0, 0, &inputs), Some(vec![0, 5]));
        // bf16: (1 + 3) / 2 = 2.
        let [one, two, three] = [0x3f80u16, 0x4000, 0x4040].map(u16::to_le_bytes);
        assert_eq!(reduced(9, 4, &[&one, &three]), Some(two.to_vec()));
        assert_eq!(
            reduced(5, 0, &[&u64::MAX.to_le_bytes(), &3u64.to_le_bytes()]),
            Some(vec![2, 0, 0, 0, 0, 0, 0, 0])
        );
        assert_eq!(reduced(12, 0, &inputs), None);
    }
}
