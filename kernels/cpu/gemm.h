// y = x W^T + b for rows x, with a weight that was packed once into panels of 32 outputs.
//
// A bfloat16 panel is [inputs / 2][32][2]: the 32 outputs' weights for two neighbouring inputs are two operands of the
// dot product, and a panel is read from its beginning to its end. A few rows at a time stay in registers with all 32
// outputs. Each output of a row is one sum over the inputs in their order, whatever the number of rows: a row's result
// doesn't depend on what is computed beside it.
//
// Another kind of weight is another Linear::kind: README.md says what it takes.
#pragma once

#include <algorithm>

#include "threads.h"
#include "vec.h"

constexpr int PANEL = 32;  // outputs
#if defined(__AVX512F__)
constexpr int HELD = 24, ROWS = 12;  // times 16 results that registers hold, and most rows of a tile
#elif defined(__AVX2__)
constexpr int HELD = 4, ROWS = 4;
#else
constexpr int HELD = 2, ROWS = 2;
#endif
constexpr int TILES = 96 / ROWS;    // tiles of rows that meet one panel in one piece of work
constexpr int INPUT_BLOCK = 2048;   // inputs of a panel that are kept in a near cache over these tiles

enum Kind { BFLOAT16 = 0 };

struct Linear {
  int32_t kind;
  int32_t outputs;      // as the model counts them; the last panel is filled up with zeros
  int32_t inputs;       // a multiple of 32
  int32_t unused;
  const void* panels;
  const void* scales;   // of kinds that have them
  const float* bias;    // [outputs, filled up to whole panels], or null
};

using Block = float[TILES * ROWS][PANEL];  // results of one panel

// Adds to out [R][32] the products of rows with a panel over `inputs` inputs.
template <int R>
void bf16_tile(const bf16* panel, const bf16* rows, int stride, int inputs, float (*out)[PANEL]) {
  constexpr int COLUMNS = 2 * R <= HELD ? 2 : 1;  // times 16 outputs at once
#pragma GCC unroll 2
  for (int from = 0; from < PANEL; from += 16 * COLUMNS) {
    F16 total[R][COLUMNS];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) total[r][c] = load(out[r] + from + 16 * c);
    const bf16* weights = panel + 2 * from;
    for (int k = 0; k < inputs; k += 2, weights += 2 * PANEL) {
      Pairs16 weight[COLUMNS];
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) weight[c] = load_pairs(weights + 32 * c);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const Pairs16 x = fill_pair(rows + (long)r * stride + k);
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++) total[r][c] = dot(total[r][c], weight[c], x);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) store(out[r] + from + 16 * c, total[r][c]);
  }
}

// bf16_tile for a number of rows known only now.
template <int R = ROWS>
void bf16_rows(int rows, const bf16* panel, const bf16* x, int stride, int inputs, float (*out)[PANEL]) {
  if (rows == R) return bf16_tile<R>(panel, x, stride, inputs, out);
  if constexpr (R > 1) bf16_rows<R - 1>(rows, panel, x, stride, inputs, out);
}

// Rows are cut into tiles as even as can be.
struct Tiles {
  int rows, count;
  explicit Tiles(int rows) : rows(rows), count((rows + ROWS - 1) / ROWS) {}
  int begin(int tile) const { return (long)rows * tile / count; }
};

// The products of the rows of some tiles with one panel.
inline void fill_block(const Linear& linear, int panel, const Tiles& tiles, int first, int end, const bf16* x,
                       int stride, Block& block) {
  const int start = tiles.begin(first);
  std::memset(block, 0, sizeof(float) * PANEL * (tiles.begin(end) - start));
  const bf16* weights = (const bf16*)linear.panels + (long)panel * PANEL * linear.inputs;
  for (int k = 0; k < linear.inputs; k += INPUT_BLOCK) {
    const int inputs = std::min(INPUT_BLOCK, linear.inputs - k);
    for (int tile = first; tile < end; tile++) {
      const int row = tiles.begin(tile), rows = tiles.begin(tile + 1) - row;
      bf16_rows(rows, weights + (long)k * PANEL, x + (long)row * stride + k, stride, inputs, block + (row - start));
    }
  }
}

// x [rows, inputs] with `stride` elements a row. Calls finish(row, output, values) for each row and panel: values are
// the 32 results from `output` on, bias included. A finish may not depend on another's.
template <class Finish>
void product(Team& team, int me, const Linear& linear, const bf16* x, int stride, int rows, Finish finish) {
  const Tiles tiles(rows);
  const int panels = (linear.outputs + PANEL - 1) / PANEL, blocks = (tiles.count + TILES - 1) / TILES;
  team.each(me, panels * blocks, [&](int piece) {
    const int panel = piece / blocks, first = piece % blocks * TILES, end = std::min(first + TILES, tiles.count);
    alignas(64) Block block;
    fill_block(linear, panel, tiles, first, end, x, stride, block);
    const float* bias = linear.bias ? linear.bias + panel * PANEL : nullptr;
    for (int row = tiles.begin(first); row < tiles.begin(end); row++) {
      float* values = block[row - tiles.begin(first)];
      if (bias)
        for (int n = 0; n < PANEL; n += 16) store(values + n, load(values + n) + load(bias + n));
      finish(row, panel * PANEL, values);
    }
  });
}
