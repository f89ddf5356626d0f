//! Parts that hang or fail, found from cases that are named by hand.

use pathline_flow::MachineDesc;

use super::*;

const HANG: &str = "stream_wait: no answer in 1 s (timeout); a GPU that stays so needs a reset";

fn found(preset: &str, rows: &[(&str, CaseFate)]) -> Option<String> {
    let topology = MachineDesc::preset(preset).expect("a preset").topology();
    let case = |row: &(&str, CaseFate)| format!("{} x 1MiB", row.0).parse().expect("a case");
    let cases: Vec<Case> = rows.iter().map(case).collect();
    let rows: Vec<_> = cases.iter().zip(rows.iter().map(|row| row.1)).collect();
    FailedParts::new(&rows, &topology, None).map(|found| found.sentence("case"))
}

fn copy(from: u32, to: u32) -> String {
    format!("gpu{from}.vram > gpu{to}.vram by dma@gpu{from}")
}

/// Which of these ordered pairs of 8 GPUs hang, in the order of a run.
fn pairs(hangs: impl Fn(u32, u32) -> bool) -> Option<String> {
    let all = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let texts: Vec<(String, bool)> = all.map(|(a, b)| (copy(a, b), hangs(a, b))).collect();
    let fate = |hangs: bool| if hangs { CaseFate::Failed(HANG) } else { CaseFate::Completed };
    let rows: Vec<_> = texts.iter().map(|row| (row.0.as_str(), fate(row.1))).collect();
    found("hgx-h200", &rows)
}

#[test]
fn the_smallest_part_is_in_all_that_hung_and_in_none_that_ended() {
    let is = |found: Option<String>, start: &str| {
        let found = found.unwrap_or_default();
        assert!(found.starts_with(start), "{found}");
    };
    // The links of gpu3 to the switches are in all of them, too.
    is(
        pairs(|a, b| a == 3 || b == 3),
        "gpu3 or NVLink gpu3-switches hangs: 14 cases did not end; which part is UNDECIDED",
    );
    is(pairs(|a, b| a.min(b) == 2 && a.max(b) == 3), "path gpu2-gpu3 hangs: 2 of 2 cases");
    // 2 x 7 + 2 x 7 less the two between them.
    is(
        pairs(|a, b| [3, 5].contains(&a) || [3, 5].contains(&b)),
        "gpu3 and gpu5 hang: 26 of 26 cases that use one of them did not end",
    );
    is(pairs(|_, _| true), "the node hangs: none of 56 cases ended; which part is UNDECIDED");
    assert_eq!(pairs(|_, _| false), None);
}

/// What a check tries after one path hangs, and what it then says: of a link that two paths use while others of
/// its GPUs end, the link. Copies to the host pass no port.
#[test]
fn cases_that_separate_parts_name_the_one_that_hangs() {
    let said = |preset: &str, first: &str, hangs: &dyn Fn(&str) -> bool| {
        let topology = MachineDesc::preset(preset).expect("a preset").topology();
        let network = Network::from_topology(&topology);
        let numas = ["numa3", "numa1", "numa0"];
        let host = |gpu: u32, numa: &str| format!("{numa}.pinned > gpu{gpu}.vram by dma@gpu{gpu}");
        let pairs = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let mut texts: Vec<String> = pairs.map(|(a, b)| copy(a, b)).collect();
        let joined = |gpu: u32, numa: &&&str| {
            topology
                .links
                .iter()
                .any(|link| format!("{}-{}", link.a, link.b) == format!("gpu{gpu}-{numa}"))
        };
        texts.extend(
            (0..8).filter_map(|gpu| Some(host(gpu, numas.iter().find(|n| joined(gpu, n))?))),
        );
        let parse = |text: &String| format!("{text} x 1MiB").parse::<Case>().expect("a case");
        let cases: Vec<Case> = texts.iter().map(parse).collect();
        let at = |text: &str| texts.iter().position(|one| one == text).expect("a case");
        let mut fates = vec![(&cases[at(first)], CaseFate::Failed(HANG))];
        let one = FailedParts::new(&fates, &topology, Some(&network)).expect("parts");
        let all: Vec<&Case> = cases.iter().collect();
        let tried = one.separating(&all, &network).expect("it is open");
        for nth in tried.alone.into_iter().chain(tried.others) {
            let is_hung = hangs(&texts[nth]);
            let fate = if is_hung { CaseFate::Failed(HANG) } else { CaseFate::Completed };
            fates.push((&cases[nth], fate));
            if is_hung && nth != at(first) {
                break;
            }
        }
        let found = FailedParts::new(&fates, &topology, Some(&network)).expect("parts");
        assert!(found.separating(&all, &network).is_none(), "{}", found.sentence("path"));
        found.sentence("path")
    };
    let between =
        |a: u32, b: u32| move |text: &str| [copy(a, b), copy(b, a)].contains(&text.to_owned());
    assert_eq!(
        said("mi250x", &copy(0, 1), &between(0, 1)),
        "xGMI gpu0-gpu1 hangs: 2 of 2 paths that use it did not end; other paths of gpu0 and gpu1 ended"
    );
    let one_way = |text: &str| text == copy(0, 1);
    assert_eq!(
        said("mi250x", &copy(0, 1), &one_way),
        "xGMI gpu0-gpu1 hangs: 1 of 3 paths that use it did not end; other paths of gpu0 and gpu1 ended"
    );
    let peer = |text: &str| text.contains("gpu2") && !text.contains("numa");
    assert_eq!(
        said("hgx-h200", &copy(0, 2), &peer),
        "NVLink gpu2-switches hangs: 2 of 2 paths that use it did not end; other paths of gpu2 ended"
    );
    assert!(
        said("hgx-h200", &copy(0, 2), &|text| text.contains("gpu2"))
            .starts_with("gpu2 hangs: 2 of 2 paths")
    );
}

