// Attention, one row and one head at a time.
#include "backend/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "backend/reference/rope.h"

namespace nibble::reference {
namespace {

/// Rounds scores so that exp(score - m) is a BF16 number, m the highest score up to the end of its
/// page.
void round_scores(std::vector<double>& scores) {
  double highest = -INFINITY;
  for (size_t begin = 0; begin < scores.size(); begin += kPageTokens) {
    const auto page =
        std::span(scores).subspan(begin, std::min<size_t>(kPageTokens, scores.size() - begin));
    highest = std::max(highest, *std::ranges::max_element(page));
    for (double& score : page)
      score = highest + std::log(round_to_bf16(static_cast<float>(std::exp(score - highest))));
  }
}

}  // namespace

Result<Attention> Attention::load(const Weights& weights, const AttentionSources& sources,
                                  const ModelConfig& config, const LinearOptions& options,
                                  PromptRounding rounding) {
  Attention attention;
  attention.config_ = config.attention;
  attention.rounding_ = rounding;
  attention.rope_ = make_rope_table(config.attention.rope);
  attention.q_ = TRY(Linear::load(weights, sources.q, options));
  attention.k_ = TRY(Linear::load(weights, sources.k, options));
  attention.v_ = TRY(Linear::load(weights, sources.v, options));
  attention.o_ = TRY(Linear::load(weights, sources.o, options));
  attention.q_norm_ = TRY(RmsNorm::load(weights, sources.q_norm, config));
  attention.k_norm_ = TRY(RmsNorm::load(weights, sources.k_norm, config));
  return attention;
}

std::vector<float> Attention::run(const Batch& batch, int layer, const std::vector<float>& x,
                                  KvPages& pages) const {
  std::vector<float> projected = q_.apply(x);
  round_prompt_rows(rounding_, batch, projected);
  std::vector<float> q = queries(batch, projected, pages);
  round_prompt_rows(rounding_, batch, q);
  store(batch, layer, x, pages);
  const size_t width = static_cast<size_t>(config_.q_heads * config_.head_dim);
  std::vector<float> o(q.size());
  for (const auto& sequence : batch.sequences)
    for (int i = 0; i < sequence.row_count; ++i) {
      const size_t at = static_cast<size_t>(sequence.row_begin + i) * width;
      attend(batch, sequence, i, layer, &q[at], pages, &o[at]);
    }
  if (config_.output_gate) gate(projected, o);
  return o_.apply(o);
}

/// Normed and rotated queries [T, q_heads, head_dim], turned as the pages turn their keys.
std::vector<float> Attention::queries(const Batch& batch, const std::vector<float>& projected,
                                      const KvPages& pages) const {
  const auto head_dim = static_cast<size_t>(config_.head_dim);
  const auto heads = static_cast<size_t>(config_.q_heads);
  const size_t stride = config_.output_gate ? 2 * head_dim : head_dim;
  const auto rows = static_cast<size_t>(batch.rows());
  std::vector<float> q(rows * heads * head_dim);
  for (size_t i = 0; i < rows * heads; ++i) {
    q_norm_.apply(&projected[i * stride], &q[i * head_dim]);
    rotate(rope_, position_of(batch, static_cast<int>(i / heads)), &q[i * head_dim]);
    pages.turn_query(&q[i * head_dim]);
  }
  return q;
}

/// Keys are cached after norm and rotation, values raw.
void Attention::store(const Batch& batch, int layer, const std::vector<float>& x,
                      KvPages& pages) const {
  std::vector<float> k = k_.apply(x);
  std::vector<float> v = v_.apply(x);
  round_prompt_rows(rounding_, batch, k);
  round_prompt_rows(rounding_, batch, v);
  const auto head_dim = static_cast<size_t>(config_.head_dim);
  const size_t width = static_cast<size_t>(config_.kv_heads) * head_dim;
  for (const auto& sequence : batch.sequences)
    for (int i = 0; i < sequence.row_count; ++i) {
      const int row = sequence.row_begin + i;
      const size_t at = static_cast<size_t>(row) * width;
      for (size_t head = at; head < at + width; head += head_dim) {
        k_norm_.apply(&k[head], &k[head]);
        rotate(rope_, position_of(batch, row), &k[head]);
      }
      const int32_t* table = &batch.pages[static_cast<size_t>(sequence.page_begin)];
      const int64_t token = int64_t{sequence.kv_begin} + i;
      pages.keep(KvSide::keys, layer, &k[at], pages.key(table, layer, token));
      pages.keep(KvSide::values, layer, &v[at], pages.value(table, layer, token));
    }
}

void Attention::attend(const Batch& batch, const BatchSequence& sequence, int row, int layer,
                       const float* q, KvPages& pages, float* out) const {
  const int32_t* table = &batch.pages[static_cast<size_t>(sequence.page_begin)];
  const int64_t tokens = int64_t{sequence.kv_begin} + row + 1;
  for (int head = 0; head < config_.q_heads; ++head)
    attend_head(table, tokens, layer, head, q + head * config_.head_dim, pages,
                out + head * config_.head_dim, rounding_of(rounding_, sequence));
}

void Attention::attend_head(const int32_t* table, int64_t tokens, int layer, int head,
                            const float* q, KvPages& pages, float* out,
                            PromptRounding rounding) const {
  const auto head_dim = static_cast<size_t>(config_.head_dim);
  const int group = config_.q_heads / config_.kv_heads;
  const size_t kv_offset = static_cast<size_t>(head / group) * head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> scores(static_cast<size_t>(tokens), -INFINITY);
  for (int64_t t = first_; t < tokens; ++t) {
    const float* k = pages.key(table, layer, t) + kv_offset;
    double dot = 0.0;
    for (size_t i = 0; i < head_dim; ++i) dot += double{q[i]} * k[i];
    scores[static_cast<size_t>(t)] = dot * scale;
  }
  const double highest = *std::ranges::max_element(scores);
  double total = 0.0;
  for (const double score : scores) total += std::exp(score - highest);
  if (rounding == PromptRounding::bf16) round_scores(scores);
  std::vector<double> sum(head_dim);
  for (int64_t t = first_; t < tokens; ++t) {
    const float* v = pages.value(table, layer, t) + kv_offset;
    const double weight = std::exp(scores[static_cast<size_t>(t)] - highest) / total;
    for (size_t i = 0; i < head_dim; ++i) sum[i] += weight * v[i];
  }
  for (size_t i = 0; i < head_dim; ++i) out[i] = static_cast<float>(sum[i]);
}

void Attention::gate(const std::vector<float>& projected, std::vector<float>& o) const {
  const auto head_dim = static_cast<size_t>(config_.head_dim);
  for (size_t i = 0; i < o.size(); ++i) {
    const size_t head = i / head_dim;
    const float logit = projected[(2 * head + 1) * head_dim + i % head_dim];
    o[i] = static_cast<float>(o[i] * sigmoid(logit));
  }
}

}  // namespace nibble::reference
