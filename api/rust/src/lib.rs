//! One big pipe for programs.
