//! UDP as a link.
