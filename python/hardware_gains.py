"""Predictions, random copies next to plain ones, and the cost below the threshold, over two paths.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_gains.py [COPIES] [SECONDS]

Needs two NVIDIA GPUs of one host; nothing but the standard library. Both kinds of copies are called by ctypes
with the same arguments, so that Python costs both the same. Ends after SECONDS (150) at the latest.
"""

import ctypes
import os
import random
import statistics
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

from cuda_memory import Driver  # noqa: E402
from pathline._library import Node  # noqa: E402

MIB = 1 << 20
LARGEST = 256 * MIB
# Sizes of the probe are marked; a prediction of the others is one of a copy that was not measured.
PROBED = (4, 8, 12, 32, 128)
SIZES = (4, 5, 6, 7, 8, 10, 12, 14, 18, 24, 32, 48, 64, 96, 128, 192, 256, 1024)


class Pair:
    """Memory of GPU 0 and of the host, a stream, and both kinds of copies."""

    def __init__(self):
        self.cuda = Driver()
        self.host, self.back = self.cuda.pinned(1024 * MIB)[0], self.cuda.pinned(1024 * MIB)[0]
        self.device = self.cuda.device(0, 1024 * MIB)[0]
        self.stream = self.cuda.stream(0)
        self.node = Node()
        library, handle = self.node._library, self.node._handle
        stream = c_void_p(self.stream)
        plain, paths, waits = self.cuda.cuda.cuMemcpyAsync, library.pl_copy_async, library.pl_copy
        plain.argtypes = [c_uint64, c_uint64, c_size_t, c_void_p]
        self.plain = lambda dst, src, size: plain(dst, src, size, stream)
        self.paths = lambda dst, src, size: paths(handle, dst, src, size, stream)
        self.waits = lambda dst, src, size: waits(handle, dst, src, size)
        plain_waits = self.cuda.cuda.cuMemcpy
        plain_waits.argtypes = [c_uint64, c_uint64, c_size_t]
        self.plain_waits = lambda dst, src, size: plain_waits(dst, src, size)
        self.wait = self.cuda.cuda.cuStreamSynchronize

    def time(self, copy, *ends):
        """Seconds from the call until the stream has ended."""
        begun = time.perf_counter()
        status = copy(*ends)
        self.wait(c_void_p(self.stream))
        taken = time.perf_counter() - begun
        if status != 0:
            raise RuntimeError(f"a copy returned {status}")
        return taken

    def directions(self):
        return (("in", self.device, self.host), ("out", self.back, self.device))


def predicted(plan, size):
    """Predicted seconds of a plan of `explain`: enqueued, waiting; None where it is plain."""
    lines = plan.splitlines()
    if len(lines) < 3:
        return None, None
    rates = [line.split("predicted ")[1].split(" GB/s")[0] if "predicted " in line else None
             for line in lines[1:3]]
    return [size / (float(rate) * 1e9) if rate else None for rate in rates]


def check_predictions(pair):
    """Medians of 15 (5 from 512 MiB on), the three kinds in turn."""
    print("prediction, time predicted / measured - 1; x: times plain; P: a size of the probe\n"
          "way  MiB    plain GB/s | enqueued x, error | waits x, error")
    errors = {"enqueued": [], "waits": []}
    for way, dst, src in pair.directions():
        for mib in SIZES:
            size = mib * MIB
            plan = pair.node.explain((dst, size), (src, size))
            times = {"plain": [], "enqueued": [], "waits": []}
            for _ in range(6 if mib > 512 else 16):
                for kind, copy in (("plain", pair.plain), ("enqueued", pair.paths), ("waits", pair.waits)):
                    times[kind].append(pair.time(copy, dst, src, size))
            middle = {kind: statistics.median(all_times[1:]) for kind, all_times in times.items()}
            cells = []
            for kind, promised in zip(errors, predicted(plan, size)):
                gain = middle["plain"] / middle[kind]
                if promised is None:
                    cells.append(f"{gain:4.2f} plain  ")
                    continue
                error = promised / middle[kind] - 1
                if mib not in PROBED:
                    errors[kind].append(abs(error))
                cells.append(f"{gain:4.2f} {100 * error:+6.1f} %")
            mark = "P" if mib in PROBED else " "
            print(f"{way:3} {mib:5} {mark}  {size / middle['plain'] / 1e9:8.1f} | {' | '.join(cells)}",
                  flush=True)
    for kind, all_errors in errors.items():
        ordered = sorted(all_errors) or [float("nan")]
        print(f"  {kind}: {len(all_errors)} sizes that were not probed: median "
              f"{100 * statistics.median(ordered):.1f} %, 95th percentile "
              f"{100 * ordered[int(0.95 * (len(ordered) - 1) + 0.5)]:.1f} %  (goal 3, 10)")


