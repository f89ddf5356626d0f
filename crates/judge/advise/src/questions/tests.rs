use super::*;
use pathline_schema::{Gpu, Link, LinkEnd, LinkKind, NumaDomain, Rate};

fn node(vendor: &str) -> Topology {
    let gpu = |index| Gpu { index, vendor: vendor.to_owned(), numa: Some(3), ..Gpu::default() };
    Topology { gpus: vec![gpu(0), gpu(1)], ..Topology::default() }
}

#[test]
fn a_node_asks_about_its_copies_and_messages() {
    let topology = node("amd");
    let scopes = questions(&topology, &usual_subjects(&topology, &[1], 2), 1, None);
    let subjects: Vec<&str> = scopes.iter().map(|scope| scope.subject.as_str()).collect();
    // 3 sizes of H2D, D2H, copies to the peer by a setting and in the program, and messages to it;
    // a kernel next to a copy.
    assert_eq!(subjects.len(), 3 * 5 + 1);
    assert!(subjects.contains(&"copies from numa3 to gpu0 (H2D), 64MiB"), "{subjects:?}");
    assert!(subjects.contains(&"messages from r0 gpu0 to r1 gpu1, 1MiB"), "{subjects:?}");
    for choice in scopes.iter().flat_map(|scope| &scope.choices) {
        // A case is its text: what cannot be read back cannot be proven again.
        let text = choice.arm.to_string();
        assert_eq!(text.parse::<Case>().map(|case| case.to_string()), Ok(text));
        // Blit of pairs has the other two sizes as guards, and 4 KiB, which was not asked about; so have messages.
        assert_eq!(choice.guards.len(), if choice.settings.is_empty() { 0 } else { 3 });
    }
}

/// A variable acts on all sizes, so it is checked at sizes that were not asked about, and where it is no
/// choice itself.
#[test]
fn settings_of_collectives_are_guarded_at_other_sizes() {
    let topology = node("nvidia");
    let case = |size: &str| -> Case {
        let text = format!("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x {size}");
        text.parse().unwrap()
    };
    let guards = |sizes: &[&str]| -> Vec<Vec<String>> {
        let cases: Vec<Case> = sizes.iter().map(|size| case(size)).collect();
        let scopes = questions(&topology, &cases, 1, None);
        assert!(scopes[0].subject.starts_with("all_reduce of 2 GPUs, gpu0 to gpu1, by NCCL, "));
        let ll = scopes[0].choices.iter().find(|c| c.arm.label == "NCCL_PROTO=LL").unwrap();
        assert_eq!(ll.arm.to_string(), format!("NCCL_PROTO=LL {}", cases[0]));
        ll.guards.iter().map(|(a, b)| vec![a.to_string(), b.to_string()]).collect()
    };
    let [mib, large] = ["1MiB", "32MiB"].map(|size| case(size).to_string());
    let [with_mib, with_large] = [&mib, &large].map(|case| format!("NCCL_PROTO=LL {case}"));
    assert_eq!(guards(&["64KiB"]), [[mib, with_mib], [large.clone(), with_large.clone()]]);
    assert_eq!(guards(&["1MiB", "32MiB"]), [[large, with_large]]);
}

/// Pinned memory serves both directions, write-combined memory only what the CPU writes, and non-coherent memory
/// is AMD's. Between GPUs a variable chooses the blit kernel, and a program its own at either end.
#[test]
fn each_question_has_the_choices_of_its_vendor() {
    let labels = |vendor: &str, subject: &str| -> Vec<String> {
        let topology = node(vendor);
        let scopes = questions(&topology, &usual_subjects(&topology, &[1], 2), 1, None);
        let of = scopes.iter().filter(|scope| scope.subject == format!("{subject}, 1MiB"));
        of.flat_map(|scope| &scope.choices).map(|choice| choice.arm.label.clone()).collect()
    };
    let (into, out) = ("copies from numa3 to gpu0 (H2D)", "copies from gpu0 to numa3 (D2H)");
    let (pinned, kernel) = (["pinned, SDMA copy", "registered, SDMA copy"], "pinned, copy kernel");
    let (coherent, combined) = ("pinned non-coherent, SDMA copy", "write-combined, SDMA copy");
    assert_eq!(labels("amd", into), [pinned[0], pinned[1], coherent, combined, kernel]);
    assert_eq!(labels("amd", out), [pinned[0], pinned[1], coherent, kernel]);
    let pinned = ["pinned, copy engine", "registered, copy engine"];
    assert_eq!(
        labels("nvidia", into),
        [pinned[0], pinned[1], "write-combined, copy engine", kernel]
    );
    assert_eq!(labels("nvidia", out), [pinned[0], pinned[1], kernel]);
    let pair = "copies from gpu0 to gpu1";
    assert_eq!(
        labels("amd", &format!("{pair} by a setting")),
        ["blit kernel at gpu1 (HSA_ENABLE_PEER_SDMA=0)"]
    );
    let kernels = ["copy kernel at gpu1", "copy kernel at gpu0"];
    assert_eq!(labels("amd", &format!("{pair} in the program")), kernels);
    assert_eq!(labels("nvidia", pair), kernels);
    assert_eq!(
        labels("amd", "messages from r0 gpu0 to r1 gpu1"),
        ["blit kernel at the sender (HSA_ENABLE_SDMA=0)"]
    );
}

