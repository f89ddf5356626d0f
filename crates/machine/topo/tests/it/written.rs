//! What is written as XML for NCCL can be read again, whatever the topology looks like.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use pathline_schema::{
    Gpu, Link, LinkEnd, LinkKind, Nic, NumaDomain, PciAddress, PciDevice, Topology,
};
use pathline_topo::{HostSnapshot, from_snapshot, from_text, validate, write_nccl_xml};

/// An address for each of these short names.
fn address(name: &str) -> PciAddress {
    let Some(bus) = name.bytes().next() else { return PciAddress::default() };
    PciAddress::new(0, bus, name[1..].parse().unwrap_or(0), 0)
}

fn function(name: &str, parent: Option<&str>) -> PciDevice {
    PciDevice {
        address: address(name),
        class: 0x03_0200,
        vendor: 0x10de,
        device: 0x2335,
        parent: parent.map(address),
        ..PciDevice::default()
    }
}

fn gpu(index: u32, pci: &str, numa: u32) -> Gpu {
    Gpu {
        index,
        vendor: "nvidia".into(),
        arch: "sm_90a".into(),
        pci: address(pci),
        numa: Some(numa),
        ..Gpu::default()
    }
}

fn domain(id: u32) -> NumaDomain {
    NumaDomain { id, ..NumaDomain::default() }
}

fn nvlink(a: u32, b: u32, width: u32) -> Link {
    let (a, b) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
    Link { a, b, kind: LinkKind::Nvlink, width, peak: None }
}

/// GPUs of the text that is written, after reading it again.
fn gpus(topology: &Topology) -> Vec<(u32, Option<u32>)> {
    assert_eq!(validate("t", topology), Ok(()));
    let xml = write_nccl_xml(topology);
    let read = from_text("written", &xml).unwrap_or_else(|error| panic!("{error}\n{xml}"));
    assert_eq!(read.nics.len(), topology.nics.len(), "{xml}");
    read.gpus.iter().map(|gpu| (gpu.index, gpu.numa)).collect()
}

#[test]
fn every_gpu_once_whatever_the_bridges() {
    let trees: &[&[(&str, Option<&str>)]] = &[
        &[("a", Some("a")), ("b", Some("b"))],
        &[("a", Some("b")), ("b", Some("a"))],
        &[("a", None), ("b", Some("a"))],
        // One bridge above GPUs of two domains; one of them listed twice.
        &[("top", None), ("a", Some("top")), ("b", Some("top")), ("b", None)],
        &[],
    ];
    for tree in trees {
        let topology = Topology {
            numa: vec![domain(0), domain(1)],
            gpus: vec![gpu(0, "a", 0), gpu(1, "b", 1)],
            pci: tree.iter().map(|&(address, parent)| function(address, parent)).collect(),
            links: vec![nvlink(0, 1, 4)],
            ..Topology::default()
        };
        let read: Vec<u32> = gpus(&topology).iter().map(|gpu| gpu.0).collect();
        assert_eq!(read, [0, 1], "{tree:?}");
    }
}

/// A tree of bridges deeper than what is read: the GPU at its end stands by itself.
#[test]
fn deep_trees() {
    let name = |n: u32| format!("f{n}");
    let mut pci = vec![function(&name(0), None)];
    pci.extend((1..200).map(|n| function(&name(n), Some(&name(n - 1)))));
    let ends = [3, 60, 120, 199];
    let topology = Topology {
        numa: vec![domain(0)],
        gpus: ends.iter().zip(0..).map(|(&end, index)| gpu(index, &name(end), 0)).collect(),
        pci,
        links: vec![nvlink(0, 3, 1)],
        ..Topology::default()
    };
    assert_eq!(gpus(&topology).len(), 4);
}

#[test]
fn unknown_domains_shared_and_missing_addresses() {
    let nic = |numa| Nic { name: "v".into(), numa, ..Nic::default() };
    let topology = Topology {
        numa: vec![domain(2), domain(3)],
        gpus: vec![gpu(0, "a", 7), gpu(1, "a", 3), gpu(2, "", 3)],
        nics: vec![nic(Some(2)), nic(Some(3)), nic(None)],
        pci: vec![function("a", None)],
        links: vec![nvlink(0, 1, 1), nvlink(1, 2, 1)],
        ..Topology::default()
    };
    assert_eq!(gpus(&topology), [(0, Some(2)), (1, Some(2))]);
}

#[test]
fn widths_that_no_reader_takes_are_refused() {
    for (width, fine) in [(0, false), (1, true), (1024, true), (1025, false)] {
        let topology = Topology {
            gpus: vec![gpu(0, "a", 0), gpu(1, "b", 0)],
            links: vec![nvlink(0, 1, width)],
            ..Topology::default()
        };
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(from_text("t.json", &json).is_ok(), fine, "{width}");
    }
    let cpus = |text: &str| Topology {
        numa: vec![NumaDomain { cpus: text.parse().unwrap(), ..domain(0) }],
        ..Topology::default()
    };
    assert!(gpus(&cpus("0-8191")).is_empty());
    assert!(validate("t", &cpus("8192")).is_err());
}

/// The text of a link may be anything: here a device is its own bridge.
#[test]
fn a_device_below_itself() {
    let mut snapshot: HostSnapshot = crate::common::h200();
    for (path, _) in crate::common::h200().iter().filter(|(path, _)| path.ends_with(".0.target")) {
        let address = path.trim_end_matches(".target").rsplit('/').next().unwrap();
        snapshot.insert(path, format!("../devices/pci0000:00/{address}/{address}\n"));
    }
    assert_eq!(gpus(&from_snapshot("t", &snapshot)).len(), 8);
}
