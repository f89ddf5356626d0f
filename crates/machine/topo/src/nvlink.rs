//! NVLinks as reported by NVML: `nvml/PCI-ADDRESS/nvlink` of a snapshot, one line per link.
//!
//! `link=0 active=1 version=4 mbps=26562 remote=switch pci=0000:05:00.0`; unknown fields are
//! omitted. `mbps` is the trained line rate of the link per direction in 1e6 B/s.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Gpu, LinkEnd, LinkKind, Rate, Topology, TopologyWarning};

use crate::links::{LinkClaim, LinkClaims};
use crate::peaks::nvlink_link;
use crate::snapshot::HostSnapshot;
use crate::warn::warning;

/// Maximum number of lines in a file; a GPU has 18 links, and NVML counts up to 36.
const MAX_LINES: usize = 64;

/// A link as reported for its GPU.
#[derive(Debug, Clone, PartialEq, Default)]
struct NvlinkPort<'a> {
    active: bool,
    mbps: Option<u32>,
    /// `gpu`, `cpu` or `switch`.
    remote: Option<&'a str>,
    /// PCI address of the other end.
    pci: Option<&'a str>,
}

fn port(line: &str) -> Option<NvlinkPort<'_>> {
    let mut port = NvlinkPort::default();
    let mut is_link = false;
    for (key, value) in line.split_whitespace().filter_map(|field| field.split_once('=')) {
        match key {
            "link" => is_link = value.parse::<u32>().is_ok(),
            "active" => port.active = value == "1",
            "mbps" => port.mbps = value.parse().ok().filter(|&mbps| mbps > 0),
            "remote" => port.remote = Some(value),
            "pci" => port.pci = Some(value),
            _ => {}
        }
    }
    is_link.then_some(port)
}

