"""Offloads the blocks of a paged KV cache to host memory and fetches them back, plainly and by pathline.

    python3 examples/kv_cache.py [BLOCKS] [KIB]

The blocks lie at random places on both sides. pathline.copy_addresses copies all of them by one
kernel in place.
"""

import random
import sys
from array import array

import pathline
from cuda_memory import best_time, open_memory


def main():
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    size = (int(sys.argv[2]) if len(sys.argv) > 2 else 32) << 10
    memory = open_memory()
    cache, store, stream = memory.device(0, blocks * size), memory.pinned(blocks * size), memory.stream(0)

    def places(memory):
        """Its blocks in a random order: parts of a tensor, or pairs of address and bytes; and their addresses."""
        order = random.sample(range(blocks), blocks)
        start = memory[0] if isinstance(memory, tuple) else memory.data_ptr()
        parts = [(start + size * nth, size) for nth in order]
        if not isinstance(memory, tuple):
            parts = [memory[size * nth:size * (nth + 1)] for nth in order]
        return parts, array("q", (start + size * nth for nth in order))

    on_gpu, on_host, sizes = places(cache), places(store), array("q", [size] * blocks)
    print(f"{blocks} blocks of {size >> 10} KiB on GPU 0 ({type(memory).__name__})")
    for name, dsts, srcs in (("offload", on_host, on_gpu), ("fetch", on_gpu, on_host)):
        def plain(dsts=dsts, srcs=srcs):
            for dst, src in zip(dsts[0], srcs[0]):
                memory.copy(dst, src, stream)
            memory.wait(stream)

        def by_pathline(dsts=dsts, srcs=srcs):
            pathline.copy_addresses(dsts[1], srcs[1], sizes, stream)
            memory.wait(stream)

        before, after = best_time(plain), best_time(by_pathline)
        print(f"{name:8} plain {blocks * size / before / 1e9:6.1f} GB/s, pathline {blocks * size / after / 1e9:6.1f} GB/s, "
              f"{before / after:.1f}x")
    print(pathline.counters())


if __name__ == "__main__":
    main()
