//! Sleeping and waking.

use super::*;

const LONG: u64 = 20_000_000_000;

/// Runs `wake` in another thread while `sleeper` waits, and returns how long it waited.
fn waited(sleeper: &mut Shm, wake: impl FnOnce() + Send) -> Duration {
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(wake);
        sleeper.wait(LONG);
    });
    started.elapsed()
}

#[test]
fn frame_wakes_its_receiver() {
    let name = name("wake");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    for round in 0..50 {
        let took = waited(&mut b, || send(&mut a, at(2), 1, round));
        assert!(took.as_nanos() < u128::from(LONG), "the wake-up was lost");
        assert_eq!(receive(&mut b, at(3)).0, [(0, round)]);
    }
}

#[test]
fn doorbell_wakes_exactly_one_wait() {
    let name = name("bell");
    let mut a = attach(&name, 0);
    receive(&mut a, at(1));
    let doorbell = a.doorbell();
    for _ in 0..50 {
        let doorbell = doorbell.clone();
        assert!(waited(&mut a, move || doorbell.ring()).as_nanos() < u128::from(LONG));
    }
    doorbell.ring();
    a.wait(LONG);
    let started = Instant::now();
    a.wait(5_000_000);
    assert!(started.elapsed() >= Duration::from_millis(5), "one ring must end one wait only");
}
