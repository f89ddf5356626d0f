//! Two runs compared, whose figures are known by hand.

use crate::common::*;
use pathline_explain::diff::{CaseChange, DiffError, diff};
use pathline_schema::{CaseOutcome, Journal, Topology, WorldKind};

const CASE: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB";
const CHASE: &str = "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 64MiB";

fn run_of(outcomes: Vec<CaseOutcome>) -> Journal {
    journal(WorldKind::Real, Topology::default(), outcomes)
}

#[test]
fn changes_are_told_with_their_interval() {
    let gone = CASE.replace("64MiB", "1GiB");
    let first = run_of(vec![
        at_rate("host", CASE, 10.0),
        at_latency("host", CHASE, 100.0),
        at_rate("host", &gone, 9.0),
    ]);
    let second = run_of(vec![
        at_rate("host", CASE, 8.0),
        at_latency("host", CHASE, 80.0),
        skipped("host", &gone, "too little memory"),
    ]);
    let found = diff(&first, &second, 0.02).unwrap();
    let changes: Vec<CaseChange> = found.rows.iter().map(|r| r.change).collect();
    assert_eq!(changes, [CaseChange::Slower, CaseChange::OnlyFirst, CaseChange::Faster]);
    // 8 / 10 = 0.8; the interval is within the ripple of 0.8 % on both sides.
    let (effect, low, high) = found.rows[0].effect.unwrap();
    assert!((effect - 0.8).abs() < 1e-9);
    assert!(low > 0.8 * 0.98 && high < 0.8 * 1.02, "{low} {high}");
    // A latency that falls from 100 to 80 ns is 1.25 times the speed.
    assert!((found.rows[2].effect.unwrap().0 - 1.25).abs() < 1e-9);
    assert_eq!((found.rows[2].a, found.rows[2].unit), (Some(100.0), "ns"));
    assert!(found.is_worse());
    insta::assert_snapshot!(found.to_string());
}

/// A path whose kernel a search has changed is one path; where a run has two kernels on it, nobody
/// knows which belongs to which.
#[test]
fn another_kernel_on_the_same_path_is_compared_and_named() {
    let case =
        |to: &str, kernel: &str| format!("gpu0.vram > {to}.vram by kernel@gpu0[{kernel}] x 1GiB");
    let (plain, tuned) = ("copy-w16-u4-b256-g2sm", "copy-w16-u1-b256-gt");
    let first = run_of(vec![
        at_rate("local", &case("gpu0", plain), 1904.0),
        at_rate("pairs", &case("gpu1", plain), 374.0),
        at_rate("pairs", &case("gpu1", "copy-w8-u4-b256-g2sm"), 371.0),
    ]);
    let second = run_of(vec![
        at_rate("local", &case("gpu0", tuned), 2144.0),
        at_rate("pairs", &case("gpu1", tuned), 375.0),
    ]);
    let found = diff(&first, &second, 0.02).unwrap();
    let changed: Vec<_> = found.rows.iter().map(|r| (r.change, r.why.as_str())).collect();
    let named = format!("{plain} -> {tuned}");
    assert_eq!(changed[2], (CaseChange::Faster, named.as_str()), "{changed:?}");
    assert!((found.rows[2].effect.unwrap().0 - 2144.0 / 1904.0).abs() < 1e-9);
    assert_eq!(found.count(CaseChange::OnlyFirst), 2);
    assert_eq!(found.count(CaseChange::OnlySecond), 1);
    assert!(found.to_string().contains(&named), "{found}");
}

#[test]
fn a_run_is_the_same_as_itself() {
    let found = diff(&mi250x_run(), &mi250x_run(), 0.02).unwrap();
    assert!(found.rows.iter().all(|r| r.change == CaseChange::Same));
    assert!(!found.is_worse());
    assert_eq!(found.to_string().lines().count(), 1);
}

#[test]
fn worlds_are_not_mixed() {
    let real = run_of(vec![at_rate("host", CASE, 10.0)]);
    let model = |name: &str| {
        let world = WorldKind::Simulated(name.into());
        journal(world, Topology::default(), vec![at_rate("host", CASE, 10.0)])
    };
    assert!(matches!(diff(&real, &model("mi250x"), 0.02), Err(DiffError::Worlds { .. })));
    assert!(diff(&model("hgx-h200"), &model("mi250x"), 0.02).is_err());
    assert!(diff(&model("mi250x"), &model("mi250x"), 0.02).is_ok());
}
