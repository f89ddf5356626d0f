for (unsigned i = threadIdx.x; i < PL_CHUNK / sizeof(pl_word); i += PL_BLOCK) ((pl_word *)ring)[i] = c;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        const u64 policy = pl_policy();
        for (u64 t = first; t < last; t += step) {
            pl_put(dst + t * PL_CHUNK, ring, policy);
            pl_drain<PL_STAGES - 1>();
        }
        pl_finish();
    }