
extern __shared__ __align__(128) char ring[];
static __device__ unsigned pl_shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ u64 pl_global(const void *p) { return (u64)__cvta_generic_to_global(p); }
static __device__ void pl_start(u64 *full) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(pl_shared(full)) : "memory");
}
static __device__ void pl_fetch(u64 *full, char *to, const char *from, u64 policy) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(pl_shared(full)), "n"(PL_CHUNK) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" PL_HINT " [%0], [%1], %2, [%3]" PL_POLICY("%4") ";"
        :: "r"(pl_shared(to)), "l"(pl_global(from)), "n"(PL_CHUNK), "r"(pl_shared(full)) PL_WITH : "memory");
}
static __device__ void pl_await(u64 *full, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(pl_shared(full)), "r"(parity) : "memory");
    } while (!done);
}
static __device__ void pl_put(char *to, const char *from, u64 policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group" PL_HINT " [%0], [%1], %2" PL_POLICY("%3") "; cp.async.bulk.commit_group;"
        :: "l"(pl_global(to)), "r"(pl_shared(from)), "n"(PL_CHUNK) PL_WITH : "memory");
}
template <int PENDING> static __device__ void pl_drain() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}
static __device__ unsigned pl_chunk(const char *p) {
    unsigned sum = 0;
    for (unsigned i = 0; i < PL_CHUNK / 4; i++) sum ^= ((const volatile unsigned *)p)[i];
    return sum;
}
static __device__ void pl_finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
static __device__ u64 pl_policy() {
    u64 policy = 0;
    PL_MAKE_POLICY
    return policy;
}