/// Adds the links that NVML reports. Returns false, and changes nothing, if it reports none.
pub(crate) fn add(topology: &mut Topology, snapshot: &HostSnapshot) -> bool {
    let nvidia = topology.gpus.iter().filter(|gpu| gpu.vendor == "nvidia");
    let stated: Vec<(&Gpu, Vec<NvlinkPort<'_>>)> = nvidia
        .filter_map(|gpu| {
            let text = snapshot.get(&format!("nvml/{}/nvlink", gpu.pci))?;
            let ports: Vec<NvlinkPort<'_>> =
                text.lines().take(MAX_LINES).filter_map(port).collect();
            (!ports.is_empty()).then_some((gpu, ports))
        })
        .collect();
    if stated.is_empty() {
        return false;
    }
    let gpus: BTreeMap<&str, u32> =
        topology.gpus.iter().map(|gpu| (gpu.pci.as_str(), gpu.index)).collect();
    let switches = SwitchNumbers::new(&stated, &gpus);
    let (mut claims, mut warnings) = (LinkClaims::default(), Vec::new());
    let mut hidden = 0;
    for (gpu, ports) in &stated {
        let by_product = nvlink_link(&gpu.arch);
        for port in ports.iter().filter(|port| port.active) {
            let peak = port.mbps.map(|mbps| Rate(f64::from(mbps) / 1e3)).or(by_product);
            match far_end(gpu, port, &gpus, &switches) {
                Some(to) => {
                    let claim = LinkClaim { kind: LinkKind::Nvlink, width: 1, peak };
                    claims.add(LinkEnd::Gpu(gpu.index), to, claim);
                }
                None => hidden += 1,
            }
        }
        // A single GPU has no peer.
        warnings.extend(down_links_warning(gpu, ports).filter(|_| topology.gpus.len() > 1));
    }
    let guessed = stated.iter().flat_map(|s| &s.1).filter(|p| p.active && p.remote.is_none());
    if guessed.filter(|p| p.pci.is_none_or(|pci| !gpus.contains_key(pci))).count() > 0 {
        let text = "NVML does not report the other end of NVLinks, as in some virtual \
                    machines: they are taken to lead to switches that join all GPUs";
        warnings.push(warning("nvlink-end-unknown", "links", text));
    }
    if hidden > 0 {
        let text = format!(
            "{hidden} NVLinks lead to units that this system does not show: they are left out"
        );
        warnings.push(warning("nvlink-end-hidden", "links", text));
    }
    let mut links = claims.into_links(&mut warnings);
    topology.links.append(&mut links);
    topology.warnings.append(&mut warnings);
    true
}

/// The unit at the other end; `None` if it is not a unit of this node.
fn far_end(
    gpu: &Gpu,
    port: &NvlinkPort<'_>,
    gpus: &BTreeMap<&str, u32>,
    switches: &SwitchNumbers<'_>,
) -> Option<LinkEnd> {
    let known = port.pci.and_then(|pci| gpus.get(pci)).filter(|&&other| other != gpu.index);
    match (known, port.remote) {
        (Some(&other), None | Some("gpu")) => Some(LinkEnd::Gpu(other)),
        (_, Some("gpu")) => None,
        (_, Some("cpu")) => gpu.numa.map(LinkEnd::Numa),
        _ => Some(LinkEnd::Switch(switches.number(port))),
    }
}

/// A warning about links that are down.
fn down_links_warning(gpu: &Gpu, ports: &[NvlinkPort<'_>]) -> Option<TopologyWarning> {
    let (all, active) = (ports.len(), ports.iter().filter(|port| port.active).count());
    let text = if active == all {
        return None;
    } else if active == 0 {
        format!(
            "none of its {all} NVLinks is up: its copies to other GPUs go through the host. A \
             virtual machine of one GPU has them off; else see nvidia-smi nvlink -s and the Fabric \
             Manager"
        )
    } else {
        format!(
            "{active} of its {all} NVLinks are up: its ceiling to other GPUs is that of the \
             {active}. See nvidia-smi nvlink -s and the kernel's log for errors of links"
        )
    };
    Some(warning("nvlink-down", format!("gpu{}", gpu.index), text))
}

/// Numbers of switches.
struct SwitchNumbers<'a> {
    /// Numbers by address. Empty if the addresses do not show the wiring: the fabric then counts as
    /// one switch.
    numbers: BTreeMap<Option<&'a str>, u32>,
}

impl<'a> SwitchNumbers<'a> {
    /// Addresses are used only if every two GPUs share a switch. They do not if a machine numbers
    /// the switches separately for each GPU, or has tiers of switches. All GPUs are then connected
    /// too, each by all of its links.
    fn new(stated: &[(&Gpu, Vec<NvlinkPort<'a>>)], gpus: &BTreeMap<&str, u32>) -> Self {
        let is_switch = |p: &&NvlinkPort<'a>| {
            let gpu = p.pci.is_some_and(|pci| gpus.contains_key(pci));
            p.active && p.remote.is_none_or(|r| r == "switch") && !(gpu && p.remote.is_none())
        };
        let of_gpu = |(_, ports): &(&Gpu, Vec<NvlinkPort<'a>>)| -> BTreeSet<Option<&'a str>> {
            ports.iter().filter(is_switch).map(|port| port.pci).collect()
        };
        let sets: Vec<_> = stated.iter().map(of_gpu).filter(|set| !set.is_empty()).collect();
        let all: BTreeSet<Option<&str>> = sets.iter().flatten().copied().collect();
        let equal = sets.iter().all(|set| *set == all);
        let numbers = if equal { all.into_iter().zip(0..).collect() } else { BTreeMap::new() };
        Self { numbers }
    }

    fn number(&self, port: &NvlinkPort<'_>) -> u32 {
        self.numbers.get(&port.pci).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Link, PciAddress};
    use proptest::prelude::*;

    fn node(gpus: u32, file: impl Fn(u32) -> String) -> (Topology, bool) {
        let gpu = |index| Gpu {
            index,
            vendor: "nvidia".into(),
            arch: "sm_90".into(),
            pci: PciAddress::new(0, 0x19 + index as u8, 0, 0),
            numa: Some(0),
            ..Gpu::default()
        };
        let gpus: Vec<Gpu> = (0..gpus).map(gpu).collect();
        let mut snapshot = HostSnapshot::default();
        for gpu in &gpus {
            let text = file(gpu.index);
            if !text.is_empty() {
                snapshot.insert(format!("nvml/{}/nvlink", gpu.pci), text);
            }
        }
        let mut topology = Topology { gpus, ..Topology::default() };
        let any = add(&mut topology, &snapshot);
        (topology, any)
    }

    fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
        (0..count).map(|link| format!("link={link} {}\n", line(link))).collect()
    }

    fn widths(topology: &Topology) -> Vec<(LinkEnd, LinkEnd, u32)> {
        topology.links.iter().map(|l: &Link| (l.a, l.b, l.width)).collect()
    }

    #[test]
    fn eighteen_links_over_four_switches() {
        // Links 0 to 17 over four switches in turn: 5 + 5 + 4 + 4.
        let (topology, any) = node(2, |_| {
            lines(18, |link| {
                format!(
                    "active=1 version=4 mbps=26562 remote=switch pci=0000:{:02x}:00.0",
                    link % 4
                )
            })
        });
        assert!(any && topology.warnings.is_empty(), "{:?}", topology.warnings);
        let of = |g| {
            [(0, 5), (1, 5), (2, 4), (3, 4)].map(|(s, w)| (LinkEnd::Gpu(g), LinkEnd::Switch(s), w))
        };
        assert_eq!(widths(&topology), [of(0), of(1)].concat());
        // 5 x 26.562 = 132.81 GB/s.
        let peak = topology.links[0].peak.unwrap().gbs();
        assert!((peak - 132.81).abs() < 1e-9, "{peak}");
    }

    #[test]
    fn switches_without_addresses_are_one() {
        let hidden = |_| lines(18, |_| "active=1 mbps=26562 remote=switch".into());
        let (topology, _) = node(8, hidden);
        assert_eq!(topology.links.len(), 8);
        assert!(topology.links.iter().all(|l| l.b == LinkEnd::Switch(0) && l.width == 18));
        // 18 x 26.562 = 478.116 GB/s.
        assert!((topology.links[7].peak.unwrap().gbs() - 478.116).abs() < 1e-9);
        assert!(topology.warnings.is_empty());
        // Each GPU reports different switches: still one fabric.
        let own = |g| lines(4, |l| format!("active=1 remote=switch pci=0000:{g:02x}:0{l}.0"));
        let (topology, _) = node(3, own);
        assert!(topology.links.iter().all(|l| l.b == LinkEnd::Switch(0) && l.width == 4));
        assert_eq!(topology.links[0].peak, Some(Rate(100.0)), "25 GB/s of sm_90 each");
    }

    #[test]
    fn direct_links_join_gpus_and_a_cpu() {
        // GPUs 0 and 1 share two links, and 0 has three to its CPU; 1 has a fourth link to a
        // missing GPU.
        let (topology, _) = node(2, |gpu| match gpu {
            0 => lines(5, |l| match l {
                0 | 1 => "active=1 mbps=25781 remote=gpu pci=0000:1a:00.0".into(),
                _ => "active=1 mbps=25781 remote=cpu".into(),
            }),
            _ => lines(3, |l| match l {
                0 | 1 => "active=1 mbps=25781 remote=gpu pci=0000:19:00.0".into(),
                _ => "active=1 mbps=25781 remote=gpu pci=0000:ff:00.0".into(),
            }),
        });
        let (a, b) = (LinkEnd::Gpu(0), LinkEnd::Gpu(1));
        assert_eq!(widths(&topology), [(a, b, 2), (a, LinkEnd::Numa(0), 3)]);
        assert_eq!(topology.warnings.len(), 1);
        assert_eq!(topology.warnings[0].code, "nvlink-end-hidden");
    }

    #[test]
    fn links_that_are_down_do_not_count_and_are_named() {
        let (topology, _) = node(2, |gpu| {
            lines(18, |l| format!("active={} remote=switch", u32::from((gpu, l) != (1, 7))))
        });
        assert_eq!(topology.links[1].width, 17);
        let [warning] = topology.warnings.as_slice() else { panic!("{:?}", topology.warnings) };
        assert_eq!((warning.code.as_str(), warning.subject.as_str()), ("nvlink-down", "gpu1"));
        assert!(warning.text.starts_with("17 of its 18 NVLinks are up"), "{}", warning.text);
        let (topology, any) = node(2, |_| lines(18, |_| "active=0".into()));
        assert!(any && topology.links.is_empty());
        assert!(topology.warnings[1].text.starts_with("none of its 18"));
        let (topology, any) = node(1, |_| lines(18, |_| "active=0".into()));
        assert!(any && topology.links.is_empty() && topology.warnings.is_empty());
    }

    #[test]
    fn unnamed_ends_are_a_fabric_with_a_warning() {
        let (topology, _) = node(2, |_| lines(18, |_| "active=1 mbps=26562".into()));
        assert_eq!(widths(&topology).len(), 2);
        assert_eq!(topology.warnings[0].code, "nvlink-end-unknown");
        // The address of a GPU identifies it, without further fields.
        let (topology, _) =
            node(2, |g| lines(4, |_| format!("active=1 pci=0000:{:02x}:00.0", 0x1a - g)));
        assert_eq!(widths(&topology), [(LinkEnd::Gpu(0), LinkEnd::Gpu(1), 4)]);
        assert!(topology.warnings.is_empty());
    }

    #[test]
    fn without_files_there_is_no_warning() {
        assert!(!node(2, |_| String::new()).1);
        assert!(!node(2, |_| "no link\n".into()).1);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(texts in proptest::collection::vec("(link=[0-9]{1,3} )?[a-z0-9=:. \n]{0,80}", 3)) {
            let (topology, _) = node(3, |gpu| texts[gpu as usize].clone());
            prop_assert!(topology.links.iter().all(|l| l.a != l.b && l.width >= 1));
        }
    }
}
