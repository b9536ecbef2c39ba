// What one call is told: a decoder's shapes and weights, and a step's tokens. library.py has the same structs; the
// caller owns all memory.
#pragma once

#include "gemm.h"

enum Activation { SILU = 0, GELU_TANH = 1, GELU = 2 };

struct Layer {
  Linear qkv;      // queries, keys, values joined
  Linear o;
  Linear gate_up;  // panels of 16 gate and 16 up outputs, which belong together
  Linear down;
  // weights of RMS norms, null where there is none: of what a block reads [hidden], of what it adds [hidden], of
  // queries and keys ([head_dim], or [heads * head_dim] and [kv_heads * head_dim])
  const float *attention_in, *attention_out, *mlp_in, *mlp_out, *q_norm, *k_norm;
  bf16 *keys, *values;  // [pages, kv_heads, page_size, head_dim] with the order within a page that attention.h says
  int32_t window;       // positions that a query sees, itself included; 0 all
  int32_t table;        // which rotary table of the step; -1 turns nothing
};

struct Model {
  const Layer* layers;
  const bf16* embedding;  // [vocab, hidden]
  const float* norm;      // [hidden]
  Linear head;
  int32_t layer_count, hidden, intermediate, heads, kv_heads, head_dim, page_size;
  int32_t activation;
  int32_t whole_norm;  // q_norm and k_norm are over all heads at once
  float eps, attention_scale, attention_softcap, embedding_scale, residual_scale, logit_scale, logit_softcap;
};

struct Bounds {
  int32_t row, count, length;  // a slice's rows [row, row + count) are the last `count` of `length` positions
};

struct Step {
  const int64_t* ids;          // [tokens]
  const int64_t* page_tables;  // [slices, table_width]
  const Bounds* bounds;        // [slices]
  const int32_t* drawn;        // [drawn_count] rows whose logits are asked for
  const float* cos[2];         // rotary tables [positions, turned], or [tokens, turned] where by_token
  const float* sin[2];         // signed: the first half is negated
  int32_t turned[2];
  int32_t by_token[2];
  int32_t tokens, slices, table_width, drawn_count;
  float* hidden;               // [tokens, hidden], written
  float* logits;               // [drawn_count, vocab], written
  int64_t* likeliest;          // [drawn_count], written: tokens, or NOT_FINITE
  char* workspace;
};
