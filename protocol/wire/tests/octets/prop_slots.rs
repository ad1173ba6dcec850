//! Bodies of scheduled transfer drawn at random: what was written is read, whatever is cut off is
//! missed, and who is out of step is told from who is not.

use onepipe_base::{Incarnation, Timestamp};
use onepipe_wire::{
    Drops, FCP_HEADER_OCTETS, Fcp, FcpEarly, FcpForm, FcpPart, FcpReset, FcpTerms, FcpTotal,
    FcpWriter, Loss, PIECES_WORDS_MAX, Piece, Pieces, PiecesState, TransferPacket,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

proptest! {
    #[test]
    fn control_packets_survive(
        seed in any::<u64>(),
        (number, heard, holes) in any::<(u32, u32, u64)>(),
        reset in prop::option::of(any::<(u64, u32, u32, u16)>()),
        early in prop::option::of((0u64..1 << 16, 1u8..=255)),
        totals in vec((0u8..3, vec((any::<u16>(), any::<u16>()), 1..99), 1u16..999), 0..3),
        given in vec((0u64..1 << 48, any::<u64>(), any::<u64>(), any::<u64>()), 0..4),
        octets in FCP_HEADER_OCTETS + 9..1_500usize,
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut room = vec![0; octets];
        let heard = (heard, !(holes & !1));
        let mut writer = FcpWriter::new(&mut room, heard).expect("a front");
        let reset =
            reset.map(|(time, epoch, slot_ns, nodes)| FcpReset {
                time: Timestamp::from_ns(time),
                epoch,
                terms: FcpTerms { slot_ns, nodes },
            });
        let reset = reset.filter(|reset| writer.reset(*reset));
        let early = early.map(|(early, batch_slots)| FcpEarly { ns: 64 * early, batch_slots });
        let early = early.filter(|early| writer.early(*early));
        let mut said = Vec::new();
        for (form, totals, within) in totals {
            let form = [FcpForm::List, FcpForm::Map, FcpForm::ShortMap][usize::from(form)];
            let mut totals: Vec<FcpTotal> =
                totals.into_iter().map(|(dst, total)| FcpTotal { dst, total }).collect();
            if form != FcpForm::List {
                totals.iter_mut().for_each(|one| one.dst %= within);
                totals.sort_by_key(|one| one.dst);
                totals.dedup_by_key(|one| one.dst);
            }
            if form == FcpForm::ShortMap {
                totals.iter_mut().for_each(|one| one.total %= 256);
            }
            let written = writer.totals(form, &totals);
            prop_assert!(form == FcpForm::List || written == 0 || written == totals.len());
            totals.truncate(written);
            said.extend((written > 0).then_some((form, totals)));
        }
        // To whom and by which path, of so many bits each.
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
        room.truncate(end);
        let read = Fcp::parse(number, &room).expect("just written");
        prop_assert!(read.is_in_step(seed) && !read.is_in_step(!seed));
        prop_assert_eq!((read.sequence, (read.heard, read.heard_bits)), (number, heard));
        prop_assert_eq!(read.reset(), reset);
        prop_assert_eq!(read.is_relative(), said.iter().any(|(form, _)| *form == FcpForm::ShortMap));
        let (mut said, mut given) = (said.into_iter(), given.into_iter());
        for part in read.parts() {
            match part {
                FcpPart::Reset(read) => prop_assert_eq!(Some(read), reset),
                FcpPart::Early(read) => prop_assert_eq!(Some(read), early),
                FcpPart::Totals(all) => {
                    let read = (all.form(), all.totals().collect());
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
        prop_assert_eq!(properties::refcp(&read, seed), &room[..]);
        let bit = flipped.index(end * 8);
        room[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Fcp::parse(number, &room).is_ok_and(|read| read.is_in_step(seed)));
    }

    #[test]
    fn packets_of_transfers_survive(
        (object, serial, cumulative, state, life) in any::<(u32, u32, u32, u8, u32)>(),
        (octets, piece_octets) in (0u64..400, 1u16..50),
        index in any::<prop::sample::Index>(),
        words in vec(any::<u64>(), 0..20),
        cut in 1usize..8,
    ) {
        let piece = Piece { object, octets, piece_octets, index: 0, serial };
        let index = index.index(piece.pieces().expect("few") as usize) as u32;
        let piece = Piece { index, ..piece };
        let begin = u64::from(index) * u64::from(piece_octets);
        let data = vec![7; (octets - begin).min(u64::from(piece_octets)) as usize];
        let mut room = vec![0; 300];
        let end = piece.write(&mut room, &data).expect("as long as it should be");
        let read = TransferPacket::parse(&room[..end]);
        let is_it = matches!(read, Ok(TransferPacket::Piece(read, come)) if read == piece && come == data);
        prop_assert!(is_it);
        properties::transfer(&room[..end]);
        prop_assert!(TransferPacket::parse(&room[..end - cut]).is_err());
        let state = [PiecesState::Partial, PiecesState::Whole, PiecesState::Refused][usize::from(state % 3)];
        let life = Incarnation(life);
        let pieces = Pieces { object, state, serial, cumulative, life };
        let end = pieces.write(&mut room, words.iter().copied()).expect("it fits");
        let Ok(TransferPacket::Pieces(read, come)) = TransferPacket::parse(&room[..end]) else {
            panic!("just written")
        };
        prop_assert_eq!(read, pieces);
        prop_assert!(come.iter().eq(words.into_iter().take(PIECES_WORDS_MAX)));
        properties::transfer(&room[..end]);
        prop_assert!(TransferPacket::parse(&room[..end - cut]).is_err());
    }

    #[test]
    fn losses_survive(losses in vec(any::<(u16, u16, u8)>(), 1..50), cut in 1usize..6) {
        let losses: Vec<Loss> =
            losses.into_iter().map(|(src, lost, path)| Loss { src, lost, path }).collect();
        let mut room = vec![0xff; 6 * losses.len() + cut - 1];
        let octets = Drops::write(&mut room, losses.iter().copied());
        prop_assert_eq!(octets, 6 * losses.len());
        let read = Drops::parse(&room[..octets]).expect("just written");
        prop_assert_eq!(read.losses().collect::<Vec<_>>(), losses);
        prop_assert!(Drops::parse(&room[..octets - cut]).is_err());
    }
}
