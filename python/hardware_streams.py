"""Copies in the order of streams over two paths: rates, bytes, order, and driver calls meanwhile.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_streams.py [COPIES]

Needs two NVIDIA GPUs of one host and numpy. Each part must end; a watchdog ends the process after 120 s.
"""

import ctypes
import os
import random
import statistics
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

from cuda_memory import Driver  # noqa: E402
import pathline  # noqa: E402

MIB = 1 << 20
SIZE = 256 * MIB


class Streams:
    """Memory of GPU 0, and streams of every kind."""

    def __init__(self):
        self.cuda = Driver()
        cuda = self.cuda
        self.host, self.back = cuda.pinned(1024 * MIB), cuda.pinned(1024 * MIB)
        self.device, self.zeros = cuda.device(0, 1024 * MIB), cuda.pinned(SIZE)
        ctypes.memset(self.zeros[0], 0, SIZE)
        self.streams = {"gpu0": cuda.stream(0), "gpu0 again": cuda.stream(0),
                        "gpu1": cuda.stream(1), "legacy": 0, "per thread": 2}
        cuda.use(0)
        self.content, self.copied = self.view(self.host), self.view(self.back)
        self.content[:] = numpy.random.default_rng(1).integers(0, 256, 1024 * MIB, dtype=numpy.uint8)

    @staticmethod
    def view(memory):
        return numpy.frombuffer((ctypes.c_uint8 * memory[1]).from_address(memory[0]), numpy.uint8)

    def wait(self, stream):
        self.cuda.call("cuStreamSynchronize", c_void_p(stream))

    def there_and_back(self, node, stream, start, size):
        """Clears the memory, copies a range in and out, all in the order of a stream."""
        part = (self.device[0] + start, size)
        self.cuda.copy(part, (self.zeros[0], size), stream)
        node.copy(part, (self.host[0] + start, size), stream)
        node.copy((self.back[0] + start, size), part, stream)


def check_bytes(run, node, copies):
    """Copies of 4 KiB to 256 MiB, any alignment, in every stream."""
    random.seed(7)
    wrong = 0
    for _ in range(copies):
        size = min(SIZE, int(2 ** random.uniform(12, 28)))
        start = random.randrange(0, 1024 * MIB - size)
        run.copied[start:start + size] = 0
        stream = run.streams[random.choice(list(run.streams))]
        run.there_and_back(node, stream, start, size)
        run.wait(stream)
        wrong += not (run.copied[start:start + size] == run.content[start:start + size]).all()
    print(f"bytes: {2 * copies} copies, {wrong} wrong, {node.counters()}", flush=True)
    return wrong


