//! hwloc XML of both versions.

use pathline_schema::{Bytes, LinkEnd, LinkKind, Rate};
use pathline_topo::from_text;

const V2: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" allowed_cpuset="0x00000007" nodeset="0x00000003" gp_index="1">
  <info name="HostName" value="node7"/>
  <info name="Architecture" value="x86_64"/>
  <info name="OSRelease" value="5.14.0"/>
  <object type="Package" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="2">
   <info name="CPUModel" value="AMD EPYC 9654 "/>
   <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
   <object type="L3Cache" cpuset="0x00000003" nodeset="0x00000001" cache_size="33554432" depth="3" cache_linesize="64" cache_type="0">
    <object type="L1Cache" cpuset="0x00000001" cache_size="32768" cache_linesize="64" cache_type="1"/>
   </object>
   <object type="Bridge" gp_index="9" bridge_type="0-1" depth="0" bridge_pci="0000:[00-1f]" nodeset="0x00000001">
    <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.1" pci_type="0604 [1022:14ab] [0000:0000] 01" pci_link_speed="31.507692">
     <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385">
      <object type="OSDev" name="cuda0" subtype="CUDA" osdev_type="5"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/></object>
     </object>
     <object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0207 [15b3:1021] [15b3:0023] 00" pci_link_speed="63.015385">
      <object type="OSDev" name="ib0" osdev_type="2"/>
      <object type="OSDev" name="mlx5_0" osdev_type="3"/>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" gp_index="12">
   <object type="NUMANode" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" gp_index="13" local_memory="1073741824"/>
   <object type="PCIDev" pci_busid="0000:81:00.0" pci_type="0108 [144d:a824] [144d:a801] 00" pci_link_speed="7.876923">
    <object type="OSDev" name="nvme0n1" subtype="Disk" osdev_type="0"><info name="Size" value="1024"/><info name="Model" value="X"/></object>
   </object>
  </object>
 </object>
 <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
  <indexes length="4">0 1 </indexes>
  <u64values length="12">10 32 32 10 </u64values>
 </distances2>
</topology>
"#;

#[test]
fn version_two() {
    let t = from_text("f.xml", V2).unwrap();
    assert_eq!((t.host.hostname.as_str(), t.host.sockets), ("node7", 2));
    assert_eq!(t.host.cpu_model, "AMD EPYC 9654");
    assert_eq!(t.host.allowed_cpus.to_string(), "0-2");
    assert_eq!(t.numa[1].cpus.to_string(), "2-3");
    assert_eq!(t.numa[1].distances, [32, 10]);
    assert_eq!(t.numa[0].memory, Bytes::gib(1));
    let caches: Vec<_> = t.caches.iter().map(|c| (c.level, c.kind.as_str(), c.size)).collect();
    assert_eq!(caches, [(1, "Data", Bytes::kib(32)), (3, "Unified", Bytes::mib(32))]);
    let gpu = &t.gpus[0];
    assert_eq!((gpu.name.as_str(), gpu.arch.as_str()), ("NVIDIA H100 80GB HBM3", "sm_90"));
    assert_eq!(gpu.numa, Some(0));
    let link = t.links.iter().find(|link| link.a == LinkEnd::Gpu(0)).unwrap();
    assert_eq!((link.b, link.kind), (LinkEnd::Numa(0), LinkKind::Pcie));
    // The bridge is the narrowest stretch. It may be trained down.
    assert_eq!(link.peak, None);
    assert!(t.warnings[0].text.starts_with("PCIe of the GPUs was trained to 31.5 GB/s"));
    // One adapter under its RDMA name, at the GPU with which it shares the bridge.
    assert_eq!(t.nics.len(), 1);
    assert_eq!((t.nics[0].name.as_str(), t.nics[0].near_gpu), ("mlx5_0", Some(0)));
    assert_eq!((t.blocks[0].name.as_str(), t.blocks[0].numa), ("nvme0n1", Some(1)));
    assert_eq!(t.blocks[0].size, Bytes::mib(1));
    assert_eq!(t.warnings.len(), 1, "{:?}", t.warnings);
}

/// Three GPUs of a product below one package, as version 3 writes them; tables follow.
fn linked(device: &str, arch: &str, tables: &str) -> pathline_schema::Topology {
    let gpu = |n: u32| {
        format!(
            "<object type='PCIDev' gp_index='{}' pci_busid='000{n}:01:00.0' pci_type='0302 [10de:{device}] [0:0] a1'>\
             <object type='OSDev' gp_index='{}' name='nvml{n}' osdev_type='4' subtype='NVML'/></object>",
            20 + n,
            30 + n
        )
    };
    let gpus: String = (0..3).map(gpu).collect();
    let text = format!(
        "<topology version='3.0'><object type='Machine' os_index='0' cpuset='0x3' gp_index='1'>\
         <info name='Architecture' value='{arch}'/><object type='Package' gp_index='3' cpuset='0x3'>\
         <object type='NUMANode' os_index='0' cpuset='0x3' nodeset='0x1'/>\
         <object type='Bridge' bridge_type='0-1'>{gpus}\
         <object type='PCIDev' gp_index='40' pci_busid='0009:00:00.0' pci_type='0680 [10de:1ac2] [0:0] a1'/>\
         <object type='PCIDev' gp_index='41' pci_busid='0009:01:00.0' pci_type='0207 [15b3:1021] [0:0] a1'>\
         <object type='OSDev' name='mlx5_0' osdev_type='48'/></object>\
         </object></object></object>{tables}</topology>"
    );
    from_text("f.xml", &text).unwrap()
}

