// Lists the tensors and makes their rows; rounded_draft_scales.cc finds the scales.
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

RoundedDraft::RoundedDraft(Weights weights, const ModelConfig& config)
    : base_(std::move(weights)),
      places_(draft_places(*base_.mtp(), base_.head(), config)),
      tokens_(config.draft_tokens) {}

void RoundedDraft::pair(const LinearSource& from, const LinearSource& to, size_t group) {
  if (from.values == to.values && from.scheme == to.scheme) return;
  const DType stored = base_.values_of(from).entry->dtype;
  made_.push_back({.from = &from,
                   .to = &to,
                   .group = group,
                   .global = {},
                   .source = stored == DType::bf16 ? SourceType::bf16 : SourceType::f32,
                   .stored = stored});
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
      {.entry = {}, .part = Part::numbers, .made = made, .numbers = bytes_of(values)});
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
    switch (to.scheme.weights) {
      case WeightFormat::plain:
        put_rows(i, to.values, DType::bf16, to.cols);
        break;
      case WeightFormat::nvfp4:
        put_rows(i, to.values, DType::u8, to.cols / 2);
        put_rows(i, to.scales, DType::f8_e4m3, to.cols / kNvfp4Group);
        if (made.rounds()) put_numbers(i, to.global_scale, {&made.global.value, 1});
        break;
      case WeightFormat::fp8_tensor:
        put_rows(i, to.values, DType::f8_e4m3, to.cols);
        if (made.rounds()) put_numbers(i, to.scales, {&made.scale, 1});
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

Result<std::unique_ptr<RoundedDraft>> RoundedDraft::make(Weights weights, const ModelConfig& config,
                                                         ThreadPool& pool) {
  CHECK(weights.mtp(), "a model without the layer that drafts");
  auto draft = std::make_unique<RoundedDraft>(std::move(weights), config);
  TRY(check_draft_places(draft->places_, draft->base_.head()));
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

Result<void> RoundedDraft::copy_rows(const Made& made, const StoredBytes& stored, int64_t begin,
                                     std::span<std::byte> out) const {
  const int64_t row_bytes = stored.bytes / made.from->rows;
  const int64_t rows = static_cast<int64_t>(out.size()) / row_bytes;
  return each_run(made, begin, rows, [&](int64_t first, int64_t count, int64_t at) {
    return base_.read(
        stored, first * row_bytes,
        out.subspan(static_cast<size_t>(at * row_bytes), static_cast<size_t>(count * row_bytes)));
  });
}

void RoundedDraft::round_row(const Made& made, int64_t row, const std::byte* from,
                             std::span<float> wide, uint8_t* to) {
  const int64_t cols = made.to->cols;
  decode_plain(from, made.stored, cols, wide.data());
  if (made.to->scheme.weights == WeightFormat::plain) {
    std::ranges::transform(wide, reinterpret_cast<uint16_t*>(to), float_to_bf16);
  } else if (made.to->scheme.weights == WeightFormat::fp8_tensor) {
    encode_fp8_row(wide.data(), made.scale, cols, to);
  } else {
    const auto* scales = reinterpret_cast<const uint8_t*>(made.scales.data());
    encode_nvfp4_row(wide.data(), scales + row * (cols / kNvfp4Group), made.global, cols, to);
  }
}

/// Rows of codes, and plain ones in BF16, are copied; the others are made.
Result<void> RoundedDraft::make_rows(const Place& place, int64_t begin,
                                     std::span<std::byte> out) const {
  const Made& made = made_[place.made];
  const StoredBytes values = base_.values_of(*made.from);
  if (place.part == Part::block_scales)
    return copy_rows(made, base_.block_scales_of(*made.from), begin, out);
  if (!made.rounds() && made.stored == place.entry.dtype)
    return copy_rows(made, values, begin, out);
  const int64_t from_bytes = values.bytes / made.from->rows;
  const int64_t to_bytes = place.entry.bytes / made.to->rows;
  const int64_t rows = static_cast<int64_t>(out.size()) / to_bytes;
  std::vector<std::byte> stored(static_cast<size_t>(rows * from_bytes));
  TRY(copy_rows(made, values, begin, stored));
  std::vector<float> wide(static_cast<size_t>(made.to->cols));
  for (int64_t row = 0; row < rows; ++row)
    round_row(made, begin + row, stored.data() + row * from_bytes, wide,
              reinterpret_cast<uint8_t*>(out.data() + row * to_bytes));
  return {};
}

std::span<const std::byte> RoundedDraft::held(const Place& place) const {
  if (place.part == Part::numbers) return place.numbers;
  if (place.part == Part::block_scales) return made_[place.made].scales;
  return {};
}

Result<void> RoundedDraft::read_bytes(const TensorEntry& entry, int64_t begin,
                                      std::span<std::byte> out) const {
  const auto found = own_.find(entry.name);
  if (found == own_.end() || &entry != &found->second.entry)
    return base_.tensors().read_bytes(entry, begin, out);
  const Place& place = found->second;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (const auto bytes = held(place); !bytes.empty()) {
    std::copy(bytes.begin() + begin, bytes.begin() + end, out.begin());
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
