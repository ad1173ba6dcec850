//! Options of a front.

/// Options of a front. Each limit bounds the memory that a client can make the front use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontOptions {
    /// The password that clients need, if any: `requirepass` of Redis.
    pub password: Option<String>,
    /// The largest argument of a command, in bytes. It is below the largest message of the fabric.
    pub value_max: usize,
    /// The largest transaction, in bytes of arguments with 32 more for each: one command, or all
    /// commands between `MULTI` and `EXEC`.
    pub transaction_bytes_max: usize,
    /// The largest number of commands between `MULTI` and `EXEC`.
    pub transaction_commands_max: usize,
    /// The number of bytes up to which pipelined commands are gathered into one transaction.
    pub batch_bytes_max: usize,
    /// The number of pipelined commands that are gathered into one transaction, at most.
    pub batch_commands_max: usize,
    /// The number of received bytes above which a connection stops reading, but at least the
    /// 64 KiB of the longest line.
    pub input_max: usize,
    /// The number of unsent bytes above which a connection executes no further commands.
    pub output_pause: usize,
    /// The number of unsent bytes above which a connection is closed.
    pub output_max: usize,
    /// The number of connections: `maxclients` of Redis.
    pub clients_max: usize,
    /// The number of threads that serve connections; 0 is half the number of cores.
    pub threads: usize,
    /// The number of replicas that have each write when its reply is sent, besides the one that a
    /// client would call the master. It is the reply to `WAIT`.
    pub replicas: u32,
}

impl Default for FrontOptions {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            password: None,
            value_max: 8 * MIB,
            transaction_bytes_max: 16 * MIB,
            transaction_commands_max: 100_000,
            batch_bytes_max: 256 << 10,
            batch_commands_max: 256,
            input_max: 256 << 10,
            output_pause: MIB,
            output_max: 256 * MIB,
            clients_max: 10_000,
            threads: 0,
            replicas: 0,
        }
    }
}
