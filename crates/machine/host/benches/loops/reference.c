/* The CPU loops of this crate as a C programmer writes them, for `cargo xtask loops`. Each function
 * passes over `len` bytes `reps` times. `loop` functions leave vectors and unrolling to the compiler at
 * one vector width; `turn` functions are written in intrinsics, eight vectors a turn. `len` is a multiple
 * of 4 KiB and every pointer one of 64. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Every pass must happen: the compiler takes all memory for changed between two of them. */
#define PASS __asm__ volatile("" ::: "memory")
#define SPAN char *restrict dst, const char *restrict src, const char *restrict other, size_t len, size_t reps
#define UNUSED (void)dst, (void)src, (void)other
#define SCALE 3.0
#define WRITTEN 0xa5a5a5a5a5a5a5a5u

typedef uint64_t word;
typedef volatile uint64_t each;

/* One word at a time: `volatile` keeps the compiler from vectors. */
word copy_plain_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++) ((each *)dst)[i] = ((const each *)src)[i];
    }
    return 0;
}
word write_plain_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++) ((each *)dst)[i] = WRITTEN;
    }
    return 0;
}
word read_plain_loop(SPAN) {
    UNUSED;
    word a = 0, b = 0, c = 0, d = 0;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i += 4) {
            a += ((const each *)src)[i];
            b += ((const each *)src)[i + 1];
            c += ((const each *)src)[i + 2];
            d += ((const each *)src)[i + 3];
        }
    }
    return a + b + c + d;
}
word triad_plain_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++)
            ((volatile double *)dst)[i] =
                ((const volatile double *)src)[i] + SCALE * ((const volatile double *)other)[i];
    }
    return 0;
}
#define UNROLLED _Pragma("GCC unroll 8") for (size_t i = 0; i < len / 8; i++)
word copy_plain_turn(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        UNROLLED ((each *)dst)[i] = ((const each *)src)[i];
    }
    return 0;
}
word write_plain_turn(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        UNROLLED ((each *)dst)[i] = WRITTEN;
    }
    return 0;
}
word triad_plain_turn(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        UNROLLED ((volatile double *)dst)[i] =
            ((const volatile double *)src)[i] + SCALE * ((const volatile double *)other)[i];
    }
    return 0;
}
word copy_memcpy_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        memcpy(dst, src, len);
    }
    return 0;
}

#ifdef __x86_64__
#include <immintrin.h>

word copy_movsb_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        size_t n = len;
        const char *s = src;
        char *d = dst;
        __asm__ volatile("rep movsb" : "+c"(n), "+S"(s), "+D"(d)::"memory");
    }
    return 0;
}

/* Loops of doubles and words that the compiler vectorises. */
#define LOOPS(how, width)                                                                    \
    __attribute__((target("prefer-vector-width=" width))) word copy_##how##_loop(SPAN) {     \
        UNUSED;                                                                              \
        for (; reps; reps--) {                                                               \
            PASS;                                                                            \
            for (size_t i = 0; i < len / 8; i++) ((word *)dst)[i] = ((const word *)src)[i];  \
        }                                                                                    \
        return 0;                                                                            \
    }                                                                                        \
    __attribute__((target("prefer-vector-width=" width))) word write_##how##_loop(SPAN) {    \
        UNUSED;                                                                              \
        for (; reps; reps--) {                                                               \
            PASS;                                                                            \
            for (size_t i = 0; i < len / 8; i++) ((word *)dst)[i] = WRITTEN;                 \
        }                                                                                    \
        return 0;                                                                            \
    }                                                                                        \
    __attribute__((target("prefer-vector-width=" width))) word read_##how##_loop(SPAN) {     \
        UNUSED;                                                                              \
        word sum = 0;                                                                        \
        for (; reps; reps--) {                                                               \
            PASS;                                                                            \
            for (size_t i = 0; i < len / 8; i++) sum += ((const word *)src)[i];              \
        }                                                                                    \
        return sum;                                                                          \
    }                                                                                        \
    __attribute__((target("prefer-vector-width=" width))) word triad_##how##_loop(SPAN) {    \
        UNUSED;                                                                              \
        double *a = (double *)dst;                                                           \
        const double *b = (const double *)src, *c = (const double *)other;                   \
        for (; reps; reps--) {                                                               \
            PASS;                                                                            \
            for (size_t i = 0; i < len / 8; i++) a[i] = b[i] + SCALE * c[i];                 \
        }                                                                                    \
        return 0;                                                                            \
    }

