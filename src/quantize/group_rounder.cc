// Blocks in, codes and scales out.
#include "quantize/group_rounder.h"

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "quantize/rounding/fp8_round.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::span<const std::byte> bytes_of(const float& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Json LinearOutcome::json() const {
  return Json::Array{Json(statistics.weight_squares),     Json(statistics.error_squares),
                     Json(statistics.amax_error_squares), Json(statistics.zero_blocks),
                     Json(statistics.flushed_blocks),     Json(fallback)};
}

Result<LinearOutcome> LinearOutcome::parse(const Json& json) {
  const bool sound = json.is_array() && json.as_array().size() == 6 &&
                     json.as_array()[0].is_number() && json.as_array()[1].is_number() &&
                     json.as_array()[2].is_number() && json.as_array()[3].is_int() &&
                     json.as_array()[4].is_int() && json.as_array()[5].is_string();
  if (!sound)
    return make_error(ErrorCode::corrupt, {.what = "the journal of an unfinished output",
                                           .expected = "six facts about a linear",
                                           .found = json.dump().substr(0, 60),
                                           .advice = "remove the output and begin again"});
  const Json::Array& facts = json.as_array();
  return LinearOutcome{.statistics = {.weight_squares = facts[0].as_double(),
                                      .error_squares = facts[1].as_double(),
                                      .amax_error_squares = facts[2].as_double(),
                                      .zero_blocks = facts[3].as_int(),
                                      .flushed_blocks = facts[4].as_int()},
                       .fallback = facts[5].as_string()};
}

std::vector<GroupRounder::RowBlock> GroupRounder::cut(const FusedGroup& group) const {
  std::vector<RowBlock> blocks;
  for (size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSource& source = group.linears[i].source;
    const DType dtype = checkpoint_.find(source.values)->dtype;
    int64_t step = std::max<int64_t>(1, options_.block_bytes / dtype_bytes(dtype, source.cols));
    if (group.linears[i].becomes.scheme.weights == WeightFormat::fp8_block)
      step = std::max(kFp8Block, step / kFp8Block * kFp8Block);  // whole bands of tiles
    for (int64_t row = 0; row < source.rows; row += step)
      blocks.push_back({.linear = i, .begin = row, .rows = std::min(step, source.rows - row)});
  }
  return blocks;
}

Result<Tensor> GroupRounder::read_rows(const LinearSource& source, int64_t begin,
                                       int64_t rows) const {
  const TensorEntry& from = *checkpoint_.find(source.values);
  Tensor values(from.dtype, {rows, source.cols});
  const int64_t at = dtype_bytes(from.dtype, (source.row_begin + begin) * source.cols);
  TRY(checkpoint_.read_bytes(from, at, values.span()));
  return values;
}

/// Names the first weight that is no weight.
Error GroupRounder::bad_weight(const PlannedLinear& linear, const RowBlock& block) const {
  const int64_t size = dtype_bytes(block.values.dtype(), 1);
  const int64_t count = block.values.shape().count();
  int64_t i = 0;
  float magnitude = 0;
  for (; i < count; ++i) {
    magnitude = largest_magnitude(block.values.view().data + i * size, block.values.dtype(), 1);
    if (!(magnitude <= kWeightMax)) break;
  }
  const int64_t row = block.begin + i / linear.source.cols;
  return make_error(ErrorCode::corrupt,
                    {.what = concat("tensor ", linear.source.values, " (", linear.source.module,
                                    " row ", row, " column ", i % linear.source.cols, ")"),
                     .expected = "a finite weight below 2^127",
                     .found = std::isnan(magnitude) ? std::string("NaN") : concat(magnitude),
                     .advice = "the source is damaged: fetch it again"});
}

/// The largest magnitude. Keeps the blocks of a group that may stay in memory.
Result<GroupRounder::FirstPass> GroupRounder::first_pass(const FusedGroup& group,
                                                         std::vector<RowBlock>& blocks) const {
  float amax = 0;
  Sha256 hasher;
  for (RowBlock& block : blocks) {
    TRY(options_.check());
    const PlannedLinear& linear = group.linears[block.linear];
    block.values = TRY(read_rows(linear.source, block.begin, block.rows));
    const float found = largest_magnitude(block.values.view().data, block.values.dtype(),
                                          block.values.shape().count());
    if (!(found <= kWeightMax)) return bad_weight(linear, block);
    amax = std::max(amax, found);
    hasher.add(block.values.span());
    if (group.bytes > options_.held_bytes_max) block.values = Tensor();
  }
  return FirstPass{.amax = amax, .source_hash = hasher.hex()};
}

