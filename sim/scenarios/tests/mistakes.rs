//! The machines with one seeded mistake each (`--features mistakes`; CI has a step for this test):
//! a checker must detect each mistake at a seed that passes without it. The first detecting seeds
//! are known, so that the test takes seconds; `cargo xtask bugs` prints how many seeds it takes
//! from seed 0 on.
//!
//! All mistakes are in one test because the mistake is selected for the whole program.

use onepipe_base::mistake::Mistake;
use onepipe_sim_check::run_known_mutations;
use onepipe_sim_scenarios::{FaultEvent, Swarm, caught};

/// Each mistake with a seed that detects it.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::DeliverAtBarrier, 0),
    (Mistake::NoTieBreak, 0),
    (Mistake::DeliverBeforeCommit, 0),
    (Mistake::RecallForgotten, 1),
    (Mistake::DiscardOffByOne, 1),
    (Mistake::DiscardForgotten, 1),
    (Mistake::CommitWhileOpen, 0),
    (Mistake::OwnCommitIgnored, 1),
    (Mistake::NoClockClamp, 2),
    (Mistake::DuplicateAccepted, 0),
    (Mistake::LateAccepted, 8),
    (Mistake::AckBeforeBuffering, 0),
    (Mistake::SiblingNotRecalled, 1),
    (Mistake::DeadLinkRetained, 24),
    (Mistake::LiveLinkDropped, 0),
    (Mistake::DeadCommitDropped, 1),
    (Mistake::RestartIgnored, 1),
    (Mistake::BarrierBack, 0),
    (Mistake::SolicitOnce, 0),
    (Mistake::AnswerEarly, 0),
    (Mistake::RestWhileUndelivered, 0),
    (Mistake::JoinerNotSolicited, 12),
    (Mistake::PromiseBeforeCopies, 0),
    (Mistake::BundledAcksMixed, 68),
    (Mistake::TwoActive, 77),
    (Mistake::RefusalIgnored, 121),
    (Mistake::OldStoreAccepted, 801),
    (Mistake::ResumeEarly, 2),
    (Mistake::FailureTooLate, 5),
    (Mistake::FailureTooEarly, 5),
    (Mistake::UnknownEarly, 14),
    (Mistake::RejoinNotAwaited, 2),
    (Mistake::LeaveCauseLost, 118),
];

/// Whether the seed exercises the mistake; other seeds need not be tried.
fn is_applicable(mistake: Mistake, swarm: &Swarm) -> bool {
    let replicas =
        swarm.plan.control_plane.as_ref().map_or(0, |control_plane| control_plane.replicas);
    let draws = |is_it: fn(&FaultEvent) -> bool| swarm.timeline.iter().any(|(_, what)| is_it(what));
    match mistake {
        Mistake::TwoActive | Mistake::RefusalIgnored => {
            replicas > 1 && draws(|what| matches!(what, FaultEvent::LeaseExpired))
        }
        Mistake::OldStoreAccepted => draws(|what| matches!(what, FaultEvent::OldStore(_))),
        Mistake::DeadLinkRetained => swarm.removed.is_some(),
        Mistake::DuplicateAccepted => {
            draws(|what| matches!(what, FaultEvent::AllLinks(faults) if faults.duplicate_ppm > 0))
        }
        Mistake::BundledAcksMixed => {
            swarm.plan.switch.ack_bundle_ns > 0
                && swarm.plan.reliable_percent > 30
                && swarm.plan.processes_per_host > 1
        }
        Mistake::OwnCommitIgnored => swarm.plan.reliable_percent > 30,
        Mistake::DiscardOffByOne
        | Mistake::DiscardForgotten
        | Mistake::DeadCommitDropped
        | Mistake::RestartIgnored
        | Mistake::ResumeEarly
        | Mistake::FailureTooLate
        | Mistake::FailureTooEarly => replicas > 0,
        Mistake::UnknownEarly | Mistake::RejoinNotAwaited => swarm.is_calm,
        Mistake::LeaveCauseLost => draws(|what| matches!(what, FaultEvent::Leave(_))),
        _ => true,
    }
}

#[test]
fn checkers_catch_every_mistake() {
    assert!(FIRST_SEEDS.iter().map(|(mistake, _)| mistake).eq(Mistake::of_scattering()));
    let is_applicable = |mistake, seed| is_applicable(mistake, &Swarm::draw(seed));
    assert_eq!(run_known_mutations(FIRST_SEEDS, is_applicable, caught), Vec::<&str>::new());
}
