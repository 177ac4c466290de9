use super::super::weights::Recorded;
use super::*;
use Position::{Code, Waiting as InCall};
use memlens_types::AccessKind;
use proptest::prelude::*;

/// Adds a burst that took no time, and none has to go for it.
fn add(bursts: &mut WaitingBursts, burst: Waiting, period_ns: f64) {
    assert!(bursts.add(burst, 0, period_ns, |_, _| {}).is_empty());
}

fn weights(bursts: &WaitingBursts) -> Vec<f64> {
    bursts.bursts.iter().map(|burst| burst.weight).collect()
}

fn times(bursts: &WaitingBursts) -> Vec<f64> {
    bursts.bursts.iter().map(|burst| burst.time_ns).collect()
}

#[test]
fn the_time_between_two_bursts_is_half_the_ones_and_half_the_others() {
    let mut bursts = WaitingBursts::default();
    bursts.add(slow(), 0, 1000.0, |_, _| panic!("there was none before"));
    assert_eq!((weights(&bursts), bursts.bursts[0].unseen_before), (vec![120.0], 20.0));
    let mut told = None;
    bursts.add(fast(), 0, 10_000.0, |before, factor| told = Some(before.with(factor).1));
    assert_eq!((weights(&bursts), told), (vec![220.0, 10_200.0], Some(220.0)));
    assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 100.0 + 10_000.0);
    assert_eq!(bursts.calls_ns(), 0.0);
}

#[test]
fn what_was_allocated_between_bursts_tells_how_much_there_was() {
    let mut bursts = WaitingBursts::default();
    for _ in 0..10 {
        // One in the 30 accesses that it counted; 200 more were there in the time before it.
        add(&mut bursts, Waiting { allocations: 1.0, allocations_before: 12.0, ..slow() }, 10_000.0);
    }
    let said: f64 = bursts.bursts.iter().map(|burst| burst.share().unseen / 30.0).sum();
    let before = weights(&bursts)[1];
    let taken = bursts.take_all(None);
    let (Waiting { weight, timing, .. }, times) = (&taken[1], 120.0 / said);
    assert!((1.2..1.4).contains(&times) && before == 300.0, "{times}, {before}");
    let more = (weight - 30.0) / (before - 30.0);
    assert!((more / times - 1.0).abs() < 0.05, "{more} in place of {times}");
    assert!((timing.access_ns * more - slow().timing.access_ns).abs() < 1e-9, "in the same time");
}

#[test]
fn what_is_half_a_system_calls_is_no_bursts() {
    let mut bursts = WaitingBursts::default();
    // Nothing is known of what came before; another thread's calls are its own.
    bursts.look((9, 1), 0, 5000.0, InCall);
    bursts.look((9, 2), 0, 100.0, InCall);
    assert_eq!(bursts.calls_ns(), 5100.0);
    add(&mut bursts, slow(), 1000.0);
    assert_eq!((weights(&bursts), bursts.bursts[0].unseen_before), (vec![110.0], 10.0));
    assert_eq!(bursts.calls_ns(), 5000.0 + 100.0 + 500.0);
    bursts.look((9, 1), 0, 2000.0, InCall);
    bursts.look((9, 1), 0, 700.0, InCall);
    assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0);
    add(&mut bursts, fast(), 10_000.0);
    assert_eq!(weights(&bursts), [130.0, 10_200.0]);
    assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 20.0 + 10_000.0);
    assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
    bursts.take_all(Some(9));
    assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
}

#[test]
fn looks_tell_which_of_two_bursts_the_time_between_them_is() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, Waiting { code: code(&[0x1000, 0x1010]), ..slow() }, 0.0);
    // In the slow one's code until late, then at the other's; far from both, and in that of both, time decides.
    for at in [0x1014, 0x9000, 0x1008, 0x1018, 0x1031, 0x7777] {
        bursts.look((9, 1), 0, 1000.0, Code(at));
    }
    add(&mut bursts, Waiting { code: code(&[0x1000, 0x1040]), ..fast() }, 1000.0);
    // Its own half, four looks, and half of the next interval.
    assert_eq!(weights(&bursts), [100.0 + 4500.0 / 50.0, 200.0 + 2500.0 / 0.5]);
    assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 4500.0 / 50.0 + 2500.0 / 0.5);
}

