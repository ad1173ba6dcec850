//! What a client asks about its transactions.

use alloc::vec::Vec;

use crate::client::{Client, OutgoingScattering, TransactionId};
use crate::request::{Request, RequestKind};

impl Client {
    /// Returns a question to all replicas of a shard, although they have ended: one that was
    /// admitted again answers with its view. The client may not know, as a process that starts is
    /// notified of failures, and not of admissions.
    pub(super) fn compose_search(&mut self, number: u64, shard: u16) -> OutgoingScattering {
        let payload = self.question(number);
        let replicas = self.placement.replicas(shard).iter();
        let messages = replicas.map(|process| (*process, payload.clone())).collect();
        let transaction = TransactionId(number);
        OutgoingScattering { is_reliable: false, messages, transaction, is_question: true }
    }

    /// Returns the encoded question for the reply to a transaction.
    fn question(&self, number: u64) -> Vec<u8> {
        let (session, finished, parts) = (self.session, self.oldest(), Vec::new());
        let open = self.open.get(&number);
        let (attempt, view) = open.map_or((0, None), |open| (open.attempt, open.view));
        let kind = RequestKind::Ask;
        let mut payload = Vec::new();
        Request { kind, session, number, attempt, finished, view, parts }.write(&mut payload);
        payload
    }

    /// Returns the question for the outcome of a write to the replicas that have not answered.
    pub(super) fn compose_ask(&mut self, number: u64) -> Option<OutgoingScattering> {
        let payload = self.question(number);
        let open = self.open.get(&number)?;
        let messages: Vec<_> = open.awaited().map(|process| (process, payload.clone())).collect();
        self.stats.asked += 1;
        let transaction = TransactionId(number);
        (!messages.is_empty()).then_some(OutgoingScattering {
            is_reliable: false,
            messages,
            transaction,
            is_question: true,
        })
    }
}
