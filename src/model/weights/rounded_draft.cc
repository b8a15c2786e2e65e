// Places and rows; the scales: rounded_draft_scales.cc.
#include "model/weights/rounded_draft.h"

#include <algorithm>

#include "model/weights/draft_places.h"
#include "model/weights/fused_linears.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

int64_t RoundedDraft::piece_rows(const LinearSource& linear) {
  constexpr int64_t kNumbers = int64_t{64} << 10;
  return std::max<int64_t>(1, kNumbers / linear.cols);
}

RoundedDraft::RoundedDraft(const Weights& weights, const ModelConfig& config)
    : base_(weights),
      places_(draft_places(*base_.mtp(), base_.head(), config)),
      tokens_(config.draft_tokens) {}

void RoundedDraft::pair(const LinearSource& from, const LinearSource& to, size_t group) {
  if (from.values == to.values && from.scheme == to.scheme) return;
  const TensorEntry* entry = base_.values_of(from).entry;
  made_.push_back({.from = &from,
                   .to = &to,
                   .group = group,
                   .global = {},
                   .source = entry->dtype == DType::bf16 ? SourceType::bf16 : SourceType::f32});
}

template <typename Act>
Result<void> RoundedDraft::each_run(const Made& made, int64_t begin, int64_t n,
                                    const Act& act) const {
  if (!is_gathered(made)) return act(begin, n, int64_t{0});
  const int32_t* tokens = &tokens_[static_cast<size_t>(begin)];
  for (int64_t at = 0, count = 1; at < n; at += count, count = 1) {
    while (at + count < n && tokens[at + count] == tokens[at] + count) ++count;
    TRY(act(int64_t{tokens[at]}, count, at));
  }
  return {};
}

Result<void> RoundedDraft::wide_rows(const Made& made, int64_t begin, std::span<float> out) const {
  const int64_t cols = made.from->cols;
  const auto rows = static_cast<int64_t>(out.size()) / cols;
  return each_run(made, begin, rows, [&](int64_t first, int64_t count, int64_t at) -> Result<void> {
    const LinearWeight run = TRY(base_.load_rows(*made.from, first, first + count));
    dequantize_rows(run, 0, count, out.data() + at * cols);
    return {};
  });
}

void RoundedDraft::put(const std::string& name, DType dtype, const Shape& shape, Place place) {
  const StoredBytes stored = base_.values_of(*made_[place.made].from);
  place.entry = {.name = name,
                 .dtype = dtype,
                 .shape = shape,
                 .file = stored.entry->file,
                 .offset = stored.entry->offset + static_cast<uint64_t>(stored.begin),
                 .bytes = dtype_bytes(dtype, shape.count())};
  own_.emplace(name, std::move(place));
}

void RoundedDraft::put_rows(size_t made, const std::string& name, DType dtype, int64_t cols) {
  const LinearSource& to = *made_[made].to;
  put(name, dtype, {to.rows, cols},
      {.entry = {}, .part = name == to.values ? Part::values : Part::block_scales, .made = made});
}

void RoundedDraft::put_numbers(size_t made, const std::string& name,
                               std::span<const float> values) {
  put(name, DType::f32, {static_cast<int64_t>(values.size())},
      {.entry = {}, .part = Part::fixed, .made = made, .fixed = bytes_of(values)});
}

/// The scales of the rows of the tokens.
Result<std::vector<float>> RoundedDraft::channel_scales(const Made& made) const {
  const LinearWeight factors = TRY(base_.load_factors(*made.from));
  std::vector<float> scales;
  for (const int32_t token : tokens_) scales.push_back(factors.scales.as<float>()[token]);
  return scales;
}

/// A scale that all rows share stays where the head has it, unless they are rounded.
Result<void> RoundedDraft::list_tensors() {
  for (size_t i = 0; i < made_.size(); ++i) {
    const Made& made = made_[i];
    const LinearSource& to = *made.to;
    const bool rounded = made.from->scheme.weights == WeightFormat::plain;
    switch (to.scheme.weights) {
      case WeightFormat::plain:
        put_rows(i, to.values, DType::bf16, to.cols);
        break;
      case WeightFormat::nvfp4:
        put_rows(i, to.values, DType::u8, to.cols / 2);
        put_rows(i, to.scales, DType::f8_e4m3, to.cols / kNvfp4Group);
        if (rounded) put_numbers(i, to.global_scale, {&made.global.value, 1});
        break;
      case WeightFormat::fp8_tensor:
        put_rows(i, to.values, DType::f8_e4m3, to.cols);
        if (rounded) put_numbers(i, to.scales, {&made.scale, 1});
        break;
      case WeightFormat::fp8_channel:
        put_rows(i, to.values, DType::f8_e4m3, to.cols);
        put_numbers(i, to.scales, TRY(channel_scales(made)));
        break;
      case WeightFormat::fp8_block:
        CHECK(false, "check_draft_places refuses rows of a head in blocks");
    }
  }
  return {};
}

