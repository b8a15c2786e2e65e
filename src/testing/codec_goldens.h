// Holds the codecs against a file of what compressed-tensors computed
// (tools/oracle/codec_cases.py). The comparison is byte for byte; only the payload of a NaN is
// free.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors_header.h"
#include "tensor/activation_codec.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"
#include "tensor/tensor.h"

namespace nibble {

class CodecGoldens {
 public:
  explicit CodecGoldens(const std::filesystem::path& path) {
    const File file = File::open_read(path).value();
    const SafetensorsHeader header = read_safetensors_header(file).value();
    for (const TensorEntry& entry : header.tensors) {
      Tensor tensor(entry.dtype, entry.shape);
      file.read_at(tensor.span(), entry.offset).value();
      cases_.insert(entry.name.substr(0, entry.name.rfind('/')));
      tensors_.emplace(entry.name, std::move(tensor));
    }
  }

  /// One line per tensor that differs: case, first place, expected and found.
  std::vector<std::string> check() {
    for (const std::string& name : cases_) {
      if (name.starts_with("weight/")) check_weight(name);
      if (name.starts_with("nvfp4_input/")) check_nvfp4_input(name);
      if (name.starts_with("fp8_token/")) check_fp8_dynamic(name, Run::row);
      if (name.starts_with("fp8_group/")) check_fp8_dynamic(name, Run::group);
      if (name.starts_with("fp8_static/")) check_fp8_static(name);
      if (name.starts_with("fp8_weight/")) check_fp8_weight(name);
    }
    return differences_;
  }
  size_t cases() const { return cases_.size(); }
  int64_t compared() const { return compared_; }

 private:
  enum class Run { row, group };

  const Tensor& tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    CHECK(found != tensors_.end(), "no golden ", name);
    return found->second;
  }
  std::vector<float> floats(const std::string& name) const {
    const Tensor& source = tensor(name);
    std::vector<float> out(static_cast<size_t>(source.shape().count()));
    decode_plain(source.view().data, source.dtype(), source.shape().count(), out.data());
    return out;
  }
  SourceType source_type(const std::string& name) const {
    return tensor(name).dtype() == DType::bf16 ? SourceType::bf16 : SourceType::f32;
  }
  GlobalScale global(const std::string& name) const {
    return {.value = floats(name)[0], .direction = GlobalScale::Direction::divide};
  }

  void differ(const std::string& name, size_t at, const std::string& expected,
              const std::string& found) {
    differences_.push_back(concat(name, " at ", at, ": expected ", expected, ", found ", found));
  }
  enum class Bytes { codes, scales };
  /// The sign of an E4M3 NaN is free.
  void compare_bytes(const std::string& name, Bytes kind, const std::vector<uint8_t>& found) {
    const auto* expected = tensor(name).as<uint8_t>();
    CHECK(tensor(name).bytes() == static_cast<int64_t>(found.size()), name);
    compared_ += static_cast<int64_t>(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const bool nan = kind == Bytes::scales && expected[i] == 0xFF && found[i] == 0x7F;
      if (expected[i] == found[i] || nan) continue;
      return differ(name, i, concat(expected[i]), concat(found[i]));
    }
  }
  void compare_floats(const std::string& name, const std::vector<float>& found) {
    const std::vector<float> expected = floats(name);
    CHECK(expected.size() == found.size(), name, ": ", expected.size(), " vs ", found.size());
    compared_ += static_cast<int64_t>(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
      if (std::bit_cast<uint32_t>(expected[i]) != std::bit_cast<uint32_t>(found[i])) {
        return differ(name, i, concat(expected[i]), concat(found[i]));
      }
    }
  }

  /// Decoders give F32; Python's gave the type of the golden.
  void compare_decoded(const std::string& name, std::vector<float> found) {
    if (tensor(name).dtype() == DType::bf16) {
      for (float& value : found) value = round_to_bf16(value);
    }
    compare_floats(name, found);
  }