/* One form in intrinsics: `head` before the passes, `turn` for each eight vectors at `at`, `end` after
 * each pass. */
#define TURNS(name, w, head, turn, end)               \
    word name##_turn(SPAN) {                          \
        UNUSED;                                       \
        word result = 0;                              \
        head;                                         \
        for (; reps; reps--) {                        \
            PASS;                                     \
            for (size_t at = 0; at < len; at += 8 * w) { \
                turn;                                 \
            }                                         \
            end;                                      \
        }                                             \
        return result;                                \
    }
#define FORMS(how, w, int_t, pd_t, load, store, stream, load_pd, store_pd, stream_pd, set, set_pd, fma, add, zero) \
    TURNS(copy_##how, w, int_t v[8],                                                          \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) v[i] =                       \
              load((const void *)(src + at + i * w));                                         \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) store(                       \
              (void *)(dst + at + i * w), v[i]), )                                            \
    TURNS(copy_##how##_ntl, w, int_t v[8],                                                    \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8 * w / 64; i++) _mm_prefetch(       \
              src + at + 512 + i * 64, _MM_HINT_NTA);                                         \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) v[i] =                       \
              load((const void *)(src + at + i * w));                                         \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) store(                       \
              (void *)(dst + at + i * w), v[i]), )                                            \
    TURNS(copy_##how##_nt, w, ,                                                               \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) stream(                      \
              (void *)(dst + at + i * w), load((const void *)(src + at + i * w))),            \
          _mm_sfence())                                                                       \
    TURNS(copy_##how##_nta, w, ,                                                              \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) {                            \
              if (i * w % 64 == 0) _mm_prefetch(src + at + 512 + i * w, _MM_HINT_NTA);        \
              stream((void *)(dst + at + i * w), load((const void *)(src + at + i * w)));     \
          },                                                                                  \
          _mm_sfence())                                                                       \
    TURNS(write_##how, w, int_t v = set(WRITTEN),                                             \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) store(                       \
              (void *)(dst + at + i * w), v), )                                               \
    TURNS(write_##how##_nt, w, int_t v = set(WRITTEN),                                        \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) stream(                      \
              (void *)(dst + at + i * w), v),                                                 \
          _mm_sfence())                                                                       \
    word read_##how##_turn(SPAN) {                                                            \
        UNUSED;                                                                               \
        int_t v[8];                                                                           \
        for (int i = 0; i < 8; i++) v[i] = zero();                                            \
        for (; reps; reps--) {                                                                \
            PASS;                                                                             \
            for (size_t at = 0; at < len; at += 8 * w) {                                      \
                _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) v[i] =                 \
                    add(v[i], load((const void *)(src + at + i * w)));                        \
            }                                                                                 \
        }                                                                                     \
        word sums[w], sum = 0;                                                                \
        for (int i = 0; i < 8; i++) store((void *)(sums + i * w / 8), v[i]);                  \
        for (int i = 0; i < w; i++) sum += sums[i];                                           \
        return sum;                                                                           \
    }                                                                                         \
    TURNS(triad_##how, w, pd_t scale = set_pd(SCALE),                                         \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) store_pd(                    \
              (double *)(dst + at + i * w),                                                   \
              fma(scale, load_pd((const double *)(other + at + i * w)),                       \
                  load_pd((const double *)(src + at + i * w)))), )                            \
    TURNS(triad_##how##_nt, w, pd_t scale = set_pd(SCALE),                                    \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) stream_pd(                   \
              (double *)(dst + at + i * w),                                                   \
              fma(scale, load_pd((const double *)(other + at + i * w)),                       \
                  load_pd((const double *)(src + at + i * w)))),                              \
          _mm_sfence())                                                                       \
    TURNS(triad_##how##_nta, w, pd_t scale = set_pd(SCALE),                                   \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) {                            \
              if (i * w % 64 == 0) {                                                          \
                  _mm_prefetch(src + at + 512 + i * w, _MM_HINT_NTA);                         \
                  _mm_prefetch(other + at + 512 + i * w, _MM_HINT_NTA);                       \
              }                                                                               \
              stream_pd((double *)(dst + at + i * w),                                         \
                        fma(scale, load_pd((const double *)(other + at + i * w)),             \
                            load_pd((const double *)(src + at + i * w))));                    \
          },                                                                                  \
          _mm_sfence())

