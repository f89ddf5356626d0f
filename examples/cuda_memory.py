"""Memory, streams and plain copies for the examples: by torch where it is installed, else by libcuda."""

import ctypes
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p


class Driver:
    """The CUDA driver, with the functions that the examples need."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        self.gpus = count.value
        self.contexts = []
        for gpu in range(self.gpus):
            context = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", byref(context), gpu)
            self.contexts.append(context)

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: CUDA error {status}")

    def use(self, gpu):
        self.call("cuCtxSetCurrent", self.contexts[gpu])

    def device(self, gpu, size):
        """Memory of a GPU, as address and bytes."""
        self.use(gpu)
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value, size

    def pinned(self, size):
        """Pinned memory, as address and bytes."""
        self.use(0)
        address = c_void_p()
        self.call("cuMemHostAlloc", byref(address), c_size_t(size), 1)
        ctypes.memset(address, 1, size)
        return address.value, size

    def stream(self, gpu):
        self.use(gpu)
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), 1)
        return stream.value

    def copy(self, dst, src, stream):
        """The driver's plain copy, in the order of a stream."""
        self.call("cuMemcpyAsync", c_uint64(dst[0]), c_uint64(src[0]), c_size_t(src[1]),
                  c_void_p(stream))

    def wait(self, stream):
        while True:
            status = self.cuda.cuStreamQuery(c_void_p(stream))
            if status == 0:
                return
            if status != 600:
                raise RuntimeError(f"cuStreamQuery: CUDA error {status}")
            time.sleep(20e-6)


class Torch:
    """The same by torch: ends are tensors, streams are torch's."""

    def __init__(self, torch):
        self.torch, self.gpus = torch, torch.cuda.device_count()

    def device(self, gpu, size):
        return self.torch.empty(size, dtype=self.torch.uint8, device=f"cuda:{gpu}")

    def pinned(self, size):
        return self.torch.ones(size, dtype=self.torch.uint8, pin_memory=True)

    def stream(self, gpu):
        return self.torch.cuda.Stream(device=gpu)

    def copy(self, dst, src, stream):
        """torch's plain copy, in the order of a stream."""
        with self.torch.cuda.stream(stream):
            dst.copy_(src, non_blocking=True)

    def wait(self, stream):
        stream.synchronize()


def open_memory():
    """Torch where it is installed and sees a GPU, else the driver."""
    try:
        import torch
    except ImportError:
        return Driver()
    return Torch(torch) if torch.cuda.is_available() else Driver()


def best_time(copy, repetitions=4):
    """The least time of some calls, in seconds; the first one opens paths and is not counted."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        copy()
        times.append(time.perf_counter() - start)
    return min(times[1:])
