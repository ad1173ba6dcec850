//! Where a process is found, by however many groups.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::hello::{Caller, LEN, Role};
use crate::keeper::Keeper;
use crate::standing::{Register, Standing};

/// Whoever has not said so soon who he is, is nobody.
const PATIENCE: Duration = Duration::from_secs(5);
/// Those who have said so wait so long to be asked in.
const KEPT: Duration = Duration::from_secs(60);
/// Connections that wait here, at most; more wait in the system.
const WAITING_MAX: usize = 1024;
/// How often the door is looked at while somebody waits there.
const LOOK: Duration = Duration::from_micros(500);

/// A listening socket that sorts who comes by what he wants. Clones are the same door.
///
/// Whoever asks how a group stands is answered by a thread of its own, which sleeps until somebody
/// comes: so it is told, too, where no group is at work, or nobody drives one.
#[derive(Clone, Debug)]
pub struct Door {
    address: SocketAddr,
    hall: Arc<Mutex<Hall>>,
    /// Goes with the last of its clones.
    _keeper: Arc<Keeper>,
}

#[derive(Debug)]
pub(crate) struct Hall {
    listener: TcpListener,
    strangers: Vec<Stranger>,
    callers: Vec<(Caller, TcpStream, Instant)>,
    register: Register,
}

/// Somebody who has not said all of who he is.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    bytes: [u8; LEN],
    have: usize,
    since: Instant,
}

impl Door {
    /// Opens one at an address; its port may be 0 for any.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (strangers, callers, register) = (Vec::new(), Vec::new(), Register::default());
        let outside = listener.try_clone()?;
        let hall = Arc::new(Mutex::new(Hall { listener, strangers, callers, register }));
        let keeper = Arc::new(Keeper::new(outside, Arc::clone(&hall))?);
        Ok(Self { address, hall, _keeper: keeper })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Goes to the door of another process as a guest: what is said there is the application's
    /// affair.
    ///
    /// # Errors
    /// What the system says; nobody has opened within `patience`.
    pub fn visit(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        Caller { role: Role::Guest, group: 0, from: 0, to: 0 }.say(&stream)?;
        Ok(stream)
    }

    /// How a group stands, as far as it has met here.
    pub fn standing(&self, group: u64) -> Standing {
        self.hall().register.get(group)
    }

    /// Whoever comes late is told so from now on.
    pub(crate) fn note(&self, group: u64, standing: Standing) {
        self.hall().register.set(group, standing);
    }

    /// A group that has begun is over.
    pub fn note_end(&self, group: u64) {
        let mut hall = self.hall();
        if hall.register.get(group) == Standing::Begun {
            hall.register.set(group, Standing::Ended);
        }
    }

    fn hall(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next guest, if one comes before `until`.
    ///
    /// # Errors
    /// What the system says.
    pub fn guest(&self, until: Instant) -> io::Result<Option<TcpStream>> {
        self.wait(until, |caller| caller.role == Role::Guest)
    }

    /// The link that a member of a group makes to another one, if it comes before `until`.
    pub(crate) fn member(
        &self,
        group: u64,
        (from, to): (u32, u32),
        until: Instant,
    ) -> io::Result<Option<TcpStream>> {
        let wanted = Caller { role: Role::Member, group, from, to };
        self.wait(until, |caller| *caller == wanted)
    }

    fn wait(
        &self,
        until: Instant,
        is_wanted: impl Fn(&Caller) -> bool,
    ) -> io::Result<Option<TcpStream>> {
        loop {
            let now = Instant::now();
            let mut hall = self.hall();
            hall.look(now)?;
            if let Some(at) = hall.callers.iter().position(|(caller, ..)| is_wanted(caller)) {
                let (_, stream, _) = hall.callers.swap_remove(at);
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            drop(hall);
            if now >= until {
                return Ok(None);
            }
            std::thread::sleep(LOOK.min(until.saturating_duration_since(now)));
        }
    }
}

impl Hall {
    /// Whether somebody is here of whom it is not known yet what he wants.
    pub fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Whether nobody more is let in.
    pub fn is_full(&self) -> bool {
        self.strangers.len() + self.callers.len() >= WAITING_MAX
    }

    /// Takes in who is there, and answers who asks how a group stands.
    pub fn look(&mut self, now: Instant) -> io::Result<()> {
        while !self.is_full() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let bytes = [0; LEN];
                    self.strangers.push(Stranger { stream, bytes, have: 0, since: now });
                }
                // Who has gone already is nobody.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        for stranger in std::mem::take(&mut self.strangers) {
            self.question(stranger, now);
        }
        self.callers.retain(|(_, _, since)| now.duration_since(*since) < KEPT);
        Ok(())
    }

    fn question(&mut self, mut stranger: Stranger, now: Instant) {
        match stranger.stream.read(&mut stranger.bytes[stranger.have..]) {
            Ok(0) => return,
            Ok(more) => stranger.have += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        if stranger.have < LEN {
            if now.duration_since(stranger.since) < PATIENCE {
                self.strangers.push(stranger);
            }
        } else if let Some(caller) = Caller::parse(&stranger.bytes) {
            match caller.role {
                Role::Ask => {
                    let standing = self.register.get(caller.group);
                    let answer = Caller { role: Role::Stands, to: standing.bits(), ..caller };
                    // Who does not hear it asks again.
                    let _ = answer.say(&stranger.stream);
                }
                _ => self.callers.push((caller, stranger.stream, now)),
            }
        }
    }
}
