//! How another thread wakes a driver that blocks.

use std::fmt;
use std::sync::Arc;

/// What a transport rings to wake itself.
pub trait Bell: Send + Sync {
    /// Makes the wait that is under way, or else the next one, return at once.
    fn ring(&self);
}

/// A handle that wakes a blocked driver, from any thread.
#[derive(Clone)]
pub struct Doorbell(Arc<dyn Bell>);

impl Doorbell {
    /// A handle to `bell`.
    pub fn new(bell: Arc<dyn Bell>) -> Self {
        Self(bell)
    }

    /// Makes the wait that is under way, or else the next one, return at once.
    pub fn ring(&self) {
        self.0.ring();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doorbell")
    }
}
