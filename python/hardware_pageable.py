"""Pageable memory to a GPU and back, next to plain copies, with all, two and one CPU.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_pageable.py [GIB]

Needs an NVIDIA GPU; nothing but the standard library. Each number of CPUs is a process of its own. Plain copies and
those of the library alternate; medians of five, every byte compared.
"""

import ctypes
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from ctypes import c_size_t, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

from cuda_memory import Driver  # noqa: E402
from pathline._library import Node  # noqa: E402

MIB = 1 << 20
SIZES = (4, 8, 16, 64, 256)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Bench:
    """Anonymous memory, a file in the page cache, memory of GPU 0, and both kinds of copies."""

    def __init__(self, largest):
        self.cuda, self.node, self.largest = Driver(), Node(), largest
        self.device = self.cuda.device(0, largest)[0]
        self.memory = self.mapped(mmap.mmap(-1, largest))
        self.back = self.mapped(mmap.mmap(-1, largest))
        block = os.urandom(16 * MIB)
        self.file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        for nth in range(largest // len(block)):
            part = nth.to_bytes(8, "little") + block[8:]
            ctypes.memmove(self.memory + nth * len(block), part, len(block))
            self.file.write(part)
        self.file.flush()
        self.cached = self.mapped(mmap.mmap(self.file.fileno(), largest))
        library, handle = self.node._library, self.node._handle
        plain = self.cuda.cuda.cuMemcpy
        plain.argtypes = [c_uint64, c_uint64, c_size_t]
        self.calls = {"plain": plain, "threads": lambda *ends: library.pl_copy(handle, *map(c_void_p, ends[:2]), ends[2])}
        self.maps = []

    def mapped(self, memory):
        """The address of a mapping, which this object keeps."""
        self.__dict__.setdefault("mappings", []).append(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def compare(self, name, dst, src, size):
        """Both kinds in turn; the first of each warms up, and the probe runs in it."""
        times, cpu = {kind: [] for kind in self.calls}, {kind: [] for kind in self.calls}
        for _ in range(6):
            for kind, copy in self.calls.items():
                used, begun = cpu_seconds(), time.perf_counter()
                status = copy(dst, src, size)
                times[kind].append(time.perf_counter() - begun)
                cpu[kind].append(cpu_seconds() - used)
                if status != 0:
                    raise RuntimeError(f"a copy returned {status}")
        middle = {kind: statistics.median(all_times[1:]) for kind, all_times in times.items()}
        work = {kind: statistics.median(all_times[1:]) for kind, all_times in cpu.items()}
        rate = {kind: size / seconds / 1e9 for kind, seconds in middle.items()}
        print(f"  {name:22} {size // MIB:5} MiB  plain {rate['plain']:5.1f}  threads {rate['threads']:5.1f} GB/s"
              f"  {rate['threads'] / rate['plain']:5.2f}x   CPU s/GB {work['plain'] / size * 1e9:5.3f} {work['threads'] / size * 1e9:5.3f}",
              flush=True)

    def run(self):
        largest = self.largest
        begun = time.perf_counter()
        print("  " + self.node.explain((self.device, largest), (self.memory, largest)).splitlines()[-1],
              f"(probe {time.perf_counter() - begun:.2f} s)")
        print("  " + self.node.explain((self.back, largest), (self.device, largest)).splitlines()[-1])
        for size in [mib * MIB for mib in SIZES] + [largest]:
            self.compare("memory to GPU", self.device, self.memory, size)
        self.compare("mapped file to GPU", self.device, self.cached, largest)
        for size in [mib * MIB for mib in SIZES] + [largest]:
            self.compare("GPU to memory", self.back, self.device, size)
        # The source was the file, whose bytes are those of the memory.
        same = ctypes.CDLL(None).memcmp
        same.argtypes = [c_void_p, c_void_p, c_size_t]
        if same(self.memory, self.back, largest) != 0:
            raise RuntimeError("bytes differ")
        print("  every byte right;", self.node.counters())


def main():
    gib = float(sys.argv[1]) if len(sys.argv) > 1 else 2
    if os.environ.get("PATHLINE_CPUS"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(os.environ["PATHLINE_CPUS"])])
        Bench(int(gib * 1024) * MIB).run()
        return
    for cpus in sorted({len(os.sched_getaffinity(0)), 2, 1}, reverse=True):
        print(f"{cpus} CPUs", flush=True)
        subprocess.run([sys.executable, *sys.argv], env={**os.environ, "PATHLINE_CPUS": str(cpus)}, check=True)


if __name__ == "__main__":
    main()
