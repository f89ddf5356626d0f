"""Times 4,096 scattered blocks between pinned and GPU memory on real GPUs; only ctypes.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_blocks.py [--gpu 0] [--blocks 4096] [--rounds 5]

Needs NVRTC for the kernel (PATHLINE_NVRTC names its file; a cached kernel needs it too). Columns, GB/s by GPU events
around the call (which include its time on the host), medians; bytes of every block are compared once a method:
  loop    cuMemcpyAsync one by one by the C library (batches of 63 ranges, which it copies so)
  batch   cuMemcpyBatchAsync, one call, called from here
  pl      pl_copy_batch_async, default options, what it chose: k kernel, b driver's batch, c copies
  pl8, pl32  the same with 8 and 32 multiprocessors; pl0 without kernels
  call    host time of the pl call, us (least and median)
"""
import argparse
import ctypes as C
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pathline._library import Node  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
parser.add_argument("--blocks", type=int, default=4096)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--sizes", default="4,8,16,32,128,512", help="KiB")
parser.add_argument("--short", action="store_true", help="only loop, batch and pl")
args = parser.parse_args()

cuda, libc = C.CDLL("libcuda.so.1"), C.CDLL(None)
libc.memcmp.argtypes = [C.c_void_p, C.c_void_p, C.c_size_t]
u64, size_t, vp = C.c_uint64, C.c_size_t, C.c_void_p


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: {code}")


def made(name, kind, *arguments):
    out = kind()
    call(name, C.byref(out), *arguments)
    return out


call("cuInit", 0)
version = made("cuDriverGetVersion", C.c_int).value
device = made("cuDeviceGet", C.c_int, args.gpu).value
name = C.create_string_buffer(100)
call("cuDeviceGetName", name, 100, device)
context = made("cuDevicePrimaryCtxRetain", vp, device)
call("cuCtxSetCurrent", context)
stream = made("cuStreamCreate", vp, 1)
start, end = made("cuEventCreate", vp, 0), made("cuEventCreate", vp, 0)
print(f"{name.value.decode()}, CUDA {version}, {os.cpu_count()} CPUs, {args.blocks} blocks, "
      f"medians of {args.rounds}, GB/s")


class Attributes(C.Structure):
    _fields_ = [("order", C.c_int), ("src_kind", C.c_int), ("src_id", C.c_int), ("dst_kind", C.c_int),
                ("dst_id", C.c_int), ("flags", C.c_uint)]


def batch_function():
    at, found = vp(), C.c_int()
    for since in (13000, 12080):
        if version >= since:
            call("cuGetProcAddress_v2", b"cuMemcpyBatchAsync", C.byref(at), since, C.c_uint64(0), C.byref(found))
            if at.value:
                return since, C.CFUNCTYPE(C.c_int)(at.value)
    return 0, None


batch_since, batch_at = batch_function()


class Copies:
    """Arrays of a batch."""

    def __init__(self, to, start, size):
        self.count = len(to)
        self.to, self.start = (vp * self.count)(*to), (vp * self.count)(*start)
        self.size = (size_t * self.count)(*([size] * self.count))
        self.total = self.count * size


def pl_call(node, first=None):
    function, handle = node._library.pl_copy_batch_async, node._handle

    def run(c):
        if first is None:
            node._check(function(handle, c.to, c.start, c.size, c.count, stream))
            return
        for at in range(0, c.count, first):
            count = min(first, c.count - at)
            node._check(function(handle, C.cast(C.byref(c.to, 8 * at), C.POINTER(vp)),
                                 C.cast(C.byref(c.start, 8 * at), C.POINTER(vp)),
                                 C.cast(C.byref(c.size, 8 * at), C.POINTER(size_t)), count, stream))
    return run


def driver_batch(c):
    attributes, first, failed = Attributes(order=3), size_t(0), size_t(0)
    arguments = [c.to, c.start, c.size, size_t(c.count), C.byref(attributes), C.byref(first), size_t(1)]
    if batch_since < 13000:
        arguments.append(C.byref(failed))
    code = batch_at(*arguments, stream)
    if code:
        raise SystemExit(f"cuMemcpyBatchAsync: {code}")


def timed(run, copies):
    """Milliseconds by events and microseconds of the call."""
    call("cuStreamSynchronize", stream)
    call("cuEventRecord", start, stream)
    before = time.perf_counter()
    run(copies)
    host = time.perf_counter() - before
    call("cuEventRecord", end, stream)
    call("cuEventSynchronize", end)
    elapsed = C.c_float()
    call("cuEventElapsedTime", C.byref(elapsed), start, end)
    return elapsed.value, host * 1e6


