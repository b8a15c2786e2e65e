// Batches of one sequence over a whole page table and one state slot.
#include "eval/teacher_forced.h"

#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace nibble {
namespace {

constexpr int64_t kChunkLogitBytes = 64 << 20;
constexpr int64_t kChunkRowsMax = 512;

}  // namespace

int TeacherForced::chunk_rows(const ModelConfig& config) {
  const int64_t row_bytes = int64_t{config.vocab_rows} * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::min(kChunkLogitBytes / row_bytes, kChunkRowsMax);
  return static_cast<int>(std::max(rows / kPageTokens, int64_t{1}) * kPageTokens);
}

Result<TeacherForced> TeacherForced::create(Backend& backend, const ModelConfig& config,
                                            int64_t tokens_max, Arithmetic arithmetic) {
  if (tokens_max > config.max_positions)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "sequence",
         .expected = concat("at most max_position_embeddings ", config.max_positions, " ids"),
         .found = concat(tokens_max)});
  const PoolSizes sizes = {
      .pages = static_cast<int32_t>((tokens_max + kPageTokens - 1) / kPageTokens),
      .state_slots = 1,
      .rows_max = static_cast<int32_t>(std::min<int64_t>(chunk_rows(config), tokens_max))};
  TRY(backend.reserve(sizes));
  TeacherForced run(backend, config, sizes, arithmetic);
  run.begin();
  return run;
}

void TeacherForced::begin() {
  tokens_ = 0;
  backend_->zero_state(0);
}

Result<std::span<const float>> TeacherForced::next(std::span<const int32_t> ids) {
  const auto rows = static_cast<int32_t>(ids.size());
  Batch batch{.tokens = {ids.begin(), ids.end()}};
  for (int axis = 0; axis < 3; ++axis)
    for (int32_t i = 0; i < rows; ++i) batch.positions.push_back(tokens_ + i);
  for (int32_t page = 0; page < sizes_.pages; ++page) batch.pages.push_back(page);
  for (int32_t i = 0; i < rows; ++i) batch.logit_rows.push_back(i);
  batch.sequences = {{.row_count = rows,
                      .kv_begin = tokens_,
                      .page_count = sizes_.pages,
                      .arithmetic = arithmetic_}};
  validate_batch(batch, *config_, sizes_);
  const HeadOutput output = forward(*backend_, *config_, batch);
  for (size_t i = 0; i < output.logits.size(); ++i) {
    if (std::isfinite(output.logits[i])) continue;
    const auto row = static_cast<int64_t>(i) / config_->vocab_rows;
    return make_error(ErrorCode::corrupt, {.what = concat("logits of position ", tokens_ + row),
                                           .expected = "finite numbers",
                                           .found = concat(output.logits[i]),
                                           .advice = "`nibble verify` looks for broken weights"});
  }
  tokens_ += rows;
  return output.logits;
}

}  // namespace nibble
