//! Properties of page locations, and of frames that carry them, for any bytes. Shared with
//! `verify/fuzz`.

use std::cell::RefCell;

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_transport_pages::{
    PAGE_LOCATION_LEN, Page, PageLocation, PagePool, PageReader, page_location,
};
use onepipe_wire::{
    BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN, BulkHeader, BulkPieceHeader, DETACHED_FRONT_LEN,
    Extent, Header, Opcode, SHORT_HEADER_LEN, seal, seal_detached,
};

/// Sizes of the existing pages, in bytes.
const PAGES: [usize; 4] = [1, 4096, 5000, 70_000];

/// A page pool with some pages, and a reader.
struct Fixture {
    pages: Vec<Page>,
    reader: PageReader,
    _page_pool: PagePool,
}

impl Fixture {
    fn new() -> Self {
        let thread = std::thread::current().id();
        let name = format!("test-{}-places-{thread:?}", std::process::id()).replace(['(', ')'], "");
        let page_pool = PagePool::create(&name).expect("the name is free");
        let reader = PageReader::open(&name, 1).expect("the pool exists");
        page_pool.unlink().expect("the pool has a name");
        let page = |bytes: usize| {
            let mut page_mut = page_pool.alloc(bytes).expect("memory is available");
            page_mut.fill(bytes as u8 | 1);
            page_mut.freeze()
        };
        Self { pages: PAGES.map(page).into(), reader, _page_pool: page_pool }
    }
}

thread_local! {
    static FIXTURE: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

/// Checks `bytes` as a location, as a change to a valid location, and as a frame that carries one.
pub fn check_locations(bytes: &[u8]) {
    FIXTURE.with_borrow_mut(|fixture| {
        let fixture = fixture.get_or_insert_with(Fixture::new);
        let [which, sealed, changed, rest @ ..] = bytes else {
            return check_location(fixture, bytes, 0);
        };
        let page = &fixture.pages[usize::from(*which) % PAGES.len()];
        let mut location = page.location().to_bytes();
        for (byte, at) in rest.iter().zip(usize::from(*changed)..PAGE_LOCATION_LEN) {
            location[at] = *byte;
        }
        let asked = rest.last().map_or(0, |last| usize::from(*last) * 400);
        check_location(fixture, &location, asked);
        check_location(fixture, rest, asked);
        check_frame(rest, *sealed, &location);
        // No claim was left behind: each region can still be read.
        let own = fixture.reader.page(page.location(), page.len()).expect("the pool exists");
        assert!(own[..] == page[..]);
    });
}

/// A location round-trips, and every page that a reader returns is readable to its last byte.
fn check_location(fixture: &Fixture, bytes: &[u8], asked: usize) {
    let Some(location) = PageLocation::parse(bytes) else { return };
    assert_eq!(location.to_bytes(), bytes[..PAGE_LOCATION_LEN], "a location has one encoding");
    for asked in [asked, 0, 1 << 12, 1 << 17, usize::MAX] {
        let Some(page) = fixture.reader.page(location, asked) else { continue };
        assert_eq!((page.len(), page.location()), (asked, location));
        assert!(page.iter().fold(0u64, |sum, byte| sum + u64::from(*byte)) <= 255 * asked as u64);
    }
}

/// Only an intact frame carries a location, and exactly the one that follows it.
fn check_frame(bytes: &[u8], sealed: u8, location: &[u8; PAGE_LOCATION_LEN]) {
    assert_eq!(page_location(bytes).map(|(_, location)| Some(location)), {
        let behind = bytes.get(DETACHED_FRONT_LEN..).and_then(PageLocation::parse);
        page_location(bytes).map(|_| behind)
    });
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let front =
        BulkHeader { group: 9, config_digest: 1, from: byte(0) as u16, failed: 0, stable: byte(1) };
    let block_len = 1 + byte(4);
    let piece = BulkPieceHeader {
        object: byte(2) << 24 | byte(3),
        extent: Extent { bytes: 5_000, block_len, has_digests: sealed & 4 > 0 },
        digest: 5,
        block: byte(5) % (5_000 / block_len),
        offset: byte(6) % block_len,
        ordinal: byte(7),
        is_offer: sealed & 2 > 0,
    };
    let mut frame = [0; DETACHED_FRONT_LEN + PAGE_LOCATION_LEN];
    let fixture = front.write(&mut frame[SHORT_HEADER_LEN..]).expect("the frame is large enough");
    piece.write(fixture).expect("the frame is large enough");
    let (from, to) = (ProcessId(byte(0)), ProcessId(1));
    let header = Header::new(Opcode::BulkPiece, from, to, Incarnation(1));
    let now = Timestamp::from_ns(1 << 50);
    let header = header.stamped(now, Promises::both(now), Psn(3));
    match sealed & 1 {
        0 => seal_detached(&mut frame, header, 0),
        _ => seal(&mut frame, header, BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN),
    };
    frame[DETACHED_FRONT_LEN..].copy_from_slice(location);
    let expected = PageLocation::parse(location).map(|location| (piece.object, location));
    assert_eq!(page_location(&frame), expected, "an intact frame must carry its location");
    if sealed & 8 > 0 {
        let at = (byte(8) << 8 | byte(9)) as usize % (DETACHED_FRONT_LEN * 8);
        frame[at / 8] ^= 1 << (at % 8);
        // Fields that switches rewrite are covered by the hop tag, which frames in a ring do not
        // have.
        let other = page_location(&frame);
        assert!(
            other.is_none() || other == expected,
            "a corrupt frame must not carry another location"
        );
    }
}
