// What the machine can do at most, for benchmarks to compare with: memory read, and products of numbers in registers.
#pragma once

#include "gemm.h"

// Reads `size` bytes, a multiple of a megabyte, with all threads; returns something that depends on them.
inline int64_t read_all(const char* memory, int64_t size, int threads) {
  constexpr int64_t PART = 1 << 20;
  Team team;
  std::atomic<int64_t> total{0};
  team.run(threads, [&](int me) {
    F16 sums[4] = {};
    team.each(me, size / PART, [&](int part) {
      const float* from = (const float*)(memory + part * PART);
      for (int64_t n = 0; n < PART / 4; n += 64)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[i] = sums[i] + load(from + n + 16 * i);
    });
    int32_t bits;
    const float all = sum(sums[0] + sums[1] + sums[2] + sums[3]);
    std::memcpy(&bits, &all, sizeof bits);
    total += bits;
  });
  return total;
}

// `pieces` times a tile's products with one panel that stays near, of bfloat16, 8 bits or 4; returns the
// multiplications and additions done, and in `kept` something that depends on their results.
inline int64_t multiply_near(int64_t pieces, int kind, int threads, float* kept) {
  constexpr int INPUTS = 128, GROUPS = INPUTS / GROUP;
  Team team;
  team.run(threads, [&](int me) {
    alignas(64) bf16 panel[INPUTS * PANEL], rows[ROWS * INPUTS];
    alignas(64) uint8_t blocks[GROUPS * Int8::BYTES] = {};
    alignas(64) int8_t values[ROWS * INPUTS] = {};
    alignas(64) float out[ROWS][PANEL] = {};
    Group groups[ROWS * GROUPS] = {};
    std::fill(std::begin(panel), std::end(panel), narrow(*kept));
    std::fill(std::begin(rows), std::end(rows), narrow(*kept));
    team.each(me, pieces, [&](int) {
      if (kind == BFLOAT16) bf16_tile<ROWS>(panel, rows, INPUTS, INPUTS, out);
      if (kind == INT8) block_tile<Int8, ROWS>(blocks, values, groups, GROUPS, out);
      if (kind == INT4) block_tile<Int4, ROWS>(blocks, values, groups, GROUPS, out);
      if (kind == INT4_MIN) block_tile<Int4Min, ROWS>(blocks, values, groups, GROUPS, out);
    });
    float total = 0.0f;
    for (auto& row : out) total += sum(load(row)) + sum(load(row + 16));
    if (me == 0) *kept = total;
  });
  return pieces * 2 * ROWS * PANEL * INPUTS;
}
