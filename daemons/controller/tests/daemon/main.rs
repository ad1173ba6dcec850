//! Controllers at work, with real processes.

mod fabric;
mod rig;
mod segment;
mod status;
mod switch;