#[test]
fn code_of_an_earlier_burst_has_its_time_between_others() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x1000]), 0.0);
    add(&mut bursts, at(2, &[0x1010]), 1000.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1004));
    bursts.look((9, 1), 0, 1000.0, Code(0x1004));
    add(&mut bursts, at(3, &[0x1020]), 1000.0);
    assert_eq!(times(&bursts), [500.0 + 2000.0, 500.0 + 500.0, 500.0]);
    // Seen by a thread that goes through memory the accesses are where they were, as fast as there.
    assert_eq!(bursts.bursts[2].unseen_before, (500.0 + 500.0 + 2000.0) / 10.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1020));
    add(&mut bursts, at(4, &[0x1020]), 1000.0);
    let elsewhere = bursts.bursts.iter().map(|burst| burst.was_elsewhere);
    assert!(elsewhere.eq([None, None, Some(true), Some(false)]), "{bursts:?}");
}

#[test]
fn a_burst_in_which_code_only_ends_does_not_stand_for_it() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x1000]), 0.0);
    let mixed = |at_ns: u64| Waiting { code: vec![(0x1000, 2), (0x2000, 8)], ..at(at_ns, &[]) };
    add(&mut bursts, mixed(2), 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    add(&mut bursts, at(3, &[0x2000]), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0, 0.0]);
    // If it is all there is of it, it does.
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, mixed(1), 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    add(&mut bursts, at(2, &[0x2000]), 0.0);
    assert_eq!(times(&bursts), [1000.0, 0.0]);
}

#[test]
fn time_that_waits_is_not_for_a_burst_in_which_its_code_only_begins() {
    let mixed = |at_ns: u64| Waiting { code: vec![(0x1000, 2), (0x2000, 8)], ..at(at_ns, &[]) };
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x2000]), 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    // Nothing else is known of it, …
    add(&mut bursts, mixed(2), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0]);
    // … and now it is.
    add(&mut bursts, at(3, &[0x1000]), 0.0);
    bursts.lent.entry(1).or_default().waiting.push(Foreign {
        when: Span::default(),
        pc: 0x1000,
        time_ns: 70.0,
        whose_ns: None,
        age: 0,
    });
    add(&mut bursts, mixed(4), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0, 0.0, 0.0]);
    add(&mut bursts, at(5, &[0x1000]), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0, 0.0, 0.0, 70.0]);
}

#[test]
fn of_bursts_of_the_same_code_those_that_are_too_fast_stand_for_no_more() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x1000]), 0.0);
    add(&mut bursts, at(2, &[0x1000]), 0.0);
    // What was measured behind it is other code.
    let timing = Timing { at_ns: 3, ..of(1, 0.5) };
    add(&mut bursts, Waiting { timing, ..at(3, &[0x1000]) }, 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    add(&mut bursts, at(4, &[0x2000]), 0.0);
    assert_eq!(times(&bursts), [0.0, 500.0, 500.0, 0.0]);
}

#[test]
fn code_whose_burst_waits_no_more_has_its_time_in_the_next() {
    let mut bursts = WaitingBursts::default();
    bursts.known.add(9, [0x1000].into_iter(), 10.0);
    add(&mut bursts, at(1, &[0x2000]), 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    add(&mut bursts, at(2, &[0x2000]), 1000.0);
    assert_eq!(times(&bursts), [500.0, 500.0]);
    add(&mut bursts, at(3, &[0x1000]), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0, 1000.0]);
    // If there is none, those that come at the end have it.
    bursts.look((9, 1), 0, 1000.0, Code(0x1000));
    bursts.known.add(9, [0x3000].into_iter(), 10.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x3000));
    add(&mut bursts, at(4, &[0x2000]), 0.0);
    assert_eq!(times(&bursts), [500.0, 500.0, 2500.0, 0.0]);
    let all: Vec<f64> = bursts.take_all(None).iter().map(|burst| burst.time_ns).collect();
    assert_eq!(all, [500.0, 500.0, 2500.0, 500.0]);
}

