//! Where bytes go: a file gets its name when it is whole.

use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use anyhow::{Context, Result, bail};
use onepipe_transport_driver::Doorbell;

/// What the thread that writes has to tell.
#[derive(Debug)]
pub enum Wrote {
    /// So many bytes are written.
    Bytes(u64),
    /// All are, and it has its name.
    Whole,
    /// It cannot be.
    Failed(String),
}

enum Work {
    Bytes(Vec<u8>),
    Finish { digest: String },
}

/// What is written, in a thread of its own: it may take long, and a pipe may take for ever.
#[derive(Debug)]
pub struct Target {
    pub path: PathBuf,
    work: Sender<Work>,
    /// The part, removed with it.
    _part: Option<Part>,
}

/// A file that is not whole: it does not outlive this.
#[derive(Debug)]
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // There is none any more when it got its name.
        let _ = fs::remove_file(&self.0);
    }
}

/// Where files go.
#[derive(Debug)]
pub enum Out {
    Standard,
    Folder(PathBuf),
    /// A file, a pipe or a device.
    One(PathBuf),
}

impl Out {
    /// What this path means. A folder that is needed is made; and what could not be written to when
    /// all has come is refused.
    pub fn prepare(out: &Path, force: bool, is_for_many: bool) -> Result<Self> {
        if super::is_standard(out) {
            return Ok(Self::Standard);
        }
        let name = out.display();
        let is_for_many = is_for_many || out.as_os_str().as_encoded_bytes().ends_with(b"/");
        match fs::metadata(out).ok() {
            Some(found) if found.is_dir() => return Ok(Self::Folder(out.to_owned())),
            Some(found) if found.is_file() && is_for_many => bail!("{name} is no folder"),
            Some(found) if found.is_file() && !force => {
                bail!("{name} is there already (--force replaces it)")
            }
            Some(_) => {}
            None if is_for_many => {
                fs::create_dir_all(out)
                    .with_context(|| format!("cannot make the folder {name}"))?;
                return Ok(Self::Folder(out.to_owned()));
            }
            None => {
                let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
                if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                    bail!("cannot write {name}: there is no folder {}", parent.display());
                }
            }
        }
        Ok(Self::One(out.to_owned()))
    }

    /// Where a file of this name goes; `-` is standard output.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        super::talk::check_name(name)?;
        let folder = match self {
            Self::Standard => return Ok("-".into()),
            Self::One(path) => return Ok(path.clone()),
            Self::Folder(folder) => folder,
        };
        let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name);
        if !is_plain {
            bail!("{name:?} is no name of a file");
        }
        Ok(folder.join(name))
    }
}

impl Target {
    /// Opens it. `tell` hears, in another thread, what becomes of it.
    pub fn open(
        path: PathBuf,
        force: bool,
        bell: Doorbell,
        tell: impl Fn(Wrote) + Send + 'static,
    ) -> Result<Self> {
        let found = fs::metadata(&path).ok();
        let is_plain = found.as_ref().is_none_or(fs::Metadata::is_file);
        let (sink, part) = if super::is_standard(&path) {
            (Sink::Standard, None)
        } else if is_plain {
            if found.is_some() && !force {
                bail!("{} is there already (--force replaces it)", path.display());
            }
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".onepipe-part-{}", std::process::id()));
            let part = path.with_file_name(name);
            let file = File::create(&part);
            let file = file.with_context(|| format!("cannot open {}", part.display()))?;
            (Sink::Part { file, part: part.clone(), path: path.clone(), force }, Some(Part(part)))
        } else {
            (Sink::Other(path.clone()), None)
        };
        let (work, works) = channel();
        let thread = Builder::new().name("write".to_owned());
        let thread = thread.spawn(move || {
            let tell = |wrote| {
                tell(wrote);
                bell.ring();
            };
            if let Err(why) = write(sink, works.into_iter(), &tell) {
                tell(Wrote::Failed(format!("{why:#}")));
            }
        });
        thread.context("cannot start a thread")?;
        Ok(Self { path, work, _part: part })
    }

    /// Has these bytes written behind the others.
    pub fn write(&self, bytes: Vec<u8>) {
        // Who does not listen has told why.
        let _ = self.work.send(Work::Bytes(bytes));
    }

    /// There are no more. It is whole if this is its digest.
    pub fn finish(&self, digest: String) {
        let _ = self.work.send(Work::Finish { digest });
    }
}

enum Sink {
    Standard,
    Part {
        file: File,
        part: PathBuf,
        path: PathBuf,
        force: bool,
    },
    /// A pipe, or a device: it is opened by who writes, as that may wait for who reads.
    Other(PathBuf),
}

fn write(sink: Sink, works: impl Iterator<Item = Work>, tell: &impl Fn(Wrote)) -> Result<()> {
    let open = |path: &Path| {
        let open = File::options().write(true).open(path);
        open.with_context(|| format!("cannot open {}", path.display()))
    };
    let (mut to, place): (Box<dyn Write>, String) = match &sink {
        Sink::Standard => (Box::new(stdout()), "standard output".to_owned()),
        Sink::Part { file, part, .. } => (Box::new(file), part.display().to_string()),
        Sink::Other(path) => (Box::new(open(path)?), path.display().to_string()),
    };
    let (mut bytes, mut hasher) = (0, blake3::Hasher::new());
    let cannot = || format!("cannot write {place}");
    for work in works {
        match work {
            Work::Bytes(chunk) => {
                to.write_all(&chunk).with_context(cannot)?;
                if matches!(sink, Sink::Standard) {
                    to.flush().with_context(cannot)?;
                }
                hasher.update(&chunk);
                bytes += chunk.len() as u64;
                tell(Wrote::Bytes(bytes));
            }
            Work::Finish { digest } => {
                to.flush().with_context(cannot)?;
                let came = hasher.finalize().to_hex().to_string();
                if came != digest {
                    bail!("what has come is not what was sent: {came} in place of {digest}");
                }
                drop(to);
                give_name(&sink).with_context(cannot)?;
                tell(Wrote::Whole);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// It is whole.
fn give_name(sink: &Sink) -> Result<()> {
    let Sink::Part { file, part, path, force } = sink else { return Ok(()) };
    file.sync_all()?;
    if !force && path.exists() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    fs::rename(part, path).with_context(|| format!("cannot name {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_process_stays_in_the_folder_and_commands_no_terminal() {
        let folder = Out::Folder("in".into());
        assert_eq!(folder.path("a b.tar").expect("it is one"), Path::new("in/a b.tar"));
        for name in ["", ".", "..", "../x", "/x", "x/y", "x/", "x\ny", "\x1b[2J"] {
            assert!(folder.path(name).is_err(), "{name:?}");
        }
        for out in [Out::Standard, Out::One("x".into())] {
            assert!(out.path("a/b").is_ok() && out.path("\x1b[2J").is_err());
        }
    }
}
