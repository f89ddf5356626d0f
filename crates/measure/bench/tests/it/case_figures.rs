//! Figures of cases that are measured without a journal.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pathline_bench::{CaseFigures, FigureMap, measure_cases};
use pathline_flow::{DescError, MachineDesc, RuntimeEnv};
use pathline_schema::Case;
use pathline_sim::{SimOptions, machine_with};

/// Figures of cases on the preset, and the environments of the machines that were opened.
fn measure(cases: &[&str]) -> (FigureMap, Vec<BTreeMap<String, String>>) {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let options = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let opened = RefCell::new(Vec::new());
    let cases = cases.iter().map(|case| case.parse().unwrap()).collect();
    let figures = measure_cases(cases, &desc.topology(), |env| {
        opened.borrow_mut().push(env.clone());
        machine_with(&desc, RuntimeEnv::from_env(env), &options)
    });
    (figures.unwrap(), opened.into_inner())
}

fn figures(map: &FigureMap, case: &str) -> CaseFigures {
    map[&case.parse::<Case>().unwrap()].clone().unwrap()
}

#[test]
fn rates_of_flows_add_up_and_the_slowest_gives_the_time() {
    let (wide, narrow) = (
        "gpu0.vram > gpu1.vram by blit@gpu0 x 256MiB",
        "gpu2.vram > gpu4.vram by blit@gpu2 x 256MiB",
    );
    let both = format!("{wide} & {narrow}");
    let (map, opened) = measure(&[wide, narrow, &both]);
    let [wide, narrow, both] = [wide, narrow, &both].map(|case| figures(&map, case));
    assert!(wide.rate > narrow.rate, "4 links carry more than 2");
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    assert!(near(both.rate.gbs(), wide.rate.gbs() + narrow.rate.gbs()), "{both:?}");
    assert!(near(both.time.0, narrow.time.0), "{both:?} {narrow:?}");
    assert_eq!(opened.len(), 1);
}

#[test]
fn a_chase_has_the_time_of_one_load() {
    let chase = "gpu1.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 1MiB";
    let (map, _) = measure(&[chase]);
    // 8,192 loads of more than 0.1 us each would be 0.8 ms.
    let time = figures(&map, chase).time;
    assert!((100.0..10_000.0).contains(&time.0), "{time}");
}

#[test]
fn each_environment_is_opened_once_with_the_settings_of_its_cases() {
    let fault =
        |gpu: u32| format!("numa3.managed > gpu{gpu}.managed by migrate@gpu{gpu}[fault] x 1MiB");
    let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
    let (map, mut opened) = measure(&[&fault(0), copy, &fault(1)]);
    assert!(map.len() == 3 && map.values().all(Result::is_ok), "{map:?}");
    opened.sort();
    let xnack: Vec<Option<&str>> =
        opened.iter().map(|env| env.get("HSA_XNACK").map(String::as_str)).collect();
    assert_eq!(xnack, [None, Some("1")]);
}

#[test]
fn an_unmeasurable_case_has_a_reason_and_affects_no_other() {
    let (copy, beyond) =
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB", "gpu0.vram > gpu9.vram by dma@gpu0 x 1MiB");
    let (map, _) = measure(&[copy, beyond]);
    figures(&map, copy);
    assert!(map[&beyond.parse::<Case>().unwrap()].is_err(), "{map:?}");
}

#[test]
fn a_machine_that_does_not_open_is_an_error() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
    let error = || DescError { file: "x".into(), reason: "gone".into() };
    let result = measure_cases(vec![case], &desc.topology(), |_| Err(error()));
    assert_eq!(result.unwrap_err().reason, "gone");
}
