"""Loads a safetensors file into a GPU, and a NumPy array or any other pageable memory.

    python3 examples/load_safetensors.py model.safetensors [GPU]

Without torch the tensors are objects with __cuda_array_interface__, which CuPy and Numba take.
"""

import os
import sys
import time

import pathline


def main():
    path, device = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    size = os.path.getsize(path)
    # The first load of a process opens the GPU and page-locks buffers; the second one shows the rate.
    for name in ("first", "second"):
        begun = time.perf_counter()
        tensors = pathline.load(path, device=device)
        seconds = time.perf_counter() - begun
        print(f"{name:6} {len(tensors)} tensors, {size / 1e9:.2f} GB in {seconds:.2f} s: {size / seconds / 1e9:.1f} GB/s")
    for name, tensor in list(tensors.items())[:5]:
        print(f"  {name} {tuple(tensor.shape)}")
    print(pathline.counters())


if __name__ == "__main__":
    main()
