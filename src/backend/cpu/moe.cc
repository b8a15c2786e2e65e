// h += sum_e w_e expert_e(x) + sigmoid(x Wsg^T) shared(x) with x = norm(h). model.md 2.5.
// Rows are sorted by expert, so that each expert is one product; each row then adds its own
// experts by rank, so that the sum does not depend on the batch.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/split.h"

namespace nibble::cpu {
namespace {

/// One MoE layer of one pass.
struct Moe {
  const Context& context;
  const MoeConfig& shape;
  const MoeWeights& weights;
  int64_t rows;
  /// True if experts pick their rows of the pass's inputs; else these are copied together.
  bool picks = false;

  void score() const;
  bool may_pick() const;
  void gather_rows() const;
  void want_experts() const;
  void run_inputs() const;
  void activate() const;
  void run_outputs() const;
  void combine(int64_t row) const;
  LinearCall expert_product(const PackedLinear& weight, int expert, Matrix& x, Matrix& y) const;
  LinearCall first_product(const PackedLinear& weight, int expert, Matrix& y) const;
};

/// Router logits, followed by the logit of the shared expert's gate.
void Moe::score() const {
  Workspace& work = context.work;
  LinearCall calls[] = {product(weights.router, work.normed, work.router, rows),
                        product(weights.router, work.normed, work.router, rows)};
  calls[1].weight = &weights.shared_gate;
  calls[1].y += shape.experts;
  context.linears.run({calls, shape.shared_width > 0 ? 2U : 1U});
}

/// True if the first products of all experts read one form of their inputs.
bool Moe::may_pick() const {
  const PackedLinear& first = weights.experts.front().gate;
  return std::ranges::all_of(weights.experts, [&](const MlpWeights& expert) {
    return context.linears.pick_rows(first, expert.gate) &&
           context.linears.pick_rows(first, expert.up);
  });
}

void Moe::gather_rows() const {
  const int width = context.config.hidden;
  split(context.pool, rows * shape.top_k, width / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(context.work.normed.row(context.routing.sources[static_cast<size_t>(i)]), width,
                  context.work.gathered.row(i));
  });
}

LinearCall Moe::expert_product(const PackedLinear& weight, int expert, Matrix& x, Matrix& y) const {
  const auto e = static_cast<size_t>(expert);
  const int64_t begin = context.routing.begin[e];
  LinearCall call = product(weight, x, y, context.routing.begin[e + 1] - begin);
  call.x = x.row(begin);
  call.y = y.row(begin);
  call.ids = context.routing.sources.data() + begin;
  return call;
}

/// A product of an expert's rows of the pass.
LinearCall Moe::first_product(const PackedLinear& weight, int expert, Matrix& y) const {
  LinearCall call = expert_product(weight, expert, context.work.gathered, y);
  if (!picks) return call;
  call.x = context.work.normed.data();
  call.x_stride = context.work.normed.stride();
  call.picked = call.ids;
  call.x_rows = rows;
  return call;
}

/// Experts that come from a disk are asked for together, so that it reads the next ones while the
/// first are multiplied.
void Moe::want_experts() const {
  for (size_t e = 0; e < weights.experts.size(); ++e) {
    if (context.routing.begin[e + 1] == context.routing.begin[e]) continue;
    const MlpWeights& expert = weights.experts[e];
    for (const PackedLinear* part : {&expert.gate, &expert.up, &expert.down}) part->want();
  }
}

void Moe::run_inputs() const {
  Workspace& work = context.work;
  context.calls.clear();
  if (shape.shared_width > 0) {
    context.calls.push_back(product(weights.shared.gate, work.normed, work.gate, rows));
    context.calls.push_back(product(weights.shared.up, work.normed, work.up, rows));
  }
  for (int e = 0; e < shape.experts; ++e) {
    const MlpWeights& expert = weights.experts[static_cast<size_t>(e)];
    const LinearCall gate = first_product(expert.gate, e, work.expert_gate);
    if (gate.rows == 0) continue;
    context.calls.push_back(gate);
    context.calls.push_back(first_product(expert.up, e, work.expert_up));
  }
  context.linears.run(context.calls);
}

void Moe::activate() const {
  Workspace& work = context.work;
  const auto swiglu = [&](Matrix& gate, Matrix& up, Matrix& act, int64_t count, int width) {
    split(context.pool, count, width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        context.kernels.swiglu(gate.row(r), up.row(r), act.row(r), width);
    });
  };
  swiglu(work.expert_gate, work.expert_up, work.expert_act, rows * shape.top_k, shape.expert_width);
  if (shape.shared_width > 0) swiglu(work.gate, work.up, work.act, rows, shape.shared_width);
}

void Moe::run_outputs() const {
  Workspace& work = context.work;
  context.calls.clear();
  if (shape.shared_width > 0)
    context.calls.push_back(product(weights.shared.down, work.act, work.shared_out, rows));
  for (int e = 0; e < shape.experts; ++e) {
    const MlpWeights& expert = weights.experts[static_cast<size_t>(e)];
    const LinearCall down = expert_product(expert.down, e, work.expert_act, work.expert_out);
    if (down.rows > 0) context.calls.push_back(down);
  }
  context.linears.run(context.calls);
}

/// h += the row's experts by rank, then the shared expert.
void Moe::combine(int64_t row) const {
  constexpr int kTermsMax = kExpertsPerTokenMax + 1;
  Workspace& work = context.work;
  const float* terms[kTermsMax];
  float weight[kTermsMax];
  int count = 0;
  for (; count < shape.top_k; ++count) {
    const auto i = static_cast<size_t>(row * shape.top_k + count);
    terms[count] = work.expert_out.row(context.routing.places[i]);
    weight[count] = context.routing.weights[i];
  }
  if (shape.shared_width > 0) {
    // sigmoid(x) * 1, by the same kernel as every other gate.
    weight[count] = 1.0F;
    context.kernels.sigmoid_gate(&weight[count], work.router.row(row) + shape.experts, 1);
    terms[count++] = work.shared_out.row(row);
  }
  context.kernels.add_weighted(work.hidden.row(row), terms, weight, count, context.config.hidden);
}

}  // namespace

void moe_block(const Context& context, const LayerWeights& weights, const Batch& batch) {
  Moe moe = {.context = context,
             .shape = *context.config.moe,
             .weights = weights.moe,
             .rows = batch.rows()};
  norm_hidden(context, weights.post_norm, moe.rows);
  moe.score();
  const int64_t choose_cost = int64_t{moe.shape.experts} * (moe.shape.top_k + 2);
  split(context.pool, moe.rows, choose_cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      context.routing.choose(context.kernels, moe.shape,
                             {context.work.router.row(r), context.work.probabilities.row(r)}, r);
  });
  context.routing.place(moe.shape, moe.rows);
  moe.picks = moe.may_pick();
  if (!moe.picks) moe.gather_rows();
  if (context.weights.stored.streamed) moe.want_experts();
  moe.run_inputs();
  moe.activate();
  moe.run_outputs();
  const int64_t combine_cost = int64_t{context.config.hidden} * moe.shape.top_k / 8;
  split(context.pool, moe.rows, combine_cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) moe.combine(r);
  });
}

}  // namespace nibble::cpu