  void check_weight(const std::string& name) {
    const std::vector<float> values = floats(name + "/values");
    const SourceType source = source_type(name + "/values");
    const int64_t rows = tensor(name + "/values").shape()[0];
    const int64_t cols = tensor(name + "/values").shape()[1];
    float amax = 0;
    for (const float value : values) amax = std::max(amax, std::fabs(value));
    const auto scale = nvfp4_global_scale(amax, GlobalScale::Direction::divide, source);
    compare_floats(name + "/global_scale", {scale.value});
    std::vector<uint8_t> scales(values.size() / 16);
    std::vector<uint8_t> codes(values.size() / 2);
    std::vector<float> decoded(values.size());
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = values.data() + row * cols;
      uint8_t* row_scales = scales.data() + row * cols / 16;
      uint8_t* row_codes = codes.data() + row * cols / 2;
      nvfp4_amax_scales_row(x, scale, source, cols, row_scales);
      encode_nvfp4_row(x, row_scales, scale, cols, row_codes);
      decode_nvfp4_row(row_codes, row_scales, scale, cols, decoded.data() + row * cols);
    }
    compare_bytes(name + "/scales", Bytes::scales, scales);
    compare_bytes(name + "/packed", Bytes::codes, codes);
    compare_decoded(name + "/decoded_f32", decoded);
    compare_decoded(name + "/decoded_bf16", decoded);
  }

  void check_nvfp4_input(const std::string& name) {
    const std::vector<float> x = floats(name + "/x");
    const SourceType source = source_type(name + "/x");
    const GlobalScale scale = global(name + "/global_scale");
    const auto count = static_cast<int64_t>(x.size());
    std::vector<uint8_t> scales(x.size() / 16);
    std::vector<uint8_t> codes(x.size() / 2);
    encode_nvfp4_activations(x.data(), {.global = scale, .source = source}, count, codes.data(),
                             scales.data());
    compare_bytes(name + "/scales", Bytes::scales, scales);
    if (!name.ends_with("_nan")) compare_bytes(name + "/packed", Bytes::codes, codes);
    std::vector<float> out(x.size());
    round_nvfp4_activations(x.data(), {.global = scale, .source = source}, count, out.data());
    compare_floats(name + "/out", out);
  }

  void check_fp8_dynamic(const std::string& name, Run run) {
    const std::vector<float> x = floats(name + "/x");
    const SourceType source = source_type(name + "/x");
    const int64_t cols = tensor(name + "/x").shape()[1];
    const int64_t group = run == Run::group ? kFp8Block : cols;
    std::vector<float> out(x.size());
    std::vector<float> scales;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols)) {
      round_fp8_dynamic(x.data() + row, source, group, cols, out.data() + row);
      for (size_t begin = row; begin < row + static_cast<size_t>(cols);
           begin += static_cast<size_t>(group)) {
        float amax = 0;
        for (size_t i = 0; i < static_cast<size_t>(group); ++i) {
          amax = std::max(amax, std::fabs(x[begin + i]));
        }
        scales.push_back(fp8_dynamic_scale(amax, source));
      }
    }
    compare_floats(name + "/scales", scales);
    compare_floats(name + "/out", out);
  }

  void check_fp8_static(const std::string& name) {
    const std::vector<float> x = floats(name + "/x");
    std::vector<float> out(x.size());
    round_fp8_static(x.data(), floats(name + "/scale")[0], source_type(name + "/x"),
                     static_cast<int64_t>(x.size()), out.data());
    compare_floats(name + "/out", out);
  }

  void check_fp8_weight(const std::string& name) {
    const Tensor& codes = tensor(name + "/codes");
    const std::vector<float> scale = floats(name + "/scale");
    const int64_t cols = codes.shape()[1];
    const int64_t tiles = (cols + kFp8Block - 1) / kFp8Block;
    std::vector<float> decoded(static_cast<size_t>(codes.shape().count()));
    for (int64_t row = 0; row < codes.shape()[0]; ++row) {
      const uint8_t* in = codes.as<uint8_t>() + row * cols;
      float* out = decoded.data() + row * cols;
      if (name.ends_with("block")) {
        decode_fp8_block_row(in, scale.data() + row / kFp8Block * tiles, cols, out);
      } else {
        const bool channel = name.ends_with("channel");
        decode_fp8_row(in, scale[channel ? static_cast<size_t>(row) : 0], cols, out);
      }
    }
    compare_decoded(name + "/decoded", decoded);
  }

  std::map<std::string, Tensor> tensors_;
  std::set<std::string> cases_;
  std::vector<std::string> differences_;
  int64_t compared_ = 0;
};

}  // namespace nibble
