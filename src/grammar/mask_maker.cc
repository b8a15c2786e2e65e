// The time of masks is measured, so that those of a grammar that had a long one go to threads of
// their own from then on.
#include "grammar/mask_maker.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "grammar/mask_threads.h"

namespace nibble {

namespace {

/// A mask of more processor time than this is a long one.
constexpr int64_t kMaskNsMax = 4'000'000;

int64_t thread_ns() {
  timespec used = {};
  CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0, "the clock of a thread");
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

}  // namespace

bool MaskMaker::has_all(std::span<const int32_t> fed) const {
  return masks_.size() > fed.size() && std::ranges::equal(fed, std::span(fed_).first(fed.size())) &&
         std::ranges::none_of(std::span(masks_).first(fed.size() + 1),
                              [](const Mask& mask) { return mask.kind == Mask::Kind::absent; });
}

void MaskMaker::begin(std::vector<int32_t> fed) {
  fed_ = std::move(fed);
  begun_at_ = std::chrono::steady_clock::now();
  state_ = State::begun;
  MaskThreads& threads = grammar->slow ? MaskThreads::slow() : MaskThreads::quick();
  threads.post([maker = shared_from_this()] {
    maker->make(Wanted::all);
    maker->state_ = State::idle;
  });
}

const MaskMaker::Mask& MaskMaker::mask(std::span<const int32_t> fed) {
  const bool known = masks_.size() > fed.size() &&
                     std::ranges::equal(fed, std::span(fed_).first(fed.size())) &&
                     masks_[fed.size()].kind != Mask::Kind::absent;
  if (!known) {
    fed_.assign(fed.begin(), fed.end());
    make(Wanted::last);
  }
  return masks_[fed.size()];
}

void MaskMaker::make(Wanted wanted) {
  if (grammar->before_mask) grammar->before_mask();
  const size_t last = fed_.size();
  masks_.assign(last + 1, {.kind = Mask::Kind::open, .words = {}});
  int accepted = 0;
  for (size_t i = 0; i <= last; ++i) {
    if (i > 0) {
      if (matcher.IsTerminated() || !matcher.AcceptToken(fed_[i - 1])) break;
      ++accepted;
    }
    if (wanted == Wanted::last && i < last)
      masks_[i].kind = Mask::Kind::absent;
    else if (!matcher.IsTerminated())
      fill(masks_[i]);
  }
  if (accepted > 0) matcher.Rollback(accepted);
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
  const int64_t begin = thread_ns();
  mask.kind = matcher.FillNextTokenBitmask(&tensor) ? Mask::Kind::limited : Mask::Kind::open;
  if (thread_ns() - begin > kMaskNsMax) grammar->slow = true;
}

}  // namespace nibble
