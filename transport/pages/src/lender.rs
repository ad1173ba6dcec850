//! Where the objects lie that are on their way to us.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onepipe_bulk::OBJECTS_MAX;
use onepipe_transport_shm::{Page, Place, Reader};

/// What a member has been told of objects' places. It lends the pages: an application that is asked
/// for memory may answer with one. Clones are the same.
#[derive(Clone, Debug)]
pub struct Lender {
    reader: Reader,
    loans: Arc<Mutex<Vec<Loan>>>,
}

/// An object on its way.
#[derive(Debug)]
struct Loan {
    object: u32,
    place: Place,
    /// Claimed when it is first used, and until the object is through: so it stays as it is even
    /// where the others count us as failed.
    page: Option<Page>,
}

impl Lender {
    pub(crate) fn new(reader: Reader) -> Self {
        let loans = Vec::with_capacity(OBJECTS_MAX as usize);
        Self { reader, loans: Arc::new(Mutex::new(loans)) }
    }

    /// The page that an object of so many bytes lies on, which is on its way. `None` when nobody
    /// has said where that is.
    pub fn page(&self, object: u32, bytes: usize) -> Option<Page> {
        let mut loans = self.loans();
        let loan = loans.iter_mut().find(|loan| loan.object == object)?;
        if loan.page.as_ref().is_none_or(|page| page.len() < bytes) {
            loan.page = Some(self.reader.page(loan.place, bytes)?);
        }
        let mut page = loan.page.clone()?;
        page.truncate(bytes);
        Some(page)
    }

    /// Somebody says where an object lies.
    pub(crate) fn note(&self, object: u32, place: Place) {
        let mut loans = self.loans();
        match loans.iter_mut().find(|loan| loan.object == object) {
            Some(loan) if loan.place == place => {}
            Some(loan) => (loan.place, loan.page) = (place, None),
            None => {
                if loans.len() >= OBJECTS_MAX as usize {
                    // No more are under way: the first is of one that was through long ago.
                    let least = (0..loans.len()).min_by_key(|at| loans[*at].object).unwrap_or(0);
                    loans.swap_remove(least);
                }
                loans.push(Loan { object, place, page: None });
            }
        }
    }

    /// Where an object lies.
    pub(crate) fn place(&self, object: u32) -> Option<Place> {
        self.loans().iter().find(|loan| loan.object == object).map(|loan| loan.place)
    }

    /// An object is through.
    pub(crate) fn forget(&self, object: u32) {
        self.loans().retain(|loan| loan.object != object);
    }

    fn loans(&self) -> MutexGuard<'_, Vec<Loan>> {
        // Whoever panicked with it had changed one loan at a time.
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
