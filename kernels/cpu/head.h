// Logits of some rows of a step, and of each row the likeliest token, found while its logits are near.
#pragma once

#include <vector>

#include "model.h"
#include "norm_rope.h"

constexpr int64_t NOT_FINITE = -1;

// The highest of the logits of a row seen so far; of equals the lowest token's.
struct Likeliest {
  float logit = -INFINITY;
  int32_t token = INT32_MAX;
  bool numbers = true;  // no logit is NaN

  // Takes in `count` of PANEL logits, those of the tokens from `first` on.
  void take(const float* logits, int first, int count) {
    alignas(64) float filled[PANEL];
    if (count < PANEL) {
      std::fill(std::begin(filled), std::end(filled), -INFINITY);
      logits = std::copy_n(logits, count, filled) - count;
    }
    const F16 low = load(logits), high = load(logits + 16);
    numbers = numbers && all_numbers(low) && all_numbers(high);
    const float most = largest(larger(low, high));
    if (most < logit || (most == logit && first > token)) return;
    for (int n = 0; n < PANEL; n++)
      if (logits[n] == most) return take({most, first + n, true});
  }

  void take(const Likeliest& other) {
    numbers = numbers && other.numbers;
    if (other.logit < logit || (other.logit == logit && other.token > token)) return;
    logit = other.logit;
    token = other.token;
  }

  // NOT_FINITE where a logit is NaN or plus infinity, or none is above minus infinity.
  int64_t found() const { return numbers && std::isfinite(logit) ? token : NOT_FINITE; }
};

class Head {
 public:
  // memory: so many `bytes`.
  Head(const Model& model, int count, int threads, char* memory)
      : model_(model), count_(count), x_((bf16*)memory), rounding_(x_ + (long)count * model.hidden) {
    apart_ = (count + 15) / 16 * 16;  // no thread writes into a cache line of another's
    best_.resize((size_t)apart_ * threads);
  }

  static long bytes(const Model& model, int count) {
    return count * (long)sizeof(bf16) * model.hidden + Rounded::bytes(count, model.hidden);
  }

  // logits [count, vocab] of the rows that row_of(n) points to, [hidden] each; likeliest: [count] tokens, or null.
  template <class RowOf>
  void compute(Team& team, int me, RowOf row_of, float* logits, int64_t* likeliest) {
    const long hidden = model_.hidden, vocab = model_.head.outputs;
    team.each(me, count_, [&](int n) {
      norm_row(x_ + n * hidden, row_of(n), model_.norm, model_.hidden, model_.eps);
      round_for(model_.head, x_ + n * hidden, n, count_, rounding_);
    });
    Likeliest* mine = best_.data() + (size_t)me * apart_;
    product(team, me, model_.head, x_, model_.hidden, count_, rounding_, [&](int row, int output, float* values) {
      const int count = std::min<long>(PANEL, vocab - output);
      shape(values);
      std::memcpy(logits + row * vocab + output, values, sizeof(float) * count);
      mine[row].take(values, output, count);
    });
    if (me != 0 || !likeliest) return;
    for (int row = 0; row < count_; row++) {
      for (size_t n = row + apart_; n < best_.size(); n += apart_) mine[row].take(best_[n]);
      likeliest[row] = mine[row].found();
    }
  }

 private:
  void shape(float* values) const {
    const F16 scale = fill(model_.logit_scale), cap = fill(model_.logit_softcap);
    for (int n = 0; n < PANEL; n += 16) {
      F16 logit = load(values + n) * scale;
      if (model_.logit_softcap) logit = tangent(logit / cap) * cap;
      store(values + n, logit);
    }
  }

  const Model& model_;
  const int count_;
  bf16* const x_;
  void* const rounding_;
  int apart_;
  std::vector<Likeliest> best_;  // [threads, apart_]
};
