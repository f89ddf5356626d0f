"""Copies between host and GPU memory over several paths of a node at once, by libpathline.

    import pathline
    pathline.copy(gpu_tensor, pinned_tensor)                 # waits
    pathline.copy(gpu_tensor, pinned_tensor, stream=stream)  # in its order
    pathline.copy_to_all([t0, t1, t2], pinned_tensor)        # the same bytes to several GPUs
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

from ._library import Error, Node, close, counters, library_path, node
from ._runs import read

__all__ = [
    "Error", "Node", "close", "copy", "copy_batch", "copy_to_all", "counters", "explain",
    "library_path", "node", "read",
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


def copy_to_all(dsts, src, streams=None, devices=None):
    """Copies the bytes of src to each of dsts, one on each GPU.

    In the order of the streams, one for each destination; without any, waits. devices are the numbers of
    the GPUs, needed where dsts are pairs of address and bytes.
    """
    node().copy_to_all(dsts, src, streams, devices)


def explain(dst, src):
    """How such a copy would be made: its case, the predicted and the plain rate, or why it is plain."""
    return node().explain(dst, src)
