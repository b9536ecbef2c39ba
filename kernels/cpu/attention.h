// Causal attention over paged keys and values (PagedAttention, Kwon et al. 2023) with the running softmax of
// FlashAttention (Dao et al. 2022). Walks the page tables; nothing is gathered.
//
// A page holds, for each kv head, page_size * head_dim keys and as many values, in blocks of 16 positions: keys as
// [head_dim / 2][16][2], values as [8][head_dim][2]. So 16 scores, and 16 dimensions of the result, are each one dot
// product of pairs. Keys are taken in tiles of 64 positions that begin at multiples of 64, in order. What a row sees
// nothing of adds exact zeros to it: its result doesn't depend on the rows that share its tiles.
#pragma once

#include <algorithm>
#include <vector>

#include "model.h"

constexpr int SLOTS = 16;         // positions of a block
constexpr int KEYS = 64;          // positions of a tile
constexpr int BLOCKS = KEYS / SLOTS;
constexpr int QUERY_ROWS = 12;    // most (token, head) rows of one piece of work
constexpr int MOST_HEAD_DIM = 256;
constexpr float LOWEST = -1e30f;  // below every score, and finite: no infinities are subtracted

inline void write_key(bf16* keys, long slot, int page_size, int kv_heads, int head, int dim, const bf16* key) {
  const long page = slot / page_size, offset = slot % page_size;
  bf16* block = keys + ((page * kv_heads + head) * page_size + offset / SLOTS * SLOTS) * dim + offset % SLOTS * 2;
  for (int n = 0; n < dim; n += 2) std::memcpy(block + n * SLOTS, key + n, 2 * sizeof *key);
}

inline void write_value(bf16* values, long slot, int page_size, int kv_heads, int head, int dim, const bf16* value) {
  const long page = slot / page_size, offset = slot % page_size;
  bf16* block = values + ((page * kv_heads + head) * page_size + offset / SLOTS * SLOTS) * dim;
  block += offset % SLOTS / 2 * 2 * dim + offset % 2;
  for (int n = 0; n < dim; n++) block[2 * n] = value[n];
}

// One layer's pages as one slice and kv head sees them.
struct Cache {
  const bf16 *keys, *values;
  const int64_t* table;
  int kv_heads, head, page_size, dim;

  // Where the block that begins at a position lies, in elements.
  long block(int position) const {
    return ((table[position / page_size] * kv_heads + head) * page_size + position % page_size) * dim;
  }
};

// Blocks of a tile, and those to fetch meanwhile.
struct TileBlocks {
  int count = 0;
  const bf16 *keys[BLOCKS], *values[BLOCKS];

  TileBlocks() = default;
  TileBlocks(const Cache& cache, int tile, int end) : count(std::min(BLOCKS, (end - tile + SLOTS - 1) / SLOTS)) {
    for (int b = 0; b < count; b++) {
      const long at = cache.block(tile + b * SLOTS);
      keys[b] = cache.keys + at;
      values[b] = cache.values + at;
    }
  }
};

constexpr int power_of_two(int most) { return most >= 4 ? 4 : most >= 2 ? 2 : 1; }

// Scores [R][KEYS] of 16 B positions: B blocks of keys with R rows of q.
template <int R, int B>
void score_blocks(const bf16* q, int dim, const bf16* const* keys, const bf16* const* ahead, float (*out)[KEYS]) {
  F16 total[R][B];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) total[r][b] = fill(0.0f);
  for (int n = 0; n < dim; n += 2) {
    Pairs16 key[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) {
      key[b] = load_pairs(keys[b] + n * SLOTS);
      fetch(ahead[b] + n * SLOTS);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Pairs16 x = fill_pair(q + r * dim + n);
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) total[r][b] = dot(total[r][b], key[b], x);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) store(out[r] + b * SLOTS, total[r][b]);
}

// Scores of a tile's first `count` blocks.
template <int R>
void score_tile(const bf16* q, int dim, const TileBlocks& tile, const TileBlocks& next, float (*out)[KEYS]) {
  constexpr int MANY = power_of_two(HELD / R);
  for (int b = 0; b < tile.count;) {
    const bf16* const* ahead = next.keys + b;
    auto part = (float(*)[KEYS])(out[0] + b * SLOTS);
    if (MANY == 4 && tile.count - b >= 4) {
      score_blocks<R, MANY>(q, dim, tile.keys + b, ahead, part);
      b += MANY;
    } else if (MANY >= 2 && tile.count - b >= 2) {
      score_blocks<R, std::min(MANY, 2)>(q, dim, tile.keys + b, ahead, part);
      b += 2;
    } else {
      score_blocks<R, 1>(q, dim, tile.keys + b, ahead, part);
      b += 1;
    }
  }
  for (int b = tile.count; b < BLOCKS; b++)  // a short tile before a long one
    for (int n = 0; n < dim; n += 2) fetch(next.keys[b] + n * SLOTS);
}

// total [R][dim] = shrink * total + p values, for 16 C dimensions from `from` on.
template <int R, int C>
void weigh_columns(const bf16 (*p)[KEYS], const TileBlocks& tile, const TileBlocks& next, int dim, int from,
                   const float* shrink, float* total) {
  F16 held[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) held[r][c] = load(total + r * dim + from + 16 * c) * fill(shrink[r]);
  for (int b = 0; b < tile.count; b++) {
    const bf16 *values = tile.values[b] + 2 * from, *ahead = next.values[b] + 2 * from;
    for (int t = 0; t < SLOTS / 2; t++, values += 2 * dim, ahead += 2 * dim) {
      Pairs16 value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        value[c] = load_pairs(values + 32 * c);
        fetch(ahead + 32 * c);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const Pairs16 x = fill_pair(p[r] + b * SLOTS + 2 * t);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) held[r][c] = dot(held[r][c], value[c], x);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) store(total + r * dim + from + 16 * c, held[r][c]);
}

