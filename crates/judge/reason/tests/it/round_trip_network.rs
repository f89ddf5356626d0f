//! Round trip of perftest: an adapter whose line, slot, MTU and message rate are known writes what `ib_write_bw`
//! and `ib_write_lat` print, and `explain` must name what holds it.

use std::fmt::Write as _;

use pathline_paste::read_paste;
use pathline_reason::explain_paste;
use pathline_schema::PcieLink;

use crate::worlds::Jitter;

/// An adapter with one thing changed.
#[derive(Clone)]
struct AdapterWorld {
    name: &'static str,
    ids: &'static [&'static str],
    /// Words before the output.
    words: &'static str,
    /// Gbit/s at which the port trained, and the slot: GT/s and lanes.
    port: f64,
    slot: (f64, u32),
    mtu: u32,
    /// Bytes of the messages; 0 for all sizes.
    size: u64,
    on_gpu: bool,
    /// Share that a detour leaves.
    detour: f64,
}

fn worlds() -> Vec<AdapterWorld> {
    let mut all = Vec::new();
    // PCIe 2 has 5 GT/s.
    for (words, line, slot, slower) in [
        ("ConnectX-7, NDR", 400.0, (32.0, 16), 16.0),
        ("ConnectX-6, HDR", 200.0, (16.0, 16), 8.0),
        ("ConnectX-5, EDR", 100.0, (8.0, 16), 5.0),
    ] {
        let sound = AdapterWorld {
            name: "sound",
            ids: &["line-full"],
            words,
            port: line,
            slot,
            mtu: 4096,
            size: 0,
            on_gpu: false,
            detour: 1.0,
        };
        let narrow = &["adapter-slot"][..];
        all.extend([
            sound.clone(),
            AdapterWorld { name: "sound, GPU memory", on_gpu: true, ..sound.clone() },
            AdapterWorld {
                name: "slot of half the lanes",
                ids: narrow,
                slot: (slot.0, 8),
                ..sound.clone()
            },
            AdapterWorld {
                name: "slot of half the speed",
                ids: narrow,
                slot: (slower, 16),
                ..sound.clone()
            },
            AdapterWorld {
                name: "port at half its rate",
                ids: &["link-rate-low"],
                port: line / 2.0,
                ..sound.clone()
            },
            AdapterWorld {
                name: "port at a quarter",
                ids: &["link-rate-low"],
                port: line / 4.0,
                ..sound.clone()
            },
            AdapterWorld {
                name: "small messages",
                ids: &["small-size"],
                size: 1024,
                ..sound.clone()
            },
            AdapterWorld {
                name: "GPU across sockets",
                // The figure is also that of a lower line rate.
                ids: &["gpu-far-from-adapter", "link-rate-low"],
                on_gpu: true,
                detour: 0.4,
                ..sound.clone()
            },
        ]);
    }
    all
}

impl AdapterWorld {
    /// GB/s of messages of this size.
    fn rate(&self, bytes: u64) -> f64 {
        let slot = PcieLink { speed_gts: self.slot.0, width: self.slot.1, ..PcieLink::default() };
        // 256 B of payload in 280 B, and a few percent of acknowledgements.
        let slot = slot.peak().gbs() * 0.86;
        // 90 B of headers and gaps a packet on the line.
        let mtu = f64::from(self.mtu);
        let line =
            self.port / 8.0 * 0.985 * mtu / (mtu + if self.mtu < 2048 { 110.0 } else { 90.0 });
        // Messages a second of one queue pair.
        let started = 7e6 * bytes as f64 / 1e9;
        slot.min(line).min(started) * self.detour
    }

    fn write(&self, noise: &mut Jitter) -> String {
        let mut text = format!("{}\n", self.words);
        let gpu = if self.on_gpu { " --use_cuda=0" } else { "" };
        let size = if self.size > 0 { format!("-s {}", self.size) } else { "-a".to_owned() };
        writeln!(text, "$ ib_write_bw -d mlx5_0 {size} --report_gbits{gpu} node2").expect("text");
        if self.on_gpu {
            text.push_str("initializing CUDA\n");
        }
        let rule = "-".repeat(87);
        write!(text, "{rule}\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n Number of qps   : 1\t\tTransport type : IB\n Connection type : RC\t\tUsing SRQ      : OFF\n TX depth        : 128\n CQ Moderation   : 100\n Mtu             : {}[B]\n Link type       : IB\n{rule}\n", self.mtu).expect("text");
        text.push_str(
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n",
        );
        let sizes: Vec<u64> = if self.size > 0 {
            vec![self.size]
        } else {
            (1..=23).map(|shift| 1 << shift).collect()
        };
        for bytes in sizes {
            let gbits = noise.near(self.rate(bytes)) * 8.0;
            let peak = (gbits * 1.01).min(self.port);
            let gbits = gbits.min(self.port);
            writeln!(text, " {bytes:<10} 5000             {peak:<7.2}            {gbits:<7.2}              {:.6}", gbits / 8.0 * 1e3 / bytes as f64).expect("text");
        }
        text + &rule + "\n"
    }
}

/// `ib_write_lat` of 2 B with a typical time in us.
fn latency(us: f64, noise: &mut Jitter) -> String {
    let us = noise.near(us);
    format!(
        "                    RDMA_Write Latency Test\n Mtu             : 4096[B]\n Link type       : IB\n \
         #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n \
         2       1000          {:.2}           {:.2}         {us:.2}                {:.2}             0.05            {:.2}                    {:.2}\n",
        us * 0.97,
        us * 4.0,
        us * 1.01,
        us * 1.2,
        us * 2.0
    )
}

#[test]
fn causes_of_slow_adapters_are_found() {
    let mut noise = Jitter(5);
    let (mut tried, mut wrong, mut sure_wrong) = (0, Vec::new(), 0);
    let mut judge = |name: String, ids: &[&str], text: &str| {
        let found = explain_paste(&read_paste(text.as_bytes()), None);
        let causes =
            found.answers.first().map(|answer| answer.causes.as_slice()).unwrap_or_default();
        tried += 1;
        if causes.first().is_none_or(|cause| !ids.contains(&cause.id)) {
            sure_wrong += usize::from(causes.first().is_some_and(|c| c.share > 20.0 / 21.0));
            let shares: Vec<_> =
                causes.iter().take(3).map(|c| (c.id, c.share, c.predicted)).collect();
            wrong.push(format!("{name}: {shares:.2?}"));
        }
    };
    for world in worlds() {
        let text = world.write(&mut noise);
        judge(
            format!("{}, {}: {:.2} GB/s", world.words, world.name, world.rate(1 << 23)),
            world.ids,
            &text,
        );
    }
    for us in [1.2, 1.6, 2.0] {
        judge(format!("latency {us}"), &["rdma-message"], &latency(us, &mut noise));
    }
    for us in [4.5, 7.0] {
        judge(format!("latency {us}"), &["slow-host"], &latency(us, &mut noise));
    }
    println!("perftest: {} of {tried} attributed", tried - wrong.len());
    let text = wrong.join("\n");
    assert_eq!(sure_wrong, 0, "{text}");
    assert!(wrong.len() * 100 <= tried * 3, "{} wrong:\n{text}", wrong.len());
}
