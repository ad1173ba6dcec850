//! Sleeping and waking.

use onepipe_transport_driver::SharedWait;

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

/// Announces a wait of all `sleepers`, runs `wake` in another thread meanwhile, and returns how
/// long the wait took.
fn waited_for_any(sleepers: &mut [Shm], wake: impl FnOnce() + Send) -> Duration {
    sleepers.iter_mut().for_each(|shm| assert!(shm.begin_wait(), "there is no input yet"));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(wake);
        assert!(Shm::wait_for_any(sleepers.iter(), LONG));
    });
    sleepers.iter_mut().for_each(SharedWait::end_wait);
    started.elapsed()
}

#[test]
fn input_of_any_ends_a_wait_for_several() {
    if Shm::waits_for_any_max() == 1 {
        // The kernel has no call for this.
        return;
    }
    let name = name("any");
    let mut sender = attach(&name, 0);
    let mut sleepers = [attach(&name, 1), attach(&name, 2), attach(&name, 3)];
    receive(&mut sender, at(1));
    sleepers.iter_mut().for_each(|shm| drop(receive(shm, at(1))));
    for round in 0..30 {
        let index = usize::from(round) % sleepers.len();
        let took =
            waited_for_any(&mut sleepers, || send(&mut sender, at(2), 1 + index as u32, round));
        assert!(took.as_nanos() < u128::from(LONG), "the wake-up was lost");
        assert_eq!(receive(&mut sleepers[index], at(3)).0, [(0, round)]);
        let doorbell = sleepers[index].doorbell();
        let took = waited_for_any(&mut sleepers, move || doorbell.ring());
        assert!(took.as_nanos() < u128::from(LONG), "the ring was lost");
    }
    sleepers.iter_mut().for_each(|shm| assert!(shm.begin_wait()));
    let started = Instant::now();
    assert!(Shm::wait_for_any(sleepers.iter(), 5_000_000));
    assert!(started.elapsed() >= Duration::from_millis(5), "no input, and it has ended early");
}
