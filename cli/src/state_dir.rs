//! The default file of a store: in the state directory of the platform.

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A store without `--store`: of a service, or of a user.
#[derive(Debug)]
pub struct DefaultStore<'a> {
    /// What the store belongs to, `controller` or `coordinator`.
    pub role: &'a str,
    /// What distinguishes stores of one role on one machine: the fabric, or an address.
    pub of: &'a str,
}

impl DefaultStore<'_> {
    /// Returns the path of the file. Earlier versions used a file in the current directory: if
    /// there is one, another store would begin without the decisions in it.
    ///
    /// # Errors
    /// With advice: if there is such a file, or no state directory.
    pub fn path(&self) -> Result<PathBuf> {
        let is_root = rustix::process::geteuid().is_root();
        let folder = state_dir(|name| env::var_os(name), is_root).context(
            "there is no folder for the store: set HOME or XDG_STATE_HOME, or give --store FILE",
        )?;
        let Self { role, of } = self;
        let path = folder.join(format!("{role}-{}.redb", file_name_part(of)));
        let earlier = format!("onepipe-{role}.redb");
        ensure!(
            !Path::new(&earlier).exists(),
            "{earlier} in this folder is a store of an earlier version, whose default it was: keep it \
             with --store {earlier}, or move it to {}",
            path.display()
        );
        Ok(path)
    }
}

/// Creates the folder of a default store, for this user alone.
///
/// # Errors
/// Errors of the system, with the folder.
pub fn create_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().context("the path of the store has no folder")?;
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.with_context(|| {
        format!("cannot create {} for the store: name a file with --store", folder.display())
    })
}

/// Returns the folder for state of this program: `$STATE_DIRECTORY` of a systemd service,
/// `$XDG_STATE_HOME/onepipe`, `/var/lib/onepipe` for root, or `~/.local/state/onepipe`.
fn state_dir(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(paths) = path("STATE_DIRECTORY") {
        // One path for each directory of the service, separated by colons.
        return env::split_paths(&paths).next();
    }
    // The XDG specification has programs ignore a relative path.
    if let Some(home) = path("XDG_STATE_HOME").filter(|home| home.is_absolute()) {
        return Some(home.join("onepipe"));
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/onepipe"));
    }
    path("HOME").map(|home| home.join(".local/state/onepipe"))
}

/// Replaces what does not belong into the name of a file.
fn file_name_part(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    text.chars().map(|character| if is_plain(character) { character } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_directory_follows_the_platform() {
        let dir = |variables: &[(&str, &str)], is_root| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            state_dir(variable, is_root).map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/ann");
        let xdg = ("XDG_STATE_HOME", "/state");
        let service = ("STATE_DIRECTORY", "/var/lib/lab:/var/lib/other");
        assert_eq!(dir(&[home, xdg, service], true).as_deref(), Some("/var/lib/lab"));
        assert_eq!(dir(&[home, xdg], true).as_deref(), Some("/state/onepipe"));
        assert_eq!(dir(&[home], true).as_deref(), Some("/var/lib/onepipe"));
        assert_eq!(dir(&[home], false).as_deref(), Some("/home/ann/.local/state/onepipe"));
        let relative = ("XDG_STATE_HOME", "state");
        assert_eq!(
            dir(&[home, relative], false).as_deref(),
            Some("/home/ann/.local/state/onepipe")
        );
        assert_eq!(dir(&[("HOME", "")], false), None);
        assert_eq!(file_name_part("[::1]:4410"), "---1--4410");
    }
}
