// A decoder's step: embedding and layers over the rows of all slices. The threads go through each kind of work together
// and wait for one another seven times a layer.
//
// The residual stream, norms, rotary positions and softmax are float32; products read bfloat16.
#pragma once

#include "attention.h"
#include "head.h"

// What a step keeps between its kinds of work, cut from one piece of memory.
struct Workspace {
  bf16 *x, *queries, *attended, *activated;
  float *qkv, *added;
  char* rounding;  // what products round
  long bytes = 0;

  Workspace(const Model& model, int tokens, char* memory) {
    const long width = (long)model.heads * model.head_dim, kv = (long)model.kv_heads * model.head_dim;
    take(x, memory, tokens * (long)model.hidden);
    take(queries, memory, tokens * width);
    take(attended, memory, tokens * width);
    take(activated, memory, tokens * (long)model.intermediate);
    take(qkv, memory, tokens * (width + 2 * kv));
    take(added, memory, tokens * (long)model.hidden);
    take(rounding, memory, Rounded::bytes(tokens, std::max({(long)model.hidden, width, (long)model.intermediate})));
  }

 private:
  template <class T>
  void take(T*& part, char* memory, long count) {
    part = (T*)(memory + bytes);
    bytes += (count * (long)sizeof(T) + 63) / 64 * 64;
  }
};

// Where a token is in its sequence, and where its keys and values are kept.
struct Place {
  int position;
  long slot;  // page * page_size + offset
};

// Neighbouring tokens of one slice whose rows attend together.
struct Piece {
  int slice, token, count;
};

INLINE F16 activated(int kind, const F16& x) {
  const F16 one = fill(1.0f), half = fill(0.5f);
  if (kind == SILU) return x / (one + exponential(fill(0.0f) - x));
  if (kind == GELU_TANH) {
    const F16 inner = fill(0.797884561f) * fma(fill(0.044715f) * x * x, x, x);
    return half * x * (one + tangent(inner));
  }
  alignas(64) float lane[16];
  store(lane, x);
  for (float& value : lane) value = 0.5f * value * (1.0f + std::erf(value * 0.707106781f));
  return load(lane);
}

class StepRun {
 public:
  StepRun(const Model& model, const Step& step)
      : work(model, step.tokens, step.workspace), model_(model), step_(step) {
    group_ = model.heads / model.kv_heads;
    parts_ = (group_ + QUERY_ROWS - 1) / QUERY_ROWS;
    part_heads_ = (group_ + parts_ - 1) / parts_;
    places_.reserve(step.tokens);
    for (int slice = 0; slice < step.slices; slice++) take(slice);
  }

  void layers(int me) {
    const int opened = opened_.size();
    team.each(me, step_.tokens + opened * model_.layer_count, [&](int n) {
      if (n < step_.tokens)
        embed(n);
      else
        clear(model_.layers[(n - step_.tokens) / opened], opened_[(n - step_.tokens) % opened]);
    });
    for (int n = 0; n < model_.layer_count; n++) {
      const Layer& layer = model_.layers[n];
      attention_block(me, layer);
      mlp_block(me, layer);
    }
  }

  // From work.qkv to work.attended.
  void attention(int me, const Layer& layer) {
    team.each(me, step_.tokens * model_.kv_heads, [&](int n) {
      place(layer, n / model_.kv_heads, n % model_.kv_heads);
    });
    team.each(me, (int)pieces_.size() * model_.kv_heads * parts_, [&](int n) { attend_piece(layer, n); });
  }

  float* hidden(int row) const { return step_.hidden + (long)row * model_.hidden; }

  Team team;
  const Workspace work;

 private:
  // What a slice's tokens need: their places, its page that is begun and not filled, pieces of work.
  void take(int slice) {
    const int64_t* table = step_.page_tables + (long)slice * step_.table_width;
    const int size = model_.page_size, together = std::max(1, QUERY_ROWS / group_);
    const int count = step_.bounds[slice].count, length = step_.bounds[slice].length;
    for (int at = length - count; at < length; at++) places_.push_back({at, table[at / size] * size + at % size});
    if (length % size && length / size * size >= length - count) opened_.push_back(table[length / size]);
    for (int n = 0; n < count; n += together) pieces_.push_back({slice, n, std::min(together, count - n)});
  }

