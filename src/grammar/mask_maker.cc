// The time of masks is measured, so that those of a grammar that had a long one go to threads of
// their own from then on.
#include "grammar/mask_maker.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/planted_bug.h"
#include "grammar/mask_threads.h"

namespace nibble {

namespace {

/// Bytes of forced text for each token that is wanted of it: more are not divided into tokens.
constexpr size_t kBytesPerToken = 32;

std::chrono::nanoseconds thread_time() {
  timespec used = {};
  CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0, "the clock of a thread");
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// Marks the grammar as slow if what happens in its life takes a thread long.
class Watch {
 public:
  explicit Watch(const Grammar& grammar) : grammar_(grammar), begin_(thread_time()) {}
  ~Watch() {
    if (thread_time() - begin_ > grammar_.mask_time_max) grammar_.slow = true;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  const Grammar& grammar_;
  std::chrono::nanoseconds begin_;
};

/// The token of the only bit that is set.
std::optional<int32_t> only_token(const MaskMaker::Mask& mask) {
  if (mask.kind != MaskMaker::Mask::Kind::limited) return std::nullopt;
  std::optional<int32_t> only;
  for (size_t i = 0; i < mask.words.size(); ++i) {
    const auto word = static_cast<uint32_t>(mask.words[i]);
    if (word == 0) continue;
    if (only || !std::has_single_bit(word)) return std::nullopt;
    only = static_cast<int32_t>(i) * 32 + std::countr_zero(word);
  }
  return only;
}

}  // namespace

bool MaskMaker::has_all(std::span<const int32_t> fed) const {
  return masks_.size() > fed.size() && std::ranges::equal(fed, std::span(fed_).first(fed.size())) &&
         std::ranges::none_of(std::span(masks_).first(fed.size() + 1),
                              [](const Mask& mask) { return mask.kind == Mask::Kind::absent; });
}

void MaskMaker::post(void (MaskMaker::*work)()) {
  begun_at_ = std::chrono::steady_clock::now();
  state_ = State::begun;
  MaskThreads& threads = grammar->slow ? MaskThreads::slow() : MaskThreads::quick();
  threads.post([maker = shared_from_this(), work] {
    ((*maker).*work)();
    maker->state_ = State::idle;
  });
}

/// Masks that are there after the tokens that it shares with the last call stay.
void MaskMaker::begin(std::vector<int32_t> fed) {
  const auto shared = static_cast<size_t>(std::ranges::mismatch(fed, fed_).in1 - fed.begin());
  size_t kept = 0;
  while (kept < masks_.size() && kept <= shared && masks_[kept].kind != Mask::Kind::absent) ++kept;
  masks_.resize(kept);
  fed_ = std::move(fed);
  post(&MaskMaker::make_all);
}

void MaskMaker::begin_forced(size_t most) {
  forget();
  forced_most_ = most;
  post(&MaskMaker::make_forced);
}

const MaskMaker::Mask& MaskMaker::mask(std::span<const int32_t> fed) {
  const bool known = masks_.size() > fed.size() &&
                     std::ranges::equal(fed, std::span(fed_).first(fed.size())) &&
                     masks_[fed.size()].kind != Mask::Kind::absent;
  if (!known) {
    fed_.assign(fed.begin(), fed.end());
    masks_.clear();
    make(Wanted::last);
  }
  return masks_[fed.size()];
}

size_t MaskMaker::fitting(std::span<const int32_t> fed) {
  size_t count = 0;
  while (count < fed.size() && !matcher.IsTerminated() && matcher.AcceptToken(fed[count])) ++count;
  const size_t taken_back = planted(kBugLooksKeepOne) && count > 0 ? count - 1 : count;
  if (taken_back > 0) matcher.Rollback(static_cast<int>(taken_back));
  return count;
}

/// Those in front that are there stay.
void MaskMaker::make(Wanted wanted) {
  if (grammar->before_mask) grammar->before_mask();
  const size_t last = fed_.size();
  const size_t kept = masks_.size();
  masks_.resize(last + 1, {.kind = Mask::Kind::open, .words = {}});
  int accepted = 0;
  for (size_t i = 0; i <= last; ++i) {
    if (i > 0) {
      if (matcher.IsTerminated() || !matcher.AcceptToken(fed_[i - 1])) break;
      ++accepted;
    }
    if (i < kept) continue;
    if (wanted == Wanted::last && i < last)
      masks_[i].kind = Mask::Kind::absent;
    else if (!matcher.IsTerminated())
      fill(masks_[i]);
  }
  if (accepted > 0) matcher.Rollback(accepted);
}

/// A token that alone is allowed, or all but the last of the text that must come; and so on, until
/// one token of such a text is left that may be joined with what follows.
void MaskMaker::make_forced() {
  if (grammar->before_mask) grammar->before_mask();
  fed_.clear();
  fill(masks_.emplace_back());
  bool certain = true;
  while (certain && fed_.size() < forced_most_) {
    std::vector<int32_t> next;
    if (const auto only = only_token(masks_.back())) {
      next = {*only};
    } else {
      next = forced_text();
      if (next.empty()) break;
      certain = next.size() > 1;
      if (certain) next.pop_back();
    }
    for (const int32_t token : next)
      if (fed_.size() == forced_most_ || !feed(token)) {
        certain = false;
        break;
      }
  }
  if (!fed_.empty()) matcher.Rollback(static_cast<int>(fed_.size()));
  forced_ = fed_;
}

bool MaskMaker::feed(int32_t token) {
  if (!matcher.AcceptToken(token)) return false;
  if (matcher.IsTerminated()) {  // an end is nothing to draft
    matcher.Rollback(1);
    return false;
  }
  fed_.push_back(token);
  fill(masks_.emplace_back());
  return true;
}

std::vector<int32_t> MaskMaker::forced_text() {
  if (!grammar->encode) return {};
  const Watch watch(*grammar);
  std::string text = matcher.FindJumpForwardString();
  if (text.empty()) return {};
  text.resize(std::min(text.size(), (forced_most_ - fed_.size() + 1) * kBytesPerToken));
  return grammar->encode(text);
}

void MaskMaker::fill(Mask& mask) {
  mask.words.resize(static_cast<size_t>(xgrammar::GetBitmaskSize(grammar->vocab_size)));
  auto shape = static_cast<int64_t>(mask.words.size());
  DLTensor tensor{.data = mask.words.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &shape,
                  .strides = nullptr,
                  .byte_offset = 0};
  const Watch watch(*grammar);
  mask.kind = matcher.FillNextTokenBitmask(&tensor) ? Mask::Kind::limited : Mask::Kind::open;
}

}  // namespace nibble
