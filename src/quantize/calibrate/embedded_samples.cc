// Each distinct token is read once.
#include "quantize/calibrate/embedded_samples.h"

#include <algorithm>
#include <map>

#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

Result<std::vector<uint16_t>> embed(const Checkpoint& checkpoint, const Weights& weights,
                                    const ModelConfig& config, const CalibrationData& data) {
  const auto width = static_cast<size_t>(config.hidden);
  std::map<int32_t, std::vector<size_t>> places;
  size_t row = 0;
  for (const CalibrationSample& sample : data.samples)
    for (const int32_t id : sample.ids) places[id].push_back(row++);
  std::vector<uint16_t> hidden(row * width);
  const LinearSource& table = weights.embedding();
  const TensorEntry* entry = checkpoint.find(table.values);
  CHECK(entry != nullptr, "no tensor ", table.values);
  if (table.scheme.weights != WeightFormat::plain)
    return make_error(
        ErrorCode::unsupported,
        {.what = table.values, .expected = "an unquantized embedding", .found = "a quantized one"});
  const int64_t bytes = dtype_bytes(entry->dtype, config.hidden);
  std::vector<std::byte> raw(static_cast<size_t>(bytes));
  std::vector<float> values(width);
  std::vector<uint16_t> narrow(width);
  for (const auto& [id, rows] : places) {
    if (id < 0 || id >= config.vocab_rows)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "token id in calibration data",
                         .expected = concat("below ", config.vocab_rows),
                         .found = concat(id)});
    TRY(checkpoint.read_bytes(*entry, id * bytes, raw));
    decode_plain(raw.data(), entry->dtype, config.hidden, values.data());
    std::ranges::transform(values, narrow.begin(), float_to_bf16);
    for (const size_t place : rows)
      std::ranges::copy(narrow, hidden.begin() + static_cast<std::ptrdiff_t>(place * width));
  }
  return hidden;
}

}  // namespace

LayerSamples sample_lengths(const CalibrationData& data) {
  LayerSamples samples;
  for (const CalibrationSample& sample : data.samples)
    samples.lengths.push_back(static_cast<int64_t>(sample.ids.size()));
  return samples;
}

Result<LayerSamples> embedded_samples(const Checkpoint& checkpoint, const Weights& weights,
                                      const ModelConfig& config, const CalibrationData& data) {
  LayerSamples samples = sample_lengths(data);
  samples.hidden = TRY(embed(checkpoint, weights, config, data));
  return samples;
}

}  // namespace nibble