template <int R>
void weigh_tile(const bf16 (*p)[KEYS], const TileBlocks& tile, const TileBlocks& next, int dim, const float* shrink,
                float* total) {
  constexpr int MANY = power_of_two(HELD / R);
  int from = 0;
  for (; from + 16 * MANY <= dim; from += 16 * MANY)
    weigh_columns<R, MANY>(p, tile, next, dim, from, shrink, total);
  for (; from < dim; from += 16) weigh_columns<R, 1>(p, tile, next, dim, from, shrink, total);
  for (int b = tile.count; b < BLOCKS; b++)
    for (int n = 0; n < dim; n += 2) fetch(next.values[b] + n * SLOTS);
}

// Both for a number of rows known only now.
template <int R = ROWS>
void score_rows(int rows, const bf16* q, int dim, const TileBlocks& tile, const TileBlocks& next, float (*out)[KEYS]) {
  if (rows == R) return score_tile<R>(q, dim, tile, next, out);
  if constexpr (R > 1) score_rows<R - 1>(rows, q, dim, tile, next, out);
}

template <int R = ROWS>
void weigh_rows(int rows, const bf16 (*p)[KEYS], const TileBlocks& tile, const TileBlocks& next, int dim,
                const float* shrink, float* total) {
  if (rows == R) return weigh_tile<R>(p, tile, next, dim, shrink, total);
  if constexpr (R > 1) weigh_rows<R - 1>(rows, p, tile, next, dim, shrink, total);
}

// Up to QUERY_ROWS rows of one slice and kv head, and what each sees: positions first..last.
struct Queries {
  int rows = 0;
  alignas(64) bf16 q[QUERY_ROWS * MOST_HEAD_DIM];  // [rows][dim]
  int first[QUERY_ROWS], last[QUERY_ROWS];

  int begin() const { return *std::min_element(first, first + rows) / KEYS * KEYS; }
  int end() const { return *std::max_element(last, last + rows) + 1; }
};

// The softmax of rows whose keys come tile by tile.
struct RunningSoftmax {
  float scale, softcap;
  alignas(64) float highest[16], shrink[16];
  alignas(64) float weights[QUERY_ROWS][16];  // sums, lane by lane

  RunningSoftmax(float scale, float softcap) : scale(scale), softcap(softcap), weights{} {
    store(highest, fill(LOWEST));
  }

  // Scores of a tile become weights p, and `shrink` what older sums are worth beside them.
  void take(const Queries& queries, int tile, int blocks, float (*scores)[KEYS], bf16 (*p)[KEYS]) {
    const F16 before = load(highest);
    for (int r = 0; r < queries.rows; r++) {
      F16 most = fill(LOWEST);
      for (int b = 0; b < blocks; b++) {
        const int at = tile + b * SLOTS;
        const F16 score = seen(load(scores[r] + b * SLOTS), queries.first[r] - at, queries.last[r] - at);
        store(scores[r] + b * SLOTS, score);
        most = larger(score, most);
      }
      highest[r] = std::max(highest[r], largest(most));
    }
    const F16 factors = exponential(before - load(highest));
    store(shrink, factors);
    for (int r = 0; r < queries.rows; r++) {
      F16 total = load(weights[r]) * fill(shrink[r]);
      const F16 most = fill(highest[r]);
      for (int b = 0; b < blocks; b++) {
        const F16 weight = exponential(load(scores[r] + b * SLOTS) - most);
        narrow(p[r] + b * SLOTS, weight);
        total = total + weight;
      }
      store(weights[r], total);
    }
  }

 private:
  // Scaled, and minus infinity where a position is not among first..last.
  F16 seen(F16 score, int first, int last) const {
    score = score * fill(softcap ? scale / softcap : scale);
    if (softcap) score = tangent(score) * fill(softcap);
    return first > 0 || last < SLOTS - 1 ? between(score, first, last) : score;
  }
};

// Attends with some rows: total [rows][dim] becomes their results. `later`: what the next piece of work reads first.
inline void attend(const Cache& cache, const Queries& queries, const TileBlocks& later, float scale, float softcap,
                   float* total) {
  const int dim = cache.dim, end = queries.end();
  alignas(64) float scores[QUERY_ROWS][KEYS];
  alignas(64) bf16 p[QUERY_ROWS][KEYS];
  RunningSoftmax softmax(scale, softcap);
  std::memset(total, 0, sizeof(float) * queries.rows * dim);
  TileBlocks blocks(cache, queries.begin(), end);
  for (int tile = queries.begin(); tile < end; tile += KEYS) {
    TileBlocks next = tile + KEYS < end ? TileBlocks(cache, tile + KEYS, end) : later;
    for (int b = next.count; b < BLOCKS; b++) {  // nothing to fetch: what is there anyway
      next.keys[b] = blocks.keys[0];
      next.values[b] = blocks.values[0];
    }
    for (int r = 0; r < queries.rows; r += ROWS)
      score_rows(std::min(ROWS, queries.rows - r), queries.q + r * dim, dim, blocks, next, scores + r);
    softmax.take(queries, tile, blocks.count, scores, p);
    for (int r = 0; r < queries.rows; r += ROWS)
      weigh_rows(std::min(ROWS, queries.rows - r), p + r, blocks, next, dim, softmax.shrink + r, total + r * dim);
    blocks = next;
  }
  for (int r = 0; r < queries.rows; r++) {
    const F16 weight = fill(sum(load(softmax.weights[r])));
    for (int n = 0; n < dim; n += 16) store(total + r * dim + n, load(total + r * dim + n) / weight);
  }
}