#[test]
fn time_in_code_before_the_first_burst_is_that_of_its_code() {
    let mut bursts = WaitingBursts::default();
    for at in [0x1000, 0x5000, 0x9000] {
        bursts.look((9, 1), 0, 1000.0, Code(at));
    }
    add(&mut bursts, at(1, &[0x9000]), 1000.0);
    assert_eq!((times(&bursts), bursts.unmet_ns()), (vec![4000.0], 2000.0));
    // Half before the look there, half behind it.
    add(&mut bursts, at(2, &[0x5000]), 0.0);
    assert_eq!((times(&bursts), bursts.unmet_ns()), (vec![3000.0, 1000.0], 1000.0));
    bursts.take_all(None);
    assert_eq!(bursts.unmet_ns(), 1000.0);
}

#[test]
fn what_is_taken_from_a_burst_that_waits_no_more_others_give_back() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x1000]), 0.0);
    bursts.look((9, 1), 0, 1000.0, Code(0x5000));
    add(&mut bursts, at(2, &[0x1000]), 1000.0);
    assert_eq!(bursts.take_all(None).len(), 2);
    // Its thread is not forgotten; nobody knows any more who had it.
    bursts.lent.entry(1).or_default().unmet.push(Foreign {
        when: Span::default(),
        pc: 0x5000,
        time_ns: 1000.0,
        whose_ns: Some(1),
        age: 0,
    });
    add(&mut bursts, at(3, &[0x5000]), 0.0);
    assert_eq!((times(&bursts), bursts.bursts[0].taken_ns), (vec![1000.0], 1000.0));
    add(&mut bursts, at(4, &[0x1000]), 3000.0);
    add(&mut bursts, at(5, &[0x1000]), 500.0);
    assert_eq!(times(&bursts), [2500.0 - 750.0, 1750.0 - 250.0, 250.0]);
}

const MS: u64 = 1_000_000;

/// One at so many ms, of the code there.
fn burst(at_ms: u64, address: u64, waiting: Waiting) -> Waiting {
    let timing = Timing { at_ns: at_ms * MS, ..waiting.timing };
    Waiting { timing, code: code(&[address]), ..waiting }
}

#[test]
fn glances_between_two_ticks_are_looks() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, burst(10, 0x1000, slow()), 0.0);
    // From 12 ms on in the other's code, and from 16 ms on in a call that ends at 20 ms.
    let glance = |time_ns, ip| Glance { time_ns, period_ns: MS, position: Code(ip) };
    let glances = (11..=16).map(|at| glance(at * MS, if at < 12 { 0x1000 } else { 0x9000 }));
    bursts.glanced((9, 1), glances.collect());
    bursts.look((9, 1), 20 * MS, 10e6, InCall);
    // The burst takes a ms; a glance comes in it.
    bursts.glanced((9, 1), vec![glance(21 * MS, 0x9000), glance(22 * MS + 1, 0x4444)]);
    assert!(bursts.add(burst(23, 0x9000, fast()), MS, 2e6, |_, _| {}).is_empty());
    // 4.5 ms up to the last glance, half of a period up to the call, and 1.5 ms of the two behind it.
    assert_eq!(times(&bursts), [1.5e6, 4.5e6 + 0.5e6 + 1.5e6]);
    assert_eq!(bursts.calls_ns(), 4e6);
}

#[test]
fn time_without_glances_is_the_slower_codes() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, burst(10, 0x1000, slow()), 0.0);
    // No glance from 12 to 17 ms: page faults, which are the slow code's.
    let glance = |at: u64| Glance {
        time_ns: at * MS,
        period_ns: MS,
        position: Code(if at < 13 { 0x1000 } else { 0x9000 }),
    };
    bursts.glanced((9, 1), [11, 12, 17, 18].map(glance).to_vec());
    add(&mut bursts, burst(19, 0x9000, fast()), 9e6);
    assert_eq!(times(&bursts), [2e6 + 0.5e6 + 4e6, 0.5e6 + 2e6]);
    // Behind the last glance it is so as well.
    bursts.glanced((9, 1), vec![glance(20)]);
    add(&mut bursts, burst(26, 0x1000, slow()), 7e6);
    assert_eq!(times(&bursts), [6.5e6, 2.5e6 + 1e6 + 0.5e6, 0.5e6 + 5e6]);
    // Who knows nothing of glances divides it evenly, as before.
    bursts.look((9, 2), 30 * MS, 4e6, Code(0x9000));
    assert_eq!(bursts.looks[&2].looks[0].most_code_ns, 4e6);
}

