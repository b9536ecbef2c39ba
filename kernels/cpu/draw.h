// Draws from whole rows of logits at a temperature: the argmax of logit / temperature + Gumbel noise (Gumbel 1954), the
// noise being that of kernels/noise.py: a hash of a row's key and the token's id.
//
// Logarithms are taken only where a token can still win: its hash must reach what the best one so far, and the highest
// logit around it, leave to be reached. Nearly no token's does.
#pragma once

#include <vector>

#include "threads.h"
#include "vec.h"

constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15, MIX_FIRST = 0xBF58476D1CE4E5B9, MIX_SECOND = 0x94D049BB133111EB;
constexpr int NOISE_BITS = 52;
constexpr int64_t NOISE_SLACK = 2;  // units by which rounding in least_noise may err
constexpr int DRAW_PIECE = 256;     // ids that share a bound
constexpr int DRAW_CHUNK = 32;      // pieces that one thread looks at

struct Drawn {
  double score;
  int64_t id;
  bool loses_to(const Drawn& other) const { return other.score > score || (other.score == score && other.id < id); }
};

INLINE int64_t noise_of(uint64_t key, uint64_t id) {
  uint64_t mixed = key + (id + 1) * GAMMA;
  mixed = (mixed ^ (mixed >> 30)) * MIX_FIRST;
  mixed = (mixed ^ (mixed >> 27)) * MIX_SECOND;
  return (int64_t)((mixed ^ (mixed >> 31)) >> (64 - NOISE_BITS));
}

inline double gumbel(int64_t noise) { return -std::log(-std::log((noise + 0.5) / (1LL << NOISE_BITS))); }

// A bound below which noise surely is under `floor`.
inline int64_t least_noise(double floor) {
  return (int64_t)(std::exp(-std::exp(-floor)) * (1LL << NOISE_BITS)) - NOISE_SLACK;
}

// The best of ids [first, end) of a row, or `best` if that is better.
inline Drawn draw_among(const float* logits, int64_t first, int64_t end, double temperature, uint64_t key, Drawn best) {
  for (int64_t start = first; start < end; start += DRAW_PIECE) {
    const int count = (int)std::min<int64_t>(DRAW_PIECE, end - start);
    float highest = logits[start];
    for (int n = 0; n < count; n++) highest = logits[start + n] > highest ? logits[start + n] : highest;
    const int64_t least = least_noise(best.score - highest / temperature);
    int64_t noise[DRAW_PIECE], most = 0;
    for (int n = 0; n < count; n++) noise[n] = noise_of(key, start + n);
    for (int n = 0; n < count; n++) most = noise[n] > most ? noise[n] : most;
    for (int n = 0; most >= least && n < count; n++) {
      if (noise[n] < least) continue;
      const Drawn drawn{logits[start + n] / temperature + gumbel(noise[n]), start + n};
      if (best.loses_to(drawn)) best = drawn;
    }
  }
  return best;
}

// ids [rows] of logits [rows, vocab]. likeliest: an id of each row whose logit is finite, best the highest one's.
inline void draw_rows(int threads, const float* logits, int rows, int64_t vocab, const double* temperatures,
                      const int64_t* keys, const int64_t* likeliest, int64_t* ids) {
  constexpr int64_t CHUNK = DRAW_PIECE * DRAW_CHUNK;
  const int chunks = (int)((vocab + CHUNK - 1) / CHUNK);
  std::vector<Drawn> found((size_t)rows * chunks);
  Team team;
  team.run(threads, [&](int me) {
    team.each(me, rows * chunks, [&](int n) {
      const int row = n / chunks;
      const float* mine = logits + row * vocab;
      const int64_t first = n % chunks * CHUNK, top = likeliest[row];
      const Drawn start{mine[top] / temperatures[row] + gumbel(noise_of(keys[row], top)), top};
      found[n] = draw_among(mine, first, std::min(first + CHUNK, vocab), temperatures[row], keys[row], start);
    });
  });
  for (int row = 0; row < rows; row++) {
    Drawn best = found[(size_t)row * chunks];
    for (int n = 1; n < chunks; n++)
      if (best.loses_to(found[(size_t)row * chunks + n])) best = found[(size_t)row * chunks + n];
    ids[row] = best.id;
  }
}
