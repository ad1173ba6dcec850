//! The parameters that determine a database, and the read-only columns that every shard can
//! compute from them.

use crate::random::{Stream, a_string, fill, keyed};
use crate::scale::{Scale, ScaleError};
use crate::schema::DistInfo;
use crate::text::Text;

/// The sizes and the seed of a database, which determine its rows after the load.
///
/// Read-only columns of any warehouse can be computed at any shard: [`Database::dist_info`] and
/// [`Database::history_data`] need no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
}

impl Database {
    /// Returns the database of these sizes and this seed.
    pub fn new(scale: Scale, seed: u64) -> Result<Self, ScaleError> {
        scale.validate()?;
        Ok(Self { scale, seed })
    }

    /// Returns the sizes of the tables.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the column S_DIST_xx, with xx = `d_id`, of a stock row of any warehouse.
    ///
    /// No transaction writes the column, so its value at the load is its value at every timestamp.
    pub fn dist_info(&self, w_id: u16, i_id: u32, d_id: u8) -> DistInfo {
        let key = [Stream::DistInfo as u64, w_id.into(), i_id.into(), d_id.into()];
        let mut info = [0; 24];
        fill(&mut keyed(self.seed, &key), &mut info);
        info
    }

    /// Returns H_DATA of payments to a district: W_NAME, four spaces and D_NAME (clause 2.5.2.2).
    ///
    /// No transaction writes the two columns, so the value is the same at every timestamp.
    pub fn history_data(&self, w_id: u16, d_id: u8) -> Text<24> {
        let mut data = Text::new();
        data.push(self.warehouse_name(w_id).as_bytes());
        data.push(b"    ");
        data.push(self.district_name(w_id, d_id).as_bytes());
        data
    }

    pub(crate) fn warehouse_name(&self, w_id: u16) -> Text<10> {
        a_string(&mut keyed(self.seed, &[Stream::Name as u64, w_id.into()]), 6, 10)
    }

    pub(crate) fn district_name(&self, w_id: u16, d_id: u8) -> Text<10> {
        a_string(&mut keyed(self.seed, &[Stream::Name as u64, w_id.into(), d_id.into()]), 6, 10)
    }
}
