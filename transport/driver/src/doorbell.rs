//! Wakes a blocked driver from another thread.

use std::fmt;
use std::sync::Arc;

/// Ends a transport's wait.
pub trait Waker: Send + Sync {
    /// Makes the current wait, or else the next one, return at once.
    fn ring(&self);
}

/// A cloneable handle that wakes a blocked driver from any thread.
#[derive(Clone)]
pub struct Doorbell(Arc<dyn Waker>);

impl Doorbell {
    /// Makes a handle to `waker`.
    pub fn new(waker: Arc<dyn Waker>) -> Self {
        Self(waker)
    }

    /// Makes the current wait, or else the next one, return at once.
    pub fn ring(&self) {
        self.0.ring();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doorbell")
    }
}