/// A copy from another domain than the GPU's may be one from its own.
#[test]
fn memory_of_the_gpus_own_domain_is_a_choice() {
    let topology = node("amd");
    let near = topology.gpus[0].numa.unwrap();
    for (numa, expected) in [(near, 0), (near + 1, 1)] {
        let case = format!("gpu0.vram > numa{numa}.pinned by dma@gpu0 x 1MiB");
        let scopes = questions(&topology, &[case.parse().unwrap()], 1, None);
        let of = scopes.iter().flat_map(|scope| &scope.choices);
        let nearer =
            of.filter(|choice| choice.arm.label.contains(&format!("memory of numa{near}")));
        assert_eq!(nearer.count(), expected, "{case}");
    }
}

/// Relays next to the plain way are compared with what they add to: a copy kernel between AMD's GPUs, the engine
/// and pinned memory from the host.
#[test]
fn relays_are_asked_about_as_an_addition() {
    let mut topology = node("amd");
    topology.gpus.push(Gpu { index: 2, ..topology.gpus[0].clone() });
    let link = |a, b, gbs| Link { a, b, kind: LinkKind::Xgmi, width: 1, peak: Some(Rate(gbs)) };
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        topology.links.push(link(LinkEnd::Gpu(a), LinkEnd::Gpu(b), 50.0));
    }
    (0..3).for_each(|at| topology.links.push(link(LinkEnd::Numa(3), LinkEnd::Gpu(at), 25.0)));
    topology.numa = vec![NumaDomain { id: 3, peak: Some(Rate(200.0)), ..NumaDomain::default() }];
    let more = |case: &str| -> Vec<(String, String, String)> {
        let scopes = questions(&topology, &[case.parse().unwrap()], 1, None).into_iter();
        let more = scopes.filter(|scope| scope.ends.ends_with(MORE_PATHS));
        more.map(|scope| {
            (
                scope.baseline.label,
                scope.choices[0].arm.label.clone(),
                scope.choices[0].cost.clone(),
            )
        })
        .collect()
    };
    let row = |baseline: &str, label: &str, cost: &str| {
        [(baseline.to_owned(), label.to_owned(), cost.to_owned())]
    };
    let one = "over 1 more GPUs at once";
    assert_eq!(
        more("gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB"),
        row("a copy kernel at gpu1", one, "links and some memory of gpu2 while the copy lasts")
    );
    assert_eq!(
        more("numa3.paged > gpu1.vram by dma@gpu1 x 64MiB"),
        row(
            "pinned memory, SDMA copy",
            "over 2 more GPUs at once",
            "host memory that cannot be swapped, and links and some memory of gpu0+gpu2 while the copy lasts"
        )
    );
    assert_eq!(more("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"), []);
}

#[test]
fn a_runtime_without_a_blit_kernel_is_not_asked_for_one() {
    let topology = node("nvidia");
    let scopes = questions(&topology, &usual_subjects(&topology, &[1], 1), 1, None);
    let labels: Vec<&str> =
        scopes.iter().flat_map(|s| &s.choices).map(|c| c.arm.label.as_str()).collect();
    assert!(labels.contains(&"copy kernel at gpu1"), "{labels:?}");
    assert!(!labels.iter().any(|label| label.contains("blit")), "{labels:?}");
}

