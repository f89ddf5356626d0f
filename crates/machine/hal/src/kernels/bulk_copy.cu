__shared__ u64 full[PL_STAGES];
    if (threadIdx.x == 0) {
        const u64 policy = pl_policy();
        for (int s = 0; s < PL_STAGES; s++) pl_start(full + s);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        u64 next = first;
        unsigned into = 0, from = 0, parity = 0;
        for (int s = 0; s < PL_AHEAD && next < last; s++, next += step, into++)
            pl_fetch(full + into, ring + into * PL_CHUNK, src + next * PL_CHUNK, policy);
        if (into == PL_STAGES) into = 0;
        for (u64 t = first; t < last; t += step) {
            pl_await(full + from, parity);
            pl_put(dst + t * PL_CHUNK, ring + from * PL_CHUNK, policy);
            if (++from == PL_STAGES) { from = 0; parity ^= 1; }
            if (next < last) {
                pl_drain<PL_STAGES - PL_AHEAD>();
                pl_fetch(full + into, ring + into * PL_CHUNK, src + next * PL_CHUNK, policy);
                if (++into == PL_STAGES) into = 0;
                next += step;
            }
        }
        pl_finish();
    }