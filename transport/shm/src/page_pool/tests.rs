use std::os::unix::fs::MetadataExt;

use crate::page_pool::layout::{HEADER_LEN, PAGE_BYTES};
use crate::page_pool::{PageLocation, PagePool, PageReader};
use crate::{AttachError, stale};

fn name(test: &str) -> String {
    format!("test-{}-shelf-{test}", std::process::id())
}

fn both(test: &str) -> (PagePool, PageReader) {
    let page_pool = PagePool::create(&name(test)).expect("the name is free");
    let reader = PageReader::open(&name(test), 1).expect("the pool exists");
    (page_pool, reader)
}

fn path(test: &str) -> std::path::PathBuf {
    crate::segment::path_of(&name(test)).expect("the name is valid")
}

#[test]
fn pages_are_read_without_a_copy() {
    let (page_pool, reader) = both("read");
    for bytes in [0, 1, 4095, 4096, 4097, 1_000_000] {
        let mut page_mut = page_pool.alloc(bytes).expect("memory is available");
        page_mut.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at * 7 / 8) as u8);
        let page = page_mut.freeze();
        let mut read = reader.page(page.location(), bytes).expect("the pool exists");
        assert!(page.len() == bytes && page == read);
        read.truncate(3);
        assert_eq!(read[..], page[..bytes.min(3)]);
    }
}

#[test]
fn region_is_reused_once_its_page_is_dropped() {
    let (page_pool, reader) = both("again");
    let mut page_mut = page_pool.alloc(5).expect("memory is available");
    page_mut.copy_from_slice(b"first");
    let page = page_mut.freeze();
    let location = page.location();
    let (read, copy) = (reader.page(location, 5).expect("the pool exists"), page.clone());
    drop(page);
    assert_ne!(
        page_pool.alloc(5).expect("memory is available").freeze().location().at,
        location.at,
        "a clone is still in use"
    );
    drop(copy);
    let other = page_pool.alloc(6_000).expect("memory is available");
    let mut large = page_pool.alloc(5).expect("memory is available");
    large.copy_from_slice(b"other");
    assert_ne!(large.freeze().location().at, location.at, "the region is in use by a reader");
    assert_eq!(&read[..], b"first");
    drop((read, other));
    // The region that was never read was reused first; both are free now.
    let locations = [(); 2].map(|()| page_pool.alloc(5).expect("memory is available").freeze());
    let again = locations
        .iter()
        .find(|page| page.location().at == location.at)
        .expect("the region is reused");
    assert_eq!(reader.page(location, 5), None, "the old page is gone");
    assert!(reader.page(again.location(), 5).is_some());
}

#[test]
fn unread_region_is_reused_though_others_are_read() {
    let (page_pool, reader) = both("whichever");
    let pages = [(); 4].map(|()| page_pool.alloc(5).expect("memory is available").freeze());
    let locations = pages.each_ref().map(crate::Page::location);
    let mut read: Vec<_> = locations.map(|location| reader.page(location, 5)).into();
    assert!(read.iter().all(Option::is_some));
    drop(pages);
    for free in [3, 1] {
        read[free] = None;
        let page_mut = page_pool.alloc(5).expect("memory is available");
        assert_eq!(
            page_mut.freeze().location().at,
            locations[free].at,
            "no new region is appended"
        );
        read[free] = reader.page(locations[free], 5);
        assert!(read[free].is_none(), "the old page is gone");
    }
}

#[test]
fn invalid_locations_are_refused() {
    let (page_pool, reader) = both("refused");
    let page = page_pool.alloc(10).expect("memory is available").freeze();
    let location = page.location();
    let behind = (HEADER_LEN + PAGE_BYTES) as u64;
    for wrong in [
        PageLocation { at: behind, ..location },
        PageLocation { capacity: 2 * PAGE_BYTES as u64, ..location },
        PageLocation { generation: location.generation + 1, ..location },
        PageLocation { region: location.region + 1, ..location },
    ] {
        assert_eq!(reader.page(wrong, 10), None, "{wrong:?}");
    }
    assert_eq!(reader.page(location, PAGE_BYTES + 1), None);
    assert!(reader.page(location, PAGE_BYTES).is_some(), "no claim was left behind");
    let at = location.at;
    drop(page);
    assert_eq!(page_pool.alloc(1).expect("memory is available").freeze().location().at, at);
}

#[test]
fn small_free_regions_return_to_the_system() {
    let (page_pool, _) = both("back");
    // Each one is larger than all existing ones.
    for pages in 1..200 {
        drop(page_pool.alloc(pages * PAGE_BYTES).expect("memory is available"));
    }
    let bytes = std::fs::metadata(path("back")).expect("the pool has a name").blocks() * 512;
    let most = HEADER_LEN + (192..200).sum::<usize>() * PAGE_BYTES;
    assert!(bytes <= most as u64, "{bytes} bytes are kept");
}

#[test]
fn exhausted_memory_returns_none() {
    let (page_pool, _) = both("none");
    assert!(page_pool.alloc(usize::MAX).is_none() && page_pool.alloc(1 << 50).is_none());
    assert!(page_pool.alloc(1).is_some());
}

#[test]
fn name_is_removed_with_its_pool_and_after_a_crash() {
    let (page_pool, reader) = both("name");
    assert!(matches!(PagePool::create(&name("name")), Err(AttachError::Taken { .. })));
    assert!(matches!(PageReader::open(&name("name"), 1), Err(AttachError::Taken { .. })));
    page_pool.unlink().expect("the pool had a name");
    assert!(!path("name").exists() && page_pool.unlink().is_ok());
    let page = page_pool.alloc(1).expect("memory is available").freeze();
    assert!(reader.page(page.location(), 1).is_some(), "attached readers stay attached");
    assert!(matches!(PageReader::open(&name("name"), 2), Err(AttachError::Io { .. })));

    // Only the name is left: no process has the file open.
    std::fs::write(path("crash"), [0; 8192]).expect("/dev/shm is available");
    let removed = stale::remove_with_prefix(
        path("crash").file_name().and_then(|name| name.to_str()).expect("the name is valid text"),
    );
    // A concurrent test that removes stale files may have been faster.
    assert!(
        removed.expect("the directory entry is readable").len() <= 1 && !path("crash").exists()
    );
    let page_pool = PagePool::create(&name("crash")).expect("the name is free");
    drop(page_pool);
    assert!(!path("crash").exists());
}