#[test]
fn phases_shorter_than_the_time_between_bursts_have_their_looks() {
    // One ms of each ten is in other code than the rest. A burst comes every 21 ms, a look every ms between them.
    let (mut bursts, mut weights) = (WaitingBursts::default(), [0.0; 2]);
    let mut feed = |waiting: Waiting| weights[usize::from(waiting.code[0].0 == 0x9000)] += waiting.weight;
    let at = |ms: u64| if ms % 10 == 3 { 0x9000 } else { 0x1000 };
    for ms in 0..21_000 {
        if ms % 21 != 0 {
            bursts.look((9, 1), 0, 1000.0, Code(at(ms)));
            continue;
        }
        let timing = Timing { at_ns: ms, ..of(1, 1.0) };
        let burst = Waiting { timing, code: code(&[at(ms)]), ..Waiting::default() };
        bursts.add(burst, 0, 1000.0, |_, _| {}).into_iter().for_each(&mut feed);
    }
    bursts.take_all(None).into_iter().for_each(feed);
    let [most, tenth] = weights.map(|weight| weight / 21e6);
    assert!((most - 0.9).abs() < 0.001 && (tenth - 0.1).abs() < 0.001, "{most} {tenth}");
}

#[test]
fn a_speed_measured_on_new_code_is_that_of_the_next_burst_of_it() {
    // 2000 ns before it and of the 4000 behind it, at half a ns an access instead of 50, of most or half of the code.
    for (addresses, weight, access_ns) in
        [([1, 2, 9], 100.0 + 4000.0 / 0.5, 0.5), ([1, 7, 9], 100.0 + 4000.0 / 50.0, 50.0)]
    {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, Waiting { code: code(&addresses), ..slow() }, 2000.0);
        let settled = Waiting { speed: Speed::Settled, code: code(&[1, 2, 3]), ..fast() };
        add(&mut bursts, settled, 4000.0);
        let [first, next] = [&bursts.bursts[0], &bursts.bursts[1]];
        assert_eq!((first.weight, first.timing.access_ns), (weight, access_ns), "{addresses:?}");
        assert_eq!(first.unseen_before, 2000.0 / access_ns);
        assert_eq!(next.unseen_before, 30.0 + 2000.0 / access_ns + 2000.0 / 0.5);
    }
}

#[test]
fn a_speed_that_was_guessed_is_that_of_the_nearest_burst_of_the_code() {
    // A guess of 0.5 ns, where 50 were measured in the same code.
    let guessed = |thread, recorded_ns: Option<f64>| Waiting {
        timing: Timing { process: 0, ..of(thread, 0.5) },
        speed: Speed::Guessed { recorded: recorded_ns.map(|ns| Recorded { ns, shared: 1.0 }) },
        code: code(&[1, 2, 9]),
        ..fast()
    };
    let settled = |thread, access_ns, at: u64| Waiting {
        timing: Timing { process: 0, at_ns: at, ..of(thread, access_ns) },
        speed: Speed::Settled,
        code: code(&[1, 2, 3]),
        ..slow()
    };
    let speeds = |bursts: &WaitingBursts| -> Vec<f64> {
        bursts.bursts.iter().map(|burst| burst.timing.access_ns).collect()
    };
    let mut bursts = WaitingBursts::default();
    // What an access took in the burst may say that it was another phase.
    for recorded_ns in [None, Some(60.0), Some(10_000.0)] {
        add(&mut bursts, guessed(1, recorded_ns), 1000.0);
    }
    assert_eq!(speeds(&bursts), [0.5; 3]);
    let lost = weights(&bursts)[0];
    add(&mut bursts, settled(1, 50.0, 1), 0.0);
    assert_eq!(speeds(&bursts), [50.0, 50.0, 0.5, 50.0]);
    // 1500 ns of its own, at 50 ns an access.
    assert_eq!(lost - weights(&bursts)[0], 1500.0 / 0.5 - 1500.0 / 50.0);
    assert_eq!(bursts.bursts[0].unseen_before, 1000.0 / 50.0);
    // What is counted behind the first, and half of the time before each: the first's is slower now as well.
    assert_eq!(bursts.bursts[1].unseen_before, 40.0 + 500.0 / 50.0 + 500.0 / 50.0);
    // Another thread's tells if there is none of its own; the latest does.
    add(&mut bursts, settled(2, 20.0, 2), 0.0);
    add(&mut bursts, guessed(1, None), 0.0);
    add(&mut bursts, guessed(3, None), 0.0);
    add(&mut bursts, Waiting { code: code(&[7, 8, 9]), ..guessed(3, None) }, 0.0);
    assert_eq!(speeds(&bursts)[5..], [50.0, 20.0, 0.5]);
}

