"""Tests of the package over a CUDA library that stands in for the driver.

    LD_LIBRARY_PATH=LIB PATHLINE_CUDA=LIB PATHLINE_LIBRARY=libpathline.so python3 python/test_pathline.py

crates/act/capi/tests/it/languages.rs runs them.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from array import array

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
        """63 of 4 KiB are passed on as 8, 16, 32 and 7; 100 by one call."""
        device, source, stream = self.driver.device(0, SIZE), self.source(9), self.driver.stream(0)
        ends = [[(at + 4096 * nth, 4096) for nth in range(100)] for at in (device[0], source[0])]
        pathline.copy_batch(*ends, stream)
        self.driver.wait(stream)
        self.assertEqual(self.content((device[0], 100 * 4096)), {9})
        ends[0][30] = (0, 4096)
        with self.assertRaisesRegex(pathline.Error, r"dst\[30\].* null pointer"):
            pathline.copy_batch(*ends, stream)
        ends = [some[:63] for some in ends]
        with self.assertRaisesRegex(pathline.Error, r"dst\[6\].* null pointer \(counted from copy 24\)"):
            pathline.copy_batch(*ends, stream)
        self.driver.wait(stream)

    def test_addresses_in_arrays(self):
        device, source, stream = self.driver.device(0, SIZE), self.source(6), self.driver.stream(0)
        order = list(range(0, SIZE, 4096))
        to, start = (array("q", (end[0] + at for at in order)) for end in (device, source))
        pathline.copy_addresses(to, start, array("Q", [4096] * len(order)), stream)
        self.driver.wait(stream)
        self.assertEqual(self.content(device), {6})
        with self.assertRaisesRegex(ValueError, "1 destinations, 2 sources and 1 sizes"):
            pathline.copy_addresses(array("q", [1]), array("q", [1, 2]), array("q", [1]), stream)
        with self.assertRaisesRegex(ValueError, "numbers of 4 bytes"):
            pathline.copy_addresses(array("i", [1]), array("q", [1]), array("q", [1]), stream)

    def file(self, header, data, length=None):
        """The path of a file with a header, of JSON or bytes."""
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        length = len(text) if length is None else length
        handle, path = tempfile.mkstemp(suffix=".safetensors")
        self.addCleanup(os.unlink, path)
        with os.fdopen(handle, "wb") as file:
            file.write(length.to_bytes(8, "little") + text + data)
        return path

    def test_safetensors_reach_a_gpu(self):
        data = os.urandom(9 << 20)
        def about(kind, shape, begin, end):
            return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
        header = {"__metadata__": {"format": "pt"}, "big": about("F32", [2, 1 << 20], 0, 8 << 20),
                  "odd": about("U8", [3], 8 << 20, (8 << 20) + 3), "none": about("I64", [0, 5], 9 << 20, 9 << 20),
                  "rest": about("U8", [(1 << 20) - 3], (8 << 20) + 3, 9 << 20)}
        path = self.file(header, data)
        tensors = pathline.load(path, device=1)
        self.assertEqual(set(tensors), {"big", "odd", "none", "rest"})
        self.assertEqual(tensors["big"].shape, (2, 1 << 20))
        for name, array in tensors.items():
            begin, end = header[name]["data_offsets"]
            self.assertEqual(self.bytes((array.__cuda_array_interface__["data"][0], end - begin)), data[begin:end])
        mine = {"big": self.driver.device(0, 8 << 20), "odd": self.driver.device(0, 3)}
        pathline.load_into(mine, [path])
        self.assertEqual(self.bytes(mine["big"]), data[:8 << 20])
        self.assertEqual(self.bytes(mine["odd"]), data[8 << 20:(8 << 20) + 3])
        with self.assertRaisesRegex(ValueError, "'odd' of .*the destination has 8 bytes and the source 3"):
            pathline.load_into({"odd": self.driver.device(0, 8)}, path)
        with self.assertRaisesRegex(KeyError, "no file has other"):
            pathline.load_into({"other": self.driver.device(0, 8)}, path)
        shards = pathline.load_sharded(path, [0, 1], lambda name, shape: 0 if name == "big" else None)
        for nth, shard in enumerate(shards):
            self.assertEqual(shard["big"].shape, (1, 1 << 20))
            at = shard["big"].__cuda_array_interface__["data"][0]
            self.assertEqual(self.bytes((at, 4 << 20)), data[nth * (4 << 20):(nth + 1) * (4 << 20)])
        with self.assertRaisesRegex(ValueError, "'odd' has 3 rows, which 2 GPUs cannot share"):
            pathline.load_sharded(path, [0, 1], lambda name, shape: 0)

    def test_malformed_headers_are_errors(self):
        good = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
        def one(**changes):
            return {"a": {**good, **changes}}
        cases = [
            (b"", None, "too few|does not begin"), (b"{}", 1 << 60, "longer than"), (b"{}", 50, "ends behind"),
            (b" {}", None, "does not begin"), (b"{", None, "no JSON"), (b'{"a": 1}', None, "has not just"),
            (b'{"a": {}, "a": {}}', None, "stands twice"), (b"{\xff}", None, "no JSON"), (b'{"a":' * 100000, None, "no JSON"),
            (one(dtype="U9"), None, "has the type"), (one(dtype=["U8"]), None, "has the type"),
            (one(shape=[-4]), None, "has the shape"), (one(shape=[True]), None, "has the shape"),
            (one(shape=[2]), None, "has 4 bytes"), (one(data_offsets=[4, 0]), None, "has -4 bytes"),
            (one(data_offsets=[1, 5]), None, "begins at byte"), (one(data_offsets=[0]), None, "has the offsets"),
            (one(shape=[1] * 65), None, "has the shape"), (one(shape=[3], data_offsets=[0, 3]), None, "the tensors end"),
            ({"a": good, "b": good}, None, "begins at byte"), ({"a": good, "__metadata__": {"x": 1}}, None, "no map"),
        ]
        for header, length, text in cases:
            with self.subTest(header=str(header)[:60]), self.assertRaisesRegex(pathline.FormatError, text):
                pathline.load(self.file(header, b"abcd", length))
        # Any change of a byte of the header is an error, or a header that covers the same bytes.
        rng, path = random.Random(7), self.file({"a": good, "b": {**good, "data_offsets": [4, 8]}}, b"abcdefgh")
        with open(path, "rb") as file:
            whole = file.read()
        for _ in range(300):
            changed = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(whole) - 8)] = rng.randrange(256)
            with open(path, "wb") as file:
                file.write(changed)
            try:
                self.assertLessEqual(sum(array.nbytes for array in pathline.load(path).values()), 8)
            except pathline.FormatError:
                pass

    def bytes(self, end):
        """The bytes of memory of a GPU."""
        if end[1] == 0:
            return b""
        out = self.driver.pinned(end[1])
        self.driver.call("cuMemcpy", ctypes.c_uint64(out[0]), ctypes.c_uint64(end[0]), ctypes.c_size_t(end[1]))
        return ctypes.string_at(*out)

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
