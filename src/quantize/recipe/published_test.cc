// Headers of published checkpoints (tests/published) as sparse files: inspect, the loader and
// verify read them, and our own output of the same recipe has the same tensors.
#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "model/config/config.h"
#include "model/weights/weights.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/verify/inspect.h"
#include "quantize/verify/verify.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

constexpr std::string_view kFolder = NIBBLE_SOURCE_DIR "/tests/published/";
constexpr std::string_view kConfigs = NIBBLE_SOURCE_DIR "/tests/golden/configs/";

struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  bool operator==(const Stored&) const = default;
};
using Tensors = std::map<std::string, Stored>;

Json read_json(const std::string& path) {
  return parse_json(read_text_file(path, uint64_t{1} << 24).value(), path).value();
}

/// "a.{0-3}.b" and "a.{linear}.b" to their names.
void expand(const std::string& pattern, const Json& sets, std::vector<std::string>& out) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return out.push_back(pattern);
  const size_t close = pattern.find('}', open);
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  const auto put = [&](int64_t number) {
    expand(concat(pattern.substr(0, open), number, pattern.substr(close + 1)), sets, out);
  };
  if (const Json* set = sets.find(inside)) {
    for (const Json& number : set->as_array()) put(number.as_int());
    return;
  }
  const int last = std::stoi(inside.substr(inside.find('-') + 1));
  for (int number = std::stoi(inside); number <= last; ++number) put(number);
}

Tensors tensors_of(const Json& manifest) {
  Tensors out;
  for (const Json& row : manifest.find("tensor_rows")->as_array()) {
    Stored stored{.dtype = row.find("dtype")->as_string(), .shape = {}};
    for (const Json& size : row.find("shape")->as_array()) stored.shape.push_back(size.as_int());
    std::vector<std::string> names;
    expand(row.find("name")->as_string(), *manifest.find("sets"), names);
    for (const std::string& name : names) {
      EXPECT_TRUE(out.emplace(name, stored).second) << "twice: " << name;
    }
  }
  return out;
}

int64_t element_bytes(const std::string& dtype) {
  return dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
}

/// A weight file with this header and a hole for data; config.json beside it.
void write_sparse(const std::filesystem::path& folder, const Json& manifest,
                  const Tensors& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const auto& [name, stored] : tensors) {
    std::string shape;
    int64_t count = 1;
    for (const int64_t size : stored.shape) {
      shape += concat(shape.empty() ? "" : ",", size);
      count *= size;
    }
    const int64_t end = offset + count * element_bytes(stored.dtype);
    header += concat(",\"", name, "\":{\"dtype\":\"", stored.dtype, "\",\"shape\":[", shape,
                     "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  header += "}";
  std::filesystem::create_directory(folder);
  const auto file = folder / "model.safetensors";
  const size_t head = header.size() + 8;
  write_test_file(file, safetensors_bytes(header, 0));
  std::filesystem::resize_file(file, head + static_cast<uint64_t>(offset));
  Json config = read_json(concat(kConfigs, manifest.find("config")->as_string()));
  if (const Json* declared = manifest.find("quantization_config"))
    config.set("quantization_config", *declared);
  write_test_file(folder / "config.json", config.dump());
}

/// Tensors of a manifest that our output has not, or otherwise, and the reverse.
std::vector<std::string> differences(const Tensors& theirs, const QuantPlan& plan) {
  Tensors ours;
  for (const TensorPlan& tensor : plan.outputs) {
    const auto sizes = tensor.shape.sizes();
    ours[tensor.name] = {.dtype = std::string(dtype_info(tensor.dtype).name),
                         .shape = {sizes.begin(), sizes.end()}};
  }
  std::vector<std::string> out;
  for (const auto& [name, stored] : theirs) {
    const auto found = ours.find(name);
    // ModelOpt writes input scales for weights that meet BF16 activations; nothing reads them.
    if (found == ours.end() && name.ends_with(".input_scale")) continue;
    if (found == ours.end()) out.push_back("not ours: " + name);
    if (found == ours.end() || found->second == stored) continue;
    // Scales of FP8 blocks are BF16 there and F32 here; readers take both.
    if (name != "lm_head.weight_scale" || found->second.shape != stored.shape)
      out.push_back("otherwise: " + name);
  }
  for (const auto& [name, stored] : ours)
    if (!theirs.contains(name)) out.push_back("only ours: " + name);
  return out;
}

int64_t int_of(const Json& manifest, std::string_view key) { return manifest.find(key)->as_int(); }

class Published : public testing::TestWithParam<const char*> {};

TEST_P(Published, IsReadAndMatchedByOurOwnOutput) {
  const Json manifest = read_json(concat(kFolder, GetParam()));
  const Tensors tensors = tensors_of(manifest);
  const TemporaryFolder root;
  write_sparse(root / "there", manifest, tensors);

  const Inspection seen = inspect_checkpoint(root / "there").value();
  EXPECT_TRUE(seen.config_trouble.empty()) << seen.config_trouble;
  EXPECT_EQ(seen.parameters, int_of(manifest, "parameters"));
  if (manifest.find("tensors") != nullptr) {
    EXPECT_EQ(static_cast<int64_t>(seen.tensors.size()), int_of(manifest, "tensors"));
  }
  if (manifest.find("bytes") != nullptr) {
    EXPECT_EQ(seen.bytes, int_of(manifest, "bytes"));
  }

  const VerifyReport report =
      verify_checkpoint(root / "there", {.depth = VerifyDepth::headers}).value();
  for (const Finding& finding : report.findings)
    EXPECT_EQ(finding.severity, Severity::warning) << finding.subject << ": " << finding.text;

  if (manifest.find("recipe") == nullptr) return;
  const Json* from = manifest.find("source");
  const Json source =
      read_json(concat(kFolder, from == nullptr ? "qwen3.6-35b-a3b.json" : from->as_string()));
  write_sparse(root / "source", source, tensors_of(source));
  const Checkpoint checkpoint = Checkpoint::open(root / "source").value();
  const Recipe recipe = load_recipe(manifest.find("recipe")->as_string()).value();
  const Dialect dialect = parse_dialect(manifest.find("format")->as_string()).value();
  const auto differing =
      differences(tensors, plan_quantization(checkpoint, recipe, dialect).value());
  EXPECT_TRUE(differing.empty()) << differing.size() << " differ, first " << differing.front();
}

INSTANTIATE_TEST_SUITE_P(Manifests, Published,
                         testing::Values("qwen3.6-35b-a3b.json", "qwen3.5-35b-a3b.json",
                                         "nvidia-qwen3.6-35b-a3b-nvfp4.json",
                                         "unsloth-qwen3.6-27b-nvfp4.json"));

// Many seconds each, for 124,000 tensors: in ./test --full.
INSTANTIATE_TEST_SUITE_P(DISABLED_Large, Published,
                         testing::Values("redhatai-qwen3.6-35b-a3b-nvfp4.json",
                                         "ig1-qwen3.5-35b-a3b-nvfp4.json",
                                         "inferrouter-qwen3.6-35b-a3b-nvfp4.json",
                                         "inferrouter-qwen3.6-35b-a3b-nvfp4-fp8-head.json"));

}  // namespace
}  // namespace nibble
