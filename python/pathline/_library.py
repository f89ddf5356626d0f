"""The C library by ctypes."""

import atexit
import ctypes
import os
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p


class Error(RuntimeError):
    """A call of libpathline failed; status is its pl_status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Options(ctypes.Structure):
    """pl_options."""

    _fields_ = [
        ("size", c_size_t), ("helpers", POINTER(c_int)), ("helper_count", c_size_t),
        ("threshold", c_size_t), ("staging", c_size_t), ("min_gain", c_double), ("library", c_char_p),
        ("twin", c_char_p),
        ("shared_helpers", c_int), ("copy_threads", c_int),
        ("max_multiprocessors", c_int), ("reserved", c_int),
    ]


class Counters(ctypes.Structure):
    """pl_counters."""

    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "plain", "multipath", "multipath_bytes", "relayed_bytes", "repeated", "lost", "fallbacks",
        "switched_off", "staged", "staged_bytes", "blocks", "batched_blocks", "refused_blocks")]


class Place(ctypes.Structure):
    """pl_place."""

    _fields_ = [("numa", c_int)]


def library_path():
    """The library: PATHLINE_LIBRARY, else the one of this package, else the linker's."""
    named = os.environ.get("PATHLINE_LIBRARY")
    if named:
        return named
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpathline.so")
    return own if os.path.exists(own) else "libpathline.so"


