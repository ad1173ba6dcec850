//! Machines composed into hosts.