Result<std::string> GroupRounder::source_hash(const FusedGroup& group) const {
  Sha256 hasher;
  for (const RowBlock& block : cut(group)) {
    TRY(options_.check());
    const LinearSource& source = group.linears[block.linear].source;
    const Tensor values = TRY(read_rows(source, block.begin, block.rows));
    hasher.add({values.view().data, static_cast<size_t>(values.bytes())});
  }
  return hasher.hex();
}

void GroupRounder::prepare(const PlannedLinear& linear, Prepared& prepared) const {
  const InputStatistics* statistics =
      options_.statistics ? options_.statistics(linear.source) : nullptr;
  if (statistics != nullptr && statistics == prepared.statistics) return;
  prepared = Prepared();  // before the next one takes its memory
  prepared.statistics = statistics;
  const RoundingRequest request{.algorithm = options_.algorithm,
                                .cols = linear.source.cols,
                                .statistics = statistics,
                                .path = best_round_path(),
                                .device = options_.device};
  if (linear.becomes.scheme.weights == WeightFormat::nvfp4) {
    prepared.four_bit = prepare_rounding(request);
  } else {
    prepared.fp8 = prepare_fp8_rounding(request);
  }
}

Result<RoundStatistics> GroupRounder::write_nvfp4(const PlannedLinear& linear,
                                                  const RowBlock& block, const GroupScale& scale,
                                                  const RowRounder& rounder,
                                                  ThreadPool& threads) const {
  const int64_t cols = linear.source.cols;
  std::vector<uint8_t> codes(static_cast<size_t>(block.rows * cols / 2));
  std::vector<uint8_t> scales(static_cast<size_t>(block.rows * cols / kNvfp4Group));
  const RoundStatistics statistics =
      rounder.round_block(block.values.view(), scale.exponent, {codes, scales}, threads);
  const Nvfp4Names names = nvfp4_names(linear.source.module, options_.dialect);
  TRY(writer_.append(names.codes, bytes_of(codes)));
  TRY(writer_.append(names.scales, bytes_of(scales)));
  return statistics;
}

/// One band of at most 128 rows, without data. scales: one for each row, for each tile of 128
/// columns, or empty.
RoundStatistics GroupRounder::round_fp8(const TensorView& weights, float tensor_scale,
                                        WeightFormat format, const Fp8Band& out) {
  if (format == WeightFormat::fp8_block) return round_fp8_band(weights, out.codes, out.scales);
  if (format == WeightFormat::fp8_channel)
    return round_fp8_channels(weights, out.codes, out.scales);
  return round_fp8_rows(weights, tensor_scale, out.codes);
}

/// Rounds in bands of 128 rows, whatever the scales stand for: sums of errors do not depend on
/// threads. Scales come first, and are the same with GPTQ, which then chooses the codes.
Result<RoundStatistics> GroupRounder::write_fp8(const PlannedLinear& linear, const RowBlock& block,
                                                const GroupScale& scale,
                                                const Fp8Rounding& rounding,
                                                ThreadPool& threads) const {
  const TensorView weights = block.values.view();
  const int64_t cols = linear.source.cols;
  const WeightFormat format = linear.becomes.scheme.weights;
  const bool by_row = format == WeightFormat::fp8_channel;
  const int64_t tiles = format == WeightFormat::fp8_block ? (cols + kFp8Block - 1) / kFp8Block : 0;
  const int64_t bands = (block.rows + kFp8Block - 1) / kFp8Block;
  std::vector<uint8_t> codes(static_cast<size_t>(block.rows * cols));
  std::vector<float> scales(static_cast<size_t>(by_row ? block.rows : bands * tiles));
  std::vector<RoundStatistics> by_band(static_cast<size_t>(bands));
  threads.parallel_for(by_band.size(), 1, [&](size_t begin, size_t end) {
    for (size_t band = begin; band < end; ++band) {
      const int64_t row = static_cast<int64_t>(band) * kFp8Block;
      const int64_t rows = std::min(kFp8Block, block.rows - row);
      const size_t first = by_row ? static_cast<size_t>(row) : band * static_cast<size_t>(tiles);
      by_band[band] = round_fp8(
          rows_of(weights, row, rows), scale.fp8, format,
          {.codes = std::span(codes).subspan(static_cast<size_t>(row * cols),
                                             static_cast<size_t>(rows * cols)),
           .scales = std::span(scales).subspan(first, static_cast<size_t>(by_row ? rows : tiles))});
    }
  });
  if (rounding.gptq != nullptr) {
    const Fp8Scales all{.values = scales.empty() ? std::span(&scale.fp8, 1) : std::span(scales),
                        .per_row = by_row ? 1 : 0,
                        .per_tile = tiles > 0 ? 1 : 0,
                        .per_band = tiles};
    const std::vector<double> errors = rounding.gptq->round_bands(weights, all, codes, threads);
    for (size_t band = 0; band < errors.size(); ++band) by_band[band].error_squares = errors[band];
  }
  RoundStatistics statistics;
  for (const RoundStatistics& band : by_band) statistics += band;
  TRY(writer_.append(concat(linear.source.module, ".weight"), bytes_of(codes)));
  if (!scales.empty())
    TRY(writer_.append(concat(linear.source.module, ".weight_scale"), bytes_of(scales)));
  return statistics;
}

