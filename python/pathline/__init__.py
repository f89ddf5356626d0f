"""Copies between host and GPU memory over several paths of a node at once, by libpathline.

    import pathline
    pathline.copy(gpu_tensor, pinned_tensor)                 # waits
    pathline.copy(gpu_tensor, pinned_tensor, stream=stream)  # in its order
    pathline.copy_to_all([t0, t1, t2], pinned_tensor)        # the same bytes to several GPUs
    pathline.copy(gpu_tensor, numpy_array)                   # pageable memory, by several threads
    tensors = pathline.load("model.safetensors", device=0)   # a file, through no memory of its size
    print(pathline.explain(gpu_tensor, pinned_tensor))

`pathline.read(run)` gives the rows of a run, for pandas and polars.

An end is a tensor (anything with data_ptr, numel and element_size, or nbytes), an object with
__cuda_array_interface__ or __array_interface__, or a pair (address, bytes). A stream is a torch stream
(cuda_stream), or its handle as a number. docs/use/libpathline.md has the rules of ordering and what is copied
plainly. Nothing is imported but the standard library. Tensors of asynchronous copies live until the stream has
passed them.

A process that is forked after node() or the first copy cannot copy: every call raises Error with status 7
(PL_FORKED), except close(), which frees nothing there. It may end as usual, as workers of a data loader do. Start
workers that copy by spawn (multiprocessing.set_start_method, multiprocessing_context of a DataLoader), or fork first.
"""

from . import _safetensors
from ._library import Error, Node, close, counters, library_path, node
from ._runs import read
from ._safetensors import FormatError

__all__ = [
    "Error", "FormatError", "Node", "close", "copy", "copy_addresses", "copy_batch", "copy_to_all", "counters", "explain",
    "library_path", "load", "load_into", "load_sharded", "node", "read",
]


def copy(dst, src, stream=None):
    """Copies all bytes of src to dst, in the order of a stream; without one, waits.

    Raises ValueError if an end is not contiguous or the sizes differ, Error if the runtime refuses the
    copy.
    """
    node().copy(dst, src, stream)


def copy_batch(dsts, srcs, stream):
    """Copies each of srcs to its dst, in the order of a stream, in any order among themselves.

    On an error some of the copies may have been enqueued.
    """
    node().copy_batch(dsts, srcs, stream)


def copy_addresses(dsts, srcs, sizes, stream):
    """The same for addresses and bytes in arrays of 64-bit numbers on the host: tensors, NumPy's or array.array.

    The memory lives until the stream has passed the copies. Thousands of blocks cost no call of Python each.
    """
    node().copy_addresses(dsts, srcs, sizes, stream)


def copy_to_all(dsts, src, streams=None, devices=None):
    """Copies the bytes of src to each of dsts, one on each GPU.

    In the order of the streams, one for each destination; without any, waits. devices are the numbers of
    the GPUs, needed where dsts are pairs of address and bytes.
    """
    node().copy_to_all(dsts, src, streams, devices)


def load(path, device=0, stream=None):
    """The tensors of a safetensors file on a GPU, by name: torch's if it is imported, else objects with
    __cuda_array_interface__.

    All lie in one block of memory, which the last of them frees. In the order of a stream; without one, waits. Raises
    FormatError if the file is not as the format demands, Error if it cannot be read or copied.
    """
    return _safetensors.load(node(), path, device, stream)


def load_into(tensors, files, stream=None):
    """Reads tensors from one or several safetensors files into those of the same names, such as a state_dict on GPUs.

    Raises ValueError if sizes differ, KeyError if no file has a name.
    """
    _safetensors.load_into(node(), tensors, files, stream)


def load_sharded(files, devices, layout=None):
    """The tensors of safetensors files on several GPUs: a dictionary for each of devices.

    layout(name, shape) is 0 for a tensor whose rows the GPUs share equally, each reading its own alone, and None for
    one that each has as a whole (all of them without layout).
    """
    return _safetensors.load_sharded(node(), files, devices, layout)


def explain(dst, src):
    """How such a copy would be made: its case, the predicted and the plain rate, or why it is plain."""
    return node().explain(dst, src)
