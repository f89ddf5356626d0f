"""What copies over several paths gain, and what they cost the GPU that helps. Needs torch and two GPUs.

    python3 examples/measure_helpers.py [--chunks KIB,...] [--shared] [--seconds S]

While 1 GiB after the other goes from pinned memory to GPU 0, plainly and by pathline, GPU 1 makes copies of
64 KiB from this process and from another one, multiplies matrices, and takes part in all_reduce.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time

import pathline
import torch

MIB = 1 << 20
SIZES = [16, 24, 32, 48, 64, 96, 128, 256, 1024]


def percentile(times, share):
    return sorted(times)[int(len(times) * share)]


def small_copies(seconds):
    """Times in us of copies of 64 KiB to GPU 1, 20 to 120 us apart."""
    torch.cuda.set_device(1)
    stream = torch.cuda.Stream(1)
    src = torch.empty(65536, dtype=torch.uint8).pin_memory()
    dst = torch.empty(65536, dtype=torch.uint8, device="cuda:1")
    times, end = [], time.perf_counter() + seconds
    with torch.cuda.stream(stream):
        while time.perf_counter() < end:
            start = time.perf_counter()
            dst.copy_(src, non_blocking=True)
            stream.synchronize()
            now = time.perf_counter()
            times.append(1e6 * (now - start))
            until = now + 1e-6 * random.uniform(20, 120)
            while time.perf_counter() < until:
                pass
    return times


class Owner:
    """Another process that copies to GPU 1 when asked."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--owner"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def measure(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return [float(time) for time in self.process.stdout.readline().split()]


def serve():
    small_copies(0.2)
    print("ready", flush=True)
    for line in sys.stdin:
        print(*(f"{time:.1f}" for time in small_copies(float(line))), flush=True)


def multiply(seconds):
    """TFLOP/s of GPU 1."""
    torch.cuda.set_device(1)
    a, b = (torch.randn(8192, 8192, device="cuda:1", dtype=torch.bfloat16) for _ in range(2))
    out, rounds = torch.empty_like(a), 0
    start, end = time.perf_counter(), None
    while end is None or end - start < seconds:
        for _ in range(20):
            torch.mm(a, b, out=out)
        torch.cuda.synchronize(1)
        rounds, end = rounds + 20, time.perf_counter()
    return 2 * 8192**3 * rounds / (end - start) / 1e12


def all_reduce(seconds):
    """GB/s of GPU 0 and 1, the bus bandwidth of 256 MiB."""
    parts = [torch.zeros(64 * MIB, device=f"cuda:{gpu}") for gpu in (0, 1)]
    # Not the default streams: a copy that waits would start after their work.
    streams = [torch.cuda.Stream(gpu) for gpu in (0, 1)]
    rounds = 0
    start, end = time.perf_counter(), None
    while end is None or end - start < seconds:
        for _ in range(20):
            torch.cuda.nccl.all_reduce(parts, streams=streams)
        for stream in streams:
            stream.synchronize()
        rounds, end = rounds + 20, time.perf_counter()
    return 256 * MIB * rounds / (end - start) / 1e9


class Copies:
    """Copies one after the other in a thread, while this is entered."""

    def __init__(self, copy):
        self.copy, self.stop = copy, threading.Event()
        self.count, self.seconds = 0, 0.0

    def run(self):
        start = time.perf_counter()
        while not self.stop.is_set():
            self.copy()
            self.count += 1
        self.seconds = time.perf_counter() - start

    def __enter__(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def gains(node, host, device):
    """Times the plain copy by size, in both directions, copies alternated."""
    stream, row = torch.cuda.Stream(0), []
    for mib in SIZES:
        for to, start in ((device, host), (host, device)):
            to, start = to[:mib * MIB], start[:mib * MIB]
            times = {True: [], False: []}
            for turn in range(24):
                begun = time.perf_counter()
                if turn % 2:
                    node.copy(to, start, stream)
                    stream.synchronize()
                else:
                    with torch.cuda.stream(stream):
                        to.copy_(start, non_blocking=True)
                    stream.synchronize()
                times[turn % 2 == 1].append(time.perf_counter() - begun)
            row.append(percentile(times[False], 0.5) / percentile(times[True], 0.5))
    return row


def measure(name, copy, size, owner, seconds):
    """One line: what GPU 1 does while copies run."""
    figures = []
    for work in (small_copies, owner.measure, multiply, all_reduce):
        with Copies(copy) as copies:
            time.sleep(0.05)
            result = work(seconds)
        if isinstance(result, list):
            result = f"{percentile(result, 0.5):7.1f} {percentile(result, 0.99):7.1f}"
        else:
            result = f"{result:7.1f}"
        figures.append(f"{size * copies.count / copies.seconds / 1e9:6.1f} | {result}")
    print(f"{name:14} | " + " | ".join(figures), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", default="1024,1536,2048,4096")
    parser.add_argument("--shared", action="store_true", help="also with shared_helpers")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--owner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.owner:
        return serve()
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    owner = Owner()
    size = 1024 * MIB
    host = torch.randint(256, (size,), dtype=torch.uint8).pin_memory()
    device = torch.empty(size, dtype=torch.uint8, device="cuda:0")
    chunks = [int(chunk) << 10 for chunk in options.chunks.split(",")]
    choices = [(chunk, shared) for chunk in chunks for shared in [False, True][:1 + options.shared]]
    print("gain over the plain copy, to GPU 0 / back\nchunk          | "
          + " | ".join(f"{mib:5} MiB   " for mib in SIZES))
    nodes = []
    for chunk, shared in choices:
        node = pathline.Node(staging=4 * chunk, shared_helpers=shared, min_gain=1e-6)
        name = f"{chunk >> 10} KiB" + (" shared" if shared else "")
        row = gains(node, host, device)
        pairs = [f"{row[at]:5.2f} / {row[at + 1]:4.2f}" for at in range(0, len(row), 2)]
        print(f"{name:14} | " + " | ".join(pairs), flush=True)
        nodes.append((name, node))
    seconds = options.seconds
    multiply(0.2), all_reduce(0.2)
    print("GB/s to GPU 0 while GPU 1 makes copies of 64 KiB (p50, p99 in us), the same in another\n"
          "process, multiplies (TFLOP/s), takes part in all_reduce (GB/s)")
    stream = torch.cuda.Stream(0)

    def plain():
        with torch.cuda.stream(stream):
            device.copy_(host, non_blocking=True)
        stream.synchronize()

    def over_two_paths(node):
        node.copy(device, host, stream)
        stream.synchronize()

    for _ in range(2):
        measure("nothing", lambda: time.sleep(0.01), 0, owner, seconds)
        measure("plain", plain, size, owner, seconds)
        for name, node in nodes:
            measure(name, lambda node=node: over_two_paths(node), size, owner, seconds)
    device.zero_()
    nodes[0][1].copy(device, host)
    assert torch.equal(device.cpu(), host), "bytes differ"
    owner.process.kill()


if __name__ == "__main__":
    main()
