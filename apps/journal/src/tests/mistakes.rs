//! The crash test detects each mistake.

use super::model::{crash_everywhere, script};
use crate::mistake::{Mistake, make};

/// Returns the first seed whose crashes show `mistake`, and what they show.
fn detect(mistake: Mistake) -> Option<String> {
    make(Some(mistake));
    let found = (0..400).find_map(|seed| crash_everywhere(seed, &script(seed, 25)).err());
    make(None);
    found
}

macro_rules! detects {
    ($($name:ident: $mistake:ident,)*) => {$(
        #[test]
        fn $name() {
            let found = detect(Mistake::$mistake).expect("the crash test detects the mistake");
            println!("{found}");
        }
    )*};
}

detects! {
    detects_durable_before_sync: DurableBeforeSync,
    detects_rename_not_synced: RenameNotSynced,
    detects_creation_not_synced: CreateNotSynced,
    detects_removal_of_the_old_snapshot_first: OldSnapshotFirst,
    detects_records_without_chain: Unchained,
    detects_a_failed_sync_that_is_tried_again: SyncTriedAgain,
    detects_a_roll_without_sync: RollNotSynced,
    detects_an_open_without_sync: OpenNotSynced,
    detects_an_end_that_is_not_written_again: EndNotRewritten,
}
