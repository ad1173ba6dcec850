//! The golden frames of joining.

use onepipe_wire::{Frame, JoinAnswer, JoinRequest, Members, Terms};

use crate::golden::Golden;

pub fn request(golden: &Golden, frame: &Frame<'_>) {
    let read = JoinRequest::parse(frame.payload).expect("a golden request");
    assert_eq!(read.cookie, golden.number("cookie"));
    assert_eq!(read.role as u64, golden.number("role"));
    assert_eq!(u64::from(read.wants_members), golden.number("wants_members"));
    assert_eq!(u64::from(read.versions.min), golden.number("version_min"));
    assert_eq!(u64::from(read.versions.max), golden.number("version_max"));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(read.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

pub fn answer(golden: &Golden, frame: &Frame<'_>) {
    let read = JoinAnswer::parse(frame.payload).expect("a golden answer");
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(read.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
    let terms = match read {
        JoinAnswer::NotAdmitted => return assert!(frame.payload.is_empty()),
        JoinAnswer::Challenge { cookie, terms } => {
            assert_eq!((1, cookie), (golden.number("kind"), golden.number("cookie")));
            terms
        }
        JoinAnswer::Accepted(terms) => {
            assert_eq!(golden.number("kind"), 2);
            terms
        }
        JoinAnswer::Refused { reason, terms } => {
            assert_eq!((3, reason as u64), (golden.number("kind"), golden.number("reason")));
            terms
        }
    };
    let Terms { processes_max, controllers, link_timeout_ns, .. } = terms;
    let Terms { frame_len_max, key_epoch, version, .. } = terms;
    assert_eq!(u64::from(processes_max), golden.number("processes_max"));
    let controllers = controllers.map_or((0, 0), |ids| (ids.count, ids.first.0));
    assert_eq!(u64::from(controllers.0), golden.number("controllers"));
    assert_eq!(u64::from(controllers.1), golden.number("first"));
    assert_eq!(link_timeout_ns, golden.number("link_timeout"));
    assert_eq!(u64::from(frame_len_max), golden.number("frame_octets"));
    assert_eq!(u64::from(key_epoch), golden.number("key_epoch"));
    assert_eq!(u64::from(version), golden.number("fabric_version"));
}

pub fn members(golden: &Golden, frame: &Frame<'_>) {
    let read = Members::parse(frame.payload).expect("golden members");
    assert_eq!(u64::from(read.range), golden.number("range"));
    assert_eq!(read.version, golden.number("stated_version"));
    let words = read.bits.map_or(Vec::new(), |bits| bits.to_vec());
    assert_eq!(words, golden.numbers("word"));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(read.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}
