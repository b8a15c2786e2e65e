// Unfolds the runs into blocks of 256 code points; blocks of one class are shared.
#include "text/tokenizer/unicode_classes.h"

#include <algorithm>

namespace nibble {

UnicodeClasses::UnicodeClasses() {
  constexpr uint32_t kAbsent = ~uint32_t{0};
  std::array<uint32_t, 64> uniform;
  uniform.fill(kAbsent);
  size_t run = 0;
  const auto run_end = [&] {
    return run + 1 < detail::kUnicodeRuns.size() ? detail::kUnicodeRuns[run + 1] >> 8 : 0x110000;
  };
  for (uint32_t block = 0; block < block_of_.size(); ++block) {
    const uint32_t first = block << 8, last = first + 256;
    while (run_end() <= first) ++run;
    const uint8_t bits = detail::kUnicodeRuns[run] & 63;
    const bool is_uniform = run_end() >= last;
    if (is_uniform && uniform[bits] != kAbsent) {
      block_of_[block] = uniform[bits];
      continue;
    }
    block_of_[block] = static_cast<uint32_t>(blocks_.size());
    if (is_uniform) uniform[bits] = block_of_[block];
    for (uint32_t code = first; code < last;) {
      while (run_end() <= code) ++run;
      const uint32_t stop = std::min(run_end(), last);
      blocks_.insert(blocks_.end(), stop - code, detail::kUnicodeRuns[run] & 63);
      code = stop;
    }
  }
}

const UnicodeClasses& UnicodeClasses::table() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace nibble
