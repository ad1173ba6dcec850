//! The desk, and the crew that does what it commands.

use onepipe_arbiter::{ArbiterEvent, Command, Desk, Turn};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_transport_driver::Pipe;

use crate::crew::Crew;
use crate::place::Post;

/// A desk whose commands are handed to workers, and which hears of their batches. What it says is
/// the desk's; it moves words.
#[derive(Debug)]
pub(crate) struct Foreman {
    desk: Desk,
    crew: Crew,
    posts: Vec<Post>,
    /// Whose the next command is.
    turn: Turn,
    /// Whose batch is read next: the desk hears of them in order.
    reads: Turn,
}

impl Foreman {
    pub(crate) fn new(desk: Desk, crew: Crew, posts: Vec<Post>) -> Self {
        let turn = Turn::new(posts.len());
        Self { desk, crew, posts, reads: turn.clone(), turn }
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Hands on what the desk commands, as far as there is room; the rest waits there.
    fn command(&mut self) {
        let mut room = self.posts.iter().map(Post::room).min().unwrap_or(0);
        while room > 0
            && let Some(command) = self.desk.poll_command()
        {
            room -= 1;
            for at in self.turn.of(&command) {
                self.posts[at].command(command);
                if matches!(command, Command::Batch(_)) {
                    self.crew.wake(at);
                }
            }
        }
    }

    /// Tells the desk of the batches that are ready.
    fn read(&mut self, now: Now) {
        let (desk, posts) = (&mut self.desk, &mut self.posts);
        loop {
            let at = self.reads.next();
            let is_read = posts[at].read(|batch| {
                let number = batch.given().number;
                for refused in batch.refused() {
                    desk.on_refused(number, (refused.src, refused.dst), refused.slots);
                }
                desk.on_given(now, batch.given(), batch.schedule(), batch);
            });
            if is_read.is_none() {
                return;
            }
            // It may have waited for a batch to write to.
            self.crew.wake(at);
            self.reads.advance();
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
        if self.posts[self.reads.next()].has_written() {
            return Some(Mono::from_ns(0));
        }
        self.desk.poll_timeout()
    }
}

impl Pipe for Foreman {}
