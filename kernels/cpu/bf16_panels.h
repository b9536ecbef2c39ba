// Panels of bfloat16: [inputs / 2][32][2], the 32 outputs' weights for two neighbouring inputs being two operands of
// the dot product.
//
// Each output of a row is one sum over the inputs in their order, whatever the number of rows.
#pragma once

#include "panels.h"

constexpr int BYTES_AHEAD = 8192;  // asked for before they are read; a single row is faster without

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
      if (R > 2 && from == 0)
        for (int line = 0; line < 2; line++) fetch((const char*)weights + BYTES_AHEAD + 64 * line);
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

// The products of the rows of some tiles with one panel, added to `block`.
inline void fill_bf16(const Linear& linear, int panel, const Tiles& tiles, int first, int end, const bf16* x,
                      int stride, Block& block) {
  const bf16* weights = (const bf16*)linear.panels + (long)panel * PANEL * linear.inputs;
  for (int k = 0; k < linear.inputs; k += INPUT_BLOCK) {
    const int inputs = std::min(INPUT_BLOCK, linear.inputs - k);
    for (int tile = first; tile < end; tile++) {
      const int row = tiles.begin(tile);
      with_rows(tiles.begin(tile + 1) - row, [&](auto rows) {
        bf16_tile<rows>(weights + (long)k * PANEL, x + (long)row * stride + k, stride, inputs,
                        block + (row - tiles.begin(first)));
      });
    }
  }
}
