"""Tests of the package over a CUDA library that stands in for the driver.

    LD_LIBRARY_PATH=LIB PATHLINE_CUDA=LIB PATHLINE_LIBRARY=libpathline.so python3 python/test_pathline.py

crates/act/capi/tests/it/languages.rs runs them.
"""

import ctypes
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "examples")]

import pathline  # noqa: E402
from cuda_memory import Driver  # noqa: E402

SIZE = 6 << 20


class Device:
    """torch.device, as far as the package reads it."""

    def __init__(self, index):
        self.index = index


class Tensor:
    """A tensor, as far as the package reads it."""

    def __init__(self, end, gpu=None, contiguous=True):
        self.end, self.device, self.contiguous = end, Device(gpu), contiguous

    def data_ptr(self):
        return self.end[0]

    def numel(self):
        return self.end[1] // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous


class Array:
    """An array of another library."""

    def __init__(self, end, strides=None):
        self.__cuda_array_interface__ = {
            "data": (end[0], False), "shape": (2, end[1] // 8), "typestr": "<f4", "version": 3,
            "strides": strides,
        }


class Stream:
    """torch.cuda.Stream, as far as the package reads it."""

    def __init__(self, handle):
        self.cuda_stream = handle


class Copies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        cls.driver.use(0)
        cls.node = pathline.node(threshold=1 << 20, min_gain=1e-6)
        # Probes the ends: a copy waits 5 s for that, too short for the stand-in on a busy machine.
        pathline.explain(cls.driver.device(0, SIZE), cls.driver.pinned(SIZE))

    def source(self, byte):
        end = self.driver.pinned(SIZE)
        ctypes.memset(end[0], byte, SIZE)
        return end

    def content(self, end):
        self.driver.use(0)
        out = self.driver.pinned(end[1])
        self.driver.call("cuMemcpy", ctypes.c_uint64(out[0]), ctypes.c_uint64(end[0]),
                         ctypes.c_size_t(end[1]))
        return set(ctypes.string_at(out[0], out[1]))

    def test_tensors_arrays_and_pairs_are_copied(self):
        device = self.driver.device(0, SIZE)
        stream = self.driver.stream(0)
        ends = [(Tensor(device, 0), Tensor(self.source(2)), 2), (Array(device), Array(self.source(3)), 3),
                (device, self.source(4), 4)]
        for dst, src, byte in ends:
            pathline.copy(dst, src)
            self.assertEqual(self.content(device), {byte})
        for dst, src, byte in ends:
            pathline.copy(dst, src, Stream(stream))
            self.driver.wait(stream)
            self.assertEqual(self.content(device), {byte})

    def test_batches_and_copies_to_all(self):
        half = SIZE // 2
        device, source, stream = self.driver.device(0, SIZE), self.source(5), self.driver.stream(0)
        parts = [[(at, half), (at + half, half)] for at in (device[0], source[0])]
        pathline.copy_batch(parts[0], parts[1], stream)
        self.driver.wait(stream)
        self.assertEqual(self.content(device), {5})
        every = [Tensor(self.driver.device(gpu, SIZE), gpu) for gpu in range(2)]
        pathline.copy_to_all(every, source)
        for tensor in every:
            self.assertEqual(self.content(tensor.end), {5})
        self.assertGreater(pathline.counters()["multipath"], 0)

    def test_a_batch_of_many_small_copies(self):
        """100 of 4 KiB: passed on as 8, 16, 32 and 44."""
        device, source, stream = self.driver.device(0, SIZE), self.source(9), self.driver.stream(0)
        ends = [[(at + 4096 * nth, 4096) for nth in range(100)] for at in (device[0], source[0])]
        pathline.copy_batch(*ends, stream)
        self.driver.wait(stream)
        self.assertEqual(self.content((device[0], 100 * 4096)), {9})
        ends[0][30] = (0, 4096)
        with self.assertRaisesRegex(pathline.Error, r"dst\[6\].* null pointer \(counted from copy 24\)"):
            pathline.copy_batch(*ends, stream)
        self.driver.wait(stream)

    def test_rows_of_a_run(self):
        """As its CSV has them; only where the program is built."""
        if "PATHLINE_PROGRAM" not in os.environ:
            self.skipTest("PATHLINE_PROGRAM names no program")
        fixtures = os.path.join(os.path.dirname(__file__), "..", "fixtures")
        rows = pathline.read(os.path.join(fixtures, "h200-x4.jsonl.gz"))
        copy = [row for row in rows if row["case"] == "r0.gpu3.vram > r0.gpu1.vram by dma@gpu3 x 1GiB"]
        self.assertEqual((copy[0]["unit"], round(copy[0]["median"])), ("GB/s", 396))
        self.assertTrue(copy[0]["low95"] < copy[0]["median"] < copy[0]["high95"])
        self.assertIsNone(copy[0]["iops"])
        with self.assertRaisesRegex(ValueError, "README.md is no journal"):
            pathline.read(os.path.join(fixtures, "..", "README.md"))

    def test_explain_names_the_case(self):
        text = pathline.explain(self.driver.device(0, SIZE), self.source(6))
        self.assertIn(".pinned > r0.gpu0.vram by ", text)

    def test_bad_ends_are_errors(self):
        device, source = self.driver.device(0, SIZE), self.source(7)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            pathline.copy(Tensor(device, contiguous=False), source)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            pathline.copy(Array(device, strides=(8, 4)), source)
        with self.assertRaisesRegex(ValueError, "has 6291456 bytes and the source 5"):
            pathline.copy(device, (source[0], 5))
        with self.assertRaisesRegex(TypeError, "str is no tensor"):
            pathline.copy("gpu", source)
        with self.assertRaisesRegex(pathline.Error, "null pointer") as caught:
            pathline.copy((0, SIZE), source)
        self.assertEqual(caught.exception.status, 1)
        with self.assertRaisesRegex(ValueError, "open already"):
            pathline.node(threshold=5)

    def test_a_forked_process_only_ends(self):
        device, source = self.driver.device(0, SIZE), self.source(8)
        calls = [lambda: pathline.copy(device, source), lambda: pathline.copy_batch([device], [source], 1),
                 lambda: pathline.explain(device, source), pathline.counters, pathline.Node]
        output, inside = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(inside, 2)
            try:
                for call in calls:
                    with self.assertRaisesRegex(pathline.Error, "was forked from one") as caught:
                        call()
                    self.assertEqual(caught.exception.status, 7)
                # As at the end of the interpreter, then a second time.
                pathline.close()
                self.node.close()
            except BaseException as error:
                os.write(2, repr(error).encode())
            os._exit(0)
        os.close(inside)
        self.assertEqual((os.waitpid(child, 0)[1], os.read(output, 1 << 12)), (0, b""))
        pathline.copy(device, source)
        self.assertEqual(self.content(device), {8})

    def test_a_worker_ends_in_silence(self):
        program = ("import os, sys, multiprocessing, pathline\n"
                   "node, own = pathline.node(), pathline.Node()\n"
                   "child = os.fork()\n"
                   "if child == 0: sys.exit(5)\n"
                   "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
                   "worker = multiprocessing.get_context('fork').Process(target=node.close)\n"
                   "worker.start(); worker.join(); assert worker.exitcode == 0\n"
                   "print(node.counters()['plain'])")
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                               env={**os.environ, "PYTHONPATH": HERE})
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "0\n", ""))

    def test_host_memory_of_the_node(self):
        memory = self.node.host_alloc(SIZE)
        ctypes.memset(memory[0], 9, SIZE)
        device = self.driver.device(0, SIZE)
        pathline.copy(device, memory)
        self.assertEqual(self.content(device), {9})
        self.node.host_free(memory)


if __name__ == "__main__":
    unittest.main()
