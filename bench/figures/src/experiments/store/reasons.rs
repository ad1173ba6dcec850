//! Why values of figures 14a to 14c differ from the paper's.

pub(super) const OVER_NONTX: &str = "\
     both fill the links of the hosts: a transaction of ours takes 54 bytes of the fullest one, \
     19 of them acknowledgements, one of NonTX 33 (link_data_bytes, link_acks_bytes), as its \
     replies acknowledge its requests";
pub(super) const NONTX_LIMIT: &str = "\
     up to 256 processes the sending thread is the limit (sending_mean 1.0), at 512 the links of the \
     hosts (link_fullest)";
pub(super) const OVER_FARM: &str = "\
     at 512 both fill the links of the hosts, and its replies acknowledge its requests, as those \
     of NonTX do";
pub(super) const CPU_OR_LINK: &str = "\
     the sending thread is the limit (sending_mean 1.0): four messages of 200 ns, of which some \
     share a frame with others and fewer remain with few processes. At 512 the links of the hosts \
     are full (link_fullest): they carry link_bound_mtps";
pub(super) const OPERATIONS: &str = "\
     the links of the hosts are full with few operations (link_fullest 1.03 with 2, 0.84 with 128): \
     an operation takes as many bytes in a large transaction as in a small one, until several \
     operations of one transaction are on one shard. NonTX has the same dent";
pub(super) const HOT: &str = "\
     the hottest key has 3.8 % of all operations, and its process is always busy (sending_busiest \
     1.0): it answers 5 M requests/s";

pub(super) const FARM_CPU: &str = "\
     the sending thread is the limit (sending_mean 1.0): a transaction takes 3.1 requests and as \
     many replies of 200 ns, so 0.8 M are possible. At 512 the links of the hosts are full \
     (link_fullest)";
pub(super) const FARM_HOT: &str = "\
     the process of the hottest key, which has 3.8 % of all operations, is busy (sending_busiest), \
     and transactions of 2 operations that find a key locked are repeated 0.02 to 0.5 times in \
     figure 14b, and 1.7 times in 14c (repeated)";
pub(super) const LINKS: &str = "\
     the links of the hosts are full (link_fullest 0.9 to 1.05)";
pub(super) const FEW: &str = "\
     at low shares of writes reads wait in the queue of the hottest process as writes do, and few \
     transactions write: 15 of 9,000 at 0.1 % (read_write_count), of which few have that key";
pub(super) const ALONE: &str =
    "measured with uniform keys and one transaction in flight, at 50 % of writes";
pub(super) const QUEUE: &str = "\
     reads already wait for the hottest process at 0.1 % of writes (sending_busiest 0.95)";
pub(super) const MANY_LOCKS: &str = "\
     one transaction of 512 operations in flight for each process finds a lock 1.4 times \
     (repeated), and ours does 0.09 of the paper's rate here, as it is limited by the links";
