// Sixteen float lanes and the dot product of bfloat16 pairs, at every width that a build may have: AVX-512 with its
// bfloat16 unit, AVX-512, AVX2 with FMA, and whatever the compiler makes of four lanes. Knows no matrix and no model.
//
// An operation on one lane is the same whatever stands in the others, and no sum is reordered: contraction is off and
// fused multiply-adds are written out, so that a result cannot depend on which template computed it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using bf16 = uint16_t;  // the upper half of a float

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX2__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif
constexpr int PARTS = 16 / WIDTH;  // registers that hold sixteen lanes

using Lanes = float __attribute__((vector_size(4 * WIDTH)));
using Words = int32_t __attribute__((vector_size(4 * WIDTH)));
using Unsigned = uint32_t __attribute__((vector_size(4 * WIDTH)));
using Halves = uint16_t __attribute__((vector_size(2 * WIDTH)));

struct F16 {
  Lanes part[PARTS];
};
struct Pairs16 {  // sixteen pairs of bfloat16, the first of each in the lower half
  Words part[PARTS];
};

#define INLINE inline __attribute__((always_inline))
#define EACH_PART _Pragma("GCC unroll 4") for (int i = 0; i < PARTS; i++)

// Asks for memory that is read soon, as far as the second cache: the first takes too few misses at a time.
INLINE void fetch(const void* address) { __builtin_prefetch(address, 0, 2); }

// Copies go register by register: as a whole they would go through memory.
INLINE F16 load(const float* from) {
  F16 x;
  EACH_PART std::memcpy(&x.part[i], from + i * WIDTH, sizeof x.part[i]);
  return x;
}

INLINE void store(float* to, const F16& x) {
  EACH_PART std::memcpy(to + i * WIDTH, &x.part[i], sizeof x.part[i]);
}

INLINE F16 fill(float value) {
  F16 x;
  EACH_PART x.part[i] = value - Lanes{};
  return x;
}

INLINE F16 operator+(F16 a, const F16& b) {
  EACH_PART a.part[i] += b.part[i];
  return a;
}

INLINE F16 operator-(F16 a, const F16& b) {
  EACH_PART a.part[i] -= b.part[i];
  return a;
}

INLINE F16 operator*(F16 a, const F16& b) {
  EACH_PART a.part[i] *= b.part[i];
  return a;
}

INLINE F16 operator/(F16 a, const F16& b) {
  EACH_PART a.part[i] /= b.part[i];
  return a;
}

INLINE Lanes fused(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

INLINE F16 fma(const F16& a, const F16& b, F16 c) {
  EACH_PART c.part[i] = fused(a.part[i], b.part[i], c.part[i]);
  return c;
}

// Where a > b, else b: a NaN in a is passed over.
INLINE F16 larger(F16 a, const F16& b) {
  EACH_PART a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return a;
}

INLINE float sum(const F16& x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x.part[0]);
#endif
  float lane[16];
  store(lane, x);
#pragma GCC unroll 4
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}

INLINE float largest(const F16& x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x.part[0]);
#endif
  float lane[16];
  store(lane, x);
#pragma GCC unroll 4
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  return lane[0];
}

// Whether no lane is NaN.
INLINE bool all_numbers(const F16& x) {
#if defined(__AVX512F__)
  return !_mm512_cmp_ps_mask((__m512)x.part[0], (__m512)x.part[0], _CMP_UNORD_Q);
#endif
  Words differ{};
  EACH_PART differ |= x.part[i] != x.part[i];
  int32_t any = 0;
  for (int n = 0; n < WIDTH; n++) any |= differ[n];
  return !any;
}

// x in lanes first..last, minus infinity in the others.
INLINE F16 between(F16 x, int first, int last) {
  Words lane;
  for (int i = 0; i < WIDTH; i++) lane[i] = i;
  EACH_PART {
    const Words place = lane + i * WIDTH;
    x.part[i] = ((place >= first) & (place <= last)) ? x.part[i] : -INFINITY - Lanes{};
  }
  return x;
}

