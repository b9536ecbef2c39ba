// The library's functions, in plain C: a step in one call, logits of some of its rows, and parts alone for tests and
// measurements. Each runs in up to `threads` threads. library.py has the same list.

#include "decoder.h"
#include "draw.h"
#include "limits.h"

extern "C" {

// sizeof Linear, Layer, Model, Step: a caller with others must not call.
int32_t fairstep_struct_size(int32_t which) {
  const size_t sizes[] = {sizeof(Linear), sizeof(Layer), sizeof(Model), sizeof(Step)};
  return sizes[which];
}

// Bytes of Step::workspace for so many tokens, logits of so many of which are asked for.
int64_t fairstep_workspace(const Model* model, int32_t tokens, int32_t drawn) {
  return std::max(Workspace(*model, tokens, nullptr).bytes, Head::bytes(*model, drawn));
}

void fairstep_step(const Model* model, const Step* step, int32_t threads) {
  StepRun run(*model, *step);
  Head head(*model, step->drawn_count, threads, step->workspace);  // when the layers need it no more
  run.team.run(threads, [&](int me) {
    run.layers(me);
    if (step->drawn_count)
      head.compute(run.team, me, [&](int n) { return run.hidden(step->drawn[n]); }, step->logits, step->likeliest);
  });
}

// logits [count, vocab] of rows [count, hidden] of Step::hidden.
void fairstep_logits(const Model* model, const float* rows, int32_t count, float* logits, int32_t threads) {
  Team team;
  std::vector<char> memory(Head::bytes(*model, count));
  Head head(*model, count, threads, memory.data());
  team.run(threads, [&](int me) {
    head.compute(team, me, [&](int n) { return rows + (long)n * model->hidden; }, logits, nullptr);
  });
}

// Ids [rows] drawn from logits [rows, vocab]: see draw.h.
void fairstep_draw(const float* logits, int32_t rows, int64_t vocab, const double* temperatures, const int64_t* keys,
                   const int64_t* likeliest, int64_t* ids, int32_t threads) {
  draw_rows(threads, logits, rows, vocab, temperatures, keys, likeliest, ids);
}

// out [rows, outputs] = x [rows, inputs] times a weight.
void fairstep_product(const Linear* linear, const bf16* x, int32_t rows, float* out, int32_t threads) {
  Team team;
  std::vector<char> rounding(Rounded::bytes(rows, linear->inputs));
  team.run(threads, [&](int me) {
    team.each(me, rows, [&](int row) {
      round_for(*linear, x + (long)row * linear->inputs, row, rows, rounding.data());
    });
    product(team, me, *linear, x, linear->inputs, rows, rounding.data(), [&](int row, int output, const float* values) {
      const int count = std::min(PANEL, linear->outputs - output);
      std::memcpy(out + (long)row * linear->outputs + output, values, sizeof(float) * count);
    });
  });
}

// One layer's attention from joined queries, keys and values [tokens, (heads + 2 kv_heads) * head_dim] to
// [tokens, heads * head_dim]; keys and values are kept in the layer's pages.
void fairstep_attention(const Model* model, const Step* step, int32_t layer, const float* qkv, bf16* out,
                        int32_t threads) {
  StepRun run(*model, *step);
  const long width = (long)model->heads * model->head_dim, joined = width + 2L * model->kv_heads * model->head_dim;
  std::memcpy(run.work.qkv, qkv, sizeof(float) * step->tokens * joined);
  run.team.run(threads, [&](int me) { run.attention(me, model->layers[layer]); });
  std::memcpy(out, run.work.attended, sizeof(bf16) * step->tokens * width);
}

int64_t fairstep_read_all(const char* memory, int64_t size, int32_t threads) { return read_all(memory, size, threads); }

int64_t fairstep_multiply_near(int64_t pieces, int32_t kind, int32_t threads, float* kept) {
  return multiply_near(pieces, kind, threads, kept);
}

}  // extern "C"
