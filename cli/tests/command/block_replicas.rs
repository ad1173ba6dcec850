//! `onepipe block serve --data`: a device on three replicas, whose program is killed at any time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::{Running, errors, exclusive, json, onepipe, output, wait_until};

pub const BLOCK: usize = 4_096;
pub const BLOCKS: u64 = 64;
/// Requests in flight.
const DEPTH: usize = 16;
/// Times that the program is killed.
const KILLS: usize = 6;

/// A device in a directory, whose program runs.
pub struct Device {
    directory: PathBuf,
    pub socket: String,
    running: Running,
}

impl Device {
    pub fn start(directory: &Path, size: Option<&str>) -> Device {
        let socket = directory.join("socket").to_str().expect("text").to_owned();
        let data = directory.join("data").to_str().expect("text").to_owned();
        let nbd = format!("unix:{socket}");
        let mut arguments = vec!["block", "serve", "--nbd", &nbd, "--data", &data];
        arguments.extend(size.iter().flat_map(|size| ["--size", *size]));
        let mut running = Running::start(&mut onepipe(&arguments));
        let line = running.line();
        assert!(line.ends_with("bytes, replicas 3"), "{line}");
        assert_eq!(running.line(), format!("nbdinfo 'nbd+unix:///?socket={socket}'"));
        Device { directory: directory.to_path_buf(), socket, running }
    }

    pub fn kill(mut self) {
        self.running.signal("-KILL");
        self.running.child.wait().expect("own child");
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket)
    }
}

/// A client by hand, with simple replies.
pub struct Client(UnixStream);

impl Client {
    fn open(device: &Device) -> Client {
        Client::connect(&device.socket).expect("it is served")
    }

    pub fn connect(socket: &str) -> io::Result<Client> {
        let mut client = Client(UnixStream::connect(socket)?);
        client.take(18)?;
        client.0.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        client.take(10)?;
        Ok(client)
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn request(&mut self, kind: u16, cookie: u64, block: u64, length: u32) -> io::Result<()> {
        let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((block * BLOCK as u64).to_be_bytes());
        bytes.extend(length.to_be_bytes());
        self.0.write_all(&bytes)
    }

    /// Returns the cookie of the next reply. A device of which no replica is left replies by an
    /// error.
    pub fn reply(&mut self) -> io::Result<u64> {
        let bytes = self.take(16)?;
        assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98], "it is a reply");
        if bytes[4..8] != [0; 4] {
            return Err(io::Error::other(format!("the request fails: {bytes:?}")));
        }
        Ok(u64::from_be_bytes(bytes[8..].try_into().expect("eight bytes")))
    }

    /// Writes a version of a block: the number fills it.
    pub fn write(&mut self, block: u64, version: u64) -> io::Result<()> {
        self.request(1, version, block, BLOCK as u32)?;
        self.0.write_all(&version.to_be_bytes().repeat(BLOCK / 8))
    }

    /// Reads the version of each block from `first` on, of which no half is another one.
    pub fn versions(&mut self, first: u64, count: usize) -> io::Result<Vec<u64>> {
        self.request(0, 0, first, (count * BLOCK) as u32)?;
        self.reply()?;
        let bytes = self.take(count * BLOCK)?;
        let versions = |block: &[u8]| {
            let (words, _) = block.as_chunks::<8>();
            assert!(words.iter().all(|word| word == &words[0]), "a block has one version");
            u64::from_be_bytes(words[0])
        };
        Ok(bytes.chunks(BLOCK).map(versions).collect())
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The last version that was acknowledged, or read after a start.
    least: u64,
    /// The last version that was sent.
    sent: u64,
}

