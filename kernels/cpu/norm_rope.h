// RMSNorm (Zhang and Sennrich 2019) and rotary positions (Su et al. 2021), one row at a time, in float32.
#pragma once

#include "vec.h"

// 1 / sqrt(mean of squares + eps); size is a multiple of 16.
inline float inverse_rms(const float* x, int size, float eps) {
  F16 squares = fill(0.0f);
  for (int n = 0; n < size; n += 16) squares = fma(load(x + n), load(x + n), squares);
  return 1.0f / std::sqrt(sum(squares) / size + eps);
}

inline void normed(float* to, const float* x, const float* weight, int size, float factor) {
  for (int n = 0; n < size; n += 16) store(to + n, load(x + n) * fill(factor) * load(weight + n));
}

inline void round_row(bf16* to, const float* x, int size) {
  for (int n = 0; n < size; n += 16) narrow(to + n, load(x + n));
}

inline void norm_row(bf16* to, const float* x, const float* weight, int size, float eps) {
  const F16 factor = fill(inverse_rms(x, size, eps));
  for (int n = 0; n < size; n += 16) narrow(to + n, load(x + n) * factor * load(weight + n));
}

// hidden += scale * norm(added)
inline void add_normed(float* hidden, const float* added, const float* weight, int size, float eps, float scale) {
  const F16 factor = fill(inverse_rms(added, size, eps)), scales = fill(scale);
  for (int n = 0; n < size; n += 16) {
    const F16 value = load(added + n) * factor * load(weight + n);
    store(hidden + n, fma(value, scales, load(hidden + n)));
  }
}

// Turns the first `turned` dimensions of a head in place, in the half-split order of Hugging Face checkpoints.
inline void rotate(float* __restrict head, const float* __restrict cos, const float* __restrict sin, int turned) {
  const int half = turned / 2;
  for (int n = 0; n < half; n++) {
    const float low = head[n], high = head[n + half];
    head[n] = low * cos[n] + high * sin[n];
    head[n + half] = high * cos[n + half] + low * sin[n + half];
  }
}
