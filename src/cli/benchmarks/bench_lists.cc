// Cuts at commas; each number has the words and limits of Arguments::integer.
#include "cli/benchmarks/bench_lists.h"

#include <algorithm>

namespace nibble {

std::vector<std::string_view> words_between(std::string_view text, char mark) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<std::vector<int64_t>> read_counts(std::string_view name, std::string_view text,
                                         CountRange range) {
  constexpr size_t kCountsMax = 64;
  std::vector<int64_t> values;
  for (const std::string_view word : words_between(text, ',')) {
    const auto value = read_size(word);
    if (!value || *value < range.least || *value > range.most || values.size() == kCountsMax)
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat("--", name),
                         .expected = concat("at most ", kCountsMax, " whole numbers from ",
                                            range.least, " to ", range.most, " with commas"),
                         .found = concat("\"", text.substr(0, 200), "\"")});
    values.push_back(*value);
  }
  return values;
}

Result<std::pair<int32_t, int32_t>> read_id_range(std::string_view text) {
  const auto words = words_between(text, ':');
  constexpr int64_t kIdsMax = 1 << 24;
  const auto first = read_size(words[0]);
  const auto last = words.size() == 2 ? read_size(words[1]) : std::nullopt;
  if (!first || !last || *first < 0 || *last <= *first || *last > kIdsMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--random-ids",
                       .expected = concat("FIRST:LAST from 0 to ", kIdsMax, ", FIRST below LAST"),
                       .found = concat("\"", text.substr(0, 200), "\"")});
  return std::pair(static_cast<int32_t>(*first), static_cast<int32_t>(*last));
}

}  // namespace nibble