/* Streaming copies over four pages at once, `line` bytes of each in turn; what is no whole four pages is
 * streamed page by page. */
#define PAGED(how, w, line, int_t, load, stream)                                              \
    word copy_##how##_nt4_turn(SPAN) {                                                        \
        UNUSED;                                                                               \
        for (; reps; reps--) {                                                                \
            PASS;                                                                             \
            size_t page = 0;                                                                  \
            for (; page + 4 * 4096 <= len; page += 4 * 4096)                                  \
                for (size_t at = page; at < page + 4096; at += line) {                        \
                    int_t v[4 * line / w];                                                    \
                    _Pragma("GCC unroll 16") for (size_t i = 0; i < 4 * line / w; i++) v[i] = \
                        load((const void *)(src + at + i * w % line + i * w / line * 4096));  \
                    _Pragma("GCC unroll 16") for (size_t i = 0; i < 4 * line / w; i++) stream( \
                        (void *)(dst + at + i * w % line + i * w / line * 4096), v[i]);       \
                }                                                                             \
            if (page > 0) _mm_sfence();                                                       \
            for (size_t at = page; at < len; at += 8 * w)                                     \
                _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) stream(                \
                    (void *)(dst + at + i * w), load((const void *)(src + at + i * w)));      \
            if (page < len) _mm_sfence();                                                     \
        }                                                                                     \
        return 0;                                                                             \
    }

#ifdef __AVX2__
LOOPS(avx2, "256")
FORMS(avx2, 32, __m256i, __m256d, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
      _mm256_loadu_pd, _mm256_storeu_pd, _mm256_stream_pd, _mm256_set1_epi64x, _mm256_set1_pd,
      _mm256_fmadd_pd, _mm256_add_epi64, _mm256_setzero_si256)
PAGED(avx2, 32, 128, __m256i, _mm256_loadu_si256, _mm256_stream_si256)
#endif
#ifdef __AVX512F__
LOOPS(avx512, "512")
FORMS(avx512, 64, __m512i, __m512d, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
      _mm512_loadu_pd, _mm512_storeu_pd, _mm512_stream_pd, _mm512_set1_epi64, _mm512_set1_pd,
      _mm512_fmadd_pd, _mm512_add_epi64, _mm512_setzero_si512)
PAGED(avx512, 64, 64, __m512i, _mm512_loadu_si512, _mm512_stream_si512)
#endif
#endif

#ifdef __aarch64__
word copy_neon_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++) ((word *)dst)[i] = ((const word *)src)[i];
    }
    return 0;
}
word write_neon_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++) ((word *)dst)[i] = WRITTEN;
    }
    return 0;
}
word read_neon_loop(SPAN) {
    UNUSED;
    word sum = 0;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++) sum += ((const word *)src)[i];
    }
    return sum;
}
word triad_neon_loop(SPAN) {
    UNUSED;
    for (; reps; reps--) {
        PASS;
        for (size_t i = 0; i < len / 8; i++)
            ((double *)dst)[i] = ((const double *)src)[i] + SCALE * ((const double *)other)[i];
    }
    return 0;
}
#endif
