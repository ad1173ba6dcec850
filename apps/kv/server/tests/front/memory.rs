//! A backend in this process: the stores of three shards, without a fabric.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use onepipe::Timestamp;
use onepipe_kv::{Command, Plan, Store};
use onepipe_kv_server::front::{Front, FrontOptions, serve};
use onepipe_kv_server::{Backend, BackendError, Replies};
use onepipe_transaction::State;

pub const SHARDS: u16 = 3;

/// The stores of all shards. They execute in the thread that calls.
#[derive(Default)]
pub struct Memory {
    state: Mutex<Shards>,
}

#[derive(Default)]
struct Shards {
    last_ns: u64,
    transactions: u64,
    stores: [Store; SHARDS as usize],
}

impl Shards {
    fn execute(&mut self, commands: &[Command]) -> Replies {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the year 1970");
        let now_ns = u64::try_from(now.as_nanos()).expect("before the year 2554");
        self.last_ns = now_ns.max(self.last_ns + 1);
        self.transactions += 1;
        let at = Timestamp::from_ns(self.last_ns);
        let plan = Plan::new(commands, SHARDS);
        let mut results = Vec::new();
        for (shard, part) in plan.parts() {
            let store = &mut self.stores[usize::from(*shard)];
            let mut result = Vec::new();
            match plan.is_read_only() {
                true => drop(store.read(at, part, &mut result)),
                false => store.execute(at, part, &mut result),
            }
            results.push((*shard, result));
        }
        let results: Vec<(u16, &[u8])> =
            results.iter().map(|(shard, result)| (*shard, result.as_slice())).collect();
        plan.replies(&results).map_err(|error| BackendError::Results(error.to_string()))
    }
}

impl Memory {
    /// Returns the number of transactions that were executed.
    pub fn transactions(&self) -> u64 {
        self.state.lock().expect("no test panics with the lock").transactions
    }
}

impl Backend for Memory {
    fn begin(&self, commands: Vec<Command>, on_replies: Box<dyn FnOnce(Replies) + Send>) {
        let replies = self.state.lock().expect("no test panics with the lock").execute(&commands);
        on_replies(replies);
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        vec![("transactions", self.transactions().to_string())]
    }
}

type Job = (Vec<Command>, Box<dyn FnOnce(Replies) + Send>);

/// The stores of all shards. They execute in a thread of their own, as those of a fabric do.
pub struct Threaded {
    jobs: Sender<Job>,
}

impl Threaded {
    pub fn start() -> Self {
        let (jobs, receiver) = channel::<Job>();
        std::thread::spawn(move || {
            let memory = Memory::default();
            for (commands, on_replies) in receiver {
                memory.begin(commands, on_replies);
            }
        });
        Self { jobs }
    }
}

impl Backend for Threaded {
    fn begin(&self, commands: Vec<Command>, on_replies: Box<dyn FnOnce(Replies) + Send>) {
        self.jobs.send((commands, on_replies)).expect("the thread ends after the sender");
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Starts a front at a free port, with a backend in threads of the front or of its own.
pub fn start_with(backend: Arc<dyn Backend>, options: FrontOptions) -> Front {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    serve(address, backend, options).expect("a free port can be listened at")
}

/// Starts a front with default options.
pub fn start() -> Front {
    start_with(Arc::new(Memory::default()), FrontOptions::default())
}
