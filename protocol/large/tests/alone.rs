//! A process that sends to itself: routing by size, refusals, and memory.

use onepipe_base::{Incarnation, Machine, Mono, Now, ProcessId, Timestamp};
use onepipe_endpoint::{Links, Message, SendError as Refused, Service};
use onepipe_large::{Config, ConfigError, Delivery, Event, LargeEndpoint, SendError};

const LARGE: usize = 1_000;

fn config() -> Config {
    let endpoint = onepipe_endpoint::Config::new(ProcessId(0), Incarnation(1));
    let endpoint = onepipe_endpoint::Config { links: Links::Mesh, ..endpoint };
    Config {
        large_threshold_bytes: LARGE,
        object_len_max: 100_000,
        sent_bytes_max: 250_000,
        received_bytes_max: 250_000,
        ..Config::new(endpoint)
    }
}

fn alone() -> LargeEndpoint {
    LargeEndpoint::new(config()).expect("the settings are in range")
}

/// Advances time, and returns what was delivered.
fn deliveries(end: &mut LargeEndpoint, ns: &mut u64) -> Vec<Delivery> {
    let mut all = vec![];
    for _ in 0..8 {
        *ns += 1_000;
        let now = Now { mono: Mono::from_ns(*ns), sync: Timestamp::from_ns((1 << 50) + *ns) };
        end.handle_timeout(now);
        assert!(end.poll_transmit(now, &mut [0; 1_472]).is_none());
        while let Some(event) = end.poll_event() {
            let Event::Delivered(delivery) = event else { panic!("{event:?}") };
            all.push(delivery);
        }
    }
    all
}

fn to_self(payload: &[u8]) -> Message<'_> {
    Message { to: ProcessId(0), payload }
}

#[test]
fn payloads_of_all_sizes_share_a_scattering() {
    for service in [Service::BestEffort, Service::Reliable] {
        let (mut end, mut ns) = (alone(), 0);
        // An application message that begins like a control message.
        let mut escaped = vec![0xf1, 0x1b, 0x9d, 0xc4, 0x27, 0xe8, 0x5a, 0xb3];
        escaped.extend([4; 40]);
        let payloads = [vec![], b"small".to_vec(), vec![3; 5_000], escaped, vec![3; 5_000]];
        let all: Vec<Message<'_>> = payloads.iter().map(|payload| to_self(payload)).collect();
        for messages in [&all[..], &all[..2], &all[3..4], &all[2..3]] {
            match service {
                Service::BestEffort => end.scatter(messages),
                Service::Reliable => end.scatter_reliably(messages),
            }
            .expect("there is room");
            let delivered = deliveries(&mut end, &mut ns);
            assert_eq!(delivered.len(), messages.len(), "{service:?}");
            let one = delivered[0].timestamp;
            for (index, (delivery, message)) in delivered.into_iter().zip(messages).enumerate() {
                assert_eq!((usize::from(delivery.index), delivery.timestamp), (index, one));
                assert_eq!(delivery.bytes, message.payload.len() as u64);
                assert_eq!(end.payload(&delivery), message.payload);
                match index % 2 {
                    0 => end.release(delivery),
                    _ => assert_eq!(end.take(delivery), message.payload),
                }
            }
        }
        assert!(end.is_drained());
        assert_eq!(end.buffered_bytes(), (0, 0), "everything was released");
    }
}

#[test]
fn refuses_oversized_scatterings() {
    let mut end = alone();
    let (too_large, large) = (vec![1; 100_001], vec![1; 100_000]);
    let refused = end.scatter(&[to_self(b"small"), to_self(&too_large)]);
    assert_eq!(refused, Err(SendError::TooLarge { index: 1, bytes: 100_001, max: 100_000 }));
    let refused = end.scatter(&[to_self(&large), to_self(&large), to_self(&large)]);
    assert_eq!(refused, Err(SendError::TooLarge { index: 0, bytes: 300_000, max: 250_000 }));
    let unknown_receiver = Message { to: ProcessId(1_000), payload: &large };
    let refused = end.scatter(&[to_self(b"small"), unknown_receiver]);
    let unknown = Refused::UnknownProcess { index: 1, process: 1_000, max: 64 };
    assert_eq!(refused, Err(SendError::Endpoint(unknown)));
    assert_eq!(end.buffered_bytes(), (0, 0), "nothing of all this was taken");

    // To a receiver that never answers: the payloads stay submitted and occupy the send buffer.
    let elsewhere = Message { to: ProcessId(1), payload: &large };
    end.scatter(&[elsewhere]).expect("there is room");
    end.scatter(&[elsewhere]).expect("there is room");
    let refused = end.scatter(&[elsewhere]);
    assert_eq!(refused, Err(SendError::Full { need: 100_000, free: 50_000 }));

    let mut end = alone();
    end.leave();
    for payload in [&b"small"[..], &large] {
        let refused = end.scatter_reliably(&[to_self(payload)]);
        assert_eq!(refused, Err(SendError::Endpoint(Refused::Left)));
    }
}

#[test]
fn refuses_invalid_config() {
    let too_large = Config { object_len_max: 300_000, ..config() };
    let refused = ConfigError::OutOfRange { field: "object_len_max", value: 300_000 };
    assert_eq!(LargeEndpoint::new(too_large).err(), Some(refused));
    let none = Config { objects_max: 0, ..config() };
    let refused = ConfigError::OutOfRange { field: "objects_max", value: 0 };
    assert_eq!(LargeEndpoint::new(none).err(), Some(refused));
}

#[test]
fn numbers_scatterings_in_submission_order() {
    let (mut end, mut ns) = (alone(), 0);
    let large = vec![1; 5_000];
    let payloads = [&b"one"[..], &large, b"three", &large, &large, b"six"];
    for service in [Service::Reliable, Service::BestEffort] {
        for (number, payload) in payloads.iter().enumerate() {
            let id = match service {
                Service::BestEffort => end.scatter(&[to_self(payload)]),
                Service::Reliable => end.scatter_reliably(&[to_self(payload)]),
            };
            assert_eq!(id.map(|id| id.0), Ok(number as u64));
            let delivered = deliveries(&mut end, &mut ns);
            assert_eq!(delivered.len(), 1);
            delivered.into_iter().for_each(|delivery| end.release(delivery));
        }
    }
}
