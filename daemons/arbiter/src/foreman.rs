//! The desk, and the crew that does what it commands.

use onepipe_arbiter::{ArbiterEvent, Clerk, Command, Demand, Desk};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_transport_driver::Pipe;

use crate::crew::Crew;
use crate::place::Posts;

/// A desk whose commands are done by a clerk and workers, and which hears of their batches. What it
/// says is the desk's; it moves words.
#[derive(Debug)]
pub(crate) struct Foreman {
    desk: Desk,
    clerk: Clerk,
    crew: Crew,
    posts: Posts,
}

impl Foreman {
    pub(crate) fn new(desk: Desk, clerk: Clerk, crew: Crew, posts: Posts) -> Self {
        Self { desk, clerk, crew, posts }
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Sees to it that what the desk commands is done, as far as there is room; the rest waits
    /// there.
    fn command(&mut self) {
        let mut room = self.posts.room();
        // A batch may take two.
        while room > 1
            && self.clerk.is_ready()
            && let Some(command) = self.desk.poll_command()
        {
            let (number, worker) = (self.clerk.number(), self.clerk.next());
            if let Some(refused) = self.clerk.obey(command, &mut self.posts) {
                self.desk.on_refused(number, (refused.src, refused.dst), refused.slots);
            }
            match command {
                Command::Demand(Demand::Want { .. }) | Command::Late => {}
                Command::Demand(Demand::Forget(_)) | Command::Avoid { .. } => room -= 1,
                Command::Batch(_) => {
                    room -= 2;
                    self.crew.wake(worker);
                }
            }
        }
    }

    /// Tells the clerk and the desk of the batches that are ready.
    fn read(&mut self, now: Now) {
        let Self { desk, clerk, crew, posts } = self;
        let mut read = || {
            posts.read(|posts, batch, worker| {
                let last = clerk.last();
                // First of all, as the next batch may wait for it.
                if clerk.on_allocated(batch, posts) {
                    crew.wake(last);
                }
                batch.spread();
                desk.on_given(now, batch.given(), batch.schedule(), &*batch);
                worker
            })
        };
        while let Some(worker) = read() {
            // It may have waited for a batch to write to.
            crew.wake(worker);
        }
    }
}

impl Machine for Foreman {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.desk.handle_frame(now, port, frame);
        self.command();
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.crew.assert_alive();
        self.read(now);
        self.desk.handle_timeout(now);
        self.command();
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.desk.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.desk.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.posts.has_written() {
            return Some(Mono::from_ns(0));
        }
        self.desk.poll_timeout()
    }
}

impl Pipe for Foreman {}
