// Words of the benchmarks of drafts: the ways to load the layer that drafts, and lists of numbers.
#pragma once

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/config/config.h"

namespace nibble {

/// The parts of a list with commas between them.
inline std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

inline std::vector<double> numbers_of(const std::string& list) {
  std::vector<double> numbers;
  for (const std::string& word : words_of(list)) numbers.push_back(std::atof(word.c_str()));
  return numbers;
}

/// Sets the layer as "nvfp4:131072" has it: none, fp8 or nvfp4, and the rows of a head of its own,
/// which are at most those of the model's.
inline void load_layer_as(const std::string& word, ModelConfig& config) {
  const size_t colon = std::min(word.find(':'), word.size());
  const std::string format = word.substr(0, colon);
  CHECK(format == "none" || format == "fp8" || format == "nvfp4", "layer ", word);
  const int rows = colon == word.size() ? 0 : std::atoi(&word[colon + 1]);
  CHECK(rows >= 0 && rows <= config.vocab_rows, "layer ", word, ": at most ", config.vocab_rows);
  config.draft_layers = 1;
  config.draft_format = format == "none"  ? WeightFormat::plain
                        : format == "fp8" ? WeightFormat::fp8_tensor
                                          : WeightFormat::nvfp4;
  config.draft_tokens.resize(static_cast<size_t>(rows));
  std::iota(config.draft_tokens.begin(), config.draft_tokens.end(), 0);
}

}  // namespace nibble