#[test]
fn what_comes_behind_the_last_burst_is_its() {
    let mut bursts = WaitingBursts::default();
    bursts.look((0, 1), 0, 1000.0, Code(0x5000));
    // All before it, too.
    add(&mut bursts, slow(), 1000.0);
    assert_eq!(weights(&bursts), [100.0 + 2000.0 / 50.0]);
    bursts.look((0, 1), 0, 1000.0, Code(0x9000));
    bursts.look((0, 1), 0, 1000.0, InCall);
    assert!(bursts.take_all(Some(5)).is_empty());
    let all = bursts.take_all(None);
    assert_eq!(all.iter().map(|waiting| waiting.weight).collect::<Vec<_>>(), [140.0 + 1500.0 / 50.0]);
    assert_eq!(bursts.calls_ns(), 500.0);
}

#[test]
fn what_comes_behind_the_last_burst_in_other_code_is_not_its() {
    let mut bursts = WaitingBursts::default();
    add(&mut bursts, at(1, &[0x1000]), 0.0);
    add(&mut bursts, at(2, &[0x2000]), 0.0);
    // One before met that code, a quarter of the time no burst.
    for code in [0x2000, 0x1000, 0x1000, 0x9000] {
        bursts.look((9, 1), 3, 1000.0, Code(code));
    }
    let all: Vec<f64> = bursts.take_all(None).iter().map(|burst| burst.time_ns).collect();
    assert_eq!(all, [500.0 + 1000.0 + 500.0, 1000.0 + 500.0 + 500.0]);
    assert_eq!(bursts.unmet_ns(), 500.0);
}

#[test]
fn what_comes_before_a_system_call_counts_no_more_than_the_rest() {
    let burst = |length: usize, is_cut| Waiting {
        timing: of(1, 1.0),
        weight: length as f64,
        is_cut,
        references: vec![REFERENCE; length],
        ..Waiting::default()
    };
    let mut bursts = WaitingBursts::default();
    let all =
        [burst(1000, false), burst(100, true), burst(1000, false), burst(1000, true), burst(1000, false)];
    all.into_iter().for_each(|burst| add(&mut bursts, burst, 10_000.0));
    let weights: Vec<f64> = bursts.take_all(None).iter().map(|burst| burst.weight).collect();
    // Usually 775 and 873 long by then: the second keeps 129 thousandths of the time around it, the fourth all.
    let kept = 10_000.0 * 100.0 / 775.0;
    let expected = [16_000.0, 100.0 + kept, 11_000.0 + 10_000.0 - kept, 11_000.0, 6000.0];
    assert!(
        weights.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{weights:?}"
    );
}

proptest! {
    /// Whoever has it, all of the time is somebody's, and twice only what a burst that waited no more had lent.
    #[test]
    fn no_time_is_lost_and_none_counts_twice(
        events in prop::collection::vec((0u32..20, 0u64..12, 1u64..1000, 0u32..8), 1..600)
    ) {
        let mut bursts = WaitingBursts::default();
        let (mut all_ns, mut given_ns, mut twice_ns) = (0.0, 0.0, 0.0);
        let mut give = |burst: Waiting| {
            given_ns += burst.time_ns;
            twice_ns += burst.taken_ns;
        };
        // At the end each thread has a burst: looks alone stand for nothing.
        let ends = (0..20).map(|thread| (thread, 0, 1, 7));
        for (at_ns, (thread, place, period_ns, kind)) in (1..).zip(events.into_iter().chain(ends)) {
            let (pc, period_ns) = (0x1000 * place, period_ns as f64);
            match kind {
                0..4 => bursts.look((9, thread), at_ns, period_ns, Code(pc + 4)),
                4 => bursts.look((9, thread), at_ns, period_ns, InCall),
                _ => {
                    let timing = Timing { at_ns, ..of(thread, 1.0) };
                    let burst = Waiting { timing, code: code(&[pc, pc + 0x1000]), ..Waiting::default() };
                    bursts.add(burst, 0, period_ns, |_, _| {}).into_iter().for_each(&mut give);
                }
            }
            all_ns += period_ns;
        }
        bursts.take_all(None).into_iter().for_each(&mut give);
        let found_ns = given_ns + bursts.calls_ns();
        prop_assert!(found_ns > all_ns - 1e-3, "{} of {}", found_ns, all_ns);
        prop_assert!(found_ns < all_ns + twice_ns + 1e-3, "{} and {} of {}", found_ns, twice_ns, all_ns);
    }
}