  void attention_block(int me, const Layer& layer) {
    const int width = model_.heads * model_.head_dim, joined = width + 2 * model_.kv_heads * model_.head_dim;
    team.each(me, step_.tokens, [&](int row) { read(row, layer.attention_in, layer.qkv); });
    product(team, me, layer.qkv, work.x, model_.hidden, step_.tokens, work.rounding,
            [&](int row, int output, const float* values) {
              const int count = std::min(PANEL, joined - output);  // the last panel may be filled up
              std::memcpy(work.qkv + (long)row * joined + output, values, sizeof(float) * count);
            });
    attention(me, layer);
    add(me, layer.o, work.attended, width, layer.attention_out);
  }

  void mlp_block(int me, const Layer& layer) {
    const int intermediate = model_.intermediate;
    team.each(me, step_.tokens, [&](int row) { read(row, layer.mlp_in, layer.gate_up); });
    product(team, me, layer.gate_up, work.x, model_.hidden, step_.tokens, work.rounding,
            [&](int row, int output, const float* values) {
              bf16* to = work.activated + (long)row * intermediate + output / 2;
              narrow(to, activated(model_.activation, load(values)) * load(values + 16));
            });
    add(me, layer.down, work.activated, intermediate, layer.mlp_out);
  }

  void embed(int row) {
    const bf16* from = model_.embedding + step_.ids[row] * model_.hidden;
    float* to = hidden(row);
    const F16 scale = fill(model_.embedding_scale);
    for (int n = 0; n < model_.hidden; n += 16) store(to + n, widen(from + n) * scale);
  }

  // Masked slots are multiplied, too: what an earlier sequence left in a page must not be infinite or NaN.
  void clear(const Layer& layer, long page) {
    const long size = (long)model_.kv_heads * model_.page_size * model_.head_dim, at = page * size;
    std::memset(layer.keys + at, 0, sizeof(bf16) * size);
    std::memset(layer.values + at, 0, sizeof(bf16) * size);
  }

  // What a block reads of the residual stream, for its first product.
  void read(int row, const float* norm, const Linear& linear) {
    bf16* to = work.x + (long)row * model_.hidden;
    if (norm)
      norm_row(to, hidden(row), norm, model_.hidden, model_.eps);
    else
      round_row(to, hidden(row), model_.hidden);
    round_for(linear, to, row, step_.tokens, work.rounding);
  }

  // Adds a block's last product to the residual stream, after a norm where there is one.
  void add(int me, const Linear& linear, const bf16* x, int stride, const float* norm) {
    const F16 scale = fill(model_.residual_scale);
    if (linear.kind != BFLOAT16)
      team.each(me, step_.tokens, [&](int row) {
        round_for(linear, x + (long)row * stride, row, step_.tokens, work.rounding);
      });
    product(team, me, linear, x, stride, step_.tokens, work.rounding, [&](int row, int output, const float* values) {
      for (int n = 0; n < PANEL; n += 16) {
        float *to = hidden(row) + output + n, *apart = work.added + (long)row * model_.hidden + output + n;
        if (norm)
          store(apart, load(values + n));
        else
          store(to, fma(load(values + n), scale, load(to)));
      }
    });
    if (norm)
      team.each(me, step_.tokens, [&](int row) {
        const float* added = work.added + (long)row * model_.hidden;
        add_normed(hidden(row), added, norm, model_.hidden, model_.eps, model_.residual_scale);
      });
  }

