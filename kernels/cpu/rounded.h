// Rows rounded to 8 bits, in groups of 32 inputs with a scale each, for products with integers.
//
// A group is x = scale * q. One value much larger than the others would cost all of them their precision, so the
// largest is q + 2^HIGHER h: the second largest decides the scale, up to a ratio of eight. Nothing outside a group does.
// The scale of a group that isn't finite is NaN, so that all of its row's results are.
#pragma once

#include "integers.h"
#include "panels.h"

constexpr int GROUP = 32;  // inputs
constexpr int HIGHER = 3;

// What a block's weights need to know of a group: see block_panels.h.
struct Group {
  float scale;
  float sum;      // scale times the sum of its integers: what the least weight is multiplied by
  int32_t start;  // minus the sum of its integers times what is added to weights to make them unsigned, by 2^HIGHER
  int32_t at, bits;  // where the weights of the largest value's quad are, and which bits of them
  int32_t high;      // h at the largest value's place in that quad
};

// How a kind of weights has a group's 32 inputs.
struct Form {
  int32_t added;    // to a weight, to make it unsigned
  uint32_t shared;  // 1 where a byte has an input in its lower bits and the one 16 later in its upper bits
  uint32_t bits;    // of an input in the bytes of a quad, the lower ones where they are shared
};

// The rows of some tiles: a tile is [groups][its rows], so that a product reads it from its beginning to its end.
struct Rounded {
  int8_t* values;  // [GROUP] each
  Group* groups;

  static long bytes(long rows, long inputs) { return rows * (inputs + inputs / GROUP * (long)sizeof(Group)); }

  // In so many bytes of memory.
  Rounded(void* memory, long rows, long inputs) : values((int8_t*)memory), groups((Group*)(values + rows * inputs)) {}
};

// Sixteen magnitudes in order, each with its place in the lowest bits, which bfloat16 leaves free.
INLINE I16 magnitudes(const F16& x, int first_place) {
  I16 keys;
  EACH_PART for (int n = 0; n < WIDTH; n++) keys.part[i][n] = first_place + i * WIDTH + n;
  EACH_PART keys.part[i] |= (Words)x.part[i] & 0x7FFF0000;
  return keys;
}

INLINE float magnitude(int32_t key) {
  const int32_t bits = key & 0x7FFF0000;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Integers nearest to x factor, ties to even.
INLINE I16 nearest(const F16& x, float factor) {
  const F16 shifted = x * fill(factor) + fill(12582912.0f);  // 1.5 * 2^23: the integer is in the lowest bits
  I16 whole;
  EACH_PART whole.part[i] = (Words)shifted.part[i] - 0x4B400000;
  return whole;
}

inline Group round_group(int8_t* to, const bf16* x, Form form) {
  const F16 x0 = widen(x), x1 = widen(x + 16);
  const I16 keys0 = magnitudes(x0, 0), keys1 = magnitudes(x1, 16);
  const int32_t first = largest(larger(keys0, keys1));
  const uint32_t place = (uint32_t)first % GROUP;
  const int32_t second = largest(larger(without(keys0, first), without(keys1, first)));
  const float most = std::max(magnitude(second), magnitude(first) * (1.0f / (1 << HIGHER)));
  const float scale = most * (1.0f / 127.0f), factor = (most > 1e-30f ? 127.0f : 0.0f) / std::max(most, 1e-30f);
  const I16 whole0 = nearest(x0, factor), whole1 = nearest(x1, factor);
  const int32_t total = sum(whole0 + whole1);
  alignas(64) int32_t whole[GROUP];
  store(whole, whole0);
  store(whole + 16, whole1);
  store_bytes(to, whole0);
  store_bytes(to + 16, whole1);
  // what is in the upper bits of a byte is 16 times itself there; a branch would be guessed wrong half the time
  const uint32_t upper = place / (GROUP / 2) & form.shared, inside = place - upper * (GROUP / 2);
  const int32_t step = HIGHER + 4 * upper, h = (whole[place] + (1 << (step - 1))) >> step;
  to[place] = (int8_t)(whole[place] - h * (1 << step));
  Group group;
  group.scale = first < 0x7F800000 ? scale : NAN;
  group.sum = scale * total;
  group.start = -(form.added >> HIGHER) * total;
  group.at = inside / 4 * 4 * PANEL;
  group.bits = form.bits << 4 * upper;
  group.high = (uint32_t)(uint8_t)h << 8 * (inside % 4);
  return group;
}

// A row of x [inputs], to its place in its tile.
inline void round_row_to_groups(const Rounded& to, const Tiles& tiles, int row, const bf16* x, int inputs, Form form) {
  const int tile = tiles.of(row), begin = tiles.begin(tile), rows = tiles.begin(tile + 1) - begin;
  long at = (long)begin * (inputs / GROUP) + row - begin;
  for (int n = 0; n < inputs; n += GROUP, at += rows) to.groups[at] = round_group(to.values + at * GROUP, x + n, form);
}
