//! The Java program of the rivals: built by Maven when it is first needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The files of the project.
const SOURCES: [(&str, &str); 8] = [
    ("pom.xml", include_str!("../../../peers/pom.xml")),
    (
        "src/main/java/onepipe/peers/AeronTransport.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/AeronTransport.java"),
    ),
    (
        "src/main/java/onepipe/peers/Deliveries.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/Deliveries.java"),
    ),
    (
        "src/main/java/onepipe/peers/JGroupsTransport.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/JGroupsTransport.java"),
    ),
    (
        "src/main/java/onepipe/peers/Job.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/Job.java"),
    ),
    (
        "src/main/java/onepipe/peers/Latencies.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/Latencies.java"),
    ),
    (
        "src/main/java/onepipe/peers/Main.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/Main.java"),
    ),
    (
        "src/main/java/onepipe/peers/Transport.java",
        include_str!("../../../peers/src/main/java/onepipe/peers/Transport.java"),
    ),
];

/// Name of the file that holds the sources of the last complete build.
const STAMP: &str = "built";

/// The built program.
#[derive(Debug)]
pub(super) struct Project {
    folder: PathBuf,
}

impl Project {
    /// Returns the program, and builds it if its sources have changed since the last build; `None`:
    /// Java or Maven is missing, which has been reported.
    pub(super) fn prepare() -> Result<Option<Self>> {
        let project = Self { folder: cache_folder()? };
        let mut tools = vec!["java"];
        if !project.is_built() {
            tools.push("mvn");
        }
        let missing: Vec<&str> = tools.into_iter().filter(|tool| !is_installed(tool)).collect();
        if !missing.is_empty() {
            eprintln!(
                "bench peers: skipping all rivals, as {} is not on the PATH; they need Java 17 or \
                 later and Maven (apt-get install default-jdk-headless maven)",
                missing.join(" and ")
            );
            return Ok(None);
        }
        if !project.is_built() {
            project.build()?;
        }
        Ok(Some(project))
    }

    /// Returns the command of a process with these arguments.
    pub(super) fn command(&self, arguments: &[String]) -> Vec<String> {
        let build = self.folder.join("build").display().to_string();
        // Aeron's buffers need access to this package.
        let java = ["java", "--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED", "-cp"];
        let class_path = format!("{build}/peers.jar:{build}/lib/*");
        let java = java.map(str::to_string).into_iter();
        java.chain([class_path, "onepipe.peers.Main".to_string()])
            .chain(arguments.iter().cloned())
            .collect()
    }

    fn is_built(&self) -> bool {
        let stamp = std::fs::read_to_string(self.folder.join(STAMP));
        stamp.is_ok_and(|stamp| stamp == sources())
    }

    fn build(&self) -> Result<()> {
        eprintln!("bench peers: building the rivals in {} with Maven", self.folder.display());
        // A source that was removed or renamed must not be compiled.
        for stale in ["src", "build"] {
            let _ = std::fs::remove_dir_all(self.folder.join(stale));
        }
        for (name, text) in SOURCES {
            write(&self.folder.join(name), text)?;
        }
        let status = Command::new("mvn")
            .args(["-q", "-B", "package"])
            .current_dir(&self.folder)
            // Standard output is for the report.
            .stdout(Stdio::from(std::io::stderr()))
            .status()
            .context("starting mvn")?;
        ensure!(
            status.success(),
            "mvn -q package failed in {}: see its output above; it needs a JDK of version 17 or \
             later and, for the first build, access to Maven Central",
            self.folder.display()
        );
        write(&self.folder.join(STAMP), &sources())
    }
}

/// Returns all sources as one text.
fn sources() -> String {
    SOURCES.iter().map(|(name, text)| format!("{name}\n{text}")).collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Returns `peers` in Cargo's target folder that this program lies in; for an installed program,
/// in the user's cache.
fn cache_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    // Cargo marks its target folder with this file.
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    if let Some(target) = target {
        return Ok(target.join("peers"));
    }
    let home = std::env::var_os("HOME").context("HOME is not set: it holds the built rivals")?;
    Ok(Path::new(&home).join(".cache/onepipe/peers"))
}

/// Returns whether a tool can be started.
fn is_installed(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_every_source_of_the_project() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let java = folder.join("src/main/java/onepipe/peers");
        let files = std::fs::read_dir(java).expect("the sources lie there");
        let mut names: Vec<String> = files
            .map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned())
            .map(|name| format!("src/main/java/onepipe/peers/{name}"))
            .collect();
        names.push("pom.xml".to_string());
        names.sort_unstable();
        let mut known = SOURCES.map(|(name, _)| name);
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn missing_tool_is_not_installed() {
        assert!(!is_installed("onepipe-no-such-tool"));
    }

    #[test]
    fn changed_source_is_built_again() {
        let name = format!("onepipe-peers-test-{}", std::process::id());
        let project = Project { folder: std::env::temp_dir().join(name) };
        assert!(!project.is_built());
        write(&project.folder.join(STAMP), &sources()).expect("a temporary folder");
        assert!(project.is_built());
        write(&project.folder.join(STAMP), "other sources").expect("a temporary folder");
        assert!(!project.is_built());
        std::fs::remove_dir_all(&project.folder).expect("it was created above");
    }
}