fn table(name: &str, indexes: &str, values: &str) -> String {
    format!(
        "<distances2hetero name='{name}'><indexes>{indexes}</indexes><u64values>{values}</u64values></distances2hetero>"
    )
}

#[test]
fn tables_name_gpus_switches_and_packages() {
    let values = "0 50000 0 25000 50000 0 0 0 0 0 0 75000 25000 0 75000 0";
    let mixed = table("NVLinkBandwidth", "OSDev:30 OSDev:31 OSDev:32 Package:3", values);
    let t = linked("1db1", "x86_64", &mixed);
    let (gpu, host) = (LinkEnd::Gpu, LinkEnd::Numa(0));
    let found: Vec<_> = t.links.iter().map(|l| (l.a, l.b, l.kind, l.width)).collect();
    assert_eq!(
        found[..2],
        [(gpu(0), gpu(1), LinkKind::Nvlink, 2), (gpu(0), host, LinkKind::Nvlink, 1)]
    );
    assert_eq!((t.links[0].peak, found.last().unwrap().3), (Some(Rate(50.0)), 3));
    assert_eq!(t.nics[0].name, "mlx5_0");
    let switched = "0 0 0 75000 0 0 0 75000 0 0 0 75000 75000 75000 75000 0";
    let t = linked(
        "1db8",
        "x86_64",
        &table("NVLinkBandwidth", "OSDev:30 OSDev:31 OSDev:32 PCIDev:40", switched),
    );
    assert_eq!(t.links.iter().filter(|l| l.b == LinkEnd::Switch(3) && l.width == 3).count(), 3);
    assert!(!t.has_unread_links());
    // ROCm SMI's part of hwloc writes 100 GB/s for any link.
    let t = linked("1db1", "x86_64", &table("XGMIBandwidth", "30 31", "0 100000 100000 0"));
    assert_eq!((t.links[0].kind, t.links[0].peak), (LinkKind::Xgmi, None));
}

#[test]
fn what_the_file_cannot_show_is_not_denied() {
    let t = linked("1db1", "ppc64le", "");
    assert!(t.has_unread_links());
    assert!(t.links.iter().all(|l| (l.kind, l.peak) == (LinkKind::Nvlink, None)), "{:?}", t.links);
    assert!(!linked("20f1", "x86_64", "").has_unread_links(), "a PCIe card");
    let t = linked("2342", "aarch64", "");
    assert!(t.links.iter().all(|l| l.kind == LinkKind::Nvlink));
}

#[test]
fn version_one() {
    let text = r#"<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
 <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000003">
  <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
   <latency value="1.000000"/><latency value="2.100000"/><latency value="2.100000"/><latency value="1.000000"/>
  </distances>
  <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001" local_memory="1024">
   <object type="Socket" os_index="0" cpuset="0x00000003">
    <info name="CPUModel" value="Old CPU"/>
    <object type="Cache" cpuset="0x00000003" cache_size="1048576" depth="2" cache_linesize="64" cache_type="0"/>
   </object>
   <object type="Bridge" bridge_type="0-1" depth="0">
    <object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0302 [10de:1db1] [0000:0000] a1" pci_link_speed="15.753846"/>
   </object>
  </object>
  <object type="NUMANode" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" local_memory="1024"/>
 </object>
</topology>"#;
    let t = from_text("f.xml", text).unwrap();
    assert_eq!(t.numa.len(), 2);
    assert_eq!(t.numa[0].distances, [10, 21]);
    assert_eq!((t.caches[0].level, t.caches[0].size), (2, Bytes::mib(1)));
    assert_eq!((t.gpus[0].arch.as_str(), t.gpus[0].numa), ("sm_70", Some(0)));
    assert_eq!(t.host.sockets, 1);
}

#[test]
fn errors_name_the_line() {
    let bad = |from: &str, to: &str| from_text("f.xml", &V2.replace(from, to)).unwrap_err();
    let error = bad("cache_size=\"32768\"", "cache_size=\"big\"").to_string();
    assert_eq!(error, "f.xml:12: 'big' as cache_size; expected a number");
    let error =
        bad("cpuset=\"0x0000000c\" nodeset=\"0x00000002\" gp_index=\"13\"", "cpuset=\"zz\"");
    assert!(error.to_string().starts_with("f.xml:27: 'zz' as cpuset"), "{error}");
    assert!(from_text("f.xml", "<topology/>").is_err());
    assert!(from_text("f.xml", &V2[..V2.len() / 2]).is_err());
}
