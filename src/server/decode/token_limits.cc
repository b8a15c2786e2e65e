// Masks only; a limit never ends a sequence.
#include "server/decode/token_limits.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/sample/token_bits.h"

namespace nibble {

TokenLimits::TokenLimits(Options options) : options_(std::move(options)) {
  for (const auto& word : options_.banned) CHECK(!word.empty(), "an empty banned word");
  std::ranges::sort(options_.exempt);
}

bool TokenLimits::about_to_say(std::span<const int32_t> word,
                               std::span<const int32_t> drafted) const {
  const size_t before = word.size() - 1;
  if (accepted_.size() + drafted.size() < before) return false;
  for (size_t back = 1; back <= before; ++back) {
    const int32_t said = back <= drafted.size()
                             ? drafted[drafted.size() - back]
                             : accepted_[accepted_.size() - (back - drafted.size())];
    if (said != word[before - back]) return false;
  }
  return true;
}

TokenConstraint::MaskState TokenLimits::mask(std::span<const int32_t> drafted,
                                             std::span<uint32_t> bits) {
  std::vector<int32_t> kept;
  for (const int32_t token : options_.exempt)
    if (has_token(bits, token)) kept.push_back(token);
  bool limited = false;
  if (!options_.allowed.empty()) {
    std::vector<int32_t> both;
    for (const int32_t token : options_.allowed)
      if (has_token(bits, token)) both.push_back(token);
    std::ranges::fill(bits, 0U);
    for (const int32_t token : both) allow_token(bits, token);
    limited = true;
  }
  for (const auto& word : options_.banned) {
    if (!about_to_say(word, drafted)) continue;
    forbid_token(bits, word.back());
    limited = true;
  }
  for (const int32_t token : kept) allow_token(bits, token);
  return limited ? MaskState::limited : MaskState::open;
}

std::optional<size_t> TokenLimits::accept(std::span<const int32_t> tokens) {
  accepted_.insert(accepted_.end(), tokens.begin(), tokens.end());
  return std::nullopt;
}

void TokenLimits::rollback(size_t count) {
  CHECK(count <= accepted_.size(), "rollback ", count, " of ", accepted_.size());
  accepted_.resize(accepted_.size() - count);
}

Result<std::vector<std::vector<int32_t>>> spellings_of(const Tokenizer& tokenizer,
                                                       std::string_view word) {
  const size_t begin = word.find_first_not_of(' ');
  const std::string_view bare = begin == std::string_view::npos ? "" : word.substr(begin);
  std::vector<std::vector<int32_t>> spellings;
  for (const std::string_view space : {"", " "}) {
    auto ids =
        TRY(tokenizer.encode(std::string(space) + std::string(bare), SpecialTokens::plain_text));
    if (ids.empty()) continue;
    const bool other = spellings.empty() || (ids.front() != spellings.back().front() &&
                                             ids.size() == spellings.back().size());
    if (other) spellings.push_back(std::move(ids));
  }
  return spellings;
}

}  // namespace nibble
