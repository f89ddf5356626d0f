use super::*;

/// The case of a row in its source's terms, with its metric; or why there is none.
fn case(system: &str, cells: &str) -> Result<String, String> {
    let head = "system,tool,interface,src,dst,size_bytes,direction,metric,value,unit,note";
    let text = format!("{head}\n\"{system}\",{cells}\n");
    let desc = MachineDesc::preset("mi250x").expect("the preset");
    let topology = desc.topology();
    let node = SourceNode { topology: &topology, numberings: desc.numberings() };
    let (case, metric, statistic) = node.translate(&read(&text).unwrap().remove(0))?;
    let known = case.split("; ").all(|case| match case.contains(" over ") {
        _ if !case.contains(" by ") => true,
        true => case.parse::<pathline_message::ExchangeSpec>().is_ok(),
        false => case.parse::<pathline_schema::Case>().is_ok(),
    });
    assert!(known, "{case}");
    Ok(format!("{metric} {case} {statistic}").trim().to_owned())
}

#[test]
fn rows_become_the_cases_that_their_tools_run() {
    let node = "MI250X node";
    for (cells, expected) in [
        (
            "Comm|Scope 0.12,SDMA hipMemcpyAsync,GCD0,GCD2,4096,uni,bandwidth,0.3,GB/s,",
            "bandwidth gpu0.vram > gpu2.vram by dma@gpu0 x 4096B isolated",
        ),
        (
            "Comm|Scope 0.12,kernel local write,GCD0,GCD0,65536,local,bandwidth,5.3,GB/s,",
            "bandwidth gpu0.reg > gpu0.vram by kernel@gpu0[write-w16-u4-b256-g2sm] x 65536B isolated",
        ),
        (
            "Comm|Scope,hipMemcpyAsync pageable,NUMA0,GCD0,max,uni,bandwidth,3.6,GB/s,",
            "bandwidth numa3.paged > gpu0.vram by dma@gpu0 x 1GiB isolated",
        ),
        (
            "Comm|Scope,kernel_read zero-copy,host,GCD2,4096,uni,bandwidth,0.3,GB/s,",
            "bandwidth numa1.pinned > gpu2.reg by kernel@gpu2[read-w16-u4-b256-g2sm] x 4096B isolated",
        ),
        (
            "Comm|Scope,hipMemcpy pinned,host,GCD0,4e3..1e9,uni,max bandwidth,28.3,GB/s,",
            "bandwidth numa3.pinned > gpu0.vram by dma@gpu0 x 1000000000B isolated best from 4000B",
        ),
        (
            "nvbandwidth 0.8,CE memcpy d2d,GPU0,GPU1,,uni,bandwidth,396,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by dma@gpu0 x 512MiB",
        ),
        (
            "rocm-bandwidth-test,SDMA hsa copy,GCD5,GCD7,,bi_sum,bandwidth,80.5,GB/s,",
            "bandwidth gpu5.vram > gpu7.vram by dma@gpu5 x 64MiB & gpu7.vram > gpu5.vram by dma@gpu7 x 64MiB isolated",
        ),
        (
            "p2pBandwidthLatencyTest,local copy,GCD0,GCD0,160000000,local_2N,bandwidth,1256,GB/s,",
            "traffic gpu0.vram > gpu0.vram by dma@gpu0 x 160000000B",
        ),
        (
            "TransferBench 1.50,kernel_write (GFX),GCD0,GCD1,4194304,uni,bandwidth,64.6,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 4194304B isolated",
        ),
        (
            "Comm|Scope,SDMA hipMemcpyPeer,\"GCD0,GCD2\",\"GCD1,GCD3\",4096,uni,bandwidth,1,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by dma@gpu0 x 4096B & gpu2.vram > gpu3.vram by dma@gpu2 x 4096B isolated",
        ),
        ("KFD weight/15,route,GCD0,GCD3,,uni,hops,2,hops,", "hops gpu0 > gpu3"),
        ("-,CPU-GCD link,GCD0,NUMA3,,uni,links,1,links,", "links gpu0 > numa3"),
        (
            "STREAM copy,kernel_read (remote) + local write,GCD0,GCD2,up to 8e9,uni,bandwidth,43.5,GB/s,",
            "bandwidth gpu2.vram > gpu0.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 8000000000B isolated best from 256B",
        ),
        (
            "Comm|Scope,page-fault migration GPU-GPU,GCD,GCD,4096,uni,time,2250,us,",
            "latency gpu1.managed > gpu0.managed by migrate@gpu0[fault] x 4096B isolated",
        ),
        (
            "Comm|Scope,blit hipMemcpyPeerAsync,GCD0,dual,1073741824,uni,bandwidth,88,GB/s,",
            "bandwidth gpu0.vram > gpu6.vram by blit@gpu6 x 1073741824B isolated",
        ),
        (
            "OSU_bw 7.0,MPI blit (UCX),GCD0,GCD1,16777216,uni,bandwidth,142,GB/s,",
            "bandwidth send over gpu0>gpu1 by ucx[blit] x 16777216B window 64",
        ),
        (
            "OSU 7.5,MPI cray-mpich,8 ranks,2 nodes x4,4,coll,latency,5.2,us,allreduce",
            "mean-latency all_reduce over gpu0-gpu3,n1.gpu0-gpu3 by cray-mpich x 4B",
        ),
    ] {
        assert_eq!(case(node, cells).as_deref(), Ok(expected), "{cells}");
    }
    // TransferBench's p2p preset lets the source execute: a CPU one direction, a GPU the other.
    let cpu = "numa3.pinned > gpu0.vram by cpu@numa3[copy-memcpy-t4] x 4194304B";
    let gpu = "gpu0.vram > numa3.pinned by kernel@gpu0[copy-w16-u4-b256-g2sm] x 4194304B";
    for (cells, flows) in [
        ("TransferBench,CPU,NUMA0,GCD0,4194304,uni,bandwidth,30,GB/s,", cpu.to_owned()),
        (
            "TransferBench p2p,kernel_write (GFX),NUMA0,GCD0,4194304,bi_sum,bandwidth,30,GB/s,",
            format!("{cpu} & {gpu}"),
        ),
        (
            "TransferBench p2p,kernel_write (GFX),GCD0,NUMA0,4194304,uni,bandwidth,30,GB/s,",
            gpu.to_owned(),
        ),
    ] {
        let expected = format!("bandwidth {flows} isolated");
        assert_eq!(case(node, cells), Ok(expected), "{cells}");
    }
    // GCD 2 of the reference enumeration is our GPU 4.
    let copy = "rocm-bandwidth-test,blit,GCD0,GCD2,,uni,bandwidth,37.5,GB/s,";
    let renumbered = case("MI250 (reference enumeration: dual 0-4)", copy);
    assert_eq!(
        renumbered.as_deref(),
        Ok("bandwidth gpu0.vram > gpu4.vram by blit@gpu0 x 64MiB isolated")
    );
}

