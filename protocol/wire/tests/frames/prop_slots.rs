//! Random bodies of scheduled transfer: encoding round-trips, truncated bodies are refused, and the
//! checksum detects ends that are out of step.

use onepipe_base::{Incarnation, Timestamp};
use onepipe_wire::{
    Drops, FCP_HEADER_LEN, Fcp, FcpArrival, FcpEncoding, FcpParams, FcpPart, FcpReset, FcpTotal,
    FcpWriter, Loss, PIECE_ACK_WORDS_MAX, Piece, PieceAck, PieceAckState, TransferPacket,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

proptest! {
    #[test]
    fn control_packets_round_trip(
        seed in any::<u64>(),
        (number, received, holes) in any::<(u32, u32, u64)>(),
        reset in prop::option::of(any::<(u64, u32, u32, u16)>()),
        early in prop::option::of((0u64..1 << 16, 1u8..=255)),
        totals in vec((0u8..3, vec((any::<u16>(), any::<u16>()), 1..99), 1u16..999), 0..3),
        given in vec((0u64..1 << 48, any::<u64>(), any::<u64>(), any::<u64>()), 0..4),
        bytes in FCP_HEADER_LEN + 9..1_500usize,
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut buf = vec![0; bytes];
        let received_bits = !(holes & !1);
        let mut writer = FcpWriter::new(&mut buf, received, received_bits).expect("a front");
        let reset =
            reset.map(|(time, epoch, slot_ns, nodes)| FcpReset {
                time: Timestamp::from_ns(time),
                epoch,
                params: FcpParams { slot_ns, nodes },
            });
        let reset = reset.filter(|reset| writer.reset(*reset));
        let early = early.map(|(early, batch_slots)| FcpArrival { early_ns: 64 * early, batch_slots });
        let early = early.filter(|early| writer.arrival(*early));
        let mut said = Vec::new();
        for (encoding, totals, within) in totals {
            let encoding = [FcpEncoding::List, FcpEncoding::Map, FcpEncoding::ShortMap][usize::from(encoding)];
            let mut totals: Vec<FcpTotal> =
                totals.into_iter().map(|(dst, total)| FcpTotal { dst, total }).collect();
            if encoding != FcpEncoding::List {
                totals.iter_mut().for_each(|one| one.dst %= within);
                totals.sort_by_key(|one| one.dst);
                totals.dedup_by_key(|one| one.dst);
            }
            if encoding == FcpEncoding::ShortMap {
                totals.iter_mut().for_each(|one| one.total %= 256);
            }
            let written = writer.totals(encoding, &totals);
            prop_assert!(encoding == FcpEncoding::List || written == 0 || written == totals.len());
            totals.truncate(written);
            said.extend((written > 0).then_some((encoding, totals)));
        }
        // Destination and path with that many bits each.
        let of = |bits: u64, slot: usize| {
            let mixed = bits.rotate_left(slot as u32 * 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (dst, path) = ((mixed >> 48) as u16, (mixed >> 40) as u8);
            (dst >> (bits % 17).min(15), path >> (bits % 9).min(7))
        };
        let given: Vec<_> = given
            .into_iter()
            .map(|(base, one, other, bits)| (base, one & other | 1 << (bits % 64), bits))
            .take_while(|(base, slots, bits)| writer.grants(*base, *slots, |slot| of(*bits, slot)))
            .collect();
        let end = writer.finish(seed);
        buf.truncate(end);
        let read = Fcp::parse(number, &buf).expect("just written");
        prop_assert!(read.is_in_step(seed) && !read.is_in_step(!seed));
        prop_assert_eq!((read.sequence, read.received), (number, received));
        prop_assert_eq!(read.received_bits, received_bits);
        prop_assert_eq!(read.reset(), reset);
        let has_short_map = said.iter().any(|(encoding, _)| *encoding == FcpEncoding::ShortMap);
        prop_assert_eq!(read.is_relative(), has_short_map);
        let (mut said, mut given) = (said.into_iter(), given.into_iter());
        for part in read.parts() {
            match part {
                FcpPart::Reset(read) => prop_assert_eq!(Some(read), reset),
                FcpPart::Arrival(read) => prop_assert_eq!(Some(read), early),
                FcpPart::Totals(all) => {
                    let read = (all.encoding(), all.totals().collect());
                    prop_assert_eq!(Some(read), said.next());
                }
                FcpPart::Grants(all) => {
                    let (base, slots, bits) = given.next().expect("as many as were written");
                    prop_assert_eq!((all.base(), all.slots()), (base, slots));
                    let mut rest = slots;
                    for one in all.grants() {
                        prop_assert_eq!(u32::from(one.slot), rest.trailing_zeros());
                        prop_assert_eq!((one.dst, one.path), of(bits, one.slot.into()));
                        rest &= rest - 1;
                    }
                    prop_assert_eq!(rest, 0);
                }
            }
        }
        prop_assert!(said.next().is_none() && given.next().is_none());
        prop_assert_eq!(properties::refcp(&read, seed), &buf[..]);
        let bit = flipped.index(end * 8);
        buf[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Fcp::parse(number, &buf).is_ok_and(|read| read.is_in_step(seed)));
    }

    #[test]
    fn transfer_packets_round_trip(
        (object, serial, cumulative, state, instance) in any::<(u32, u32, u32, u8, u32)>(),
        (bytes, piece_len) in (0u64..400, 1u16..50),
        index in any::<prop::sample::Index>(),
        words in vec(any::<u64>(), 0..20),
        cut in 1usize..8,
    ) {
        let piece = Piece { object, bytes, piece_len, index: 0, serial };
        let index = index.index(piece.pieces().expect("few") as usize) as u32;
        let piece = Piece { index, ..piece };
        let begin = u64::from(index) * u64::from(piece_len);
        let data = vec![7; (bytes - begin).min(u64::from(piece_len)) as usize];
        let mut buf = vec![0; 300];
        let end = piece.write(&mut buf, &data).expect("as long as it should be");
        let read = TransferPacket::parse(&buf[..end]);
        let is_it =
            matches!(read, Ok(TransferPacket::Piece(read, come)) if read == piece && come == data);
        prop_assert!(is_it);
        properties::transfer(&buf[..end]);
        prop_assert!(TransferPacket::parse(&buf[..end - cut]).is_err());
        let states = [PieceAckState::Partial, PieceAckState::Whole, PieceAckState::Refused];
        let state = states[usize::from(state % 3)];
        let instance = Incarnation(instance);
        let pieces = PieceAck { object, state, serial, cumulative, incarnation: instance };
        let end = pieces.write(&mut buf, words.iter().copied()).expect("it fits");
        let Ok(TransferPacket::PieceAck(read, come)) = TransferPacket::parse(&buf[..end]) else {
            panic!("just written")
        };
        prop_assert_eq!(read, pieces);
        prop_assert!(come.iter().eq(words.into_iter().take(PIECE_ACK_WORDS_MAX)));
        properties::transfer(&buf[..end]);
        prop_assert!(TransferPacket::parse(&buf[..end - cut]).is_err());
    }

    #[test]
    fn losses_round_trip(losses in vec(any::<(u16, u16, u8)>(), 1..50), cut in 1usize..6) {
        let losses: Vec<Loss> =
            losses.into_iter().map(|(src, lost, path)| Loss { src, lost, path }).collect();
        let mut buf = vec![0xff; 6 * losses.len() + cut - 1];
        let bytes = Drops::write(&mut buf, losses.iter().copied());
        prop_assert_eq!(bytes, 6 * losses.len());
        let read = Drops::parse(&buf[..bytes]).expect("just written");
        prop_assert_eq!(read.losses().collect::<Vec<_>>(), losses);
        prop_assert!(Drops::parse(&buf[..bytes - cut]).is_err());
    }
}