/// Writes versions until the program is killed after `count` replies. A block has one write in
/// flight.
fn write_until_killed(device: Device, known: &mut [Known], version: &mut u64, count: usize) {
    let mut client = Client::open(&device);
    let mut of_version = std::collections::BTreeMap::new();
    let send = |client: &mut Client, block: u64, known: &mut [Known], version: &mut u64| {
        *version += 1;
        known[block as usize].sent = *version;
        client.write(block, *version).map(|()| *version)
    };
    for block in 0..DEPTH as u64 {
        let block = (block * 7 + *version) % BLOCKS;
        let sent = send(&mut client, block, known, version).expect("it is served");
        of_version.insert(sent, block);
    }
    for _ in 0..count {
        let acknowledged = client.reply().expect("it is served");
        let block = of_version.remove(&acknowledged).expect("it was sent");
        known[block as usize].least = acknowledged;
        let is_free = |block: &u64| of_version.values().all(|other| other != block);
        let mut free = (0..BLOCKS).map(|step| (block + 11 + step) % BLOCKS).filter(is_free);
        let block = free.next().expect("there are more blocks than requests");
        let sent = send(&mut client, block, known, version).expect("it is served");
        of_version.insert(sent, block);
    }
    device.kill();
    // What was acknowledged before the end counts, too.
    while let Ok(acknowledged) = client.reply() {
        let block = of_version.remove(&acknowledged).expect("it was sent");
        known[block as usize].least = acknowledged;
    }
}

#[test]
fn killed_program_loses_no_acknowledged_write() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let size = format!("{}", BLOCKS as usize * BLOCK);
    let mut known = vec![Known::default(); BLOCKS as usize];
    let mut version = 0;
    // The image of a replica may be on another disk.
    let (other, data) = (directory.path().join("other"), directory.path().join("data"));
    let link = data.join("image-1");
    for made in [&other, &data] {
        std::fs::create_dir(made).expect("a directory");
    }
    std::os::unix::fs::symlink(&other, &link).expect("a link");
    for kill in 0..KILLS {
        let device = Device::start(directory.path(), (kill == 0).then_some(&size));
        check(&mut Client::open(&device), &mut known);
        write_until_killed(device, &mut known, &mut version, 1 + 37 * kill);
    }
    let device = Device::start(directory.path(), None);
    check(&mut Client::open(&device), &mut known);
    let data = device.directory.join("data").to_str().expect("text").to_owned();
    let scrubbed = output(&["block", "scrub", "--data", &data, "--json"]);
    assert_eq!(json(&scrubbed)["damaged"], 0, "{}", errors(&scrubbed));
    let replaced = output(&["block", "replace", "--data", &data, "--replica", "1"]);
    assert!(replaced.status.success(), "{}", errors(&replaced));
    check(&mut Client::open(&device), &mut known);
    assert!(link.is_symlink() && other.join("blocks").exists(), "it is filled where it was");
    let wrong = errors(&output(&["block", "replace", "--data", &data, "--replica", "3"]));
    assert!(wrong.contains("replica 3 does not exist"), "{wrong}");
    let scrubbed = output(&["block", "scrub", "--data", &data]);
    let line = String::from_utf8_lossy(&scrubbed.stdout).into_owned();
    assert_eq!(line, "64 blocks of 3 replicas: 0 damaged copies, 0 repaired, 0 blocks lost\n");
    device.kill();
    let stopped = errors(&output(&["block", "scrub", "--data", &data]));
    assert!(stopped.contains("no program serves"), "{stopped}");
    let serve = ["block", "serve", "--data", &data, "--size", "1GiB"];
    let resized = errors(&output(&serve));
    assert!(resized.contains("a device cannot be resized"), "{resized}");
}

/// Checks that no acknowledged write is lost, and no version goes back.
fn check(client: &mut Client, known: &mut [Known]) {
    // Each replica answers in turn.
    for _ in 0..3 {
        let versions = client.versions(0, BLOCKS as usize).expect("it is served");
        for (block, (found, known)) in versions.into_iter().zip(&mut *known).enumerate() {
            let Known { least, sent } = *known;
            assert!((least..=sent).contains(&found), "block {block}: {least} to {sent}, {found}");
            known.least = found;
        }
    }
}

/// Returns whether a program can be run, and says so if not.
fn has(program: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("{program} is not installed: without this test");
    }
    is_there
}

