//! A device in a file of a temporary folder, with its server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onepipe_block_server::{
    Address, Blocks, FileBlocks, FileOptions, Server, ServerOptions, serve,
};

pub const MIB: u64 = 1 << 20;

/// A served device.
pub struct Fixture {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

impl Fixture {
    /// Serves a new file at a Unix socket.
    pub fn new(size: u64) -> Fixture {
        Fixture::with(size, ServerOptions::default())
    }

    pub fn with(size: u64, options: ServerOptions) -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = FileOptions { size: Some(size), ..FileOptions::default() };
        let blocks = FileBlocks::open(&dir.path().join("device"), file).expect("a new file");
        Fixture::serve(Arc::new(blocks), options, dir)
    }

    pub fn serve(
        blocks: Arc<dyn Blocks>,
        options: ServerOptions,
        dir: tempfile::TempDir,
    ) -> Fixture {
        let address = Address::Unix(dir.path().join("socket"));
        let server = serve(&address, blocks, options).expect("the address is free");
        Fixture { server, dir }
    }

    pub fn uri(&self) -> String {
        self.server.address().to_string()
    }

    /// Returns a path in the temporary folder.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("it is text").to_string()
    }

    /// Returns the content of the device's file.
    pub fn content(&self) -> Vec<u8> {
        std::fs::read(self.path("device")).expect("it is readable")
    }

    pub fn connect(&self) -> UnixStream {
        let Address::Unix(path) = self.server.address() else { panic!("it has a Unix socket") };
        UnixStream::connect(path).expect("the server accepts")
    }
}

/// Serves a new file at a TCP port.
pub fn serve_tcp(size: u64) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = FileOptions { size: Some(size), ..FileOptions::default() };
    let blocks = FileBlocks::open(&dir.path().join("device"), file).expect("a new file");
    let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let options = ServerOptions { export_name: "disk".into(), ..ServerOptions::default() };
    (serve(&address, Arc::new(blocks), options).expect("a port is free"), dir)
}

/// Waits for a condition, with a limit that only a hang reaches.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "waits for {what}");
        std::thread::yield_now();
    }
}

/// Returns bytes that look random, and differ from seed to seed.
pub fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        // The generator of Knuth's MMIX.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Writes a file that the test needs.
pub fn write(path: &str, bytes: &[u8]) -> PathBuf {
    std::fs::write(path, bytes).expect("the folder is writable");
    PathBuf::from(path)
}

/// A client by hand, with simple replies.
pub struct RawClient<S>(pub S);

impl<S: Read + Write> RawClient<S> {
    /// Chooses the export.
    pub fn open(stream: S) -> RawClient<S> {
        let mut client = RawClient(stream);
        client.take(18);
        client.send(&[0, 0, 0, 3]);
        client.send(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        client.take(10);
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("the server sends");
        bytes
    }

    /// Takes a simple reply. Returns its error and its cookie.
    pub fn reply(&mut self) -> (u32, u64) {
        let bytes = self.take(16);
        assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98]);
        let error = bytes[4..8].try_into().expect("four bytes");
        let cookie = bytes[8..].try_into().expect("eight bytes");
        (u32::from_be_bytes(error), u64::from_be_bytes(cookie))
    }

    /// Returns whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        // A closed connection ends, or is reset if bytes were on the way.
        !matches!(self.0.read(&mut [0; 1]), Ok(1))
    }
}

/// Returns the header of a request.
pub fn header(kind: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Connects over TCP.
pub fn connect_tcp(server: &Server) -> TcpStream {
    let Address::Tcp(address) = server.address() else { panic!("it has a TCP port") };
    TcpStream::connect(address).expect("the server accepts")
}
