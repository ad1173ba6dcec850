//! Tests of the wire format: golden frames, random frames, and inputs found by fuzzing.

mod golden;
mod golden_amcast;
mod golden_bulk;
mod golden_control;
mod golden_join;
mod golden_slots;
mod prop_bulk;
mod prop_control;
mod prop_frames;
mod prop_slots;
mod prop_times;
mod properties;
mod replay;
mod shared;
