// The backward pass against torch's autograd (tools/oracle/gradient_golden.py): the gradient of the
// residual stream before every layer, and of every linear's output the square for each token.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/safetensors_header.h"
#include "quantize/gradient/head_gradient.h"
#include "quantize/gradient/layer_gradient.h"
#include "testing/golden.h"
#include "testing/golden_checks.h"
#include "testing/source_dir.h"

namespace nibble::gradient {
namespace {

std::map<std::string, Tensor> read_tensors(const std::string& path) {
  std::map<std::string, Tensor> tensors;
  const File file = File::open_read(path).value();
  for (const TensorEntry& entry : read_safetensors_header(file).value().tensors) {
    Tensor tensor(entry.dtype, entry.shape);
    file.read_at(tensor.span(), entry.offset).value();
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

/// "0.self_attn.q_proj" of "model.language_model.layers.0.self_attn.q_proj"; or "lm_head".
std::string short_name(const std::string& module) {
  const size_t at = module.find("layers.");
  return at == std::string::npos ? "lm_head" : module.substr(at + 7);
}

class GradientGolden : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kFirst = 70;  // rows of the first sample

  GradientGolden()
      : model_(load_golden(concat("model/", GetParam()))),
        tensors_(read_tensors(
            concat(NIBBLE_SOURCE_DIR "/tests/golden/gradients/", GetParam(), ".safetensors"))) {}

  int64_t rows() const { return tensors_.at("ids").shape().count(); }
  int layers() const { return model_.config.layer_count(); }

  std::span<const float> golden(const std::string& name) const {
    const Tensor& tensor = tensors_.at(name);
    return {tensor.view().as<float>(), static_cast<size_t>(tensor.shape().count())};
  }

  Rows embedded() const {
    const LinearWeight table = model_.weights.load(model_.weights.embedding()).value();
    Rows h(rows(), model_.config.hidden);
    for (int64_t r = 0; r < rows(); ++r) {
      const int32_t id = tensors_.at("ids").view().as<int32_t>()[r];
      dequantize_rows(table, id, id + 1, h.row(r));
    }
    return h;
  }

  /// Sums up the squares of each linear's output gradient, by token.
  OutputGradientSeen gather() {
    return [this](const DenseLinear& linear, const Rows&, const Rows& gradient,
                  std::span<const int32_t> ids) {
      std::vector<float>& square = squares_[short_name(linear.source().module)];
      square.resize(static_cast<size_t>(rows()));
      for (int64_t r = 0; r < gradient.count; ++r) {
        const auto at = static_cast<size_t>(ids.empty() ? r : ids[static_cast<size_t>(r)]);
        for (int64_t i = 0; i < gradient.width; ++i)
          square[at] += gradient.row(r)[i] * gradient.row(r)[i];
      }
    };
  }

  /// The gradient of the stream before each layer; last: after them.
  std::vector<Rows> backward(const Pass& pass) {
    std::vector<LayerGradient> model;
    std::vector<LayerGradient::Trace> traces(static_cast<size_t>(layers()));
    Rows h = embedded();
    for (int layer = 0; layer < layers(); ++layer) {
      model.push_back(LayerGradient::load(model_.weights, model_.config, layer).value());
      h = model.back().run(std::move(h), pass, traces[static_cast<size_t>(layer)]);
    }
    const HeadGradient head = HeadGradient::load(model_.weights, model_.config).value();
    const int32_t* labels = tensors_.at("labels").view().as<int32_t>();
    std::vector<Rows> found(static_cast<size_t>(layers() + 1));
    found.back() = head.back(
        h, [&](int64_t row, auto) { return labels[row]; }, pass);
    for (size_t layer = model.size(); layer-- > 0;)
      found[layer] = model[layer].back(traces[layer], found[layer + 1], pass);
    return found;
  }

  Golden model_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::vector<float>> squares_;
};

double largest(std::span<const float> values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

TEST_P(GradientGolden, IsThatOfAutograd) {
  ThreadPool threads(2);
  const std::vector<Rows> found = backward(
      {.samples = {{.begin = 0, .count = kFirst}, {.begin = kFirst, .count = rows() - kFirst}},
       .threads = threads,
       .seen = gather()});
  double worst = 0;
  for (size_t layer = 0; layer < found.size(); ++layer)
    worst =
        std::max(worst, relative_error(found[layer].values, golden(concat("residual/", layer))));
  EXPECT_LT(worst, 1e-4);
  size_t linears = 0;
  double worst_square = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (!name.starts_with("square/")) continue;
    const std::string linear = name.substr(7);
    ++linears;
    const std::span<const float> expected = golden(name);
    const double most = largest(expected);
    if (!squares_.contains(linear)) {
      EXPECT_EQ(most, 0.0) << linear;  // an expert that no token got
      continue;
    }
    for (size_t t = 0; t < expected.size(); ++t)
      worst_square = std::max(
          worst_square, std::fabs(static_cast<double>(squares_[linear][t] - expected[t])) / most);
  }
  EXPECT_LT(worst_square, 4e-4);
  EXPECT_GE(linears, squares_.size());
  RecordProperty("stream_error", std::to_string(worst));
  RecordProperty("square_error", std::to_string(worst_square));
}

TEST_P(GradientGolden, ThreadsLeaveNoTrace) {
  ThreadPool one(1), four(4);
  const std::vector<SampleRows> samples = {{.begin = 0, .count = kFirst},
                                           {.begin = kFirst, .count = rows() - kFirst}};
  const std::vector<Rows> alone = backward({.samples = samples, .threads = one});
  const std::vector<Rows> together = backward({.samples = samples, .threads = four});
  for (size_t layer = 0; layer < alone.size(); ++layer)
    EXPECT_EQ(alone[layer].values, together[layer].values) << layer;
}

INSTANTIATE_TEST_SUITE_P(Models, GradientGolden,
                         testing::Values("moe-fused", "dense-tied", "dense-yarn", "plain-moe-yarn"),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble::gradient
