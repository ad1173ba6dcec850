//! Copies of short payloads without a call.

/// Copies `from` to `to`, which must have the same length. A payload of 16 to 128 bytes is copied
/// as its first and its last bytes, which overlap unless it has twice their number: for so few
/// bytes a call of `memcpy` costs more than the copy.
///
/// # Panics
/// If `to` is shorter than `from`.
#[inline(always)]
pub fn copy_payload(to: &mut [u8], from: &[u8]) {
    let to = &mut to[..from.len()];
    match from.len() {
        16..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        65..=128 => copy_ends::<64>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes; both slices have `N` to `2 * N`.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn payload_of_any_length_is_copied_whole() {
        let from: Vec<u8> = (1..=200).collect();
        for len in 0..=from.len() {
            let mut to = [0; 256];
            copy_payload(&mut to[..len], &from[..len]);
            assert_eq!(to[..len], from[..len]);
            assert_eq!(to[len..], [0; 256][len..], "nothing behind the payload changes");
        }
    }
}