/// What ended before gpu3 hung says nothing. gpu1 to gpu2 passes gpu0 or gpu3, as the board is wired.
#[test]
fn cases_that_ended_before_and_forwarded_ones_count() {
    let failed = CaseFate::Failed(HANG);
    let rows = |last: CaseFate<'static>| {
        let host = "numa1.pinned > gpu3.vram by dma@gpu3";
        let all = [copy(3, 2), host.into(), copy(3, 1), copy(2, 0), copy(0, 1), copy(3, 0)];
        let fates =
            [CaseFate::Completed, failed, failed, CaseFate::Completed, CaseFate::Completed, last];
        let rows: Vec<_> = all.iter().map(String::as_str).zip(fates).collect();
        found("mi250x", &rows).unwrap_or_default()
    };
    assert!(rows(failed).starts_with("gpu3 hangs: 3 of 3 cases"), "{}", rows(failed));
    assert!(!rows(CaseFate::Completed).starts_with("gpu3 "), "{}", rows(CaseFate::Completed));
}

/// gpu3 is in every case. Of one case between two GPUs the error decides, and without it nothing does. Errors that
/// are no hang say nothing of what else ended.
#[test]
fn errors_tell_two_parts_in_common_apart() {
    let hung = (&*copy(3, 2), CaseFate::Failed(HANG));
    assert_eq!(
        found("hgx-h200", &[hung]).as_deref(),
        Some(
            "gpu2, gpu3, NVLink gpu2-switches, NVLink gpu3-switches or path gpu2-gpu3 hangs: 1 case did not \
             end; which part is UNDECIDED"
        )
    );
    let host = ("numa1.pinned > gpu3.vram by dma@gpu3", CaseFate::Failed(HANG));
    let text = found("mi250x", &[host]).unwrap_or_default();
    assert!(text.starts_with("gpu3 or xGMI gpu3-numa1 hangs: 1 case did not end"), "{text}");
    let out = (&*copy(3, 2), CaseFate::Failed("wait on gpu3: an error (sticky)"));
    let into = (&*copy(1, 3), CaseFate::Failed("wait: an error"));
    let in_3 = "gpu3 fails in 2 cases: wait on gpu3: an error (sticky)";
    assert_eq!(found("hgx-h200", &[out, into]).as_deref(), Some(in_3));
    let ended = (&*copy(1, 3), CaseFate::Completed);
    let alone = found("hgx-h200", &[out, ended]).unwrap_or_default();
    assert!(alone.starts_with("gpu3 fails in 1 case"), "{alone}");
    assert_eq!(found("hgx-h200", &[into]), None);
}

/// Of 20 cases 3 were ended from outside, all with gpu3 and none of it ended otherwise: one in 1140 choices. Of 5
/// cases any two have some part in common.
#[test]
fn cases_that_others_ended_count_if_it_is_no_chance() {
    let of = |all: usize| {
        let pairs = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let texts: Vec<_> = pairs.filter(|(a, _)| *a != 3).take(all).collect();
        let fate = |b: u32| if b == 3 { CaseFate::Ended } else { CaseFate::Completed };
        let texts: Vec<_> = texts.iter().map(|&(a, b)| (copy(a, b), fate(b))).collect();
        let rows: Vec<_> = texts.iter().map(|row| (row.0.as_str(), row.1)).collect();
        found("hgx-h200", &rows)
    };
    assert!(of(20).is_some_and(|text| text.starts_with("gpu3 hangs: 3 of 3 cases")));
    assert_eq!(of(5), None);
}

#[test]
fn remedies_name_the_log_of_the_vendor() {
    let topology = MachineDesc::preset("hgx-h200").expect("a preset").topology();
    let case: Case = format!("{} x 1MiB", copy(3, 2)).parse().expect("a case");
    let found = FailedParts::new(&[(&case, CaseFate::Failed("gpu3: lost"))], &topology, None);
    let remedy = found.expect("a part").remedy(&topology);
    assert!(remedy.starts_with("`dmesg` for Xid messages of gpu3"), "{remedy}");
}
