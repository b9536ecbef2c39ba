// y = x W^T + b for rows x, with a weight that was packed once into panels of 32 outputs.
//
// Each output of a row is one sum over the inputs in their order, whatever the number of rows: a row's result doesn't
// depend on what is computed beside it.
#pragma once

#include "bf16_panels.h"
#include "block_panels.h"
#include "threads.h"

// The products of the rows of some tiles with one panel: of x with `stride` elements a row, or of x rounded.
inline void fill_block(const Linear& linear, int panel, const Tiles& tiles, int first, int end, const bf16* x,
                       int stride, const Rounded& rounded, Block& block) {
  std::memset(block, 0, sizeof(float) * PANEL * (tiles.begin(end) - tiles.begin(first)));
  switch (linear.kind) {
    case INT8: return fill_blocks<Int8>(linear, panel, tiles, first, end, rounded, block);
    case INT4: return fill_blocks<Int4>(linear, panel, tiles, first, end, rounded, block);
    case INT4_MIN: return fill_blocks<Int4Min>(linear, panel, tiles, first, end, rounded, block);
    default: return fill_bf16(linear, panel, tiles, first, end, x, stride, block);
  }
}

// Rounds one of `rows` rows [inputs] for a product of integers; other kinds take it as it is. rounding: Rounded::bytes.
inline void round_for(const Linear& linear, const bf16* x, int row, int rows, void* rounding) {
  if (linear.kind == BFLOAT16) return;
  const Rounded rounded(rounding, rows, linear.inputs);
  round_row_to_groups(rounded, Tiles(rows), row, x, linear.inputs, form_of(linear.kind));
}

// x [rows, inputs] with `stride` elements a row, each rounded for it. Calls finish(row, output, values) for each row
// and panel: values are the 32 results from `output` on, bias included. A finish may not depend on another's.
template <class Finish>
void product(Team& team, int me, const Linear& linear, const bf16* x, int stride, int rows, void* rounding,
             Finish finish) {
  const Tiles tiles(rows);
  const Rounded rounded(rounding, rows, linear.inputs);
  const int panels = (linear.outputs + PANEL - 1) / PANEL, blocks = (tiles.count + TILES - 1) / TILES;
  team.each(me, panels * blocks, [&](int piece) {
    const int panel = piece / blocks, first = piece % blocks * TILES, end = std::min(first + TILES, tiles.count);
    alignas(64) Block block;
    fill_block(linear, panel, tiles, first, end, x, stride, rounded, block);
    const float* bias = linear.bias ? linear.bias + panel * PANEL : nullptr;
    for (int row = tiles.begin(first); row < tiles.begin(end); row++) {
      float* values = block[row - tiles.begin(first)];
      if (bias)
        for (int n = 0; n < PANEL; n += 16) store(values + n, load(values + n) + load(bias + n));
      finish(row, panel * PANEL, values);
    }
  });
}
