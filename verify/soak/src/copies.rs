//! Copies of files by bulk multicast and by scheduled transfer: what a sender calls delivered must
//! be equal at the receivers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::program::Program;
use crate::role::{BULK_RECEIVERS, Files, Role};

/// Limit on one copy.
const COPY_MAX: Duration = Duration::from_secs(60);

/// How a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    Transfer,
    Bulk,
}

impl Means {
    pub const ALL: [Self; 2] = [Self::Transfer, Self::Bulk];

    /// Host of the sender.
    pub fn host(self) -> usize {
        Role::BulkReceiver(1).host()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Bulk => "bulk",
        }
    }

    /// Returns the arguments that send `file`.
    pub fn arguments(self, file: &str) -> String {
        match self {
            Self::Transfer => Role::transfer(file),
            Self::Bulk => Role::bulk(file),
        }
    }

    fn receivers(self) -> Vec<Role> {
        match self {
            Self::Transfer => vec![Role::TransferReceiver],
            Self::Bulk => (0..BULK_RECEIVERS).map(Role::BulkReceiver).collect(),
        }
    }
}

/// A copy that runs.
pub struct Copy {
    pub means: Means,
    sender: Program,
    file: PathBuf,
    began: Instant,
}

/// How a copy has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sender has reported success, and the copies are equal.
    Equal,
    /// The sender has reported a failure, or was killed after [`COPY_MAX`].
    Failed(String),
    /// The sender has reported success, and this copy is not equal.
    Different(String),
}

impl Copy {
    pub fn new(means: Means, sender: Program, file: PathBuf) -> Self {
        Self { means, sender, file, began: Instant::now() }
    }

    /// Returns how the copy has ended; `None` while it runs.
    pub fn poll(&mut self, files: &Files) -> Result<Option<Ended>> {
        let Some(status) = self.sender.exit_status() else {
            if self.began.elapsed() < COPY_MAX {
                return Ok(None);
            }
            return Ok(Some(Ended::Failed(format!("the sender ran for {COPY_MAX:?}"))));
        };
        if !status.success() {
            return Ok(Some(Ended::Failed(format!("the sender ended with {status}"))));
        }
        let name = self.file.file_name().context("the file has a name")?;
        let sent = std::fs::read(&self.file).context("cannot read what was sent")?;
        for receiver in self.means.receivers() {
            let path = files.received(receiver).join(name);
            let received = std::fs::read(&path).unwrap_or_default();
            if received != sent {
                let (len, expected) = (received.len(), sent.len());
                let text = format!("{}: {len} bytes of {expected}, or others", path.display());
                return Ok(Some(Ended::Different(text)));
            }
        }
        Ok(Some(Ended::Equal))
    }

    /// Removes the file and its copies.
    pub fn remove(self, files: &Files) {
        let Some(name) = self.file.file_name() else { return };
        let copies = self.means.receivers().into_iter().map(|role| files.received(role).join(name));
        for path in copies.chain([self.file.clone()]) {
            // A copy that failed may have left none.
            let _ = std::fs::remove_file(path);
        }
    }
}
