"""Safetensors files to GPUs, with the standard library alone.

The format: a little-endian length of 8 bytes, a header of so many bytes of JSON, then the bytes of all tensors
without gaps (https://github.com/huggingface/safetensors, format).
"""

import json
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

# Bytes of an element, the type's name in torch, and its typestr of NumPy.
_TYPES = {
    "BOOL": (1, "bool", "|b1"), "U8": (1, "uint8", "|u1"), "I8": (1, "int8", "|i1"),
    "F8_E5M2": (1, "float8_e5m2", "|V1"), "F8_E4M3": (1, "float8_e4m3fn", "|V1"),
    "U16": (2, "uint16", "<u2"), "I16": (2, "int16", "<i2"), "F16": (2, "float16", "<f2"),
    "BF16": (2, "bfloat16", "<V2"), "U32": (4, "uint32", "<u4"), "I32": (4, "int32", "<i4"),
    "F32": (4, "float32", "<f4"), "U64": (8, "uint64", "<u8"), "I64": (8, "int64", "<i8"),
    "F64": (8, "float64", "<f8"), "C64": (8, "complex64", "<c8"),
}
# The largest header that the format allows.
_MAX_HEADER = 100_000_000
# Axes that torch and NumPy allow.
_MAX_AXES = 64


class FormatError(ValueError):
    """A file that is not as the format demands."""


class Entry:
    """A tensor of a file: its name, type, shape, and where its bytes begin and end in the file."""

    __slots__ = ("name", "type", "shape", "begin", "end")

    def __init__(self, name, kind, shape, begin, end):
        self.name, self.type, self.shape, self.begin, self.end = name, kind, shape, begin, end


class Array:
    """Memory of a GPU for libraries that read __cuda_array_interface__ (CuPy, Numba)."""

    def __init__(self, block, address, kind, shape):
        self._block, self.shape, self.type = block, tuple(shape), kind
        self.nbytes = _TYPES[kind][0] * math.prod(shape)
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": self.shape, "typestr": _TYPES[kind][2], "strides": None, "version": 3,
        }


class _Block:
    """Memory of a GPU that is freed with its last array."""

    def __init__(self, node, device, size):
        self.node, self.size = node, size
        self.address = node.device_alloc(device, size)

    def __del__(self):
        if getattr(self, "address", None):
            self.node.device_free(self.address)


