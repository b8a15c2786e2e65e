// A safetensors file of F32 matrices: `logits`, or `logits.0`, `logits.1`, ...
#include "eval/stored_logits.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "checkpoint/safetensors_header.h"

namespace nibble {

Result<StoredLogits> StoredLogits::open(const std::filesystem::path& path,
                                        std::span<const int64_t> rows, int64_t vocab_rows) {
  File file = TRY(File::open_read(path));
  const SafetensorsHeader header = TRY(read_safetensors_header(file));
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = rows.size() == 1 ? "logits" : concat("logits.", i);
    const auto found = std::ranges::find(header.tensors, name, &TensorEntry::name);
    const Shape shape = {rows[i], vocab_rows};
    const bool there = found != header.tensors.end();
    if (!there || found->dtype != DType::f32 || found->shape != shape)
      return make_error(
          ErrorCode::invalid_argument,
          {.what = concat(path.string(), ": ", name),
           .expected = concat("F32 logits of these tokens, [", rows[i], ", ", vocab_rows, "]"),
           .found = there ? "another shape or type" : "no such tensor",
           .advice = "store them of the same text and --sequence-tokens"});
    offsets.push_back(found->offset);
  }
  if (header.tensors.size() != rows.size())
    return make_error(ErrorCode::invalid_argument,
                      {.what = path.string(),
                       .expected = concat("logits of ", rows.size(), " sequences"),
                       .found = concat(header.tensors.size(), " tensors")});
  return StoredLogits(std::move(file), std::move(offsets), {rows.begin(), rows.end()}, vocab_rows);
}

Result<std::span<const float>> StoredLogits::next(int64_t count) {
  CHECK(sequence_ < rows_.size() && row_ + count <= rows_[sequence_], "row ", row_, " + ", count);
  values_.resize(static_cast<size_t>(count * vocab_rows_));
  const uint64_t row_bytes = static_cast<uint64_t>(vocab_rows_) * sizeof(float);
  TRY(file_.read_at(std::as_writable_bytes(std::span(values_)),
                    offsets_[sequence_] + static_cast<uint64_t>(row_) * row_bytes));
  if (!std::ranges::all_of(values_, [](float value) { return std::isfinite(value); }))
    return make_error(
        ErrorCode::corrupt,
        {.what = file_.path().string(), .expected = "finite logits", .found = "others"});
  row_ += count;
  if (row_ == rows_[sequence_]) {
    ++sequence_;
    row_ = 0;
  }
  return std::span<const float>(values_);
}

}  // namespace nibble
