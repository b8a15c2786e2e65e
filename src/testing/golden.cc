// Reads a golden folder.
#include "testing/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/weights/rounded_draft.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

constexpr uint64_t kGoldenBytesMax = 8U << 20;

std::vector<std::string> folders(std::string_view kind) {
  std::vector<std::string> names;
  const auto root = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden" / kind;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.is_directory()) names.push_back(concat(kind, "/", entry.path().filename().string()));
  std::sort(names.begin(), names.end());
  CHECK(!names.empty(), "no goldens in ", root.string());
  return names;
}

std::vector<int32_t> integers(const Json& list) {
  std::vector<int32_t> numbers;
  for (const auto& element : list.as_array())
    numbers.push_back(static_cast<int32_t>(element.as_int()));
  return numbers;
}

/// positions[axis][row] of one sequence; without any, every axis counts from 0.
std::vector<std::array<int32_t, 3>> read_positions(const Json* axes, size_t rows) {
  std::vector<std::array<int32_t, 3>> positions(rows);
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto numbers =
        axes == nullptr ? std::vector<int32_t>{} : integers(axes->as_array()[axis]);
    for (size_t row = 0; row < rows; ++row)
      positions[row][axis] = axes == nullptr ? static_cast<int32_t>(row) : numbers[row];
  }
  return positions;
}

/// All sequences' logits, one after the other.
/// `logits_of` gives the place of a sequence's logits.
void read_logits(Golden& golden, const std::filesystem::path& path,
                 const std::function<std::vector<float>&(GoldenSequence&)>& logits_of) {
  const std::string raw = read_text_file(path, kGoldenBytesMax).value();
  size_t at = 0;
  for (auto& sequence : golden.sequences) {
    std::vector<float>& logits = logits_of(sequence);
    logits.resize(sequence.ids.size() * static_cast<size_t>(golden.config.vocab_rows));
    const size_t bytes = logits.size() * sizeof(float);
    CHECK(at + bytes <= raw.size(), path.string(), " has ", raw.size(), " bytes");
    std::memcpy(logits.data(), raw.data() + at, bytes);
    at += bytes;
  }
  CHECK(at == raw.size(), path.string(), " has ", raw.size(), " bytes, expected ", at);
}

GoldenDrafts read_drafts(const Json& expected, const std::filesystem::path& path, int vocab_rows) {
  GoldenDrafts drafts{.places = integers(*expected.find("places")),
                      .steps = static_cast<int32_t>(expected.find("steps")->as_int())};
  for (const Json& tokens : expected.find("tokens")->as_array())
    drafts.tokens.push_back(integers(tokens));
  const std::string raw = read_text_file(path, kGoldenBytesMax).value();
  drafts.logits.resize(drafts.places.size() * static_cast<size_t>(drafts.steps * vocab_rows));
  CHECK(raw.size() == drafts.logits.size() * sizeof(float), path.string(), " has ", raw.size());
  std::memcpy(drafts.logits.data(), raw.data(), raw.size());
  return drafts;
}

}  // namespace

std::vector<std::string> golden_names() { return folders("model"); }
bool has_kv_golden(const std::string& name, KvCache kind) {
  return std::filesystem::exists(std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden" / name /
                                 concat("logits_kv_", kv_cache_name(kind), ".f32"));
}
std::vector<std::string> mtp_golden_names() { return folders("model-mtp"); }
std::vector<std::string> quantized_golden_names() { return folders("model-quantized"); }

Golden load_golden(const std::string& name) {
  const auto folder = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden" / name;
  Golden golden;
  golden.name = name;
  golden.checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder).value());
  golden.config = ModelConfig::parse(golden.checkpoint->config()).value();
  constexpr int64_t kLongest = 4096;  // the sequences go a little beyond what YaRN gives these
  golden.config.max_positions = std::max(golden.config.max_positions, kLongest);
  const auto drafts = folder / "drafts.f32";
  const bool with_drafts = std::filesystem::exists(drafts);
  if (with_drafts) golden.config.draft_layers = 1;
  golden.weights = Weights::bind(*golden.checkpoint, golden.config).value();
  const std::string text = read_text_file(folder / "expected.json", kGoldenBytesMax).value();
  const Json expected = parse_json(text, "expected.json").value();
  const Json* positions = expected.find("positions");
  const auto& ids = expected.find("ids")->as_array();
  for (size_t i = 0; i < ids.size(); ++i) {
    GoldenSequence sequence{.ids = integers(ids[i])};
    sequence.positions = read_positions(positions == nullptr ? nullptr : &positions->as_array()[i],
                                        sequence.ids.size());
    golden.sequences.push_back(std::move(sequence));
  }
  if (with_drafts) {
    golden.drafts = read_drafts(expected, drafts, golden.config.vocab_rows);
    return golden;
  }
  read_logits(golden, folder / "logits.f32", std::mem_fn(&GoldenSequence::logits));
  if (std::filesystem::exists(folder / "logits_high.f32"))
    read_logits(golden, folder / "logits_high.f32", std::mem_fn(&GoldenSequence::logits_high));
  for (const KvCache kind : kKvCaches) {
    const auto path = folder / concat("logits_kv_", kv_cache_name(kind), ".f32");
    if (std::filesystem::exists(path))
      read_logits(golden, path, [kind](GoldenSequence& sequence) -> std::vector<float>& {
        return sequence.logits_kv[kind];
      });
  }
  if (const Json* greedy = expected.find("greedy")) golden.greedy = integers(*greedy);
  return golden;
}

void round_draft(Golden& golden, const DraftVariant& variant) {
  golden.config.draft_format = variant.format;
  golden.config.draft_tokens = variant.tokens;
  ThreadPool pool(1);
  auto rounded = RoundedDraft::make(golden.weights, golden.config, pool).value();
  golden.weights = rounded->weights();
  golden.rounded = std::move(rounded);
}

Golden load_pebble_that_drafts(const DraftVariant& variant) {
  Golden golden{.name = "pebble", .config = {}};
  const auto folder = std::filesystem::path(NIBBLE_SOURCE_DIR) / "pebble/model";
  golden.checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder).value());
  golden.config = ModelConfig::parse(golden.checkpoint->config()).value();
  golden.config.draft_layers = golden.config.mtp_layers;
  golden.weights = Weights::bind(*golden.checkpoint, golden.config).value();
  round_draft(golden, variant);
  return golden;
}

double relative_error(std::span<const float> found, std::span<const float> expected) {
  CHECK(found.size() == expected.size() && !found.empty(), found.size(), " of ", expected.size());
  double mean = 0.0;
  for (const float value : expected) mean += value;
  mean /= static_cast<double>(expected.size());
  double variance = 0.0;
  double error = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(found[i])) return std::numeric_limits<double>::infinity();
    variance += (expected[i] - mean) * (expected[i] - mean);
    error += std::pow(double{found[i]} - expected[i], 2);
  }
  return std::sqrt(error / variance);
}

}  // namespace nibble