fn run(program: &str, arguments: &[&str]) -> std::process::Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it was probed")
}

/// A file system that the kernel has mounted from a device.
struct Mounted {
    fuse: Child,
    file: PathBuf,
    root: PathBuf,
}

impl Mounted {
    /// Returns `None` where mounting is not allowed.
    fn mount(device: &Device, directory: &Path) -> Option<Mounted> {
        let [fuse_dir, root] = ["fuse", "root"].map(|name| directory.join(name));
        for path in [&fuse_dir, &root] {
            std::fs::create_dir_all(path).expect("the directory is writable");
        }
        let file = fuse_dir.join("disk");
        std::fs::write(&file, "").ok();
        let fuse = Command::new("nbdfuse").arg(&file).arg(device.uri()).spawn();
        let fuse = fuse.expect("it was probed");
        let mounted = Mounted { fuse, file, root };
        let is_there = || std::fs::metadata(&mounted.file).is_ok_and(|meta| meta.len() > 0);
        let limit = std::time::Instant::now() + Duration::from_secs(20);
        while !is_there() {
            if std::time::Instant::now() > limit {
                eprintln!("FUSE is not allowed: without this test");
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let [file, root] = [&mounted.file, &mounted.root].map(|path| path.to_str().expect("text"));
        let output = run("mount", &["-o", "loop", "-t", "ext4", file, root]);
        if !output.status.success() {
            eprintln!("mounting is not allowed: {}", errors(&output));
            return None;
        }
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let [file, root] = [&self.file, &self.root].map(|path| path.to_str().expect("text"));
        run("umount", &[root]);
        run("umount", &["--lazy", root]);
        run("umount", &["--lazy", file]);
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
    }
}

#[test]
fn mounted_file_system_survives_kills() {
    let tools = ["nbdfuse", "nbdcopy", "mkfs.ext4", "e2fsck", "debugfs", "mount"];
    if !tools.iter().all(|tool| has(tool)) {
        return;
    }
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let image = path("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("free space");
    assert!(run("mkfs.ext4", &["-q", "-b", "4096", &image]).status.success());
    let device = Device::start(directory.path(), Some("32MiB"));
    let copied = run("nbdcopy", &["--flush", &image, &device.uri()]);
    assert!(copied.status.success(), "{}", errors(&copied));
    let Some(mounted) = Mounted::mount(&device, directory.path()) else { return };
    // Files that are synchronised one after the other; the program is killed among them.
    let mut synced = Vec::new();
    let pid = device.running.pid().to_string();
    let mut killer = None;
    for number in 0..400 {
        if number == 40 {
            let kill = format!("sleep 0.05; kill -KILL {pid}");
            killer = Command::new("sh").args(["-c", &kill]).spawn().ok();
        }
        let text = format!("{number}\n").repeat(1_000);
        let written = std::fs::File::create(mounted.root.join(number.to_string()))
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        if written.is_err() {
            break;
        }
        synced.push((number, text));
    }
    wait_until("the program was killed", || {
        run("kill", &["-0", &pid]).status.code() != Some(0) || {
            // A killed child remains as a zombie until it is awaited.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "))
        }
    });
    killer.expect("a shell").wait().expect("own child");
    drop(mounted);
    device.kill();
    assert!(synced.len() >= 40, "files were written before the kill");

    let device = Device::start(directory.path(), None);
    let copy = path("copy");
    let copied = run("nbdcopy", &[&device.uri(), &copy]);
    assert!(copied.status.success(), "{}", errors(&copied));
    // Replays the journal; 1 says that something was repaired.
    let replayed = run("e2fsck", &["-p", &copy]);
    assert!(replayed.status.code().is_some_and(|code| code <= 1), "{replayed:?}");
    let checked = run("e2fsck", &["-fn", &copy]);
    assert!(checked.status.success(), "{checked:?}");
    for (number, text) in synced {
        let file = run("debugfs", &["-R", &format!("cat /{number}"), &copy]);
        assert!(file.stdout == text.as_bytes(), "file {number} was synchronised");
    }
}