#[test]
fn words_of_nvidia_tools_and_of_collectives() {
    for (cells, expected) in [
        (
            "nvbandwidth 0.8,device_to_device_memcpy_read_ce,GPU0,GPU1,,uni,bandwidth,395,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by dma@gpu1 x 512MiB",
        ),
        (
            "nvbandwidth 0.8,device_to_device_memcpy_read_sm,GPU0,GPU1,64M,uni,bandwidth,395,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 67108864B",
        ),
        (
            "nvbandwidth 0.8,device_to_host_memcpy_sm,GPU0,host,,D2H,bandwidth,52,GB/s,",
            "bandwidth gpu0.vram > numa3.pinned by kernel@gpu0[copy-w16-u4-b256-g2sm] x 512MiB",
        ),
        (
            "p2pBandwidthLatencyTest,P2P=Enabled,Device 0,Device 1,,unidirectional,Max bandwidth,390,GB/s,",
            "bandwidth gpu0.vram > gpu1.vram by dma@gpu0 x 160000000B",
        ),
        (
            "rccl-tests,RCCL all_reduce,8 GPUs,-,1MiB,collective,algbw,20,GB/s,",
            "bandwidth all_reduce over gpu0-gpu7 by rccl x 1048576B",
        ),
        // OSU prints 1 KiB for each of 8 ranks, rccl-tests the 8 KiB of all.
        (
            "OSU 7.5,MPI cray-mpich,8 ranks,1 node,1024,coll,latency,9,us,allgather",
            "mean-latency all_gather over gpu0-gpu7 by cray-mpich x 8192B",
        ),
        (
            "rccl-tests,RCCL all_gather,8 GPUs,1 node,8192,coll,busbw,1,GB/s,",
            "busbw all_gather over gpu0-gpu7 by rccl x 8192B",
        ),
    ] {
        assert_eq!(case("MI250X node", cells).as_deref(), Ok(expected), "{cells}");
    }
}