def _unique(pairs):
    """An object of JSON whose names differ."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"the name {twice!r} stands twice in the header")
    return found


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(name, about, start):
    if not isinstance(about, dict) or set(about) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{name!r} has not just dtype, shape and data_offsets")
    kind, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise FormatError(f"{name!r} has the type {kind!r}: known are {', '.join(_TYPES)}")
    if not isinstance(shape, list) or len(shape) > _MAX_AXES or not all(map(_whole, shape)):
        raise FormatError(f"{name!r} has the shape {shape!r}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)):
        raise FormatError(f"{name!r} has the offsets {offsets!r}")
    begin, end = offsets
    if end - begin != _TYPES[kind][0] * math.prod(shape):
        raise FormatError(f"{name!r} has {end - begin} bytes, and its shape {_TYPES[kind][0] * math.prod(shape)}")
    return Entry(name, kind, shape, start + begin, start + end)


def read_header(file):
    """The entries of an open file in the order of their bytes, and its metadata.

    Raises FormatError if the file is not as the format demands.
    """
    size = os.fstat(file.fileno()).st_size
    length = os.pread(file.fileno(), 8, 0)
    if len(length) < 8:
        raise FormatError(f"{size} bytes are too few for a header")
    length = int.from_bytes(length, "little")
    if length > _MAX_HEADER:
        raise FormatError(f"a header of {length} bytes is longer than {_MAX_HEADER}")
    if 8 + length > size:
        raise FormatError(f"a header of {length} bytes ends behind the file of {size}")
    text = os.pread(file.fileno(), length, 8)
    if len(text) != length or not text.startswith(b"{"):
        raise FormatError("the header does not begin with {")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the header is no JSON: {error}") from None
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError("__metadata__ is no map of texts")
    entries = sorted((_entry(name, about, 8 + length) for name, about in header.items()),
                     key=lambda entry: (entry.begin, entry.end))
    at = 8 + length
    for entry in entries:
        if entry.begin != at:
            raise FormatError(f"{entry.name!r} begins at byte {entry.begin} of the file, and the one before ends at {at}")
        at = entry.end
    if at != size:
        raise FormatError(f"the tensors end at byte {at}, and the file at {size}")
    return entries, metadata


def _torch():
    """torch, if the program has imported it: this package imports nothing."""
    return sys.modules.get("torch")


def _current_stream(device):
    """The stream in whose order torch gives memory of a GPU again; None without torch."""
    torch = _torch()
    return None if torch is None else torch.cuda.current_stream(device)


def _allocate(node, device, size):
    """Memory of a GPU: a tensor of bytes where torch is, else a block; and its address."""
    torch = _torch()
    if torch is None:
        block = _Block(node, device, size)
        return block, block.address
    block = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
    return block, block.data_ptr()


def _part(block, address, offset, kind, shape):
    """A tensor in a block."""
    torch = _torch()
    if torch is None or isinstance(block, _Block):
        return Array(block, address + offset, kind, shape)
    size = _TYPES[kind][0] * math.prod(shape)
    part = block[offset:offset + size]
    if offset % _TYPES[kind][0] != 0:
        part = part.clone()
    return part.view(getattr(torch, _TYPES[kind][1])).view(shape)


def load(node, path, device=0, stream=None):
    """As pathline.load."""
    with open(path, "rb") as file:
        entries, _ = read_header(file)
        if not entries:
            return {}
        start, end = entries[0].begin, entries[-1].end
        order = _current_stream(device) if stream is None else stream
        block, address = _allocate(node, device, max(1, end - start))
        node.load(file, start, (address, end - start), order)
        if stream is None and order is not None:
            order.synchronize()
    return {entry.name: _part(block, address, entry.begin - start, entry.type, entry.shape) for entry in entries}


def load_into(node, tensors, files, stream=None):
    """As pathline.load_into."""
    missing = dict(tensors)
    for path in [files] if isinstance(files, (str, os.PathLike)) else files:
        with open(path, "rb") as file:
            for entry in read_header(file)[0]:
                if entry.name in missing:
                    try:
                        node.load(file, entry.begin, missing.pop(entry.name), stream, size=entry.end - entry.begin)
                    except ValueError as error:
                        raise ValueError(f"{entry.name!r} of {os.fspath(path)}: {error}") from None
    if missing:
        raise KeyError(f"no file has {', '.join(sorted(missing)[:5])}"
                       f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}")


def _slice(entry, nth, count):
    """The part of an entry for one of some GPUs along its first axis: first byte, shape."""
    rows = entry.shape[0] if entry.shape else 1
    if rows % count != 0:
        raise ValueError(f"{entry.name!r} has {rows} rows, which {count} GPUs cannot share equally")
    share = rows // count
    row = (entry.end - entry.begin) // max(1, rows)
    return entry.begin + nth * share * row, [share, *entry.shape[1:]]


def _plan(entries, layout, nth, count):
    """What one of some GPUs has of a file: entry, axis, first byte, shape, bytes, place in its block; and its bytes."""
    plan, total = [], 0
    for entry in entries:
        axis = layout(entry.name, tuple(entry.shape)) if layout else None
        if axis not in (None, 0):
            raise ValueError(f"{entry.name!r}: a file is cut along the first axis only, not {axis}")
        begin, shape = (entry.begin, entry.shape) if axis is None else _slice(entry, nth, count)
        size = _TYPES[entry.type][0] * math.prod(shape)
        plan.append((entry, axis, begin, shape, size, total))
        # Each tensor begins at a multiple of 256 bytes, as the driver's own memory.
        total += -(-size // 256) * 256
    return plan, max(1, total)


def load_sharded(node, files, devices, layout=None):
    """As pathline.load_sharded."""
    devices = list(devices)
    # A thread of its own has another current stream.
    streams = [_current_stream(device) for device in devices]
    shards = [{} for _ in devices]
    for path in [files] if isinstance(files, (str, os.PathLike)) else files:
        with open(path, "rb") as file:
            entries, _ = read_header(file)
            plans = [_plan(entries, layout, nth, len(devices)) for nth in range(len(devices))]
            blocks = [_allocate(node, device, total) for device, (_, total) in zip(devices, plans)]

            copies = []
            with ThreadPoolExecutor(2 * len(devices)) as threads:
                def read(nth):
                    """Reads the parts of one GPU, and what all have into the first, from which the others take it."""
                    for which, (_, axis, begin, _, size, at) in enumerate(plans[nth][0]):
                        if size == 0 or axis is None and nth > 0:
                            continue
                        node.load(file, begin, (blocks[nth][1] + at, size), streams[nth])
                        if streams[nth] is not None:
                            streams[nth].synchronize()
                        for other in range(1, len(devices) if axis is None else 0):
                            to = blocks[other][1] + plans[other][0][which][5]
                            ends = (to, size), (blocks[0][1] + at, size)
                            copies.append(threads.submit(node.copy, *ends, streams[other]))

                list(threads.map(read, range(len(devices))))
                for copy in copies:
                    copy.result()
                for stream in filter(None, streams):
                    stream.synchronize()
            for nth, (plan, _) in enumerate(plans):
                for entry, _, _, shape, _, at in plan:
                    shards[nth][entry.name] = _part(*blocks[nth], at, entry.type, shape)
    return shards
