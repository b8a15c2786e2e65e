// Stop strings by bytes; see the header for which match wins.
#include "server/decode/stop_strings.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

StopMatcher::StopMatcher(std::vector<std::string> stops, StopText text)
    : stops_(std::move(stops)), text_(text) {
  for (const std::string& stop : stops_) CHECK(!stop.empty(), "an empty stop string");
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(text);
  // The retained text begins a stop string; a match may start there or later, and ends in `text`.
  const size_t held_before = held_.size();
  held_ += text;
  size_t best_end = std::string::npos;
  const std::string* best = nullptr;
  for (const std::string& stop : stops_) {
    const size_t from = held_before >= stop.size() ? held_before - stop.size() + 1 : 0;
    const size_t at = held_.find(stop, from);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (best == nullptr || end < best_end || (end == best_end && stop.size() > best->size())) {
      best = &stop;
      best_end = end;
    }
  }
  if (best != nullptr) {
    matched_ = *best;
    const size_t cut = text_ == StopText::kept ? 0 : best->size();
    return std::exchange(held_, {}).substr(0, best_end - cut);
  }
  size_t keep = 0;  // the longest suffix that begins some stop string
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n))
        keep = n;
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopMatcher::pass(std::string_view text) {
  if (matched_) return {};
  return std::exchange(held_, {}) + std::string(text);
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

StopStrings::StopStrings(Tokenizer tokenizer, std::vector<std::string> stops, int32_t min_tokens)
    : tokenizer_(std::move(tokenizer)),
      stops_(std::move(stops)),
      min_tokens_(static_cast<size_t>(min_tokens)),
      detokenizer_(tokenizer_),
      matcher_(stops_) {}

TokenConstraint::MaskState StopStrings::mask(std::span<const int32_t>, std::span<uint32_t>) {
  return MaskState::open;
}

std::optional<size_t> StopStrings::accept(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    accepted_.push_back(tokens[i]);
    const std::string text = detokenizer_.push(tokens[i]);
    if (accepted_.size() <= min_tokens_)
      matcher_.pass(text);
    else
      matcher_.push(text);
    if (matcher_.matched()) return i + 1;
  }
  return std::nullopt;
}

void StopStrings::rollback(size_t count) {
  CHECK(count <= accepted_.size(), "rollback ", count, " of ", accepted_.size());
  std::vector<int32_t> kept = std::move(accepted_);
  kept.resize(kept.size() - count);
  restart();
  accept(kept);
}

void StopStrings::restart() {
  accepted_.clear();
  detokenizer_ = Detokenizer(tokenizer_);
  matcher_ = StopMatcher(stops_);
}

}  // namespace nibble
