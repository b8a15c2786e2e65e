// For tests: runs of quantize() on the small checkpoint of test_model.h, and what came of them.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/weights/weights.h"
#include "quantize/quantize.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/testing/test_model.h"

namespace nibble::test {

inline Recipe recipe_of(const std::string& rules) {
  return parse_recipe(concat("name: test\nstatus: production\nrules:\n", rules), "test").value();
}

struct Asked {
  Recipe recipe = load_recipe("w4a16").value();
  Dialect dialect = Dialect::compressed_tensors;
  QuantizeOptions options = {};
};

inline Result<QuantizeReport> run(const std::filesystem::path& source,
                                  const std::filesystem::path& output, const Asked& asked = {}) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(source));
  const QuantPlan plan = TRY(plan_quantization(checkpoint, asked.recipe, asked.dialect));
  return quantize(checkpoint, plan, asked.recipe, output, asked.options);
}

/// A checkpoint with its bound weights, those of its MTP layer too if something of it is quantized.
struct Opened {
  explicit Opened(const std::filesystem::path& folder)
      : checkpoint(Checkpoint::open(folder).value()),
        weights(bind_linears(checkpoint, ModelConfig::parse(checkpoint.config()).value()).value()) {
  }
  Checkpoint checkpoint;
  Weights weights;
};

inline std::vector<float> decoded(const Opened& model, const LinearSource& source) {
  const LinearWeight weight = model.weights.load(source).value();
  std::vector<float> out(static_cast<size_t>(source.rows * source.cols));
  dequantize_rows(weight, 0, source.rows, out.data());
  return out;
}

inline double relative_error(const std::vector<float>& truth, const std::vector<float>& found) {
  double error = 0, square = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double d = static_cast<double>(truth[i]) - static_cast<double>(found[i]);
    error += d * d;
    square += static_cast<double>(truth[i]) * static_cast<double>(truth[i]);
  }
  return std::sqrt(error / square);
}

using Files = std::map<std::string, std::string>;

/// Every file of a folder, by name.
inline Files files_of(const std::filesystem::path& folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = test::file_text(entry.path());
  return files;
}

inline std::vector<std::string> names_of(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  return names;
}

}  // namespace nibble::test