def check_classes(pair, copies, until):
    """Random ends; of each a plain copy that is not counted, then two of each kind, one inside the other."""
    random.seed(20)
    classes, made = {}, 0
    while made < copies and time.perf_counter() < until:
        size = int(2 ** random.uniform(12, 28))
        way, dst, src = pair.directions()[random.randrange(2)]
        offset = random.randrange(0, LARGEST - size + 1)
        dst, src = dst + offset, src + random.randrange(0, LARGEST - size + 1)
        kind, plain, copy = random.choice((("enqueued", pair.plain, pair.paths),
                                           ("waits", pair.plain_waits, pair.waits)))
        order = [plain, copy, copy, plain] if random.random() < 0.5 else [copy, plain, plain, copy]
        pair.time(plain, dst, src, size)
        taken = {plain: 0.0, copy: 0.0}
        for call in order:
            taken[call] += pair.time(call, dst, src, size)
        classes.setdefault((size.bit_length() - 1, kind, way), []).append(taken[plain] / taken[copy])
        made += 1
    print(f"{made} random copies, any alignment, next to plain ones: median times plain by class "
          "(goal 0.98; n copies)\nfrom KiB   enqueued in  enqueued out      waits in     waits out")
    for power in range(12, 28):
        cells = []
        for kind in ("enqueued", "waits"):
            for way in ("in", "out"):
                ratios = classes.get((power, kind, way), [])
                median = f"{statistics.median(ratios):.2f}" if ratios else "-"
                cells.append(f"{median} ({len(ratios)})")
        print(f"{(1 << power) >> 10:8}  " + "".join(f"{cell:>14}" for cell in cells), flush=True)


def check_threshold(pair):
    """Copies of 4 KiB: 300 batches of 100 of each kind, in turn."""
    ends = pair.device, pair.host, 4096
    costs = {"plain": [], "paths": []}
    for turn in range(600):
        kind = "paths" if turn % 2 else "plain"
        copy = getattr(pair, kind)
        begun = time.perf_counter()
        for _ in range(100):
            copy(*ends)
        costs[kind].append((time.perf_counter() - begun) / 100)
        pair.wait(c_void_p(pair.stream))
    plain, paths = (statistics.median(costs[kind]) for kind in ("plain", "paths"))
    print(f"below the threshold: call {1e9 * plain:.0f} ns plain, {1e9 * (paths - plain):+.0f} ns by pathline "
          "(goal +100; one argument more by ctypes)")


def main():
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 150
    until = time.perf_counter() + seconds
    watchdog = threading.Timer(seconds + 20, lambda: (print("HANGS", flush=True), os._exit(2)))
    watchdog.daemon = True
    watchdog.start()
    pair = Pair()
    for _, dst, src in pair.directions():
        print(pair.node.explain((dst, 1024 * MIB), (src, 1024 * MIB)), flush=True)
    check_threshold(pair)
    check_predictions(pair)
    check_classes(pair, copies, until - 5)
    print(pair.node.counters())
    os._exit(0)


if __name__ == "__main__":
    main()