// e^x to about 2 units in the last place; 0 under -87, e^88 above 88, NaN for NaN.
INLINE F16 exponential(F16 x) {
  const Lanes zero{};
  EACH_PART {
    const Lanes given = x.part[i];
    Lanes t = given > 88.0f ? 88.0f - zero : given;
    t = t < -87.0f ? -87.0f - zero : t;
    const Lanes shifted = t * 1.44269504f + 12582912.0f;  // the integer of t / log 2 in the lowest bits
    const Lanes whole = shifted - 12582912.0f;
    Lanes rest = fused(whole, -0.693145752f - zero, t);  // log 2 in two parts
    rest = fused(whole, -1.42860677e-6f - zero, rest);
    Lanes power = 1.9875691e-4f * rest + 1.3981999e-3f;
    power = fused(power, rest, 8.3334519e-3f - zero);
    power = fused(power, rest, 4.1665795e-2f - zero);
    power = fused(power, rest, 1.6666665e-1f - zero);
    power = fused(power, rest, 0.5f - zero);
    power = fused(power * rest, rest, rest + 1.0f);
    const Words scale = ((Words)shifted - 0x4B400000 + 127) << 23;
    x.part[i] = given < -87.0f ? zero : power * (Lanes)scale;
  }
  return x;
}

INLINE F16 tangent(const F16& x) {  // hyperbolic
  const F16 one = fill(1.0f), two = fill(2.0f);
  return one - two / (exponential(two * x) + one);
}

INLINE Pairs16 load_pairs(const bf16* from) {
  Pairs16 x;
  EACH_PART std::memcpy(&x.part[i], from + 2 * i * WIDTH, sizeof x.part[i]);
  return x;
}

// The pair at `from` in every lane.
INLINE Pairs16 fill_pair(const bf16* from) {
  int32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  Pairs16 x;
  EACH_PART x.part[i] = pair - Words{};
  return x;
}

// Adds to each lane both products of its pairs.
INLINE F16 dot(F16 total, const Pairs16& a, const Pairs16& b) {
#if defined(__AVX512BF16__)
  total.part[0] = (Lanes)_mm512_dpbf16_ps((__m512)total.part[0], (__m512bh)a.part[0], (__m512bh)b.part[0]);
#else
  const int32_t upper = (int32_t)0xFFFF0000;
  EACH_PART {
    total.part[i] = fused((Lanes)(a.part[i] << 16), (Lanes)(b.part[i] << 16), total.part[i]);
    total.part[i] = fused((Lanes)(a.part[i] & upper), (Lanes)(b.part[i] & upper), total.part[i]);
  }
#endif
  return total;
}

// Sixteen bfloat16 as floats.
INLINE F16 widen(const bf16* from) {
  F16 x;
  EACH_PART {
    Halves half;
    std::memcpy(&half, from + i * WIDTH, sizeof half);
    x.part[i] = (Lanes)(__builtin_convertvector(half, Unsigned) << 16);
  }
  return x;
}

// Sixteen floats rounded to bfloat16, to the nearest and to even; NaN stays NaN.
INLINE void narrow(bf16* to, const F16& x) {
#if defined(__AVX512BF16__)
  const auto half = _mm512_cvtneps_pbh((__m512)x.part[0]);
  std::memcpy(to, &half, sizeof half);
#else
  EACH_PART {
    const Unsigned bits = (Unsigned)x.part[i];
    const Unsigned rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const Unsigned kept = x.part[i] == x.part[i] ? rounded : 0x7FC0 - Unsigned{};
    const Halves half = __builtin_convertvector(kept, Halves);
    std::memcpy(to + i * WIDTH, &half, sizeof half);
  }
#endif
}

INLINE bf16 narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return value == value ? (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 : 0x7FC0;
}