nodes = {"pl": Node()}
if not args.short:
    nodes |= {"pl8": Node(max_multiprocessors=8), "pl32": Node(max_multiprocessors=32),
              "pl0": Node(max_multiprocessors=0)}
methods = {"loop": pl_call(nodes["pl"], 63)}
if batch_at:
    methods["batch"] = driver_batch
methods |= {key: pl_call(node) for key, node in nodes.items()}

SPAN = 2 << 30
sizes = [int(float(kib) * 1024) for kib in args.sizes.split(",")]
span = min(SPAN, max(2 * args.blocks * min(max(sizes), 128 << 10), args.blocks * max(sizes)))
host, check = nodes["pl"].host_alloc(span)[0], nodes["pl"].host_alloc(span)[0]
gpu, second = made("cuMemAlloc_v2", u64, size_t(span)).value, made("cuMemAlloc_v2", u64, size_t(span)).value
tile = os.urandom(8 << 20)
for at in range(0, span, len(tile)):
    C.memmove(host + at, tile, min(len(tile), span - at))
for at in range(0, span, 512):  # no two pieces are equal
    if at % (64 << 10) == 0 or span <= 64 << 20:
        C.c_uint64.from_address(host + at).value = at


def wrong(copies, direction, size, span):
    """Blocks whose bytes differ."""
    if direction == "H2D":
        call("cuMemcpyDtoH_v2", vp(check), u64(gpu), size_t(span))
        ends = [(t - gpu + check, s) for t, s in zip(copies.to, copies.start)]
    elif direction == "D2H":
        # The device's memory is that of the host's pool.
        ends = [(t, s - gpu + host) for t, s in zip(copies.to, copies.start)]
    else:
        call("cuMemcpyDtoH_v2", vp(check), u64(second), size_t(span))
        ends = [(t - second + check, s - gpu + host) for t, s in zip(copies.to, copies.start)]
    return sum(libc.memcmp(a, b, size) != 0 for a, b in ends)


def clear(direction, span):
    if direction == "D2H":
        C.memset(check, 0x5a, span)
    else:
        call("cuMemsetD8_v2", u64(gpu if direction == "H2D" else second), C.c_ubyte(0x5a), size_t(span))
        call("cuCtxSynchronize")


def copies_of(direction, size, shift, seed, span):
    stride = size + (16 if shift else 0)
    slots = span // stride
    generator = random.Random(seed)
    to = generator.sample(range(slots), args.blocks)
    start = generator.sample(range(slots), args.blocks)
    bases = {"H2D": (gpu, host), "D2H": (check, gpu), "D2D": (second, gpu)}[direction]
    return Copies([bases[0] + nth * stride for nth in to], [bases[1] + nth * stride + shift for nth in start], size)


print(f"{'':16}" + "".join(f"{key:>9}" for key in methods) + f"{'chose':>7}{'call us':>16}{'wrong':>7}")
cases = [(direction, size, 0) for direction in ("H2D", "D2H") for size in sizes]
cases += [("D2D", sizes[0], 0), ("D2D", 32 << 10, 0), ("H2D", 32 << 10, 4), ("H2D", 32 << 10, 1), ("D2H", 32 << 10, 1)]
for direction, size, shift in cases:
    used = min(span, 2 * args.blocks * (size + 16))
    if used // (size + (16 if shift else 0)) < args.blocks:
        continue
    copies = copies_of(direction, size, shift, size + shift, used)
    if direction != "H2D":
        call("cuMemcpyHtoD_v2", u64(gpu), vp(host), size_t(used))
    rates, bad, calls, chose = {}, 0, [], ""
    for key, run in methods.items():
        clear(direction, used)
        before = nodes[key].counters() if key in nodes else None
        first = timed(run, copies)
        bad += wrong(copies, direction, size, used)
        if direction != "H2D" and key == "loop" and bad:
            print("  the loop itself is wrong")
        times = [timed(run, copies) for _ in range(args.rounds)]
        rates[key] = copies.total / statistics.median(t for t, _ in times) / 1e6
        if key == "pl":
            after = nodes[key].counters()
            calls = [t for _, t in times]
            chose = "".join(mark for mark, field in (("k", "blocks"), ("b", "batched_blocks"), ("!", "refused_blocks"))
                            if after[field] > before[field]) or "c"
            if first[1] > 20 * max(calls):
                chose += "*"  # measured now
    label = f"{direction} {size / 1024:g} KiB" + (f"+{shift}" if shift else "")
    print(f"{label:16}" + "".join(f"{rate:9.1f}" for rate in rates.values())
          + f"{chose:>7}{min(calls):>8.0f}{statistics.median(calls):>8.0f}{bad:>7}", flush=True)
for key, node in nodes.items():
    print(key, {k: v for k, v in node.counters().items() if v})
