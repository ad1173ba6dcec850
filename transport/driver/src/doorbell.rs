//! How another thread wakes a driver that blocks.

use std::fmt;
use std::sync::Arc;

/// What a transport rings to wake itself.
pub trait Waker: Send + Sync {
    /// Makes the wait that is under way, or else the next one, return at once.
    fn ring(&self);
}

/// A handle that wakes a blocked driver, from any thread.
#[derive(Clone)]
pub struct Doorbell(Arc<dyn Waker>);

impl Doorbell {
    /// A handle to `waker`.
    pub fn new(waker: Arc<dyn Waker>) -> Self {
        Self(waker)
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
