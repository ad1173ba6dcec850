//! The machines with one mistake each (`--features mistakes`; CI has a step for it): a checker must
//! catch each of them, at a seed at which nothing is wrong without it. From which seed on is known,
//! so that this takes seconds; how many it takes from seed 0 on is what `cargo xtask bugs` prints.
//!
//! All in one test, for the mistake is chosen for the whole program.

use onepipe_base::mistake::Mistake;
use onepipe_sim_check::drill_known;
use onepipe_sim_scenarios::{Mishap, Swarm, caught};

/// Each mistake, and a seed that shows it.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::DeliverAtBarrier, 0),
    (Mistake::NoTieBreak, 0),
    (Mistake::DeliverBeforeCommit, 0),
    (Mistake::RecallForgotten, 1),
    (Mistake::DiscardOffByOne, 1),
    (Mistake::DiscardForgotten, 1),
    (Mistake::CommitWhileOpen, 0),
    (Mistake::OwnCommitIgnored, 79),
    (Mistake::NoClockClamp, 3),
    (Mistake::DuplicateAccepted, 24),
    (Mistake::LateAccepted, 24),
    (Mistake::AckBeforeBuffering, 11),
    (Mistake::SiblingNotRecalled, 1),
    (Mistake::DeadLinkKept, 24),
    (Mistake::LiveLinkDropped, 0),
    (Mistake::DeadCommitDropped, 1),
    (Mistake::RestartIgnored, 1),
    (Mistake::BarrierBack, 0),
    (Mistake::TwoActive, 77),
    (Mistake::RefusalIgnored, 121),
    (Mistake::ResumeEarly, 2),
    (Mistake::FailureTooLate, 5),
    (Mistake::FailureTooEarly, 5),
];

/// Whether the seed draws what the mistake is about: no other need be tried.
fn is_apt(mistake: Mistake, swarm: &Swarm) -> bool {
    let replicas = swarm.plan.court.as_ref().map_or(0, |court| court.replicas);
    let draws = |is_it: fn(&Mishap) -> bool| swarm.timeline.iter().any(|(_, what)| is_it(what));
    match mistake {
        Mistake::TwoActive | Mistake::RefusalIgnored => {
            replicas > 1 && draws(|what| matches!(what, Mishap::Lapse))
        }
        Mistake::DeadLinkKept => swarm.missing.is_some(),
        Mistake::DuplicateAccepted => {
            draws(|what| matches!(what, Mishap::AllLinks(faults) if faults.duplicate_ppm > 0))
        }
        Mistake::OwnCommitIgnored => swarm.plan.reliable_percent > 30,
        Mistake::DiscardOffByOne
        | Mistake::DiscardForgotten
        | Mistake::DeadCommitDropped
        | Mistake::RestartIgnored
        | Mistake::ResumeEarly
        | Mistake::FailureTooLate
        | Mistake::FailureTooEarly => replicas > 0,
        _ => true,
    }
}

#[test]
fn every_mistake_is_caught_and_nothing_without_it() {
    assert!(FIRST_SEEDS.iter().map(|(mistake, _)| mistake).eq(Mistake::of_scattering()));
    let is_apt = |mistake, seed| is_apt(mistake, &Swarm::draw(seed));
    assert_eq!(drill_known(FIRST_SEEDS, is_apt, caught), Vec::<&str>::new());
}
