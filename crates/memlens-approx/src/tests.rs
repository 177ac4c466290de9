//! The paper's worked tables, then what is ours.
//!
//! The paper prints two decimals, some rounded and some cut off (.526 is ".52", .109 is ".10"), so
//! "equal" means: less than 0.01 apart. Where the print contradicts the paper's own figure, equations or
//! other cells, the test says so and asserts what the equations give.

use crate::{Code, Flow, LoopLines, Position, Read, Skid, SkidError, THRESHOLD};

const X: usize = 0;
const Y: usize = 1;
const A: usize = 2;
const B: usize = 3;

const XA: Read = Read { location: 0, variable: X };
const XB: Read = Read { location: 1, variable: X };
const YA: Read = Read { location: 2, variable: Y };
const YB: Read = Read { location: 3, variable: Y };
const RA: Read = Read { location: 4, variable: A };
const RB: Read = Read { location: 5, variable: B };

/// Figure 2; position 0 is line 1. `line3` are the reads of line 3.
///
/// ```text
/// 1 for (a = 0; a < b; a++) {
/// 2     i = x[a] + y[b]
/// 3     j = y[a] + y[b]
/// 4     k = x[b] + x[b]
/// 5 }
/// ```
fn figure_2(line3: Vec<Read>) -> Code {
    let position = |reads| Position { reads, innermost: Some(0) };
    Code::new(
        vec![
            position(vec![RA, RB]),
            position(vec![XA, RA, YB, RB]),
            position(line3),
            position(vec![XB, RB, XB, RB]),
        ],
        vec![LoopLines { positions: vec![0, 1, 2, 3] }],
    )
}

fn figure() -> Code {
    figure_2(vec![YA, RA, YB, RB])
}

/// One miss at each line of the body.
const MISSES: [f64; 4] = [0.0, 1.0, 1.0, 1.0];

fn printed(value: f64, print: f64) {
    assert!((value - print).abs() < 0.01, "{value} is not printed as {print}");
}

#[test]
fn table_of_raw_assignment() {
    let code = figure();
    let raw = code.raw(&MISSES);
    // Lines 2, 3, 4; x[], y[], a, b.
    let print = [[0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.25, 0.25], [0.5, 0.0, 0.0, 0.5]];
    for (line, row) in (1..).zip(print) {
        for (variable, value) in row.into_iter().enumerate() {
            assert_eq!(raw.of(line, variable), value, "line {}, variable {variable}", line + 1);
        }
    }
    // The Raw sums of the third table. b's is printed .50 below .25, .25 and .50; they make 1.
    assert_eq!(raw.by_variable(4), [0.75, 0.75, 0.5, 1.0]);
    assert_eq!(raw.lost, 0.0);
}

#[test]
fn table_of_loop_weights() {
    let code = figure();
    let weights = code.loop_weights(0, THRESHOLD);
    let print = [
        (XA, 0.94, 0.52, 1.46),
        (XB, 0.94, 0.52, 1.46),
        (YA, 0.94, 0.52, 1.46),
        (YB, 0.75, 0.42, 1.17),
        (RA, 0.44, 0.00, 0.44),
        (RB, 0.00, 0.00, 0.00),
    ];
    assert_eq!(weights.len(), print.len());
    for (weight, (read, raw, adjusted, total)) in weights.iter().zip(print) {
        assert_eq!(weight.read, read);
        printed(weight.raw, raw);
        printed(weight.adjusted, adjusted);
        printed(weight.total(), total);
    }
    let sum = |part: fn(&crate::LoopWeight) -> f64| weights.iter().map(part).sum::<f64>();
    assert!((sum(|w| w.raw) - 4.0).abs() < 1e-12);
    assert!((sum(|w| w.adjusted) - 2.0).abs() < 1e-12);
    assert!((sum(|w| w.total()) - 6.0).abs() < 1e-12);
}

