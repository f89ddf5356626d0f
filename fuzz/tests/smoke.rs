//! Every target on its seeds, its kept inputs and some mutations: the part of fuzzing that every
//! test run can afford.

use pathline_fuzz::{Fuzzer, TARGETS};

#[test]
fn seeds_reach_behind_the_parser() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let read = seeds.iter().filter(|seed| (target.run)(seed).contains("read")).count();
        assert!(read > 0, "{}: none of {} seeds is accepted", target.name, seeds.len());
    }
}

#[test]
fn no_mutation_breaks_a_parser() {
    for target in TARGETS {
        let mut fuzzer = Fuzzer::new(target, 7);
        for input in fuzzer.corpus().to_vec() {
            fuzzer.run(input);
        }
        // Each of these opens a node, which takes 0.1 s.
        let trials = if target.name == "c-calls" { 15 } else { 300 };
        for _ in 0..trials {
            let input = fuzzer.next_input();
            fuzzer.run(input);
        }
        assert!(fuzzer.kinds() > 1, "{}: every input got the same answer", target.name);
    }
}
