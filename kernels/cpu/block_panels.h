// Panels of integers, in blocks of 32 inputs by 32 outputs: GGUF's Q8_0, Q4_0 and Q4_1 with the bytes of 32 outputs set
// side by side, nothing rounded anew.
//
// A block is [32] scales, [32] least values where the kind has them, both in half precision, and [bytes / 4][32][4]
// unsigned weights, four neighbouring inputs being one operand of the dot product. A byte of 4-bit kinds holds an input
// in its lower bits and the one 16 later in its upper bits.
//
// A weight is scale * (q - ADDED) + least. Products within a block are exact in 32 bits, the higher part of the row's
// largest value first; blocks are added in their order, in float32, whatever the number of rows.
#pragma once

#include "panels.h"
#include "rounded.h"

template <int BITS_, int ADDED_, bool HAS_LEAST_>
struct Blocks {
  static constexpr int BITS = BITS_, ADDED = ADDED_, HAS_LEAST = HAS_LEAST_;
  static constexpr int SCALES = 2 * PANEL;                       // bytes
  static constexpr int WEIGHTS = SCALES * (HAS_LEAST ? 2 : 1);   // where they begin
  static constexpr int BYTES = WEIGHTS + GROUP * PANEL * BITS / 8;
};

using Int8 = Blocks<8, 128, false>;
using Int4 = Blocks<4, 8, false>;
using Int4Min = Blocks<4, 0, true>;

constexpr int AHEAD = 8;  // blocks that are asked for before they are read

inline Form form_of(int kind) {
  if (kind == INT8) return {Int8::ADDED, 0, 0xFFFFFFFF};
  return {kind == INT4 ? Int4::ADDED : Int4Min::ADDED, 1, 0x0F0F0F0F};
}

// Adds to out [R][32] the products of a tile's rows with some blocks.
template <class Kind, int R>
void block_tile(const uint8_t* blocks, const int8_t* values, const Group* groups, int count, float (*out)[PANEL]) {
  constexpr int COLUMNS = 4 * R <= HELD ? 2 : 1;  // times 16 outputs at once, whose sums stay in registers, twice
  constexpr int QUADS = GROUP * Kind::BITS / 32;  // of bytes
#pragma GCC unroll 2
  for (int from = 0; from < PANEL; from += 16 * COLUMNS) {
    F16 sum[R][COLUMNS];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) sum[r][c] = load(out[r] + from + 16 * c);
    const uint8_t* block = blocks;
    const int8_t* x = values;
    const Group* group = groups;
    for (int n = 0; n < count; n++, block += Kind::BYTES, x += R * GROUP, group += R) {
      const uint8_t* weights = block + Kind::WEIGHTS + 4 * from;
      if (from == 0)  // with all outputs: the half that a turn of more rows leaves out would not be fetched otherwise
        for (int line = 0; line < Kind::BYTES; line += 64) fetch(block + AHEAD * Kind::BYTES + line);
      I16 total[R][COLUMNS];
#pragma GCC unroll 16
      for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++) {
          I16 weight = load_quads(weights + group[r].at + 64 * c);
          if (Kind::BITS == 4) weight = weight & fill_word(group[r].bits);
          total[r][c] = dot(fill_word(group[r].start), weight, fill_word(group[r].high)) << HIGHER;
        }
#pragma GCC unroll 1
      for (int quad = 0; quad < QUADS; quad++) {
        I16 weight[COLUMNS];
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++) weight[c] = load_quads(weights + 4 * PANEL * quad + 64 * c);
#pragma GCC unroll 2
        for (int half = 0; half < 8 / Kind::BITS; half++) {
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) {
            const I16 row = fill_quad(x + r * GROUP + 16 * half + 4 * quad);
#pragma GCC unroll 2
            for (int c = 0; c < COLUMNS; c++) {
              const I16 w = Kind::BITS == 8 ? weight[c] : half ? upper_bits(weight[c]) : lower_bits(weight[c]);
              total[r][c] = dot(total[r][c], w, row);
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) {
        const uint8_t* scales = block + 2 * (from + 16 * c);
        const F16 scale = widen_half(scales), least = widen_half(scales + (Kind::HAS_LEAST ? Kind::SCALES : 0));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          sum[r][c] = fma_once(to_float(total[r][c]), scale * fill(group[r].scale), sum[r][c]);
          if (Kind::HAS_LEAST) sum[r][c] = fma_once(least, fill(group[r].sum), sum[r][c]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c++) store(out[r] + from + 16 * c, sum[r][c]);
  }
}

// The products of the rows of some tiles with one panel, added to `block`.
template <class Kind>
void fill_blocks(const Linear& linear, int panel, const Tiles& tiles, int first, int end, const Rounded& x,
                 Block& block) {
  const int groups = linear.inputs / GROUP, most = INPUT_BLOCK / GROUP;
  const uint8_t* weights = (const uint8_t*)linear.panels + (long)panel * groups * Kind::BYTES;
  for (int n = 0; n < groups; n += most) {
    const int count = std::min(most, groups - n);
    for (int tile = first; tile < end; tile++) {
      const int row = tiles.begin(tile);
      with_rows(tiles.begin(tile + 1) - row, [&](auto rows) {
        const long at = (long)row * groups + n * rows;
        block_tile<Kind, rows>(weights + (long)n * Kind::BYTES, x.values + at * GROUP, x.groups + at, count,
                               block + (row - tiles.begin(first)));
      });
    }
  }
}
