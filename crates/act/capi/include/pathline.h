/* libpathline: copies between host and GPU memory over several paths of a node at once.
 *
 * A copy that several paths do not help is the runtime's own copy, made on the calling thread: small
 * copies, streams that are being captured, managed memory, MIG, nodes without a helper, and whatever the driver
 * refuses. Pageable memory goes through page-locked buffers of several threads where that is faster.
 * docs/use/libpathline.md has the rules of ordering and the list of what falls back.
 *
 * Every function but pl_close and pl_last_error returns a pl_status. All may be called from any thread.
 * Pointers to GPU memory and streams are those of the runtime of the process (CUDA or HIP); GPU numbers are
 * the runtime's. Source and destination do not overlap, and stay allocated and unchanged until the copy has
 * ended, as for any copy from pinned memory.
 *
 * After pl_open a fork gives the child no node, as the runtime gives it no GPU. The child may end in any way, by
 * exit and pl_close too, which frees nothing there, and it may start another program. Every other call returns
 * PL_FORKED, pl_open too. Processes that are to copy start by exec, or are forked before the first pl_open.
 */
#ifndef PATHLINE_H
#define PATHLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns. pl_last_error() has the text. */
typedef enum pl_status {
    PL_OK = 0,
    PL_INVALID = 1,     /* an argument is none that any copy can have */
    PL_RUNTIME = 2,     /* the GPU runtime refused the plain copy, or another call */
    PL_UNAVAILABLE = 3, /* no GPU runtime can be used in this process */
    PL_MEMORY = 4,      /* host memory is short, or cannot be registered */
    PL_FILE = 6,        /* a file cannot be read */
    PL_INTERNAL = 5,    /* a fault of this library; it has no panic for the caller */
    PL_FORKED = 7       /* the process was forked from one that had opened a node */
} pl_status;

/* GPUs, streams and memory of one process. */
typedef struct pl_node pl_node;

/* How a node is opened. Set size to sizeof(pl_options), and what is not used to 0. */
typedef struct pl_options {
    size_t size;
    const int *helpers;  /* GPUs that may relay bytes of others; null: all that this process sees */
    size_t helper_count; /* 0 with helpers that are not null: none */
    size_t threshold;    /* copies below this are plain, bytes; 0: 4 MiB */
    size_t staging;      /* staging memory on each helper, bytes, 256 KiB to 16 MiB; 0: 8 MiB */
    double min_gain;     /* least predicted gain, a factor; 0: 1.15 */
    const char *library; /* "cuda=PATH" or "hip=PATH"; null: PATHLINE_CUDA, PATHLINE_HIP, or a search */
    const char *twin;    /* machine file of this node, by pathline calibrate: plans without probes; null:
                            probes. A structure that ends before this member, of 56 bytes, is taken as well */
    int shared_helpers;  /* other processes copy to or from helpers, so copies in the order of a stream leave
                            helpers out and others leave gaps: 1 yes, -1 no, 0: as the driver lists them */
    int copy_threads;    /* most threads that copy pageable memory; 0: as many as help, up to 16 and the CPUs of
                            this process; -1: none, the runtime copies it */
    int max_multiprocessors; /* most multiprocessors that a kernel takes to copy ranges of a batch; 0: 8, which fill
                                the link of an H200; -1: no kernels. A structure that ends before this member, of 72
                                bytes, is taken as well */
    int reserved;            /* 0 */
} pl_options;

/* Where host memory lies. */
typedef struct pl_place {
    int numa; /* NUMA domain; -1 spreads pages over all */
} pl_place;

/* What a node has done. Set size to sizeof(pl_counters). Plain copies below the threshold are not counted. */
typedef struct pl_counters {
    size_t size;
    uint64_t plain;           /* plain copies of at least the threshold */
    uint64_t multipath;       /* copies over several paths */
    uint64_t multipath_bytes; /* their bytes into each destination */
    uint64_t relayed_bytes;   /* bytes that relays, or other destinations, carried */
    uint64_t repeated;        /* chunks copied again because a relay failed or stalled */
    uint64_t lost;            /* relays given up during a copy */
    uint64_t fallbacks;       /* copies made plainly after several paths had failed */
    uint64_t switched_off;    /* times that a size class was switched off, for 2 s to 3 min */
    uint64_t staged;          /* copies of pageable memory by several threads; a structure that ends before this
                                 member, of 72 bytes, is taken as well */
    uint64_t staged_bytes;    /* their bytes */
    uint64_t blocks;          /* ranges of batches that kernels copied; likewise, of 88 bytes */
    uint64_t batched_blocks;  /* ranges of batches that the driver's call for many copied */
    uint64_t refused_blocks;  /* times that a kernel or that call could not be used: a copy for each range instead */
} pl_counters;

