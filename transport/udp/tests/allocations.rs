//! In the steady state no frame causes an allocation.

use std::time::{Duration, Instant};

use allocation_counter::measure;
use onepipe_base::{Mono, Now, Port, Timestamp, Transmit, Verdict};
use onepipe_transport_driver::Transport;
use onepipe_transport_udp::{BatchSocket, Config, UdpLink};

/// Sends 40 frames of two lengths to `reflector`, and waits until they have come back.
fn there_and_back(link: &mut UdpLink, reflector: &mut BatchSocket) {
    const FRAMES: usize = 40;
    let now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
    for frame in 0..FRAMES {
        let bytes = if frame % 8 == 7 { 90 } else { 1000 };
        link.slot().expect("there is capacity")[..bytes].fill(frame as u8);
        link.send(Transmit { port: Port(0), bytes });
    }
    link.end_burst(None);
    let (started, mut back) = (Instant::now(), 0);
    while back < FRAMES {
        assert!(started.elapsed() < Duration::from_secs(10), "{back} of {FRAMES} came back");
        for batch in 0..reflector.receive() {
            let from = reflector.source(batch);
            reflector.set_destination(0, from);
            for range in reflector.frames(batch) {
                reflector.send(0, range);
            }
            reflector.flush();
        }
        back += link.receive(now, |_, _| Verdict::Consumed);
    }
}

#[test]
fn frames_cost_no_allocation() {
    let bind = Some("127.0.0.1:0".parse().expect("a valid address"));
    let mut reflector = BatchSocket::bind(&Config { bind, ..Config::default() }, 1)
        .expect("the loopback is available");
    let to = reflector.local_addr().expect("the socket is bound");
    let mut link = UdpLink::connect(to, &Config::default()).expect("the loopback is available");
    there_and_back(&mut link, &mut reflector);
    let asked = measure(|| (0..200).for_each(|_| there_and_back(&mut link, &mut reflector)));
    assert_eq!(asked.count_total, 0);
}