  // Norms and turns the queries and the key of one kv head of a token; keeps key and value in the token's slot.
  void place(const Layer& layer, int row, int kv_head) {
    const int dim = model_.head_dim, joined = (model_.heads + 2 * model_.kv_heads) * dim;
    const float *q = work.qkv + (long)row * joined, *k = q + model_.heads * dim;
    const float* v = k + (model_.kv_heads + kv_head) * dim;
    for (int n = kv_head * group_; n < (kv_head + 1) * group_; n++)
      prepare(work.queries + ((long)row * model_.heads + n) * dim, q, n, model_.heads, layer.q_norm, layer.table, row);
    bf16 key[MOST_HEAD_DIM], value[MOST_HEAD_DIM];
    prepare(key, k, kv_head, model_.kv_heads, layer.k_norm, layer.table, row);
    round_row(value, v, dim);
    const long slot = places_[row].slot;
    write_key(layer.keys, slot, model_.page_size, model_.kv_heads, kv_head, dim, key);
    write_value(layer.values, slot, model_.page_size, model_.kv_heads, kv_head, dim, value);
  }

  // Rounds head n of `all` heads, normed and turned.
  void prepare(bf16* to, const float* heads, int n, int all, const float* norm, int table, int row) {
    const int dim = model_.head_dim;
    alignas(64) float head[MOST_HEAD_DIM];
    std::memcpy(head, heads + n * dim, sizeof(float) * dim);
    if (norm && model_.whole_norm)
      normed(head, head, norm + n * dim, dim, inverse_rms(heads, all * dim, model_.eps));
    else if (norm)
      normed(head, head, norm, dim, inverse_rms(head, dim, model_.eps));
    if (table >= 0) {
      const long at = (long)(step_.by_token[table] ? row : places_[row].position) * step_.turned[table];
      rotate(head, step_.cos[table] + at, step_.sin[table] + at, step_.turned[table]);
    }
    round_row(to, head, dim);
  }

  Cache cache_of(const Layer& layer, int slice, int kv_head) const {
    const int64_t* table = step_.page_tables + (long)slice * step_.table_width;
    return {layer.keys, layer.values, table, model_.kv_heads, kv_head, model_.page_size, model_.head_dim};
  }

  // The blocks that piece of work n reads first; none past the last.
  TileBlocks first_blocks(const Layer& layer, int n) const {
    const int each = model_.kv_heads * parts_;
    if (n >= (int)pieces_.size() * each) return {};
    const Piece& piece = pieces_[n / each];
    const Bounds& bounds = step_.bounds[piece.slice];
    const int position = bounds.length - bounds.count + piece.token;
    const int first = layer.window ? std::max(0, position + 1 - layer.window) : 0;
    return {cache_of(layer, piece.slice, n % each / parts_), first / KEYS * KEYS, position + piece.count};
  }

  void attend_piece(const Layer& layer, int n) {
    const int each = model_.kv_heads * parts_, dim = model_.head_dim;
    const Piece& piece = pieces_[n / each];
    const int kv_head = n % each / parts_, part = n % parts_;
    const int from = kv_head * group_ + part * part_heads_;
    const int heads = std::min(part_heads_, (kv_head + 1) * group_ - from);
    const Bounds& bounds = step_.bounds[piece.slice];
    const long row = bounds.row + piece.token;
    Queries queries;
    for (int token = 0; token < piece.count; token++) {
      const bf16* q = work.queries + ((row + token) * model_.heads + from) * dim;
      std::memcpy(queries.q + queries.rows * dim, q, sizeof(bf16) * heads * dim);
      const int last = bounds.length - bounds.count + piece.token + token;
      for (int head = 0; head < heads; head++, queries.rows++) {
        queries.last[queries.rows] = last;
        queries.first[queries.rows] = layer.window ? std::max(0, last + 1 - layer.window) : 0;
      }
    }
    alignas(64) float total[QUERY_ROWS * MOST_HEAD_DIM];
    attend(cache_of(layer, piece.slice, kv_head), queries, first_blocks(layer, n + 1), model_.attention_scale,
           model_.attention_softcap, total);
    for (int token = 0; token < piece.count; token++)
      round_row(work.attended + ((row + token) * model_.heads + from) * dim, total + token * heads * dim, heads * dim);
  }

  const Model& model_;
  const Step& step_;
  int group_, parts_, part_heads_;  // query heads of a kv head, in how many parts they attend, heads of a part
  std::vector<Place> places_;  // [tokens]
  std::vector<long> opened_;   // pages that are begun and not filled: zeroed first
  std::vector<Piece> pieces_;
};