#[test]
fn what_a_row_leaves_open_is_a_reason() {
    let node = "MI250 8 GCD, 2 CPU";
    let near = "rocm-bandwidth-test,SDMA hsa copy,NUMA0,GCD2,1024,uni,bandwidth,0.2,GB/s,";
    assert!(case(node, near).is_ok());
    for (cells, reason) in [
        ("OSU_bw,MPI,GCD0,GCD1,16777216,uni,bandwidth,50,GB/s,", "whether an engine or a kernel"),
        ("TransferBench,CPU,GCD1,GCD0,4194304,uni,bandwidth,30,GB/s,", "no CPU takes part"),
        (
            "rocm-bandwidth-test,SDMA hsa copy,NUMA0,GCD7,1024,uni,bandwidth,0.2,GB/s,",
            "another socket",
        ),
        ("Comm|Scope,a copy,GCD0,GCD1,4096,uni,bandwidth,1,GB/s,", "does not say what moves"),
        ("datasheet,peak,GCD0,GCD1,,uni,peak: L2 per GCD,8,MB,", "data sheet is no measurement"),
        ("Comm|Scope,SDMA hipMemcpy,GCD0,GCD9,4096,uni,bandwidth,1,GB/s,", "no GPU 9"),
        ("Comm|Scope,SDMA hipMemcpy,GCD0,GCD1,huge,uni,bandwidth,1,GB/s,", "no number of bytes"),
        ("Comm|Scope,SDMA hipMemcpy,GCD0,GCD1,64MB,uni,bandwidth,1,GB/s,", "whether it is decimal"),
        (
            "Comm|Scope,SDMA hipMemcpy,GCD0,GCD1,18446744073709551615G,uni,bandwidth,1,GB/s,",
            "no number of bytes",
        ),
        (
            "p2pBandwidthLatencyTest,P2P=Enabled,GPU0,GPU1,,bidirectional,bandwidth,1,GB/s,",
            "sum of both",
        ),
        (
            "p2pBandwidthLatencyTest,P2P=Disabled,GPU0,GPU1,,uni,bandwidth,1,GB/s,",
            "staged in host memory",
        ),
        ("a paper,-,GCD0,GCD1,,uni,bandwidth upper bound,8,GB/s,", "a bound that its source"),
        ("OSU,MPI,8 ranks,1 node,4,coll,latency,2,us,allreduce", "which library"),
        ("OSU,MPI ucx,8 ranks,1 node,4,coll,latency,2,us,", "not named"),
    ] {
        let why = case(node, cells).expect_err(cells);
        assert!(why.contains(reason), "{cells}: {why}");
    }
}

/// What is written is read as a table with cases; a row without a case has its reason.
#[test]
fn the_written_table_is_one_with_cases() {
    let head = "system,tool,interface,src,dst,size_bytes,direction,metric,value,unit";
    let rows = "mi250x,Comm|Scope,SDMA hipMemcpy,GCD0,GCD1,4096,uni,bandwidth,1,GB/s\n\
                mi250x,Comm|Scope,a copy,GCD0,GCD1,4096,uni,bandwidth,1,GB/s\n";
    let desc = MachineDesc::preset("mi250x").unwrap();
    let table = convert(&desc, &format!("{head}\n{rows}")).unwrap();
    let rows = pathline_published::read(&table).unwrap();
    assert_eq!(rows[0].case, "gpu0.vram > gpu1.vram by dma@gpu0 x 4096B isolated");
    assert_eq!(rows[0].label(), "Comm|Scope SDMA hipMemcpy GCD0 > GCD1 4096 B");
    assert!(rows[1].left_out.contains("does not say what moves"), "{:?}", rows[1]);
    let why = convert(&desc, "system,tool\n").unwrap_err().to_string();
    assert!(why.starts_with("no column 'interface'"), "{why}");
}
