"""Safetensors files into a GPU: pathline.load next to safetensors and torch, from the page cache and cold.

    PATHLINE_LIBRARY=target/release/libpathline.so python3 python/hardware_load.py [GIB] [FOLDER]

Needs an NVIDIA GPU, torch and safetensors. Writes a file of 291 tensors, as an 8B model has, of GIB (16) to FOLDER (.).
Medians of three; every byte of the last load is compared.
"""

import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]

import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import pathline  # noqa: E402


def model(gib):
    """Tensors in the proportions of an 8B model."""
    layers = {"q": (4096, 4096), "k": (1024, 4096), "v": (1024, 4096), "o": (4096, 4096), "gate": (14336, 4096),
              "up": (14336, 4096), "down": (4096, 14336), "norm": (4096,), "post": (4096,)}
    count = max(1, round(32 * gib / 16))
    block = torch.randint(0, 1 << 15, (128256 * 4096,), dtype=torch.int16).view(torch.bfloat16)

    def tensor(shape):
        size = 1
        for length in shape:
            size *= length
        return block[:size].clone().view(shape)

    tensors = {"embed": tensor((128256, 4096)), "norm": tensor((4096,)), "head": tensor((128256, 4096))}
    for nth in range(count):
        for name, shape in layers.items():
            tensors[f"layers.{nth}.{name}"] = tensor(shape)
    return tensors


def by_safe_open(path):
    with safe_open(path, framework="pt", device="cuda:0") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def by_load_file(path):
    return {name: tensor.to("cuda:0") for name, tensor in load_file(path).items()}


def forget(path):
    """Takes the file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(load, path, cold):
    if cold:
        forget(path)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    tensors = load(path)
    torch.cuda.synchronize()
    return time.perf_counter() - begun, tensors


def main():
    gib = float(sys.argv[1]) if len(sys.argv) > 1 else 16
    path = os.path.join(sys.argv[2] if len(sys.argv) > 2 else ".", "hardware_load.safetensors")
    expected = model(gib)
    save_file(expected, path)
    size = os.path.getsize(path)
    try:
        print(f"{len(expected)} tensors, {size / 1e9:.1f} GB, {len(os.sched_getaffinity(0))} CPUs")
        loads = {"safe_open to the GPU": by_safe_open, "load_file and .to": by_load_file, "pathline.load": pathline.load}
        for cold in (False, True):
            for name, load in loads.items():
                times, tensors = [], None
                for _ in range(1 if cold else 4):
                    del tensors
                    torch.cuda.empty_cache()
                    seconds, tensors = timed(load, path, cold)
                    times.append(seconds)
                middle = statistics.median(times if cold else times[1:])
                print(f"  {'cold' if cold else 'page cache':10} {name:22} {middle:6.2f} s {size / middle / 1e9:6.1f} GB/s", flush=True)
                if load is pathline.load:
                    assert set(tensors) == set(expected)
                    for key, tensor in expected.items():
                        assert torch.equal(tensors[key].cpu().view(torch.int16), tensor.view(torch.int16)), key
                    print("    every byte right")
                del tensors
        print(pathline.counters())
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main()
