// Reads lists of ids in any of the usual forms.
#include "cli/drafts/token_map.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

namespace nibble {
namespace {

Error bad_map(std::string_view source, std::string_view expected, std::string_view found) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = source,
       .expected = expected,
       .found = found.size() > 40 ? concat(found.substr(0, 40), "...") : std::string(found)});
}

/// The tokens that are no text; in the families that are known they follow it.
std::set<int32_t> special_tokens(const ModelConfig& config) {
  constexpr int32_t kSpecialMost = 1024;
  std::set<int32_t> tokens;
  for (const int32_t id : config.stop_ids)
    if (id >= 0 && id < config.vocab_rows) tokens.insert(id);
  if (tokens.empty() || config.vocab_rows - *tokens.begin() > kSpecialMost) return tokens;
  for (int32_t id = *tokens.begin(); id < config.vocab_rows; ++id) tokens.insert(id);
  return tokens;
}

}  // namespace

Result<std::vector<int32_t>> tokens_of(const TokenMap& map, const ModelConfig& config) {
  std::vector<int32_t> tokens = map.count > 0
                                    ? TRY(first_tokens(config, map.count))
                                    : TRY(parse_token_map(map.text, map.source, config.vocab_rows));
  if (std::ssize(tokens) == config.vocab_rows) tokens.clear();
  return tokens;
}

Result<std::vector<int32_t>> parse_token_map(std::string_view text, std::string_view source,
                                             int32_t vocab_rows) {
  constexpr std::string_view kBetween = " \t\r\n,";
  constexpr std::string_view kExpected =
      "token ids in a JSON list or between spaces (of a torch file make one: python3 -c \"import "
      "torch, sys; print(*torch.load(sys.argv[1]).tolist())\")";
  const size_t begin = text.find_first_not_of(kBetween);
  const bool listed = begin != std::string_view::npos && text[begin] == '[';
  if (listed) {
    const size_t end = text.find_last_not_of(kBetween);
    if (text[end] != ']') return bad_map(source, "a list that ends", "its beginning alone");
    text = text.substr(begin + 1, end - begin - 1);
  }
  std::vector<int32_t> tokens;
  for (size_t at = text.find_first_not_of(kBetween); at < text.size();
       at = text.find_first_not_of(kBetween, at)) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t id = -1;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    const bool printable = std::ranges::all_of(word, [](char c) { return c >= ' ' && c <= '~'; });
    if (error != std::errc() || last != word.data() + word.size())
      return bad_map(source, kExpected, printable ? word : "bytes that are no text");
    if (id < 0 || id >= vocab_rows)
      return bad_map(source, concat("token ids from 0 to ", vocab_rows - 1), word);
    tokens.push_back(id);
    at = end;
  }
  if (tokens.empty()) return bad_map(source, kExpected, "none");
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

Result<std::vector<int32_t>> first_tokens(const ModelConfig& config, int64_t count) {
  const std::set<int32_t> special = special_tokens(config);
  const auto least = static_cast<int64_t>(special.size()) + 1;
  if (count < least || count > config.vocab_rows)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--speculative-token-map",
                       .expected = concat("a whole number from ", least, " (", special.size(),
                                          " special tokens and one) to ", config.vocab_rows),
                       .found = concat(count)});
  std::vector<int32_t> tokens(special.begin(), special.end());
  for (int32_t id = 0; std::ssize(tokens) < count; ++id)
    if (!special.contains(id)) tokens.push_back(id);
  std::ranges::sort(tokens);
  return tokens;
}

}  // namespace nibble