#[test]
fn files_are_asked_for_depth_and_workers_that_there_are_cores_for() {
    let mut topology = node("amd");
    topology.numa = vec![pathline_schema::NumaDomain { id: 3, ..Default::default() }];
    let subjects = usual_file_subjects(1, 3, Bytes::mib(64));
    assert_eq!(subjects.len(), 2);
    let scopes = questions(&topology, &subjects, 1, None);
    let labels: Vec<&str> = scopes[0].choices.iter().map(|c| c.arm.label.as_str()).collect();
    // One worker, since the domain states no cores; the default itself is no choice.
    assert_eq!(labels, ["uring, depth 8", "uring, depth 32", "aio, depth 32"]);
    assert_eq!(scopes[1].subject, "seq-read of files, store0 to numa3, 1MiB");
}

/// Of four cores 1, 2 and 4 workers, each with the three ways to have more in flight and with its own.
#[test]
fn files_are_asked_for_workers_of_the_cores_that_there_are() {
    let mut topology = node("amd");
    topology.numa = vec![NumaDomain { id: 3, cpus: "0-3".parse().unwrap(), ..Default::default() }];
    let scopes = questions(&topology, &usual_file_subjects(1, 3, Bytes::mib(64)), 1, None);
    let choices = &scopes[1].choices;
    let many = |n: usize| {
        choices.iter().filter(|c| c.arm.label.ends_with(&format!(", {n} threads"))).count()
    };
    assert_eq!((choices.len(), many(2), many(4)), (3 + 4 + 4, 4, 4));
    let said = |at: usize| (choices[at].action.as_str(), choices[at].cost.as_str());
    // 8 of 1 MiB.
    assert_eq!(said(0), ("Keep 8 I/Os in flight with io_uring", "8MiB of buffers"));
    assert_eq!(said(2), ("Keep 32 I/Os in flight with libaio (io_submit)", "32MiB of buffers"));
    assert_eq!(
        said(6),
        ("Keep 1 I/Os in flight with pread and pwrite, 2 threads", "2 cores while it waits")
    );
}

/// Loads of GPUs from one domain may be one copy, but not next to another flow. A copy by an engine next to a
/// kernel needs no other, and what is asked twice is one question.
#[test]
fn loads_at_once_and_copies_next_to_a_kernel() {
    let mut topology = node("nvidia");
    topology.numa = vec![NumaDomain { id: 0, peak: Some(Rate(300.0)), ..NumaDomain::default() }];
    let link = |a, b, kind, gbs| Link { a, b, kind, width: 1, peak: Some(Rate(gbs)) };
    let host = |at| link(LinkEnd::Numa(0), LinkEnd::Gpu(at), LinkKind::Pcie, 50.0);
    let peer = link(LinkEnd::Gpu(0), LinkEnd::Gpu(1), LinkKind::Nvlink, 400.0);
    topology.links = vec![host(0), host(1), peer];
    let of = |texts: &[&str]| -> Vec<(String, String)> {
        let cases: Vec<Case> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let scopes = questions(&topology, &cases, 1, None).into_iter();
        scopes.map(|scope| (scope.subject, scope.choices[0].arm.label.clone())).collect()
    };
    let load = |n: u32| format!("numa0.paged > gpu{n}.vram by dma@gpu{n} x 64MiB");
    let both = format!("{} & {}", load(0), load(1));
    let one = "the same bytes to 2 GPUs at once".to_owned();
    assert_eq!(
        of(&[&both, &both]),
        [("loads of 2 GPUs from numa0 at once, 64MiB".to_owned(), one)]
    );
    let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB";
    assert_eq!(of(&[&format!("{both} while {copy}")]), []);
    let triad = "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u4-b256-g2sm] x 64MiB while";
    assert_eq!(of(&[&format!("{triad} {copy}")]), []);
    let kernel = copy.replace("dma@gpu0", "kernel@gpu0[copy-w16-u4-b256-g2sm]");
    let subject = "a triad kernel on gpu0 while gpu0 copies from gpu0 to gpu1, 64MiB".to_owned();
    assert_eq!(
        of(&[&format!("{triad} {kernel}")]),
        [(subject, "copy engine next to it".to_owned())]
    );
}

#[test]
fn what_has_no_alternative_raises_no_question() {
    let topology = node("amd");
    let none = [
        "r0.gpu0.vram > r0.gpu0.vram by dma@gpu0 x 1MiB",
        "r0.numa0.paged > r0.numa0.paged by cpu@numa0[copy-memcpy-t1] x 1MiB",
    ];
    let cases: Vec<Case> = none.iter().filter_map(|text| text.parse().ok()).collect();
    assert_eq!((cases.len(), questions(&topology, &cases, 1, None).len()), (2, 0));
    assert_eq!(usual_subjects(&Topology::default(), &[], 1).len(), 0);
}
