//! A newcomer's promise may lie below what others were told (design: failure.md, "When does a
//! newcomer commit?").

mod rig;

use onepipe_base::{Address, Instance, Machine, SwitchId, Timestamp};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{Route, Table};
use onepipe_wire::{Header, Opcode};
use rig::{OWN, at, beacon, both, bytes_of, guarded, instance_of, process, put, star};

/// What the beacons of the next instant tell each port of commits.
fn commits_told(switch: &mut Switch, now: u64) -> [Option<Timestamp>; 3] {
    switch.handle_timeout(at(now));
    let mut told = [None; 3];
    for sent in rig::sent(switch, at(now)) {
        if sent.opcode == Opcode::Beacon {
            told[usize::from(sent.port)] = Some(sent.header.promises(at(now).sync).commit);
        }
    }
    told
}

fn say(switch: &mut Switch, now: u64, port: u16, promise: u64) {
    let instance: Instance = process(u32::from(port), 1);
    beacon(switch, at(now), port, (instance, Some(OWN)), both(promise));
}

fn come(switch: &mut Switch, now: u64, port: u16, promise: u64) {
    beacon(switch, at(now), port, (process(u32::from(port), 1), None), both(promise));
    say(switch, now, port, promise);
}

/// With controllers, and without them where messages do not pass the switch.
#[test]
fn a_newcomer_is_told_no_commit_before_it_has_promised_what_others_were_told() {
    holds(guarded(3));
    holds(Config { holds_newcomers: true, beacon_interval_ns: 3_000, ..star(3) });
}

fn holds(mut config: Config) {
    config.route = Route::Table(Table::new(64, false));
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    for port in [0, 1] {
        come(&mut switch, 10_000, port, 10_000);
        say(&mut switch, 20_000, port, 20_000);
    }
    let told = commits_told(&mut switch, 24_000);
    assert_eq!([told[0], told[1]], [both(20_000).commit; 2].map(Some));

    // Its clock is behind: it holds the others, and is told nothing of commits itself.
    come(&mut switch, 25_000, 2, 15_000);
    let told = commits_told(&mut switch, 27_000);
    assert_eq!([told[0], told[1]], [both(20_000).commit; 2].map(Some), "held");
    assert!(told[2] < Some(both(0).commit), "{told:?}");

    say(&mut switch, 28_000, 2, 20_000);
    assert_eq!(commits_told(&mut switch, 30_000)[2], Some(both(20_000).commit));
    // From now on its own promise holds the others.
    for port in [0, 1] {
        say(&mut switch, 31_000, port, 31_000);
    }
    let told = commits_told(&mut switch, 33_000);
    assert_eq!([told[0], told[1]], [both(20_000).commit; 2].map(Some));
}

/// Those below a switch that has begun are told no commits of each other alone: the rest of the
/// fabric may be behind. A table has no others to hear, nor has one whose links above are silent.
#[test]
fn nobody_below_is_told_a_commit_before_another_switch_above_was_heard() {
    for (upper_ports, hears_above, told_at) in
        [(0, false, 11_000), (1, true, 23_000), (1, false, 41_000)]
    {
        let route = Route::Table(Table::new(64, upper_ports > 0));
        let link_timeout_ns = 30_000;
        let mut switch = Switch::new(Config { upper_ports, link_timeout_ns, route, ..guarded(2) })
            .expect("valid");
        [0, 1].into_iter().for_each(|port| come(&mut switch, 8_000, port, 8_000));
        let mut is_told = |now: u64| {
            [0, 1].into_iter().for_each(|port| say(&mut switch, now, port, now));
            if hears_above && now >= 20_000 {
                let spine = instance_of(Address::Switch(SwitchId(9)), 3);
                let header = Header::hop_only(Opcode::Beacon, spine, Some(OWN), both(now));
                put(&mut switch, at(now), 2, bytes_of(header.with_counted(both(now).barrier)));
            }
            let told = commits_told(&mut switch, now + 1_000);
            told[..2].iter().flatten().any(|commit| *commit > both(0).commit)
        };
        let first = (11_000..60_000).step_by(3_000).find(|now| is_told(*now));
        assert_eq!(first, Some(told_at), "{upper_ports} above, heard: {hears_above}");
    }
}
