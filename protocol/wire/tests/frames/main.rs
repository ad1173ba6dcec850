//! The bytes of frames: golden ones, drawn ones, and those that a fuzzer has found.

mod golden;
mod golden_amcast;
mod golden_bulk;
mod golden_control;
mod golden_slots;
mod prop_bulk;
mod prop_control;
mod prop_frames;
mod prop_slots;
mod prop_times;
mod properties;
mod replay;
