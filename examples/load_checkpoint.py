"""Loads a checkpoint from pinned host memory into every GPU, plainly and by pathline.

    python3 examples/load_checkpoint.py [MIB]

Every GPU gets the same bytes, as replicas of a model do. Plainly each GPU takes all of them over its own host
link; by pathline each takes a part, and the others take that part from it.
"""

import sys

import pathline
from cuda_memory import best_time, open_memory


def main():
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    memory = open_memory()
    gpus = range(memory.gpus)
    checkpoint = memory.pinned(size)
    weights = [memory.device(gpu, size) for gpu in gpus]
    streams = [memory.stream(gpu) for gpu in gpus]

    def wait():
        for stream in streams:
            memory.wait(stream)

    def plain():
        for gpu in gpus:
            memory.copy(weights[gpu], checkpoint, streams[gpu])
        wait()

    def by_pathline():
        pathline.copy_to_all(weights, checkpoint, streams, devices=list(gpus))
        wait()

    print(f"{size >> 20} MiB into each of {memory.gpus} GPUs ({type(memory).__name__})")
    before, after = best_time(plain), best_time(by_pathline)
    for name, seconds in (("plain", before), ("pathline", after)):
        print(f"{name:9} {1e3 * seconds:8.1f} ms {size / seconds / 1e9:8.1f} GB/s into each")
    print(f"gain      {before / after:8.2f}x, {pathline.counters()}")


if __name__ == "__main__":
    main()
