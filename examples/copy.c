/* Copies a buffer into GPU memory and back over several paths, and prints how.
 *
 *     cc -o copy examples/copy.c -Icrates/act/capi/include -I/usr/local/cuda/include -L. -lpathline -lcuda
 */
#include <cuda.h>
#include <pathline.h>
#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)256 << 20)

static int failed(const char *what, int status)
{
    if (status != 0)
        fprintf(stderr, "%s: status %d, %s\n", what, status, pl_last_error());
    return status != 0;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr gpu;
    pl_node *node;
    pl_place anywhere = {-1};
    void *host;
    char text[1024];
    pl_counters counters;

    if (failed("cuInit", cuInit(0)) || failed("cuDeviceGet", cuDeviceGet(&device, 0)) ||
        failed("context", cuDevicePrimaryCtxRetain(&context, device)) ||
        failed("context", cuCtxSetCurrent(context)) ||
        failed("stream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) ||
        failed("cuMemAlloc", cuMemAlloc(&gpu, BYTES)))
        return 1;
    if (failed("pl_open", pl_open(NULL, &node)) ||
        failed("pl_host_alloc", pl_host_alloc(node, BYTES, anywhere, &host)))
        return 1;
    memset(host, 7, BYTES);
    if (failed("pl_explain", pl_explain(node, (void *)gpu, host, BYTES, text, sizeof text)))
        return 1;
    puts(text);
    /* In the order of the stream; what follows in it sees the bytes. */
    if (failed("pl_copy_async", pl_copy_async(node, (void *)gpu, host, BYTES, stream)) ||
        failed("cuStreamSynchronize", cuStreamSynchronize(stream)))
        return 1;
    memset(host, 0, BYTES);
    if (failed("pl_copy", pl_copy(node, host, (void *)gpu, BYTES)))
        return 1;
    counters.size = sizeof counters;
    if (failed("pl_stats", pl_stats(node, &counters)))
        return 1;
    printf("byte 0 is %d; %llu copies over several paths, %llu plain\n", *(char *)host,
           (unsigned long long)counters.multipath, (unsigned long long)counters.plain);
    pl_close(node);
    return 0;
}
