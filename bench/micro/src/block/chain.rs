//! Primary–backup replication with three replicas in this process: a thread each, with a journal
//! and an image.
//!
//! Messages are handed over by channels: they cost less than those of any network, and none is
//! lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};
use onepipe_block::Outcome;
use onepipe_block_replica::{ChainMessage, ChainNode, ChainOutput, Change, Image, ImageOptions};
use onepipe_block_server::Completion;
use onepipe_journal::{Directory, Journal, Options, StoreId, Writer};

/// Number of replicas.
const REPLICAS: usize = 3;

/// What a replica handles.
enum Input {
    Message(ChainMessage),
    /// All operations up to a number are durable.
    Stored(u64),
    Stop,
}

/// Writes that are not complete, and the number of the last one.
#[derive(Default)]
struct Open {
    last: u64,
    completions: BTreeMap<u64, Completion>,
}

/// A primary and its backups. They end when this is dropped.
pub struct Chain {
    inputs: Vec<Sender<Input>>,
    open: Arc<Mutex<Open>>,
    threads: Vec<JoinHandle<()>>,
}

/// A replica in its thread.
struct Replica {
    node: ChainNode,
    writer: Writer,
    image: Image<Directory>,
    /// Operations that are not durable, to be applied then.
    unapplied: BTreeMap<u64, Vec<u8>>,
    previous: Option<Sender<Input>>,
    next: Option<Sender<Input>>,
    open: Arc<Mutex<Open>>,
}

impl Chain {
    /// Starts the replicas, with files in a new directory.
    pub fn start(directory: &Path, blocks: u64) -> Result<Chain> {
        let open = Arc::new(Mutex::new(Open::default()));
        let (inputs, receivers): (Vec<_>, Vec<_>) = (0..REPLICAS).map(|_| channel()).unzip();
        let mut chain = Chain { inputs, open, threads: Vec::new() };
        for (index, received) in receivers.into_iter().enumerate() {
            let directory = directory.join(index.to_string());
            let (journal, recovered) =
                Journal::open(directory.join("log"), Options::new(StoreId(*b"primary, backups")))?;
            ensure!(recovered.records.is_empty(), "the directory is new");
            let stored: Sender<Input> = chain.inputs[index].clone();
            let writer = Writer::start(journal, move |status| {
                // The replica has ended, if this fails.
                let _ = stored.send(Input::Stored(status.progress.durable));
            })?;
            let disk = Directory::open(directory.join("image"))?;
            let image = Image::open(&disk, ImageOptions { device: 1, blocks })?;
            let replica = Replica {
                node: ChainNode::new(index + 1 == REPLICAS),
                writer,
                image,
                unapplied: BTreeMap::new(),
                previous: index.checked_sub(1).map(|previous| chain.inputs[previous].clone()),
                next: chain.inputs.get(index + 1).cloned(),
                open: Arc::clone(&chain.open),
            };
            let thread = thread::Builder::new().name("chain".into());
            let thread = thread.spawn(move || {
                if let Err(error) = replica.run(&received) {
                    eprintln!("onepipe: replica {index} of primary-backup: {error:#}");
                }
            });
            chain.threads.push(thread.context("cannot start a thread")?);
        }
        Ok(chain)
    }

    /// Begins to write a block.
    pub fn begin(&self, first: u64, data: &[u8], completion: Completion) {
        let payload = Change::Write { first, data }.to_bytes();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.last += 1;
        let number = open.last;
        open.completions.insert(number, completion);
        // While the lock is held, as the primary takes operations in order.
        let _ = self.inputs[0].send(Input::Message(ChainMessage::Write { number, payload }));
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for input in &self.inputs {
            // The replica has ended, if this fails.
            let _ = input.send(Input::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Replica {
    fn run(mut self, inputs: &Receiver<Input>) -> Result<()> {
        while let Ok(input) = inputs.recv() {
            match input {
                Input::Message(message) => self.node.handle_message(message),
                Input::Stored(until) => {
                    self.node.handle_stored(until);
                    self.send()?;
                    self.apply(until)?;
                }
                Input::Stop => return Ok(()),
            }
            self.send()?;
        }
        Ok(())
    }

    /// Applies durable operations to the image, after the next replica has got them.
    fn apply(&mut self, until: u64) -> Result<()> {
        while let Some(entry) = self.unapplied.first_entry().filter(|entry| *entry.key() <= until) {
            let (number, payload) = entry.remove_entry();
            let change = Change::parse(&payload, self.image.blocks())?;
            self.image.apply(number, &change)?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        while let Some(output) = self.node.poll_output() {
            match output {
                ChainOutput::Store { number, payload } => {
                    self.unapplied.insert(number, payload.clone());
                    self.writer.append(number, payload)?;
                }
                ChainOutput::Next(message) => {
                    let next = self.next.as_ref().context("the last replica has no next")?;
                    next.send(Input::Message(message)).ok().context("the next one has ended")?;
                }
                ChainOutput::Previous(message) => match &self.previous {
                    Some(previous) => {
                        let sent = previous.send(Input::Message(message));
                        sent.ok().context("the previous one has ended")?;
                    }
                    None => self.reply(&message),
                },
            }
        }
        Ok(())
    }

    /// Completes the write of a client.
    fn reply(&self, message: &ChainMessage) {
        let ChainMessage::Done { number } = message else { return };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let completion = open.completions.remove(number);
        drop(open);
        if let Some(completion) = completion {
            completion.complete(Ok(Outcome::Done));
        }
    }
}
