// Masks only; a limit never ends a sequence.
#include "server/decode/token_limits.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/sample/token_bits.h"

namespace nibble {

TokenLimits::TokenLimits(Options options) : banned_(std::move(options.banned)) {
  for (const auto& word : banned_) CHECK(!word.empty(), "an empty banned word");
  std::erase_if(banned_, [&](const std::vector<int32_t>& word) {
    return std::ranges::find(options.exempt, word.back()) != options.exempt.end();
  });
  if (options.allowed.empty()) return;
  options.allowed.insert(options.allowed.end(), options.exempt.begin(), options.exempt.end());
  allowed_.resize(static_cast<size_t>(std::ranges::max(options.allowed)) / 32 + 1);
  for (const int32_t token : options.allowed) allow_token(allowed_, token);
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
  bool limited = !allowed_.empty();
  if (limited)
    for (size_t i = 0; i < bits.size(); ++i) bits[i] &= i < allowed_.size() ? allowed_[i] : 0U;
  for (const auto& word : banned_) {
    if (!about_to_say(word, drafted)) continue;
    forbid_token(bits, word.back());
    limited = true;
  }
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

size_t TokenLimits::fitting(std::span<const int32_t> drafted) {
  const auto may_follow = [&](size_t i) {
    const int32_t token = drafted[i];
    const bool listed = std::cmp_less(token, allowed_.size() * 32) && has_token(allowed_, token);
    if (!allowed_.empty() && !listed) return false;
    return std::ranges::none_of(banned_, [&](const std::vector<int32_t>& word) {
      return word.back() == token && about_to_say(word, drafted.first(i));
    });
  };
  size_t count = 0;
  while (count < drafted.size() && may_follow(count)) ++count;
  return count;
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