_SIGNATURES = {
    "pl_open": [POINTER(Options), POINTER(c_void_p)],
    "pl_copy": [c_void_p, c_void_p, c_void_p, c_size_t],
    "pl_copy_async": [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
    "pl_copy_batch_async": [
        c_void_p, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_void_p],
    "pl_copy_to_all": [
        c_void_p, c_size_t, POINTER(c_int), POINTER(c_void_p), c_void_p, c_size_t,
        POINTER(c_void_p)],
    "pl_load": [c_void_p, c_int, c_uint64, c_size_t, c_void_p],
    "pl_load_async": [c_void_p, c_int, c_uint64, c_size_t, c_void_p, c_void_p],
    "pl_device_alloc": [c_void_p, c_int, c_size_t, POINTER(c_void_p)],
    "pl_device_free": [c_void_p, c_void_p],
    "pl_host_alloc": [c_void_p, c_size_t, Place, POINTER(c_void_p)],
    "pl_host_attach": [c_void_p, c_int, c_size_t, POINTER(c_void_p)],
    "pl_host_free": [c_void_p, c_void_p],
    "pl_explain": [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t],
    "pl_stats": [c_void_p, POINTER(Counters)],
}


# Copies that copy_batch passes on first; each further call has twice as many.
_FIRST_COPIES = 8
# Number of copies from which on the library looks at them together: one call has them all.
_MANY_COPIES = 64
# Size below which copies are plain, unless a node says otherwise.
_THRESHOLD = 4 << 20


def _load():
    library = ctypes.CDLL(library_path())
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    library.pl_close.argtypes, library.pl_close.restype = [c_void_p], None
    library.pl_last_error.argtypes, library.pl_last_error.restype = [], c_char_p
    return library


def _end(thing):
    """Address and bytes of one end."""
    if isinstance(thing, tuple):
        address, size = thing
        return int(address), int(size)
    address = getattr(thing, "data_ptr", None)
    if address is not None:
        is_contiguous = getattr(thing, "is_contiguous", None)
        if is_contiguous is not None and not is_contiguous():
            raise ValueError("the tensor is not contiguous: copy tensor.contiguous()")
        size = getattr(thing, "nbytes", None)
        if size is None:
            size = thing.numel() * thing.element_size()
        return int(address()), int(size)
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(thing, name, None)
        if interface is None:
            continue
        if interface.get("strides") is not None:
            raise ValueError("the array is not contiguous: copy a contiguous one")
        size = int(interface["typestr"].lstrip("<>|=")[1:])
        for length in interface["shape"]:
            size *= int(length)
        return int(interface["data"][0]), size
    raise TypeError(
        f"{type(thing).__name__} is no tensor, array or pair (address, bytes)")


def _pair(dst, src):
    (to, room), (start, size) = _end(dst), _end(src)
    if room != size:
        raise ValueError(f"the destination has {room} bytes and the source {size}")
    return to, start, size


def _words(words):
    """The address of the 64-bit numbers of a tensor of the host, a NumPy array or an array.array, and their count."""
    if hasattr(words, "data_ptr"):
        count, width, address = words.numel(), words.element_size(), words.data_ptr()
    elif hasattr(words, "__array_interface__"):
        address, size = _end(words)
        width = int(words.__array_interface__["typestr"].lstrip("<>|=")[1:])
        count = size // width
    else:
        address, count = words.buffer_info()
        width = words.itemsize
    if width != 8:
        raise ValueError(f"numbers of {width} bytes: addresses and sizes are 64-bit numbers")
    return address, count


def _stream(stream):
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def _device(thing):
    device = getattr(thing, "device", None)
    index = getattr(device, "index", device)
    if index is None:
        raise ValueError("the GPU of a destination is not known: pass devices")
    return int(index)


class Node:
    """GPUs, streams and memory of this process.

    helpers lists the GPUs that may relay (all without), threshold is the size below which copies are
    plain, min_gain the least predicted gain, library "cuda=PATH" or "hip=PATH", twin the path of a machine
    file of this node, from which copies are planned without probes. shared_helpers says whether other
    processes copy to or from helpers, in which case relays leave gaps for them: None looks which GPUs have
    other processes. copy_threads is the most threads that copy pageable memory (None: as many as help, 0: none).
    max_multiprocessors is the most multiprocessors of a kernel that copies a batch (None: 8, 0: no kernels).
    """

    def __init__(self, helpers=None, threshold=0, staging=0, min_gain=0.0, library=None,
                 twin=None, shared_helpers=None, copy_threads=None, max_multiprocessors=None):
        self._library, self._handle = _load(), c_void_p()
        self._threshold = threshold or _THRESHOLD
        options = Options(size=ctypes.sizeof(Options), threshold=threshold, staging=staging,
                          min_gain=min_gain, shared_helpers={None: 0, False: -1}.get(shared_helpers, 1),
                          copy_threads={None: 0, 0: -1}.get(copy_threads, copy_threads),
                          max_multiprocessors={None: 0, 0: -1}.get(max_multiprocessors, max_multiprocessors))
        if helpers is not None:
            options.helpers = (c_int * max(1, len(helpers)))(*helpers)
            options.helper_count = len(helpers)
        if library is not None:
            options.library = library.encode()
        if twin is not None:
            options.twin = os.fsencode(twin)
        self._check(self._library.pl_open(byref(options), byref(self._handle)))

    def _check(self, status, note=""):
        if status != 0:
            raise Error(status, self._library.pl_last_error().decode(errors="replace") + note)

    def copy(self, dst, src, stream=None):
        """As pathline.copy."""
        to, start, size = _pair(dst, src)
        if stream is None:
            self._check(self._library.pl_copy(self._handle, to, start, size))
        else:
            self._check(
                self._library.pl_copy_async(self._handle, to, start, size, _stream(stream)))

    def copy_batch(self, dsts, srcs, stream):
        """As pathline.copy_batch."""
        dsts, srcs = list(dsts), list(srcs)
        if len(dsts) != len(srcs):
            raise ValueError(f"{len(dsts)} destinations and {len(srcs)} sources")
        stream, first, pairs = _stream(stream), 0, []
        most = _FIRST_COPIES if len(dsts) < _MANY_COPIES else len(dsts)
        for dst, src in zip(dsts, srcs):
            pairs.append(_pair(dst, src))
            # Small copies start while this loop, which costs as much as their calls, goes on with the next.
            if len(pairs) == most and all(size < self._threshold for _, _, size in pairs):
                self._enqueue(pairs, stream, first)
                first, most, pairs = first + most, 2 * most, []
        self._enqueue(pairs, stream, first)

    def copy_addresses(self, dsts, srcs, sizes, stream):
        """As pathline.copy_addresses."""
        (to, count), (start, starts), (size, lengths) = _words(dsts), _words(srcs), _words(sizes)
        if not count == starts == lengths:
            raise ValueError(f"{count} destinations, {starts} sources and {lengths} sizes")
        arrays = (ctypes.cast(to, POINTER(c_void_p)), ctypes.cast(start, POINTER(c_void_p)),
                  ctypes.cast(size, POINTER(c_size_t)))
        self._check(self._library.pl_copy_batch_async(self._handle, *arrays, count, _stream(stream)))

    def _enqueue(self, pairs, stream, first):
        """Copies (destination, source, bytes) of a batch, of which earlier calls had some."""
        if not pairs:
            return
        count = len(pairs)
        to, start, size = zip(*pairs)
        to, start, size = (c_void_p * count)(*to), (c_void_p * count)(*start), (c_size_t * count)(*size)
        status = self._library.pl_copy_batch_async(self._handle, to, start, size, count, stream)
        self._check(status, f" (counted from copy {first})" if first else "")

    def copy_to_all(self, dsts, src, streams=None, devices=None):
        """As pathline.copy_to_all."""
        start, size = _end(src)
        if devices is None:
            devices = [_device(dst) for dst in dsts]
        to = [_pair(dst, src)[0] for dst in dsts]
        count = len(to)
        if len(devices) != count or (streams is not None and len(streams) != count):
            raise ValueError(f"{count} destinations need as many devices and streams")
        handles = None
        if streams is not None:
            handles = (c_void_p * count)(*(_stream(stream) for stream in streams))
        self._check(self._library.pl_copy_to_all(
            self._handle, count, (c_int * count)(*devices), (c_void_p * count)(*to), start, size,
            handles))

    def load(self, file, offset, dst, stream=None, size=None):
        """Reads the bytes of dst, memory of a GPU, from an offset of an open file on. size is checked if it is known."""
        to, room = _end(dst)
        if size is not None and room != size:
            raise ValueError(f"the destination has {room} bytes and the source {size}")
        if stream is None:
            status = self._library.pl_load(self._handle, file.fileno(), offset, room, to)
        else:
            status = self._library.pl_load_async(self._handle, file.fileno(), offset, room, to, _stream(stream))
        self._check(status)

    def device_alloc(self, device, size):
        """The address of memory of a GPU."""
        address = c_void_p()
        self._check(self._library.pl_device_alloc(self._handle, device, size, byref(address)))
        return address.value

    def device_free(self, address):
        """Frees memory of device_alloc; nothing once the node is closed, which leaves it to the runtime."""
        if self._handle:
            self._check(self._library.pl_device_free(self._handle, address))

    def explain(self, dst, src):
        """As pathline.explain."""
        to, start, size = _pair(dst, src)
        text = ctypes.create_string_buffer(4096)
        self._check(self._library.pl_explain(
            self._handle, to, start, size, ctypes.addressof(text), len(text)))
        return text.value.decode(errors="replace")

    def host_alloc(self, size, numa=-1):
        """Host memory that all GPUs reach, as a pair (address, bytes). Lives as long as the node."""
        address = c_void_p()
        self._check(self._library.pl_host_alloc(
            self._handle, size, Place(numa), byref(address)))
        return address.value, size

    def host_free(self, memory):
        """Frees memory of host_alloc."""
        self._check(self._library.pl_host_free(self._handle, memory[0]))

    def counters(self):
        """What the node has done, as a dictionary."""
        counters = Counters(size=ctypes.sizeof(Counters))
        self._check(self._library.pl_stats(self._handle, byref(counters)))
        return {name: getattr(counters, name) for name, _ in Counters._fields_[1:]}

    def close(self):
        """Waits for copies in flight and frees the node."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self._library.pl_close(handle)


_lock = threading.Lock()
_node = None


def _after_fork():
    """Another thread may have held the lock when this process was forked, and is not in it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def node(**options):
    """The node of the functions of this module. The first call opens it, with options of Node."""
    global _node
    with _lock:
        if _node is None:
            _node = Node(**options)
            atexit.register(close)
        elif options:
            raise ValueError("the node is open already: call pathline.close() first")
        return _node


def counters():
    """What the node has done, as a dictionary."""
    return node().counters()


def close():
    """Closes the node; the next copy opens another one."""
    global _node
    with _lock:
        closing, _node = _node, None
    if closing is not None:
        closing.close()
