// Lists of numbers as flags of benchmarks have them: "30,40,50".
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cli/verb.h"

namespace nibble {

struct CountRange {
  int64_t least = 1;
  int64_t most = 1;
};

/// The value of an option as whole numbers with commas, at most 64 of them, each as read_size reads
/// it. Errors: invalid_argument.
Result<std::vector<int64_t>> read_counts(std::string_view name, std::string_view text,
                                         CountRange range);

/// "FIRST:LAST" as token ids, the last one left out. Errors: invalid_argument, naming --random-ids.
Result<std::pair<int32_t, int32_t>> read_id_range(std::string_view text);

/// `text` cut at each `mark`.
std::vector<std::string_view> words_between(std::string_view text, char mark);

}  // namespace nibble