#[test]
fn table_of_loop_adjusted_misses() {
    let code = figure();
    let adjusted = code.compensate(&code.raw(&MISSES), THRESHOLD);
    // x[], y[], a, b at lines 2, 3, 4.
    let print = [[0.37, 0.29, 0.10, 0.00], [0.00, 0.60, 0.10, 0.00], [0.73, 0.00, 0.10, 0.00]];
    for (line, row) in (1..).zip(print) {
        for (variable, value) in row.into_iter().enumerate() {
            match (line + 1, variable) {
                // Printed .60. y[a] and y[b] have .25 each (the same table's Raw .50), with the
                // weights 1.46 and 1.17 of the table before: .25·1.4638 + .25·1.1711 = .6587. The
                // print is .25·(1.46 + .94), a raw weight where the final one belongs.
                (3, Y) => printed(adjusted.of(line, variable), 0.6587),
                // Printed .10, beside a raw amount of .00: line 4 does not read a.
                (4, A) => assert_eq!(adjusted.of(line, variable), 0.0),
                _ => printed(adjusted.of(line, variable), value),
            }
        }
    }
    let sums = adjusted.by_variable(4);
    printed(sums[X], 1.10);
    // Printed .89 and .30: they add up the two cells above as printed.
    printed(sums[Y], 0.29 + 0.6587);
    printed(sums[A], 2.0 * 0.1094);
    printed(sums[B], 0.00);
}

/// Mean one line back, .5; the lines around it .25 each.
fn published_skid() -> Skid {
    Skid::from_histogram(&[(0, 0.25), (1, 0.5), (2, 0.25)]).unwrap()
}

