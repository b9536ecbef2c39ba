// Weights in panels of 32 outputs, and how many rows meet one at a time.
//
// A panel is read from its beginning to its end; a few rows stay in registers with all of its outputs. What a panel
// looks like inside is its kind's: bf16_panels.h, block_panels.h.
#pragma once

#include <algorithm>
#include <type_traits>

#include "vec.h"

constexpr int PANEL = 32;  // outputs
#if defined(__AVX512F__)
constexpr int HELD = 24, ROWS = 12;  // times 16 results that registers hold, and most rows of a tile
#elif defined(__AVX2__)
constexpr int HELD = 4, ROWS = 4;
#else
constexpr int HELD = 2, ROWS = 2;
#endif
constexpr int TILES = 96 / ROWS;   // tiles of rows that meet one panel in one piece of work
constexpr int INPUT_BLOCK = 2048;  // inputs of a panel that are kept in a near cache over these tiles

enum Kind { BFLOAT16 = 0, INT8 = 1, INT4 = 2, INT4_MIN = 3 };

struct Linear {
  int32_t kind;
  int32_t outputs;     // as the model counts them; the last panel is filled up with zeros
  int32_t inputs;      // a multiple of 32
  int32_t unused;
  const void* panels;  // begin at a multiple of 64 bytes where the kind is of blocks
  const float* bias;   // [outputs, filled up to whole panels], or null
};

using Block = float[TILES * ROWS][PANEL];  // results of one panel

// Rows are cut into tiles as even as can be.
struct Tiles {
  int rows, count;
  explicit Tiles(int rows) : rows(rows), count((rows + ROWS - 1) / ROWS) {}
  int begin(int tile) const { return (long)rows * tile / count; }
  int of(int row) const { return (((long)row + 1) * count - 1) / rows; }
};

// Calls work(a constant) for a number of rows known only now.
template <int R = ROWS, class Work>
INLINE void with_rows(int rows, Work work) {
  if (rows == R) return work(std::integral_constant<int, R>{});
  if constexpr (R > 1) with_rows<R - 1>(rows, work);
}
