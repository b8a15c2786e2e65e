// Calibration data: files of conversations, questions, texts or token ids become token sequences of
// this model, chosen by seed. What was chosen and cut is in the report. Not the pass that uses
// them: calibration.h. Shapes of records: docs/formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// One file of a mix.
struct CalibrationSource {
  std::filesystem::path file;  // .jsonl: a record a line; .txt: one text, cut into samples
  int64_t samples = 0;         // how many to choose; 0: an equal share of the request's
  /// Field of a record by its standard name ("prompt" -> "query"); others are looked for as named.
  std::map<std::string, std::string, std::less<>> fields = {};
};

struct CalibrationRequest {
  std::string mix;  // name of the mix, or empty
  std::vector<CalibrationSource> sources;
  int64_t samples = 512;  // over all sources that name no count
  int64_t length = 2048;  // tokens of a sample at most; the rest is cut off
  uint64_t seed = 0;
};

struct CalibrationSample {
  std::vector<int32_t> ids;
  size_t source = 0;
  int64_t record = 0;  // line, from 1; of a .txt file: which piece of `length` tokens, from 1
};

/// The sequences that one file gave.
struct SourceReport {
  std::string file;    // name without folder
  std::string sha256;  // of the whole file
  int64_t records = 0;
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t truncated = 0;
  int64_t skipped = 0;  // chosen, but empty or refused by the chat template
  std::string skipped_why;
  std::vector<int64_t> chosen;  // records, ascending
};

struct CalibrationData {
  CalibrationRequest request;
  std::vector<CalibrationSample> samples;
  std::vector<SourceReport> sources;

  int64_t tokens() const;
  int64_t longest() const;
  /// Hash over the ids of all samples: two runs with the same one saw the same tokens.
  std::string hash() const;
  Json json() const;
};

/// "FILE[:COUNT]", several separated by commas. Errors: invalid_argument.
Result<std::vector<CalibrationSource>> parse_calibration_sources(std::string_view text);
/// "prompt=query,response=reply" -> fields. Errors: invalid_argument for an unknown standard name.
Result<std::map<std::string, std::string, std::less<>>> parse_field_map(std::string_view text);

/// A mix: YAML with name, about, length, seed and a list of sources. Files are looked for in
/// `folder`. Errors: invalid_argument with source and line.
Result<CalibrationRequest> parse_calibration_mix(std::string_view text, std::string_view source,
                                                 const std::filesystem::path& folder);

struct BuiltinMix {
  std::string_view name;
  std::string_view text;
};
/// The files of recipes/calibration/, compiled in.
std::span<const BuiltinMix> builtin_mixes();

/// Tokenizer and chat template are those of `model`. Errors: not_found (a file), invalid_argument
/// (an empty file, a length beyond `positions_max`, a record of no known shape: names file and
/// line), corrupt (a line that is no JSON).
Result<CalibrationData> read_calibration(const CalibrationRequest& request,
                                         const std::filesystem::path& model, int64_t positions_max);

}  // namespace nibble