#[test]
fn table_of_skid_adjusted_misses() {
    // A miss that landed on line 4.
    let landed = [0.0, 0.0, 0.0, 1.0];
    // The print gives line 3 to x, y, a and b in equal parts, although line 3 of figure 2 reads no
    // x: it is the table of `j = x[a] + y[b]`.
    let print = [[0.07, 0.07, 0.07, 0.07], [0.14, 0.14, 0.14, 0.14], [0.07, 0.00, 0.00, 0.07]];
    let code = figure_2(vec![XA, RA, YB, RB]);
    let adjusted = code.negate_skid(&landed, &published_skid());
    for (line, row) in (1..).zip(print) {
        for (variable, value) in row.into_iter().enumerate() {
            printed(adjusted.of(line, variable), value);
        }
    }
    let sums = adjusted.by_variable(4);
    for (sum, print) in sums.iter().zip([0.28, 0.21, 0.21, 0.28]) {
        printed(*sum, print);
    }
    assert!((sums.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    // The Raw columns.
    let raw = code.raw(&landed);
    assert_eq!(raw.by_variable(4), [0.5, 0.0, 0.0, 0.5]);

    // With figure 2 as it stands, what the print gives to x on line 3 is y's: 1/3.5 of 1.
    let code = figure();
    let adjusted = code.negate_skid(&landed, &published_skid());
    printed(adjusted.of(2, Y), 0.28);
    assert_eq!(adjusted.of(2, X), 0.0);
    // Line 1 is out of reach.
    assert_eq!(adjusted.at(0), [0.0, 0.0]);
}

#[test]
fn skid_is_the_base_of_loop_compensation() {
    // "We would see an increase for the arrays and a decrease for the primitives."
    let code = figure();
    let skid = code.negate_skid(&[0.0, 0.0, 0.0, 1.0], &published_skid());
    let both = code.compensate(&skid, THRESHOLD);
    let (before, after) = (skid.by_variable(4), both.by_variable(4));
    assert!(after[X] > before[X] && after[Y] > before[Y], "{before:?} {after:?}");
    assert!(after[A] < before[A] && after[B] < before[B], "{before:?} {after:?}");
}

#[test]
fn no_sample_vanishes() {
    // A loop of one line that reads one variable: its weight is 1 − 1² = 0.
    let one = vec![Position { reads: vec![XA], innermost: Some(0) }, Position::default()];
    let code = Code::new(one, vec![LoopLines { positions: vec![0] }]);
    let raw = code.raw(&[5.0, 2.0]);
    assert_eq!((raw.total(), raw.lost), (5.0, 2.0));
    assert_eq!(code.compensate(&raw, THRESHOLD).total(), 5.0);
    // Nothing is read where the samples are, nor one position before.
    let skid = Skid::from_histogram(&[(5, 1.0)]).unwrap();
    assert_eq!(code.negate_skid(&[5.0, 2.0], &skid).lost, 7.0);
    // Keeping each position's sum.
    let code = figure();
    let raw = code.raw(&MISSES);
    let kept = code.compensate_within(&raw, THRESHOLD);
    for line in 1..4 {
        assert!((kept.at(line).iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn a_gaussian_is_what_it_says() {
    let skid = Skid::gaussian(4.0, 2.25).unwrap();
    let sum: f64 = skid.parts().map(|part| part.1).sum();
    let mean: f64 = skid.parts().map(|part| part.0 as f64 * part.1).sum();
    let variance: f64 = skid.parts().map(|part| (part.0 as f64 - mean).powi(2) * part.1).sum();
    assert!((sum - 1.0).abs() < 1e-12 && (mean - 4.0).abs() < 1e-9, "{sum} {mean}");
    // Cut at three standard deviations, which takes 3 % of the variance.
    assert!((variance - 2.25).abs() < 0.1, "{variance}");
    assert_eq!(Skid::gaussian(3.0, 0.0).unwrap().parts().collect::<Vec<_>>(), [(3, 1.0)]);
    assert_eq!(Skid::gaussian(1.0, -1.0), Err(SkidError::Parameters));
    assert_eq!(Skid::from_histogram(&[(0, 0.0)]), Err(SkidError::Empty));
    assert_eq!(Skid::from_histogram(&[(0, f64::NAN)]), Err(SkidError::Weight));
}

/// ```text
///  0 load x ─► 1 branch ─┬─► 2 load y ─► 3 ─┐
///                        └─► 4 load z ─► 5 ─┴─► 6 ─► 7 ─► 0
/// ```
fn diamond() -> Vec<Vec<usize>> {
    vec![vec![1], vec![2, 4], vec![3], vec![6], vec![5], vec![6], vec![7], vec![0]]
}

#[test]
fn samples_land_along_edges() {
    let flow = Flow::new(&diamond(), &[0.0, 0.0, 30.0, 0.0, 10.0], 0.0);
    let skid = Skid::from_histogram(&[(1, 0.5), (2, 0.5)]).unwrap();
    assert_eq!(flow.landing(0, &skid), [(1, 0.5), (2, 0.375), (4, 0.125)]);
    // Round the loop.
    assert_eq!(flow.landing(7, &skid), [(0, 0.5), (1, 0.5)]);
}

#[test]
fn what_landed_behind_a_conditional_is_found_in_its_arms() {
    // Of 1000 rounds 700 go through y; x costs 2 a round, y 10, z 1; skid 2 to 4 instructions.
    let truth = [2000.0, 0.0, 7000.0, 0.0, 300.0, 0.0, 0.0, 0.0];
    let taken = [0.0, 0.0, 700.0, 0.0, 300.0];
    let skid = Skid::from_histogram(&[(2, 0.2), (3, 0.6), (4, 0.2)]).unwrap();
    let real = Flow::new(&diamond(), &taken, 0.0);
    let mut samples = [0.0; 8];
    for (from, amount) in truth.iter().enumerate() {
        real.landing(from, &skid).into_iter().for_each(|(to, p)| samples[to] += amount * p);
    }
    // Nearly all of it is seen at 6, 7 and 0, where nothing but x is read.
    assert!(samples[6] + samples[7] + samples[0] > 7000.0);
    // Nothing is known of the edges; loads are 0, 2 and 4.
    let guess = Flow::new(&diamond(), &[], 1.0);
    let prior = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0];
    let (found, lost) = guess.unskid(&samples, &prior, &skid, 100);
    assert_eq!(lost, 0.0);
    assert!((found.iter().sum::<f64>() - 9300.0).abs() < 1e-6);
    // Landing 2 to 4 after y and after z is the same (6, 7, 0), so the two share what is theirs;
    // x, which lands in the arms, is told apart.
    assert!((found[0] - 2000.0).abs() < 300.0, "{found:?}");
    assert!((found[2] + found[4] - 7300.0).abs() < 300.0, "{found:?}");
    // A prior from how often each arm runs settles the rest in y's favour.
    let prior = [1.0, 0.0, 0.7, 0.0, 0.3, 0.0, 0.0, 0.0];
    let (found, _) = guess.unskid(&samples, &prior, &skid, 100);
    assert!(found[2] > 2.0 * found[4], "{found:?}");
}

#[test]
fn what_nothing_reaches_is_lost_and_counted() {
    let flow = Flow::new(&[vec![1], vec![], vec![]], &[], 1.0);
    let (found, lost) =
        flow.unskid(&[0.0, 4.0, 3.0], &[1.0, 0.0, 0.0], &Skid::gaussian(1.0, 0.0).unwrap(), 5);
    assert_eq!((found, lost), (vec![4.0, 0.0, 0.0], 3.0));
}
