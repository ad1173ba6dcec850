use std::os::unix::fs::MetadataExt;

use crate::shelf::layout::{HEADER_LEN, PAGE_BYTES};
use crate::shelf::{Place, Reader, Shelf};
use crate::{AttachError, stale};

fn name(test: &str) -> String {
    format!("test-{}-shelf-{test}", std::process::id())
}

fn both(test: &str) -> (Shelf, Reader) {
    let shelf = Shelf::create(&name(test)).expect("nobody has it");
    let reader = Reader::open(&name(test), 1).expect("it is there");
    (shelf, reader)
}

fn path(test: &str) -> std::path::PathBuf {
    crate::segment::path_of(&name(test)).expect("a good name")
}

#[test]
fn what_is_written_is_read_where_it_lies() {
    let (shelf, reader) = both("read");
    for bytes in [0, 1, 4095, 4096, 4097, 1_000_000] {
        let mut sheet = shelf.sheet(bytes).expect("there is memory");
        sheet.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at * 7 / 8) as u8);
        let page = sheet.into_page();
        let mut read = reader.page(page.place(), bytes).expect("it is there");
        assert!(page.len() == bytes && page == read);
        read.truncate(3);
        assert_eq!(read[..], page[..bytes.min(3)]);
    }
}

#[test]
fn a_region_serves_again_when_nobody_has_its_page() {
    let (shelf, reader) = both("again");
    let mut sheet = shelf.sheet(5).expect("there is memory");
    sheet.copy_from_slice(b"first");
    let page = sheet.into_page();
    let place = page.place();
    let (read, copy) = (reader.page(place, 5).expect("it is there"), page.clone());
    drop(page);
    assert_ne!(shelf.sheet(5).expect("there is memory").into_page().place().at, place.at, "a copy");
    drop(copy);
    let other = shelf.sheet(6_000).expect("there is memory");
    let mut large = shelf.sheet(5).expect("there is memory");
    large.copy_from_slice(b"other");
    assert_ne!(large.into_page().place().at, place.at, "it is read");
    assert_eq!(&read[..], b"first");
    drop((read, other));
    // The one that was never read was used first; both are free now.
    let places = [(); 2].map(|()| shelf.sheet(5).expect("there is memory").into_page());
    let again = places.iter().find(|page| page.place().at == place.at).expect("it serves again");
    assert_eq!(reader.page(place, 5), None, "what was there is gone");
    assert!(reader.page(again.place(), 5).is_some());
}

#[test]
fn whichever_region_nobody_reads_serves_though_others_of_its_size_are_read() {
    let (shelf, reader) = both("whichever");
    let pages = [(); 4].map(|()| shelf.sheet(5).expect("there is memory").into_page());
    let places = pages.each_ref().map(crate::Page::place);
    let mut read: Vec<_> = places.map(|place| reader.page(place, 5)).into();
    assert!(read.iter().all(Option::is_some));
    drop(pages);
    for free in [3, 1] {
        read[free] = None;
        let sheet = shelf.sheet(5).expect("there is memory");
        assert_eq!(sheet.into_page().place().at, places[free].at, "no new one is made");
        read[free] = reader.page(places[free], 5);
        assert!(read[free].is_none(), "what was there is gone");
    }
}

#[test]
fn places_that_cannot_be_are_refused() {
    let (shelf, reader) = both("refused");
    let page = shelf.sheet(10).expect("there is memory").into_page();
    let place = page.place();
    let behind = (HEADER_LEN + PAGE_BYTES) as u64;
    for wrong in [
        Place { at: behind, ..place },
        Place { capacity: 2 * PAGE_BYTES as u64, ..place },
        Place { generation: place.generation + 1, ..place },
        Place { region: place.region + 1, ..place },
    ] {
        assert_eq!(reader.page(wrong, 10), None, "{wrong:?}");
    }
    assert_eq!(reader.page(place, PAGE_BYTES + 1), None);
    assert!(reader.page(place, PAGE_BYTES).is_some(), "no claim was left behind");
    let at = place.at;
    drop(page);
    assert_eq!(shelf.sheet(1).expect("there is memory").into_page().place().at, at);
}

#[test]
fn what_is_too_small_goes_back_to_the_system() {
    let (shelf, _) = both("back");
    // Each one is larger than all that there are.
    for pages in 1..200 {
        drop(shelf.sheet(pages * PAGE_BYTES).expect("there is memory"));
    }
    let bytes = std::fs::metadata(path("back")).expect("it has a name").blocks() * 512;
    let most = HEADER_LEN + (192..200).sum::<usize>() * PAGE_BYTES;
    assert!(bytes <= most as u64, "{bytes} bytes are kept");
}

#[test]
fn memory_that_is_not_there_is_an_answer() {
    let (shelf, _) = both("none");
    assert!(shelf.sheet(usize::MAX).is_none() && shelf.sheet(1 << 50).is_none());
    assert!(shelf.sheet(1).is_some());
}

#[test]
fn a_name_goes_with_its_shelf_and_what_a_crash_left_is_removed() {
    let (shelf, reader) = both("name");
    assert!(matches!(Shelf::create(&name("name")), Err(AttachError::Taken { .. })));
    assert!(matches!(Reader::open(&name("name"), 1), Err(AttachError::Taken { .. })));
    shelf.unlink().expect("it had a name");
    assert!(!path("name").exists() && shelf.unlink().is_ok());
    let page = shelf.sheet(1).expect("there is memory").into_page();
    assert!(reader.page(page.place(), 1).is_some(), "who has come may stay");
    assert!(matches!(Reader::open(&name("name"), 2), Err(AttachError::Io { .. })));

    // The name alone is left of it: nobody has the file open.
    std::fs::write(path("crash"), [0; 8192]).expect("memory has names");
    let removed = stale::remove_beginning_with(
        path("crash").file_name().and_then(|name| name.to_str()).expect("it is text"),
    );
    // Somebody who looks for such files, too, may have been quicker.
    assert!(removed.expect("it can be read") <= 1 && !path("crash").exists());
    let shelf = Shelf::create(&name("crash")).expect("nobody has it");
    drop(shelf);
    assert!(!path("crash").exists());
}
