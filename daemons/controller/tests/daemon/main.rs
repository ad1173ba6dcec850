//! Controllers at work, with real processes.

mod fabric;
mod harness;
mod segment;
mod status;
mod switch;
