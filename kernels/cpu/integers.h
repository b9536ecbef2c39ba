// Sixteen lanes of integers: dot products of four bytes, exact at every width, and scales in half precision.
#pragma once

#include "vec.h"

struct I16 {  // sixteen sums of 32 bits, or sixteen quads of bytes
  Words part[PARTS];
};

INLINE I16 fill_word(int32_t value) {
  I16 x;
  EACH_PART x.part[i] = value - Words{};
  return x;
}

INLINE I16 load_quads(const uint8_t* from) {
  I16 x;
  EACH_PART std::memcpy(&x.part[i], from + 4 * i * WIDTH, sizeof x.part[i]);
  return x;
}

// The quad at `from` in every lane.
INLINE I16 fill_quad(const int8_t* from) {
  int32_t quad;
  std::memcpy(&quad, from, sizeof quad);
  return fill_word(quad);
}

// The lower, and the upper, four bits of each byte.
INLINE I16 lower_bits(I16 x) {
  EACH_PART x.part[i] &= 0x0F0F0F0F;
  return x;
}

INLINE I16 upper_bits(I16 x) {
  EACH_PART x.part[i] = (x.part[i] >> 4) & 0x0F0F0F0F;
  return x;
}

INLINE I16 operator+(I16 a, const I16& b) {
  EACH_PART a.part[i] += b.part[i];
  return a;
}

INLINE I16 larger(I16 a, const I16& b) {
  EACH_PART a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return a;
}

// x with zero where it is `value`.
INLINE I16 without(I16 x, int32_t value) {
  EACH_PART x.part[i] = x.part[i] == value ? Words{} : x.part[i];
  return x;
}

INLINE int32_t sum(const I16& x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)x.part[0]);
#endif
  int32_t total = 0;
  EACH_PART for (int n = 0; n < WIDTH; n++) total += x.part[i][n];
  return total;
}

INLINE int32_t largest(const I16& x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)x.part[0]);
#endif
  int32_t most = x.part[0][0];
  EACH_PART for (int n = 0; n < WIDTH; n++) most = x.part[i][n] > most ? x.part[i][n] : most;
  return most;
}

INLINE void store(int32_t* to, const I16& x) {
  EACH_PART std::memcpy(to + i * WIDTH, &x.part[i], sizeof x.part[i]);
}

INLINE void store_bytes(int8_t* to, const I16& x) {
  using Bytes = int8_t __attribute__((vector_size(WIDTH)));
  EACH_PART {
    const Bytes bytes = __builtin_convertvector(x.part[i], Bytes);
    std::memcpy(to + i * WIDTH, &bytes, sizeof bytes);
  }
}

INLINE I16 operator&(I16 a, const I16& b) {
  EACH_PART a.part[i] &= b.part[i];
  return a;
}

INLINE I16 operator<<(I16 a, int bits) {
  EACH_PART a.part[i] <<= bits;
  return a;
}

INLINE F16 to_float(const I16& x) {
  F16 y;
  EACH_PART y.part[i] = __builtin_convertvector(x.part[i], Lanes);
  return y;
}

// Adds to each lane the four products of its unsigned bytes and its signed bytes.
INLINE I16 dot(I16 total, const I16& bytes, const I16& with) {
#if defined(__AVX512VNNI__)
  total.part[0] = (Words)_mm512_dpbusd_epi32((__m512i)total.part[0], (__m512i)bytes.part[0], (__m512i)with.part[0]);
#elif defined(__AVX512BW__)
  const __m512i a = (__m512i)bytes.part[0], b = (__m512i)with.part[0];
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                         _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
  total.part[0] += (Words)_mm512_add_epi32(even, odd);
#elif defined(__AVX2__)
  EACH_PART {
    const __m256i a = (__m256i)bytes.part[i], b = (__m256i)with.part[i];
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    total.part[i] += (Words)_mm256_add_epi32(even, odd);
  }
#else
  EACH_PART {
    const Words a = bytes.part[i], b = with.part[i];
    total.part[i] += (a & 255) * (b << 24 >> 24) + (a >> 8 & 255) * (b << 16 >> 24);
    total.part[i] += (a >> 16 & 255) * (b << 8 >> 24) + (a >> 24 & 255) * (b >> 24);
  }
#endif
  return total;
}

// Sixteen finite numbers of half precision.
INLINE F16 widen_half(const uint8_t* from) {
  F16 x;
#if defined(__AVX512F__)
  __m256i half;
  std::memcpy(&half, from, sizeof half);
  x.part[0] = (Lanes)_mm512_cvtph_ps(half);
#else
  EACH_PART {
    Halves half;
    std::memcpy(&half, from + 2 * i * WIDTH, sizeof half);
    const Unsigned bits = __builtin_convertvector(half, Unsigned);
    const Lanes magnitude = (Lanes)((bits & 0x7FFF) << 13) * 5.19229686e33f;  // 2^112: the exponents' biases
    x.part[i] = (Lanes)((Unsigned)magnitude | (bits & 0x8000) << 16);
  }
#endif
  return x;
}

// a b + c, rounded once in every build.
INLINE F16 fma_once(const F16& a, const F16& b, F16 c) {
#if defined(__AVX2__)
  return fma(a, b, c);
#else
  EACH_PART for (int lane = 0; lane < WIDTH; lane++)
    c.part[i][lane] = std::fma(a.part[i][lane], b.part[i][lane], c.part[i][lane]);
  return c;
#endif
}
