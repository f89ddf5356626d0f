__shared__ u64 full[PL_STAGES];
    if (threadIdx.x == 0) {
        const u64 policy = pl_policy();
        for (int s = 0; s < PL_STAGES; s++) pl_start(full + s);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        u64 next = first;
        for (int s = 0; s < PL_STAGES && next < last; s++, next += step)
            pl_fetch(full + s, ring + s * PL_CHUNK, src + next * PL_CHUNK, policy);
        unsigned from = 0, parity = 0;
        for (u64 t = first; t < last; t += step) {
            pl_await(full + from, parity);
            if (dst) sum ^= pl_chunk(ring + from * PL_CHUNK);
            if (next < last) {
                pl_fetch(full + from, ring + from * PL_CHUNK, src + next * PL_CHUNK, policy);
                next += step;
            }
            if (++from == PL_STAGES) { from = 0; parity ^= 1; }
        }
    }