def time_sizes(run, node):
    """Each size in turn with the plain copy: the call, and the end of the stream."""
    stream = run.streams["gpu0"]
    for name, dst, src in (("host to gpu0", run.device, run.host), ("gpu0 to host", run.back, run.device)):
        for mib in (4, 6, 8, 12, 16, 24, 32, 64, 256, 1024):
            size = mib * MIB
            ends = (dst[0], size), (src[0], size)
            plan = node.explain(*ends).splitlines()[1]
            times = {"plain": [], "paths": [], "call": [], "waits": []}
            for _ in range(12 if mib > 64 else 40):
                begun = time.perf_counter()
                run.cuda.copy(*ends, stream)
                run.wait(stream)
                times["plain"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                node.copy(*ends, stream)
                times["call"].append(time.perf_counter() - begun)
                run.wait(stream)
                times["paths"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                node.copy(*ends)
                times["waits"].append(time.perf_counter() - begun)
            middle = {key: statistics.median(value[2:]) for key, value in times.items()}
            rate = {key: size / value / 1e9 for key, value in middle.items()}
            gain, driven = middle["plain"] / middle["paths"], middle["plain"] / middle["waits"]
            print(f"{name} {mib:5} MiB: plain {rate['plain']:5.1f}, enqueued {rate['paths']:5.1f} GB/s "
                  f"({gain:.2f}x, call {1e6 * middle['call']:4.0f} us), waits {rate['waits']:5.1f} "
                  f"({driven:.2f}x); {plan}", flush=True)


def check_streams(run, node):
    """A stream that waits for the host holds no other one; copies of three threads are in order."""
    held, free = run.streams["gpu0"], run.streams["gpu0 again"]
    word, _ = run.cuda.pinned(4096)
    ctypes.memset(word, 0, 4096)
    begun = node.counters()
    run.cuda.use(0)
    run.cuda.call("cuStreamWaitValue32_v2", c_void_p(held), c_uint64(word), c_uint32(1), 0)
    run.copied[:SIZE] = 0
    run.there_and_back(node, held, 0, SIZE)
    run.there_and_back(node, free, SIZE, SIZE)
    run.wait(free)
    is_held = run.cuda.cuda.cuStreamQuery(c_void_p(held)) == 600
    ctypes.c_uint32.from_address(word).value = 1
    run.wait(held)
    ended = node.counters()
    equal = bool((run.copied[:2 * SIZE] == run.content[:2 * SIZE]).all())
    print(f"held stream: free one ended first {is_held}, bytes equal {equal}, over several paths "
          f"{ended['multipath'] - begun['multipath']} of 4", flush=True)
    wrong = []

    def copy_rounds(nth):
        run.cuda.use(0)
        stream = run.cuda.stream(0)
        for turn in range(20):
            start = nth * SIZE
            run.copied[start:start + SIZE] = 0
            run.there_and_back(node, stream, start, SIZE - turn)
            run.wait(stream)
            if not (run.copied[start:start + SIZE - turn] == run.content[start:start + SIZE - turn]).all():
                wrong.append((nth, turn))

    threads = [threading.Thread(target=copy_rounds, args=(nth,)) for nth in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(f"three threads: {len(wrong)} of 60 wrong, {node.counters()}", flush=True)
    return len(wrong) + (not equal) + (not is_held)


MODULE = b"\n.version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none() { ret; }\n\0"


def calls_meanwhile(run):
    """Driver calls that wait for streams or take locks, each as (name, call)."""
    cuda = run.cuda

    def free_device():
        address = c_uint64()
        cuda.call("cuMemAlloc_v2", byref(address), c_size_t(MIB))
        cuda.call("cuMemFree_v2", address)

    def free_host():
        address = c_void_p()
        cuda.call("cuMemHostAlloc", byref(address), c_size_t(MIB), 1)
        cuda.call("cuMemFreeHost", address)

    def load_module():
        module = c_void_p()
        cuda.call("cuModuleLoadData", byref(module), MODULE)
        cuda.call("cuModuleUnload", module)

    def new_stream():
        stream = c_void_p()
        cuda.call("cuStreamCreate", byref(stream), 1)
        cuda.call("cuStreamDestroy_v2", stream)

    return [("cuMemFree", free_device), ("cuMemFreeHost", free_host), ("cuModuleLoadData", load_module),
            ("cuStreamDestroy", new_stream), ("cuCtxSynchronize", lambda: cuda.call("cuCtxSynchronize"))]


def check_calls(run, node):
    """Copies while another thread makes such calls; every second time the host holds the stream for 20 ms."""
    stream = run.streams["gpu0"]
    word, _ = run.cuda.pinned(4096)
    for name, call in calls_meanwhile(run):
        run.cuda.use(0)
        wrong, made = 0, [0]
        for turn in range(20):
            ctypes.memset(word, 0, 4)
            run.copied[:64 * MIB] = 0
            if turn % 2:
                run.cuda.call("cuStreamWaitValue32_v2", c_void_p(stream), c_uint64(word), c_uint32(1), 0)
            stop = threading.Event()

            def other():
                run.cuda.use(0)
                while not stop.is_set():
                    call()
                    made[0] += 1

            run.there_and_back(node, stream, 0, 64 * MIB)
            thread = threading.Thread(target=other)
            thread.start()
            time.sleep(0.02 if turn % 2 else 0.002)
            ctypes.c_uint32.from_address(word).value = 1
            run.wait(stream)
            stop.set()
            thread.join()
            wrong += not (run.copied[:64 * MIB] == run.content[:64 * MIB]).all()
        print(f"{name}: {made[0]} calls next to 40 copies, {wrong} wrong", flush=True)


def main():
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    watchdog = threading.Timer(120, lambda: (print("HANGS: ended after 120 s", flush=True), os._exit(2)))
    watchdog.daemon = True
    watchdog.start()
    run = Streams()
    node = pathline.Node()
    for ends in ((run.device, run.host), (run.back, run.device)):
        print(node.explain(*ends), flush=True)
    time_sizes(run, node)
    bad = check_bytes(run, node, copies) + check_streams(run, node)
    check_calls(run, node)
    os._exit(bad != 0)


if __name__ == "__main__":
    main()
