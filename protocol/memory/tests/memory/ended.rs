//! Owners that have ended.

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_memory::{
    ClientOptions, MemoryClient, MemoryError, MemoryOwner, Operation, OwnerOptions, Region,
    RegionId, RequestId, Rights,
};

const OWNER: ProcessId = ProcessId(0);
const CLIENT: ProcessId = ProcessId(7);
const ADD: Operation<'_> = Operation::FetchAdd { region: RegionId(1), offset: 8, addend: 5 };

struct Fabric {
    client: MemoryClient,
    now: Mono,
    scatterings: u64,
}

impl Fabric {
    fn new() -> Self {
        let client = MemoryClient::new(1, ClientOptions::default());
        Self { client, now: Mono::from_ns(1_000), scatterings: 0 }
    }

    /// Submits a request. Returns it with its payload.
    fn submit(&mut self) -> (RequestId, Vec<u8>) {
        let request = self.client.submit_in_owner_order(OWNER, &[ADD]).expect("a sound request");
        let scattering = self.client.poll_scattering(self.now).expect("it is sent at once");
        self.scatterings += 1;
        self.client.on_submitted(&scattering, ScatteringId(self.scatterings));
        (request, scattering.messages[0].1.clone())
    }

    fn pass_deadline(&mut self) {
        self.now = self.client.poll_timeout().expect("a request is in flight");
        self.client.handle_timeout(self.now);
    }

    /// Lets an owner that has just started execute and answer the request. Returns the request that
    /// this completes, and whether its owner has ended.
    fn reply(&mut self, payload: &[u8]) -> (RequestId, bool) {
        let mut owner = MemoryOwner::new(OwnerOptions::default());
        let region = Region::new(vec![0; 64], Rights::all());
        owner.register(RegionId(1), region).expect("no such region");
        owner.on_message(false, Timestamp::from_ns(2), CLIENT, payload);
        let reply = owner.poll_reply().expect("a reply");
        self.client.on_message(self.now, OWNER, &reply.payload);
        self.completed().expect("the request is answered")
    }

    /// Returns the completed request, and whether its owner has ended.
    fn completed(&mut self) -> Option<(RequestId, bool)> {
        let completed = self.client.poll_completed()?;
        Some((completed.request, completed.answers[0].1 == Err(MemoryError::OwnerEnded)))
    }
}

#[test]
fn request_submitted_after_the_end_completes_at_its_deadline() {
    let mut fabric = Fabric::new();
    fabric.client.on_process_ended(OWNER, Timestamp::from_ns(1));
    let (request, _) = fabric.submit();
    assert_eq!(fabric.completed(), None, "the process may have started again");
    fabric.pass_deadline();
    assert_eq!(fabric.completed(), Some((request, true)));
}

#[test]
fn request_submitted_after_the_end_completes_when_it_is_lost() {
    let mut fabric = Fabric::new();
    fabric.client.on_process_ended(OWNER, Timestamp::from_ns(1));
    let (request, _) = fabric.submit();
    fabric.client.on_send_failed(fabric.now, false, ScatteringId(fabric.scatterings));
    assert_eq!(fabric.completed(), Some((request, true)));
}

/// A process that starts may be slower than the response times that were measured before.
#[test]
fn restarted_owner_may_reply_after_several_deadlines() {
    let mut fabric = Fabric::new();
    fabric.client.on_process_ended(OWNER, Timestamp::from_ns(1));
    fabric.client.on_process_started(OWNER);
    let (request, payload) = fabric.submit();
    for _ in 0..3 {
        fabric.pass_deadline();
        assert_eq!(fabric.completed(), None, "the request is repeated");
        let scattering = fabric.client.poll_scattering(fabric.now).expect("it is repeated");
        fabric.scatterings += 1;
        fabric.client.on_submitted(&scattering, ScatteringId(fabric.scatterings));
    }
    assert_eq!(fabric.reply(&payload), (request, false));
}

#[test]
fn owner_that_has_started_again_is_awaited() {
    let mut fabric = Fabric::new();
    fabric.client.on_process_ended(OWNER, Timestamp::from_ns(1));
    let (first, payload) = fabric.submit();
    assert_eq!(fabric.reply(&payload), (first, false));
    fabric.submit();
    fabric.now = fabric.now.after_ns(2_000_000_000);
    fabric.client.handle_timeout(fabric.now);
    assert_eq!(fabric.completed(), None, "the request is repeated");
    assert!(fabric.client.poll_scattering(fabric.now).is_some());
}

#[test]
fn late_report_of_a_loss_leaves_a_queued_request_queued() {
    let mut fabric = Fabric::new();
    let (request, payload) = fabric.submit();
    fabric.client.on_send_failed(fabric.now, false, ScatteringId(1));
    let scattering = fabric.client.poll_scattering(fabric.now).expect("sent again at once");
    fabric.client.on_submitted(&scattering, ScatteringId(2));
    fabric.pass_deadline();
    // The request waits to be sent for the third time.
    fabric.client.on_send_failed(fabric.now, false, ScatteringId(2));
    fabric.client.check_invariants();
    let scattering = fabric.client.poll_scattering(fabric.now).expect("sent for the third time");
    fabric.client.on_submitted(&scattering, ScatteringId(3));
    fabric.client.check_invariants();
    assert_eq!(fabric.reply(&payload), (request, false));
}
