//! The members of the workspace, from `cargo metadata`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A member of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The package's name.
    pub name: String,
    /// Its folder, relative to the root, with forward slashes.
    pub folder: String,
    /// The other members that its manifest names.
    pub imports: Vec<Import>,
}

/// One member's dependency on another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The imported member's folder, relative to the root.
    pub folder: String,
    /// Whether it is a dev-dependency.
    pub is_dev: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    kind: Option<String>,
    path: Option<String>,
}

/// Returns the members of the workspace at `root`, sorted by folder.
pub fn members(root: &Path) -> Result<Vec<Member>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed:\n{stderr}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;

    let relative = |path: &str| -> String {
        let path = Path::new(path);
        path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
    };
    let mut members: Vec<Member> = metadata
        .packages
        .into_iter()
        .map(|package| {
            let manifest = relative(&package.manifest_path);
            let imports = package.dependencies.iter().filter_map(|dependency| {
                let folder = relative(dependency.path.as_ref()?);
                Some(Import { folder, is_dev: dependency.kind.as_deref() == Some("dev") })
            });
            Member {
                name: package.name,
                folder: manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_string(),
                imports: imports.collect(),
            }
        })
        .collect();
    members.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(members)
}
