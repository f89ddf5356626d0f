"""copy_batch of a model's state dict next to plain copies: bytes, rates and ratios, as one JSON at the end.

    PYTHONPATH=python PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_state_dict.py [SECONDS]

Tensors have the sizes of Llama-3-8B in bfloat16 (291, 8 KiB to 1 GiB, 16 GB), each pinned by itself. Plain copies are
`tensor.copy_(non_blocking=True)` of torch where it is installed, else cuMemcpyAsync. Both kinds run in turn, and a time
is from the first call until all GPUs are idle. Every byte is compared once for each case. SCALE divides the sides of the
matrices (8: 251 MB, for the stand-in). Exits with 1 if a byte is wrong or a ratio is below its goal.
"""

import ctypes
import faulthandler
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

import pathline  # noqa: E402
from cuda_memory import Driver, open_memory  # noqa: E402

SCALE = int(os.environ.get("SCALE", "1"))
KIB, MIB = 1 << 10, 1 << 20
HIDDEN, WORDS, WIDE, NARROW, LAYERS = 4096, 128_256, 14_336, 1024, 32
FILE_BYTES = 64 * MIB // SCALE


def sizes():
    """Bytes of the tensors, in the order of the file."""
    def matrix(rows):
        return 2 * (rows // SCALE) * (HIDDEN // SCALE)

    norm = 2 * HIDDEN // SCALE
    layer = [matrix(rows) for rows in (HIDDEN, NARROW, NARROW, HIDDEN, WIDE, WIDE, WIDE)] + [norm, norm]
    return [matrix(WORDS)] + layer * LAYERS + [norm, matrix(WORDS)]


class Bench:
    """Memory, both kinds of copies, and their results."""

    def __init__(self, seconds):
        self.until = time.perf_counter() + seconds
        self.memory = open_memory()
        self.torch = getattr(self.memory, "torch", None)
        self.cuda = Driver() if self.torch else self.memory
        self.gpus = range(min(2, self.memory.gpus))
        self.streams = [self.memory.stream(gpu) for gpu in self.gpus]
        threshold = 4 * MIB // SCALE ** 2
        # The stand-in has no rates that mean something, so all large copies take several paths there.
        self.node = pathline.node() if SCALE == 1 else pathline.node(threshold=threshold, min_gain=1e-6)
        self.pool = ThreadPoolExecutor(8)
        self.noise = os.urandom(16 * MIB) * 2
        self.zeros = self.memory.pinned(max(sizes()))
        ctypes.memset(self.ends(self.zeros)[0], 0, self.ends(self.zeros)[1])
        self.back = self.memory.pinned(max(sizes()))
        self.results, self.failed = {}, False

    def ends(self, thing):
        return thing if isinstance(thing, tuple) else (thing.data_ptr(), thing.nbytes)

    def fill(self, things):
        """Random bytes, other ones in each tensor and 16 MiB."""
        start = ctypes.cast(self.noise, ctypes.c_void_p).value

        def fill_one(nth, thing):
            address, size = self.ends(thing)
            for at in range(0, size, 16 * MIB):
                offset = (nth * 7919 + at // MIB * 104_729) % (16 * MIB)
                ctypes.memmove(address + at, start + offset, min(16 * MIB, size - at))

        list(self.pool.map(fill_one, range(len(things)), things))
        return things

    def wait(self):
        for gpu in reversed(self.gpus):
            self.cuda.use(gpu)
            self.cuda.call("cuCtxSynchronize")

    def plain(self, dsts, srcs, stream):
        if self.torch:
            with self.torch.cuda.stream(stream):
                for dst, src in zip(dsts, srcs):
                    dst.copy_(src, non_blocking=True)
        else:
            for dst, src in zip(dsts, srcs):
                self.memory.copy(dst, src, stream)

    def now(self, dst, src, size):
        self.cuda.call("cuMemcpy", ctypes.c_uint64(dst), ctypes.c_uint64(src), ctypes.c_size_t(size))

    def wrong(self, copy, dsts, hosts):
        """Tensors with a wrong byte after a copy into memory of zeros."""
        for dst in dsts:
            address, size = self.ends(dst)
            self.now(address, self.ends(self.zeros)[0], size)
        copy()
        self.wait()
        count = 0
        for dst, host in zip(dsts, hosts):
            (address, size), (expected, _), back = self.ends(dst), self.ends(host), self.ends(self.back)[0]
            self.now(back, address, size)
            step = 16 * MIB
            parts = [(back + at, expected + at, min(step, size - at)) for at in range(0, size, step)]
            count += any(self.pool.map(lambda part: ctypes.CDLL(None).memcmp(
                ctypes.c_void_p(part[0]), ctypes.c_void_p(part[1]), ctypes.c_size_t(part[2])), parts))
        return count

    def case(self, name, plain, paths, dsts, hosts, rounds, goal=None):
        """Medians of some rounds, both kinds in turn; one round before them opens paths and compares bytes."""
        if time.perf_counter() > self.until:
            self.results[name], self.failed = "no time left", True
            return
        self.wait()
        before, size = self.node.counters(), sum(self.ends(dst)[1] for dst in dsts)
        wrong = self.wrong(paths, dsts, hosts)
        times, calls = {plain: [], paths: []}, {plain: [], paths: []}
        for nth in range(2 * rounds + 2):
            copy = plain if nth % 4 in (0, 3) else paths
            begun = time.perf_counter()
            copy()
            called = time.perf_counter()
            self.wait()
            times[copy].append(time.perf_counter() - begun)
            calls[copy].append(called - begun)
        middle = {copy: statistics.median(taken[1:]) for copy, taken in times.items()}
        ratio, counters = middle[plain] / middle[paths], self.node.counters()
        self.failed |= wrong > 0 or (goal is not None and SCALE == 1 and ratio < goal)
        self.results[name] = result = {
            "tensors": len(dsts), "bytes": size, "wrong": wrong,
            "plain_gbs": round(size / middle[plain] / 1e9, 2), "pathline_gbs": round(size / middle[paths] / 1e9, 2),
            "ratio": round(ratio, 3), "goal": goal,
            "plain_call_us": round(1e6 * statistics.median(calls[plain][1:])),
            "pathline_call_us": round(1e6 * statistics.median(calls[paths][1:])),
            "counters": {key: counters[key] - before[key] for key in counters if counters[key] != before[key]},
        }
        print(name, json.dumps(result), flush=True)

    def batch(self, name, dsts, srcs, rounds, goal=None, hosts=None, gpu=0):
        stream = self.streams[gpu]
        self.case(name, lambda: self.plain(dsts, srcs, stream),
                  lambda: self.node.copy_batch(dsts, srcs, stream), dsts, hosts or srcs, rounds, goal)


def carve(bench, gpu, all_sizes):
    """Tensors in one allocation, one after the other."""
    whole = bench.memory.device(gpu, sum(all_sizes))
    parts, at = [], 0
    for size in all_sizes:
        parts.append((whole[0] + at, size) if isinstance(whole, tuple) else whole[at:at + size])
        at += size
    return parts


def small_tensors(bench):
    """64 of 16 KiB: each pinned by itself, and carved from one allocation at both ends; and the norms."""
    small = [16 * KIB] * 64
    apart = bench.fill([bench.memory.pinned(size) for size in small])
    addresses = sorted(bench.ends(thing)[0] for thing in apart)
    adjacent = sum(b - a == 16 * KIB for a, b in zip(addresses, addresses[1:]))
    bench.results["adjacent_pinned_neighbours"] = adjacent
    apart.sort(key=lambda thing: bench.ends(thing)[0])
    bench.batch("64 x 16 KiB, pinned one by one", carve(bench, 0, small), apart, 200, 0.98)
    whole = bench.memory.pinned(sum(small))
    parts = [(whole[0] + at, 16 * KIB) if isinstance(whole, tuple) else whole[at:at + 16 * KIB]
             for at in range(0, sum(small), 16 * KIB)]
    bench.batch("64 x 16 KiB of one allocation", carve(bench, 0, small), bench.fill(parts), 200, 0.98)
    medium = [MIB // SCALE] * 64
    bench.batch("64 x 1 MiB, pinned one by one", carve(bench, 0, medium),
                bench.fill([bench.memory.pinned(size) for size in medium]), 50, 0.98)


def state_dict(bench):
    """All of it: to one GPU, the same bytes to both, a half to each, from one to the other."""
    begun = time.perf_counter()
    every = sizes()
    host = bench.fill([bench.memory.pinned(size) for size in every])
    first = [bench.memory.device(0, size) for size in every]
    bench.results["pinned_s"] = round(time.perf_counter() - begun, 1)
    print(bench.node.explain(first[0], host[0]), flush=True)
    bench.batch("state dict to gpu0", first, host, 5, 1.5)
    large = [nth for nth, size in enumerate(every) if size >= 32 * MIB // SCALE ** 2]
    bench.batch("its tensors from 32 MiB", [first[nth] for nth in large], [host[nth] for nth in large], 5, 1.5)
    if len(bench.gpus) < 2:
        return
    second, streams = [bench.memory.device(1, size) for size in every], bench.streams

    def plain_to_both():
        for dsts, stream in zip((first, second), streams):
            bench.plain(dsts, host, stream)

    def to_both():
        for dsts in zip(first, second, host):
            bench.node.copy_to_all(dsts[:2], dsts[2], streams, devices=[0, 1])

    bench.case("state dict to both GPUs (copy_to_all)", plain_to_both, to_both, first + second, host + host, 4, 1.5)
    half = len(every) // 2
    parts = ((first[:half], host[:half]), (second[half:], host[half:]))

    def halves(copy):
        for (dsts, srcs), stream in zip(parts, streams):
            copy(dsts, srcs, stream)

    bench.case("a half to each GPU", lambda: halves(bench.plain), lambda: halves(bench.node.copy_batch),
               first[:half] + second[half:], host, 4)
    for dst, src in zip(first, host):
        bench.now(bench.ends(dst)[0], *bench.ends(src))
    bench.batch("state dict from gpu0 to gpu1", second, first, 5, 0.98, hosts=host)


def pageable(bench):
    """For information: memory that is not pinned, and a safetensors file as it is mapped."""
    count = 16
    each = [FILE_BYTES // count] * count
    dsts = carve(bench, 0, each)
    data = bytearray(os.urandom(FILE_BYTES))

    def tensors(buffer, start):
        if bench.torch:
            whole = bench.torch.frombuffer(buffer, dtype=bench.torch.uint8)
            return [whole[at:at + each[0]] for at in range(start, start + FILE_BYTES, each[0])]
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) + start
        return [(address + at, each[0]) for at in range(0, FILE_BYTES, each[0])]

    bench.batch("pageable, for information", dsts, tensors(data, 0), 5)
    with tempfile.NamedTemporaryFile() as file:
        header = json.dumps({str(nth): {"dtype": "U8", "shape": [each[0]],
                                        "data_offsets": [nth * each[0], (nth + 1) * each[0]]}
                             for nth in range(count)}).encode()
        file.write(len(header).to_bytes(8, "little") + header + data)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        bench.batch("mapped safetensors, for information", dsts, tensors(mapped, 8 + len(header)), 5)


def main():
    begun, seconds = time.perf_counter(), float(sys.argv[1]) if len(sys.argv) > 1 else 70
    faulthandler.dump_traceback_later(seconds + 18, exit=True)
    bench = Bench(seconds)
    small_tensors(bench)
    state_dict(bench)
    pageable(bench)
    bench.results["by"] = "torch" if bench.torch else "driver"
    bench.results["seconds"] = round(time.perf_counter() - begun, 1)
    bench.results["passed"] = not bench.failed
    print(json.dumps(bench.results), flush=True)
    os._exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
