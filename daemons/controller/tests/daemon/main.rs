//! Controllers at work, with real processes.

mod fabric;
mod rig;
mod status;
mod switch;
