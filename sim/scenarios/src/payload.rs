//! Payloads that identify themselves.

use onepipe_sim_check::Tag;

/// Length of the tag: 16 bits of incarnation, 48 bits of scattering. No payload is shorter.
pub(crate) const TAG_LEN: usize = 8;

/// Replaces `payload` with message `index` of the scattering `tag`, of the given length.
pub(crate) fn write(payload: &mut Vec<u8>, tag: Tag, index: u16, bytes: u32) {
    payload.clear();
    let word = (u64::from(tag.incarnation) << 48) | tag.scattering;
    payload.extend_from_slice(&word.to_be_bytes());
    // The content differs in every message and every word of it, so that misplaced data is
    // detected.
    let mut pattern = word.rotate_left(21) ^ (u64::from(index) << 32) | 1;
    let bytes = (bytes as usize).max(TAG_LEN);
    while payload.len() < bytes {
        pattern = pattern.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let left = (bytes - payload.len()).min(8);
        payload.extend_from_slice(&pattern.to_be_bytes()[..left]);
    }
}

/// Returns the tag found in a payload.
pub(crate) fn tag(payload: &[u8]) -> Option<Tag> {
    let word = u64::from_be_bytes(payload.get(..TAG_LEN)?.try_into().ok()?);
    Some(Tag { incarnation: (word >> 48) as u32, scattering: word & ((1 << 48) - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_carries_its_tag_and_is_unique() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let expected = Tag { incarnation: 3, scattering: 1 << 40 };
        for bytes in [0, 8, 9, 64, 1_001] {
            write(&mut one, expected, 5, bytes);
            assert_eq!((tag(&one), one.len()), (Some(expected), bytes.max(8) as usize));
            write(&mut other, expected, 6, bytes);
            assert_eq!(one == other, bytes <= 8);
        }
        assert_eq!(tag(&[1; 7]), None);
    }
}