/* Finds the runtime. GPUs get a context when a copy first uses them; options may be null. */
pl_status pl_open(const pl_options *options, pl_node **node);

/* Copies and waits, after all work of the default streams of both ends' GPUs. */
pl_status pl_copy(pl_node *node, void *dst, const void *src, size_t n);

/* Copies in the order of a stream (CUstream, cudaStream_t, hipStream_t), a default one too: everything is
 * enqueued when the call returns, and nothing waits for the host. With pageable memory the call returns when that has
 * been read or written, as the runtime's own. The first copy between two ends of at least
 * the threshold measures paths for up to 2 seconds before it returns. An error after the call is that of the
 * runtime's next call, as with its own copies. */
pl_status pl_copy_async(pl_node *node, void *dst, const void *src, size_t n, void *stream);

/* Copies count ranges in the order of a stream, in any order among themselves. Ranges that continue one another
 * at both ends are one copy if each end lies in one allocation, as the driver or cuMemHostRegister made it. If
 * the driver refuses that copy or several paths, each range is copied by itself. The text of an error names the
 * range by its number; ranges before and after it may have been enqueued.
 * Of 64 ranges and more, those below 4 MiB and the threshold go to one kernel that copies in place, or to the driver's
 * call for many, where that was measured to be faster: at the first such batch between two places, for up to a second
 * with the compilation of the kernel. */
pl_status pl_copy_batch_async(pl_node *node, void *const *dst, const void *const *src, const size_t *n,
                              size_t count, void *stream);

/* Copies the same n bytes to each of some GPUs: dst[i] is memory of gpu[i]. In the order of streams[i]; with
 * streams null it waits. */
pl_status pl_copy_to_all(pl_node *node, size_t gpus, const int *gpu, void *const *dst, const void *src,
                         size_t n, void *const *streams);

/* Reads n bytes of an open file from an offset on into GPU memory and waits: pages that are cached from there, others
 * past the cache where the file system can. PL_FILE if it cannot be read or became shorter; any of the n bytes may have
 * arrived then. */
pl_status pl_load(pl_node *node, int fd, uint64_t offset, size_t n, void *dst);

/* The same in the order of a stream: it returns when the file has been read. */
pl_status pl_load_async(pl_node *node, int fd, uint64_t offset, size_t n, void *dst, void *stream);

/* Allocates memory of a GPU, and frees it: for programs that have no other way to. */
pl_status pl_device_alloc(pl_node *node, int gpu, size_t n, void **address);
pl_status pl_device_free(pl_node *node, void *address);

/* Allocates host memory that all GPUs reach, in huge pages where the kernel has them. */
pl_status pl_host_alloc(pl_node *node, size_t n, pl_place place, void **address);

/* Maps the first n bytes of a memfd and lets all GPUs reach them. It needs the seal F_SEAL_SHRINK (memfd_create with
 * MFD_ALLOW_SEALING, ftruncate, then fcntl F_ADD_SEALS): if a file shrank, a read of the memory would be SIGBUS, and
 * GPUs would use pages that are the file's no more. Files that take no seal, in /dev/shm and on disks, are PL_INVALID:
 * copy from them as pageable memory, or register their mapping with the runtime at your own risk. */
pl_status pl_host_attach(pl_node *node, int fd, size_t n, void **address);

/* Frees memory of pl_host_alloc, unmaps that of pl_host_attach. pl_close does so for what is left. */
pl_status pl_host_free(pl_node *node, void *address);

/* Writes how such a copy would be made, as text of at most size bytes with its 0: the case, as `pathline run`
 * measures it, then the predicted and the plain rate, or why it is plain, and what a call that waits would do.
 * GPUs are numbered by PCI address, as everywhere in pathline. */
pl_status pl_explain(pl_node *node, const void *dst, const void *src, size_t n, char *text, size_t size);

/* Stores what the node has done. */
pl_status pl_stats(pl_node *node, pl_counters *counters);

/* Waits for copies in flight and frees the node. Null is allowed. */
void pl_close(pl_node *node);

/* The text of the last error of the calling thread, until its next call. Never null. */
const char *pl_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
