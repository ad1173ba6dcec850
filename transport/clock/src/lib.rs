//! Two clocks of a real machine.