const REFERENCE: Reference =
    Reference { address: 0, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load };

/// Of a thread of process 9 whose accesses take so long.
fn of(thread: u32, access_ns: f64) -> Timing {
    Timing { process: 9, thread, access_ns, ..Timing::default() }
}

/// A thread's bursts.
fn slow() -> Waiting {
    Waiting {
        timing: Timing { process: 0, ..of(1, 50.0) },
        weight: 100.0,
        counted: 30.0,
        ..Waiting::default()
    }
}

fn fast() -> Waiting {
    Waiting {
        timing: Timing { process: 0, ..of(1, 0.5) },
        weight: 200.0,
        counted: 40.0,
        ..Waiting::default()
    }
}

/// One of thread 1, reported at a time.
fn at(at_ns: u64, addresses: &[u64]) -> Waiting {
    Waiting { timing: Timing { at_ns, ..of(1, 10.0) }, code: code(addresses), ..Waiting::default() }
}

/// Executed ten times each.
fn code(addresses: &[u64]) -> Vec<(u64, u32)> {
    addresses.iter().map(|&address| (address, 10)).collect()
}

#[test]
fn the_one_that_waited_longest_makes_room() {
    let mut bursts = WaitingBursts::default();
    let one = |thread: u32| Waiting {
        timing: Timing { process: thread % 2, ..of(thread, 1.0) },
        ..Waiting::default()
    };
    (0..MOST as u32 - 1).for_each(|thread| add(&mut bursts, one(thread), 1.0));
    // Thread 0 has another burst.
    let mut had_one = false;
    assert!(bursts.add(one(0), 0, 1.0, |before, _| had_one = before.has_next).is_empty() && had_one);
    let gone = |gone: Vec<Waiting>| gone.iter().map(|burst| burst.timing.thread).collect::<Vec<_>>();
    assert_eq!(gone(bursts.add(one(1000), 0, 1.0, |_, _| {})), [0]);
    assert_eq!(gone(bursts.add(one(1001), 0, 1.0, |_, _| {})), [1]);
    assert_eq!(bursts.take_all(Some(1)).len(), MOST / 2 - 1);
    assert_eq!(bursts.take_all(None).len(), MOST / 2 + 1);
    // Long ones need more room, but the last of each thread.
    let long = |thread| Waiting { references: vec![REFERENCE; MOST_REFERENCES / 2], ..one(thread) };
    [1, 2, 1].into_iter().zip([0, 0, 1]).for_each(|(thread, goes)| {
        assert_eq!(gone(bursts.add(long(thread), 0, 1.0, |_, _| {})), vec![1; goes]);
    });
    assert_eq!(gone(bursts.add(long(3), 0, 1.0, |_, _| {})), [0u32; 0]);
    assert_eq!((bursts.take_all(None).len(), bursts.references), (3, 0));
}

#[test]
fn what_a_burst_stands_for_is_when_that_was() {
    const SECOND: u64 = 1_000_000_000;
    let mut bursts = WaitingBursts::default();
    let mut first = at(SECOND, &[0x1000]);
    first.weight = 0.0;
    add(&mut bursts, first, 0.0);
    let mut second = at(3 * SECOND, &[0x1000]);
    second.weight = 0.0;
    // Two seconds by the clock, of which the thread had 1000 ns.
    add(&mut bursts, second, 1000.0);
    let slices: Vec<memlens_profile::Slice> =
        (0..4).map(|at| memlens_profile::Slice { begin: at * SECOND, end: (at + 1) * SECOND }).collect();
    for burst in &bursts.bursts {
        let times = burst.times();
        let share = times.in_slices(0, &slices).into_iter().map(|it| it / times.sum()).collect::<Vec<_>>();
        assert!(share[0] < 0.05 && share[3] < 0.05 && (share[1] - share[2]).abs() < 0.1, "{share:?}");
        assert!((times.sum() / burst.weight - 1.0).abs() < 1e-3, "{} {}", times.sum(), burst.weight);
    }
}
