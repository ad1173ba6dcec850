//! Bodies of scheduled transfer drawn at random: what was written is read, whatever is cut off is
//! missed, and who is out of step is told from who is not.

use onepipe_base::Timestamp;
use onepipe_wire::{
    Drops, FCP_HEADER_OCTETS, Fcp, FcpGrant, FcpPart, FcpRequest, FcpReset, FcpWriter, Loss,
    PIECES_WORDS_MAX, Piece, Pieces, PiecesState, TransferPacket,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

prop_compose! {
    fn any_grant()(
        dst in any::<u16>(),
        total in any::<u16>(),
        path in any::<u8>(),
        slots in prop_oneof![any::<u64>(), vec(0u32..64, 0..9).prop_map(|all| {
            all.into_iter().fold(0, |slots, slot| slots | 1 << slot)
        })],
    ) -> FcpGrant {
        FcpGrant { dst, total, path, slots }
    }
}

proptest! {
    #[test]
    fn control_packets_survive(
        seed in any::<u64>(),
        (sequence, heard, heard_bits) in any::<(u32, u32, u64)>(),
        reset in prop::option::of(any::<(u64, u32)>()),
        wants in vec(any::<(u16, u16)>(), 0..300),
        given in vec((0u64..3, any_grant()), 0..40),
        octets in FCP_HEADER_OCTETS..2_000usize,
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut room = vec![0; octets];
        let mut writer = FcpWriter::new(&mut room, sequence, (heard, heard_bits)).expect("a front");
        let reset =
            reset.map(|(time, epoch)| FcpReset { time: Timestamp::from_ns(time), epoch });
        let reset = reset.filter(|reset| writer.reset(*reset));
        let request = |(dst, total)| FcpRequest { dst, total };
        let wants: Vec<FcpRequest> = wants.into_iter().map(request).collect();
        let asked = wants.iter().take_while(|request| writer.request(**request)).count();
        let given: Vec<(u64, FcpGrant)> =
            given.into_iter().take_while(|(base, grant)| writer.grant(*base, *grant)).collect();
        let end = writer.finish(seed);
        room.truncate(end);
        let read = Fcp::parse(&room).expect("just written");
        prop_assert!(read.is_in_step(seed) && !read.is_in_step(!seed));
        prop_assert_eq!((read.sequence, read.heard, read.heard_bits), (sequence, heard, heard_bits));
        prop_assert_eq!(read.reset(), reset);
        let (mut requests, mut grants) = (Vec::new(), Vec::new());
        for part in read.parts() {
            match part {
                FcpPart::Reset(read) => prop_assert_eq!(Some(read), reset),
                FcpPart::Requests(all) => requests.extend(all.requests()),
                FcpPart::Grants(base, all) => grants.extend(all.grants().map(|one| (base, one))),
            }
        }
        prop_assert_eq!(&requests, &wants[..asked]);
        prop_assert_eq!(grants, given);
        prop_assert_eq!(properties::refcp(&read, seed), &room[..]);
        let bit = flipped.index(end * 8);
        room[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Fcp::parse(&room).is_ok_and(|read| read.is_in_step(seed)));
    }

    #[test]
    fn packets_of_transfers_survive(
        (object, serial, cumulative, state) in any::<(u32, u32, u32, u8)>(),
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
        let pieces = Pieces { object, state, serial, cumulative };
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
