// h += sum_e w_e expert_e(x) + sigmoid(x Wsg^T) shared(x) with x = norm(h). model.md 2.5.
// Rows are gathered by expert, so that each expert is one product; each row then adds its own
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
  std::vector<int32_t> sources = {};  // [T, top_k] gathered row -> row, if taps want to know

  void score() const;
  void choose(int64_t row) const;
  void place_rows() const;
  void name_sources();
  void want_experts() const;
  void run_inputs() const;
  void activate() const;
  void run_outputs() const;
  void combine(int64_t row) const;
  LinearCall expert_product(const PackedLinear& weight, int expert, Matrix& x, Matrix& y) const;
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

/// Top-k of one row: softmax over all experts, largest first, the lowest index on ties.
void Moe::choose(int64_t row) const {
  const float* logits = context.work.router.row(row);
  float* p = context.work.probabilities.row(row);
  context.kernels.softmax(logits, p, shape.experts);
  int32_t* chosen = &context.routing.experts[static_cast<size_t>(row * shape.top_k)];
  float* weight = &context.routing.weights[static_cast<size_t>(row * shape.top_k)];
  int count = 0;
  for (int e = 0; e < shape.experts; ++e) {
    if (count == shape.top_k && !(logits[e] > logits[chosen[count - 1]])) continue;
    int rank = count < shape.top_k ? count++ : count - 1;
    for (; rank > 0 && logits[e] > logits[chosen[rank - 1]]; --rank)
      chosen[rank] = chosen[rank - 1];
    chosen[rank] = e;
  }
  float total = 0.0F;
  for (int rank = 0; rank < shape.top_k; ++rank) {
    weight[rank] = p[chosen[rank]];
    total += weight[rank];
  }
  if (!shape.renormalize) return;
  for (int rank = 0; rank < shape.top_k; ++rank) weight[rank] /= total;
}

/// Counting sort of (row, rank) by expert, and the copies of the rows.
void Moe::place_rows() const {
  Routing& routing = context.routing;
  const auto count = static_cast<size_t>(rows * shape.top_k);
  routing.begin.assign(static_cast<size_t>(shape.experts) + 1, 0);
  for (size_t i = 0; i < count; ++i) ++routing.begin[static_cast<size_t>(routing.experts[i]) + 1];
  for (size_t e = 0; e < static_cast<size_t>(shape.experts); ++e)
    routing.begin[e + 1] += routing.begin[e];
  std::vector<int32_t>& next = routing.next;
  next.assign(routing.begin.begin(), routing.begin.end());
  for (size_t i = 0; i < count; ++i) {
    const int32_t place = next[static_cast<size_t>(routing.experts[i])]++;
    routing.places[i] = place;
  }
  const int width = context.config.hidden;
  split(context.pool, static_cast<int64_t>(count), width / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(context.work.normed.row(i / shape.top_k), width,
                  context.work.gathered.row(routing.places[static_cast<size_t>(i)]));
  });
}

void Moe::name_sources() {
  sources.resize(static_cast<size_t>(rows * shape.top_k));
  for (size_t i = 0; i < sources.size(); ++i)
    sources[static_cast<size_t>(context.routing.places[i])] = static_cast<int32_t>(i) / shape.top_k;
}

LinearCall Moe::expert_product(const PackedLinear& weight, int expert, Matrix& x, Matrix& y) const {
  const auto e = static_cast<size_t>(expert);
  const int64_t begin = context.routing.begin[e];
  LinearCall call = product(weight, x, y, context.routing.begin[e + 1] - begin);
  call.x = x.row(begin);
  call.y = y.row(begin);
  if (!sources.empty()) call.ids = sources.data() + begin;
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
    const LinearCall gate = expert_product(expert.gate, e, work.gathered, work.expert_gate);
    if (gate.rows == 0) continue;
    context.calls.push_back(gate);
    context.calls.push_back(expert_product(expert.up, e, work.gathered, work.expert_up));
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
    for (int64_t r = begin; r < end; ++r) moe.choose(r);
  });
  moe.place_rows();
  if (batch.taps != nullptr) moe.name_sources();
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
