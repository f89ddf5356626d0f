"""What copies over two paths do when GPU 1, their relay, fails. Needs two NVIDIA GPUs of one host and numpy.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_faults.py [ROUNDS]

Each case is a process: a kernel that faults on GPU 1 costs it both GPUs, so that plain copies fail too. Every
byte of copies that end well is compared, and all must end.
"""

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

from cuda_memory import Driver  # noqa: E402

SIZE = 512 << 20
# Stores to address 16, which no allocation has.
KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault() {
    .reg .b64 %a;
    mov.u64 %a, 16;
    st.global.u32 [%a], 1;
    ret;
}
\0"""


class FaultyCuda(Driver):
    """The driver of the examples, with addresses for memory, statuses, and a kernel that faults."""

    def status(self, name, *arguments):
        return getattr(self.cuda, name)(*arguments)

    def device(self, gpu, size):
        return super().device(gpu, size)[0]

    def pinned(self, size):
        return super().pinned(size)[0]

    def kill(self, gpu):
        """Makes a kernel of a GPU store where there is no memory."""
        self.use(gpu)
        module, function = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", byref(module), KERNEL)
        self.call("cuModuleGetFunction", byref(function), module, b"fault")
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)


def host_view(address, size):
    return numpy.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=numpy.uint8)


def fill_memory(cuda):
    """Takes all memory of GPU 1, down to 2 MiB."""
    size = 64 << 30
    cuda.use(1)
    while size >= 2 << 20:
        address = c_uint64()
        if cuda.status("cuMemAlloc_v2", byref(address), c_size_t(size)) != 0:
            size //= 2


def occupy_engine(cuda):
    """Keeps the copy engine of GPU 1 busy: 40 copies of 512 MiB, about 0.4 s."""
    src, dst, stream = cuda.pinned(SIZE), cuda.device(1, SIZE), cuda.stream(1)
    for _ in range(40):
        cuda.call("cuMemcpyAsync", c_uint64(dst), c_uint64(src), c_size_t(SIZE), c_void_p(stream))


def run_case(name, seed):
    """Copies there and back six times, the third time with the fault; prints what came of it."""
    import pathline

    random.seed(seed)
    cuda = FaultyCuda()
    host, back, device = cuda.pinned(SIZE), cuda.pinned(SIZE), cuda.device(0, SIZE)
    stream = cuda.stream(0)
    content, copied = host_view(host, SIZE), host_view(back, SIZE)
    content[:] = numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8)
    if name == "memory is full":
        fill_memory(cuda)
    node = pathline.Node(min_gain=1e-6)
    for ends in (((device, SIZE), (host, SIZE)), ((back, SIZE), (device, SIZE))):
        node.explain(*ends)
    errors, wrong, slowest = [], 0, 0.0
    for turn in range(6):
        copied[:] = 0
        cuda.use(0)
        status = cuda.status("cuMemsetD8_v2", c_uint64(device), 0, c_size_t(SIZE))
        failed = (status or cuda.status("cuCtxSynchronize")) != 0
        if turn == 2 and name == "engine is busy":
            occupy_engine(cuda)
        if turn == 2 and name == "dies before":
            cuda.kill(1)
        thread = None
        if turn == 2 and name == "dies meanwhile":
            delay = random.uniform(0, 8e-3)
            thread = threading.Thread(target=lambda: (time.sleep(delay), cuda.kill(1)))
            thread.start()
        for to, start in (((device, SIZE), (host, SIZE)), ((back, SIZE), (device, SIZE))):
            begun = time.perf_counter()
            try:
                node.copy(to, start, stream)
            except pathline.Error as error:
                errors.append(str(error))
                failed = True
            cuda.use(0)
            status = cuda.status("cuStreamSynchronize", c_void_p(stream))
            if status != 0:
                errors.append(f"cuStreamSynchronize: CUDA error {status}")
                failed = True
            slowest = max(slowest, time.perf_counter() - begun)
        if thread:
            thread.join()
        if not failed and not (copied == content).all():
            wrong += 1
    counters = node.counters()
    kept = {key: value for key, value in counters.items() if value and not key.endswith("bytes")}
    print(f"{wrong} wrong, {len(errors)} errors, slowest {1e3 * slowest:.0f} ms, {kept}"
          + "".join(f"\n    {error}" for error in sorted(set(errors))[:3]), flush=True)
    os._exit(0 if wrong == 0 else 1)


def main():
    if len(sys.argv) == 3:
        return run_case(sys.argv[1], int(sys.argv[2]))
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    bad = 0
    for name in ("no fault", "memory is full", "engine is busy", "dies before", "dies meanwhile"):
        for seed in range(rounds):
            command = [sys.executable, __file__, name, str(seed)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                text = done.stdout.strip() or done.stderr.strip()[-600:]
                bad += done.returncode != 0
            except subprocess.TimeoutExpired:
                text, bad = "did not end within 60 s", bad + 1
            print(f"{name:15} {text}", flush=True)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