Result<std::unique_ptr<RoundedDraft>> RoundedDraft::make(const Weights& weights,
                                                         const ModelConfig& config,
                                                         ThreadPool& pool) {
  CHECK(weights.mtp(), "a model without the layer that drafts");
  auto draft = std::make_unique<RoundedDraft>(weights, config);
  TRY(check_draft_places(draft->places_, weights.head()));
  const auto before = fused_linears(*draft->base_.mtp());
  const auto after = fused_linears(draft->places_);
  for (size_t group = 0; group < before.size(); ++group)
    for (size_t i = 0; i < before[group].size(); ++i)
      draft->pair(*before[group][i], *after[group][i], group);
  if (draft->places_.head.present())
    draft->pair(draft->base_.head(), draft->places_.head, before.size());
  TRY(draft->scale_groups(pool, before.size() + 1));
  TRY(draft->list_tensors());
  return draft;
}

const TensorEntry* RoundedDraft::find(std::string_view name) const {
  const auto found = own_.find(std::string(name));
  return found != own_.end() ? &found->second.entry : base_.tensors().find(name);
}

/// Rows of codes as the head stores them.
Result<void> RoundedDraft::copy_rows(const Place& place, int64_t begin,
                                     std::span<std::byte> out) const {
  const Made& made = made_[place.made];
  const StoredBytes stored =
      place.part == Part::values ? base_.values_of(*made.from) : base_.block_scales_of(*made.from);
  const int64_t row_bytes = stored.bytes / made.from->rows;
  const int64_t rows = static_cast<int64_t>(out.size()) / row_bytes;
  return each_run(made, begin, rows, [&](int64_t first, int64_t count, int64_t at) {
    return base_.read(
        stored, first * row_bytes,
        out.subspan(static_cast<size_t>(at * row_bytes), static_cast<size_t>(count * row_bytes)));
  });
}

Result<void> RoundedDraft::make_rows(const Place& place, int64_t begin,
                                     std::span<std::byte> out) const {
  const Made& made = made_[place.made];
  if (made.from->scheme.weights != WeightFormat::plain) return copy_rows(place, begin, out);
  const int64_t cols = made.to->cols;
  const int64_t row_bytes = place.entry.bytes / made.to->rows;
  const int64_t rows = static_cast<int64_t>(out.size()) / row_bytes;
  std::vector<float> wide(static_cast<size_t>(rows * cols));
  TRY(wide_rows(made, begin, wide));
  std::vector<uint8_t> scales(static_cast<size_t>(cols / kNvfp4Group));
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = wide.data() + row * cols;
    auto* to = reinterpret_cast<uint8_t*>(out.data() + row * row_bytes);
    if (made.to->scheme.weights == WeightFormat::plain) {
      std::transform(x, x + cols, reinterpret_cast<uint16_t*>(to), float_to_bf16);
    } else if (made.to->scheme.weights == WeightFormat::fp8_tensor) {
      encode_fp8_row(x, made.scale, cols, to);
    } else if (place.part == Part::block_scales) {
      nvfp4_amax_scales_row(x, made.global, made.source, cols, to);
    } else {
      nvfp4_amax_scales_row(x, made.global, made.source, cols, scales.data());
      encode_nvfp4_row(x, scales.data(), made.global, cols, to);
    }
  }
  return {};
}

Result<void> RoundedDraft::read_bytes(const TensorEntry& entry, int64_t begin,
                                      std::span<std::byte> out) const {
  const auto found = own_.find(entry.name);
  if (found == own_.end() || &entry != &found->second.entry)
    return base_.tensors().read_bytes(entry, begin, out);
  const Place& place = found->second;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (place.part == Part::fixed) {
    std::copy(place.fixed.begin() + begin, place.fixed.begin() + end, out.begin());
    return {};
  }
  const LinearSource& to = *made_[place.made].to;
  const int64_t row_bytes = entry.bytes / to.rows;
  const int64_t step = piece_rows(to);
  std::vector<std::byte> piece;
  for (int64_t row = begin / row_bytes; row * row_bytes < end; row += step) {
    const int64_t last = std::min({row + step, to.rows, (end + row_bytes - 1) / row_bytes});
    piece.resize(static_cast<size_t>((last - row) * row_bytes));
    TRY(make_rows(place, row, piece));
    const int64_t from = std::max(begin, row * row_bytes);
    const int64_t until = std::min(end, last * row_bytes);
    std::copy(piece.begin() + (from - row * row_bytes), piece.begin() + (until - row * row_bytes),
              out.begin() + (from - begin));
  }
  return {};
}

}  // namespace nibble
