//! Destination of received bytes: a file is renamed to its name when it is complete.

use std::fs::{self, File};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use anyhow::{Context, Result, bail};
use onepipe_transport_driver::Doorbell;

use crate::incoming_file::IncomingFile;
use crate::remote_text::{check_file_name, check_name};

/// Events of the writer thread.
#[derive(Debug)]
pub enum WriteEvent {
    /// Total bytes written.
    Bytes(u64),
    /// The file is complete and has its name.
    Complete,
    /// Writing failed.
    Failed(String),
}

enum WriteCommand {
    Bytes(Vec<u8>),
    Finish { digest: String },
}

/// Writes in a separate thread, because disks and pipes may block.
#[derive(Debug)]
pub struct Target {
    pub path: PathBuf,
    commands: Sender<WriteCommand>,
    /// The partial file, removed on drop.
    _part: Option<PartialFile>,
}

/// A partial file, removed on drop.
#[derive(Debug)]
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Fails when the file was renamed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Where received files go.
#[derive(Debug)]
pub enum Destination {
    Stdout,
    Folder(PathBuf),
    /// A file, a pipe or a device.
    Path(PathBuf),
}

impl Destination {
    /// Interprets the path `out`. Creates a directory where one is needed, and rejects paths that
    /// could not be written when the data has arrived.
    pub fn prepare(out: &Path, force: bool, needs_folder: bool) -> Result<Self> {
        if super::is_stdio(out) {
            return Ok(Self::Stdout);
        }
        let out_name = out.display();
        let needs_folder = needs_folder || out.as_os_str().as_encoded_bytes().ends_with(b"/");
        match fs::metadata(out).ok() {
            Some(metadata) if metadata.is_dir() => return Ok(Self::Folder(out.to_owned())),
            Some(metadata) if metadata.is_file() && needs_folder => {
                bail!("{out_name} is not a directory: name one with --out")
            }
            Some(metadata) if metadata.is_file() && !force => {
                bail!("{out_name} already exists (--force replaces it)")
            }
            Some(_) => {}
            None if needs_folder => {
                fs::create_dir_all(out)
                    .with_context(|| format!("cannot create the directory {out_name}"))?;
                return Ok(Self::Folder(out.to_owned()));
            }
            None => {
                let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
                if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                    bail!(
                        "cannot write {out_name}: there is no directory {}, create it first",
                        parent.display()
                    );
                }
            }
        }
        Ok(Self::Path(out.to_owned()))
    }

    /// Returns the path of a file with this name; `-` is standard output.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        match self {
            Self::Stdout => Ok("-".into()),
            Self::Path(path) => Ok(path.clone()),
            Self::Folder(folder) => {
                check_file_name(name)?;
                Ok(folder.join(name))
            }
        }
    }

    /// Whether a pipe or a device at the path of a file may be written: the user has named it.
    pub fn may_be_device(&self) -> bool {
        matches!(self, Self::Path(_))
    }
}

impl Target {
    /// Opens the target. The writer thread calls `notify` for each event.
    pub fn open(
        path: PathBuf,
        (force, may_be_device): (bool, bool),
        doorbell: Doorbell,
        notify: impl Fn(WriteEvent) + Send + 'static,
    ) -> Result<Self> {
        let is_device =
            may_be_device && fs::metadata(&path).is_ok_and(|existing| !existing.is_file());
        let (sink, part) = if super::is_stdio(&path) {
            (Sink::Stdout, None)
        } else if is_device {
            (Sink::Other(path.clone()), None)
        } else {
            let suffix = format!(".onepipe-part-{}", std::process::id());
            let incoming = IncomingFile::open(path.clone(), &suffix, force)?;
            let part = incoming.part_path();
            incoming
                .file
                .set_len(0)
                .with_context(|| format!("cannot truncate {}", part.display()))?;
            (Sink::Partial(incoming), Some(PartialFile(part)))
        };
        let (commands, queue) = channel();
        let thread = Builder::new().name("write".to_owned());
        let thread = thread.spawn(move || {
            let notify = |event| {
                notify(event);
                doorbell.ring();
            };
            if let Err(error) = run_writer(sink, queue.into_iter(), &notify) {
                notify(WriteEvent::Failed(format!("{error:#}")));
            }
        });
        thread.context("cannot start a thread")?;
        Ok(Self { path, commands, _part: part })
    }

    /// Appends bytes.
    pub fn write(&self, bytes: Vec<u8>) {
        // Fails after a write error, which was reported.
        let _ = self.commands.send(WriteCommand::Bytes(bytes));
    }

    /// Ends the file, which is complete if it has this digest.
    pub fn finish(&self, digest: String) {
        let _ = self.commands.send(WriteCommand::Finish { digest });
    }
}

/// What the writer thread writes to.
enum Sink {
    Stdout,
    Partial(IncomingFile),
    /// A pipe or a device, opened by the writer thread because opening may block.
    Other(PathBuf),
}

/// Runs the writer thread: executes the commands in order, and notifies of each.
fn run_writer(
    sink: Sink,
    queue: impl Iterator<Item = WriteCommand>,
    notify: &impl Fn(WriteEvent),
) -> Result<()> {
    let open = |path: &Path| {
        let open = File::options().write(true).open(path);
        open.with_context(|| format!("cannot open {}", path.display()))
    };
    let (mut to, target_name): (Box<dyn Write>, String) = match &sink {
        Sink::Stdout => (Box::new(stdout()), "standard output".to_owned()),
        Sink::Partial(incoming) => {
            (Box::new(&incoming.file), incoming.part_path().display().to_string())
        }
        Sink::Other(path) => (Box::new(open(path)?), path.display().to_string()),
    };
    let (mut bytes, mut hasher) = (0, blake3::Hasher::new());
    let write_context = || format!("cannot write {target_name}");
    for command in queue {
        match command {
            WriteCommand::Bytes(chunk) => {
                to.write_all(&chunk).with_context(write_context)?;
                if matches!(sink, Sink::Stdout) {
                    to.flush().with_context(write_context)?;
                }
                hasher.update(&chunk);
                bytes += chunk.len() as u64;
                notify(WriteEvent::Bytes(bytes));
            }
            WriteCommand::Finish { digest } => {
                to.flush().with_context(write_context)?;
                let actual = hasher.finalize().to_hex().to_string();
                if actual != digest {
                    bail!("digest mismatch: received {actual}, expected {digest}");
                }
                drop(to);
                if let Sink::Partial(incoming) = &sink {
                    incoming.finish()?;
                }
                notify(WriteEvent::Complete);
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unsafe_file_names() {
        let folder = Destination::Folder("in".into());
        assert_eq!(folder.path("a b.tar").expect("valid"), Path::new("in/a b.tar"));
        for name in ["", ".", "..", "../x", "/x", "x/y", "x/", "x\ny", "\x1b[2J", ".x"] {
            assert!(folder.path(name).is_err(), "{name:?}");
        }
        for out in [Destination::Stdout, Destination::Path("x".into())] {
            assert!(out.path("a/b").is_ok() && out.path("\x1b[2J").is_err());
        }
    }
}