/// The same scale for every linear of the group: written from one number.
Result<void> GroupRounder::write_scales(const PlannedLinear& linear,
                                        const GroupScale& scale) const {
  const QuantScheme& scheme = linear.becomes.scheme;
  const std::string& module = linear.source.module;
  const float input_scale =
      options_.input_scale ? options_.input_scale(linear) : linear.becomes.input_scale;
  if (scheme.weights == WeightFormat::nvfp4) {
    const auto direction = scale_direction(options_.dialect);
    const float global = power_of_two_global(scale.exponent, direction).value;
    CHECK(std::isfinite(global) && global > 0, "global scale ", global);
    const Nvfp4Names names = nvfp4_names(module, options_.dialect);
    TRY(writer_.append(names.global, bytes_of(global)));
    if (scheme.activations != ActivationFormat::nvfp4) return {};
    const bool divides = direction == GlobalScale::Direction::divide;
    const float input = divides ? 1.0F / input_scale : input_scale;
    return writer_.append(names.input_scale, bytes_of(input));
  }
  if (scheme.weights == WeightFormat::fp8_tensor)
    TRY(writer_.append(concat(module, ".weight_scale"), bytes_of(scale.fp8)));
  if (scheme.activations == ActivationFormat::fp8_tensor)
    TRY(writer_.append(concat(module, ".input_scale"), bytes_of(input_scale)));
  return {};
}

/// Two passes over the group: its largest magnitude, then rounding under the scale it gives.
Result<RoundedGroup> GroupRounder::round(const FusedGroup& group, ThreadPool& threads) const {
  std::vector<RowBlock> blocks = cut(group);
  auto [amax, source_hash] = TRY(first_pass(group, blocks));
  const GroupScale scale{.exponent = global_exponent(amax), .fp8 = fp8_scale(amax)};
  std::vector<LinearOutcome> outcomes(group.linears.size());
  Prepared prepared;  // blocks come linear by linear
  const bool four_bit = group.linears.front().becomes.scheme.weights == WeightFormat::nvfp4;
  for (RowBlock& block : blocks) {
    TRY(options_.check());
    const PlannedLinear& linear = group.linears[block.linear];
    LinearOutcome& outcome = outcomes[block.linear];
    if (block.begin == 0) {
      prepare(linear, prepared);
      outcome.fallback = four_bit ? prepared.four_bit.fallback : prepared.fp8.fallback;
    }
    if (group.bytes > options_.held_bytes_max)
      block.values = TRY(read_rows(linear.source, block.begin, block.rows));
    outcome.statistics +=
        four_bit ? TRY(write_nvfp4(linear, block, scale, *prepared.four_bit.rows, threads))
                 : TRY(write_fp8(linear, block, scale, prepared.fp8, threads));
    block.values = Tensor();
  }
  for (const PlannedLinear& linear : group.linears) TRY(write_scales(linear, scale));
  return RoundedGroup{.outcomes = std::move(outcomes), .source_hash = std::move(source_hash)};
}

}  // namespace nibble
