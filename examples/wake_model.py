"""Brings the weights of a sleeping model back to its GPU, plainly and by pathline.

    python3 examples/wake_model.py [MIB]

The weights lie in pinned host memory as layers. pathline.copy_batch takes them over the host links of other
GPUs as well.
"""

import sys

import pathline
from cuda_memory import best_time, open_memory

LAYERS = 16


def main():
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 2048) << 20
    memory = open_memory()
    layer = size // LAYERS
    asleep = [memory.pinned(layer) for _ in range(LAYERS)]
    awake = [memory.device(0, layer) for _ in range(LAYERS)]
    stream = memory.stream(0)

    def plain():
        for dst, src in zip(awake, asleep):
            memory.copy(dst, src, stream)
        memory.wait(stream)

    def by_pathline():
        pathline.copy_batch(awake, asleep, stream)
        memory.wait(stream)

    print(f"{LAYERS} layers of {layer >> 20} MiB to GPU 0 ({type(memory).__name__})")
    print(pathline.explain(awake[0], asleep[0]))
    before, after = best_time(plain), best_time(by_pathline)
    for name, seconds in (("plain", before), ("pathline", after)):
        print(f"{name:9} {1e3 * seconds:8.1f} ms {size / seconds / 1e9:8.1f} GB/s")
    print(f"gain      {before / after:8.2f}x, {pathline.counters()}")


if __name__ == "__main__":
    main()
