//! Packets about consecutive messages of a client share frames.

use onepipe_amcast::{
    Client, Config, Group, GroupId, GroupSet, Groups, Member, MessageId, Replica, ReplicaEvent,
};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
use onepipe_wire::{AMCAST_LEN, Amcast, Frame, Opcode, SHORT_HEADER_LEN};

const CLIENT: ProcessId = ProcessId(8);
const NOW: Now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
/// Length of a frame that fits three messages of 100 bytes.
const FRAME_LEN: usize = SHORT_HEADER_LEN + AMCAST_LEN + 3 * 102;

/// Two groups of three members and a replica each.
fn groups() -> Groups {
    let group = |first: u32| Group {
        members: (first..first + 3).map(ProcessId).collect(),
        replicas: vec![ProcessId(first + 3)],
    };
    Groups {
        groups: vec![group(0), group(4)],
        clients: vec![CLIENT],
        window: 16,
        message_groups_max: 2,
        frame_len_max: FRAME_LEN,
    }
}

fn config(process: u32) -> Config {
    Config::new(ProcessId(process), groups())
}

/// Returns all output of `machine`, in frames of up to `bytes` bytes.
fn poll_frames_of(machine: &mut impl Machine, bytes: usize) -> Vec<Vec<u8>> {
    let mut slot = vec![0; bytes];
    let mut frames = Vec::new();
    while let Some(sent) = machine.poll_transmit(NOW, &mut slot) {
        frames.push(slot[..sent.bytes].to_vec());
    }
    frames
}

/// Returns the destination of a frame, its opcode, and the number of packets in each run.
fn frame_shape(bytes: &[u8]) -> (u32, Opcode, Vec<usize>) {
    let frame = Frame::parse(bytes).expect("valid output of a machine");
    let runs = Amcast::runs(frame.opcode, frame.payload);
    let packets = runs.map(|run| usize::from(run.expect("a run").first.further) + 1);
    (frame.header.dst().0, frame.opcode, packets.collect())
}

fn message(nth: u8) -> [u8; 100] {
    [nth; 100]
}

#[test]
fn client_fills_frames_with_messages() {
    let mut client = Client::new(config(CLIENT.0)).expect("a client");
    let (one, both) = (GroupSet::from_bits(1), GroupSet::from_bits(3));
    for (nth, to) in (0..).zip([one, one, one, one, both, both, one]) {
        client.amcast(NOW, to, &message(nth)).expect("the window has space");
    }
    let frames = poll_frames_of(&mut client, FRAME_LEN);
    let shapes: Vec<_> = frames.iter().map(|frame| frame_shape(frame)).collect();
    let start = |to: u32, packets| (to, Opcode::Start, vec![packets]);
    assert_eq!(shapes, [start(0, 3), start(0, 1), start(0, 2), start(4, 2), start(0, 1)]);
    let all = frames.iter().flat_map(|bytes| {
        let frame = Frame::parse(bytes).expect("valid output of a client");
        let packets = Amcast::packets(frame.opcode, frame.payload);
        let packets = packets.map(|packet| packet.expect("a packet"));
        packets.map(|(body, bytes)| (body.id.sequence, bytes.to_vec())).collect::<Vec<_>>()
    });
    let wanted = [0, 1, 2, 3, 4, 5, 4, 5, 6].map(|nth| (u32::from(nth), message(nth).to_vec()));
    assert!(all.eq(wanted), "each message has its own content");
    assert_eq!(client.in_flight(), 7);
}

/// Delivers frames in order until all machines are idle. Returns all frames.
fn exchange(machines: &mut [(u32, Box<dyn AnyMachine>)], mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while !frames.is_empty() {
        for frame in &mut frames {
            let to = frame_shape(frame).0;
            if let Some((_, machine)) = machines.iter_mut().find(|(own, _)| *own == to) {
                assert_eq!(machine.take(frame), Verdict::Consumed);
            }
        }
        all.append(&mut frames);
        frames = machines.iter_mut().flat_map(|(_, machine)| machine.poll_frames()).collect();
    }
    all
}

/// Common interface of the machines.
trait AnyMachine {
    fn take(&mut self, frame: &mut [u8]) -> Verdict;
    fn poll_frames(&mut self) -> Vec<Vec<u8>>;
    fn delivered(&mut self) -> Vec<(MessageId, Vec<u8>)> {
        Vec::new()
    }
}

impl AnyMachine for Member {
    fn take(&mut self, frame: &mut [u8]) -> Verdict {
        self.handle_frame(NOW, Port(0), frame)
    }

    fn poll_frames(&mut self) -> Vec<Vec<u8>> {
        poll_frames_of(self, FRAME_LEN)
    }
}

impl AnyMachine for Replica {
    fn take(&mut self, frame: &mut [u8]) -> Verdict {
        self.handle_frame(NOW, Port(0), frame)
    }

    fn poll_frames(&mut self) -> Vec<Vec<u8>> {
        poll_frames_of(self, FRAME_LEN)
    }

    fn delivered(&mut self) -> Vec<(MessageId, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(ReplicaEvent::Delivered(delivery)) = self.poll_event() {
            all.push((delivery.id, self.message(&delivery).to_vec()));
        }
        all
    }
}

//= spec/amcast.md#R17
#[test]
fn members_answer_run_with_run() {
    let mut client = Client::new(config(CLIENT.0)).expect("a client");
    let one = GroupSet::EMPTY.with(GroupId(0));
    for nth in 0..6 {
        client.amcast(NOW, one, &message(nth)).expect("the window has space");
    }
    let member = |own| Box::new(Member::new(config(own)).expect("a member")) as Box<dyn AnyMachine>;
    let mut machines: Vec<_> = (0..3).map(|own| (own, member(own))).collect();
    machines.push((3, Box::new(Replica::new(config(3)).expect("a replica"))));
    let frames = exchange(&mut machines, poll_frames_of(&mut client, FRAME_LEN));
    let shapes: Vec<_> = frames.iter().map(|frame| frame_shape(frame)).collect();
    // Six messages: two frames from the client, and two from the leader to each of three receivers.
    let count = |opcode| shapes.iter().filter(|frame_shape| frame_shape.1 == opcode).count();
    assert_eq!((count(Opcode::Start), count(Opcode::Prop)), (2, 6));
    let over: Vec<_> = shapes.iter().filter(|(to, ..)| *to == CLIENT.0).collect();
    assert!(matches!(over[..], [(_, Opcode::Deliver, runs)] if *runs == [6]), "{over:?}");
    for (_, _, runs) in
        shapes.iter().filter(|(to, opcode, _)| (*to, *opcode) == (3, Opcode::Deliver))
    {
        assert!(runs.contains(&6) && runs.len() <= 2, "and perhaps the barrier: {runs:?}");
    }
    let wanted =
        (0..6).map(|nth| (MessageId { client: 0, sequence: nth.into() }, message(nth).to_vec()));
    assert!(machines[3].1.delivered().into_iter().eq(wanted));
}
