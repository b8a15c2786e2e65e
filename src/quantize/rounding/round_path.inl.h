// The frame of every rounding algorithm: rows over 2^exponent one after the other, each by code
// that is compiled once per instruction set from one text.
#pragma once

#include <cmath>
#include <vector>

#include "base/check.h"
#include "quantize/rounding/nvfp4_block.inl.h"

namespace nibble::detail {

template <typename Job>
void run_portable(Job& job) {
  job.template run<4>();
}
#if defined(__x86_64__)
template <typename Job>
__attribute__((target("avx2"))) void run_avx2(Job& job) {
  job.template run<8>();
}
template <typename Job>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) void
run_avx512(Job& job) {
  job.template run<16>();
}
#endif

/// job.run<W>() in the lanes of a path; run must be NIBBLE_INLINE, or it is compiled without them.
template <typename Job>
void run_on(RoundPath path, Job job) {
  CHECK(round_path_available(path), round_path_name(path));
#if defined(__x86_64__)
  if (path == RoundPath::avx512) return run_avx512(job);
  if (path == RoundPath::avx2) return run_avx2(job);
#endif
  run_portable(job);
}

/// One row of K weights over 2^exponent, and where its K/2 code bytes and K/16 scales go.
struct Row {
  const float* u;
  int64_t cols;
  uint8_t* codes;
  uint8_t* scales;
};

/// Calls round_row(Row, RoundStatistics&) for every row of `weights` [N, K].
template <typename RoundRow>
RoundStatistics round_rows(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                           std::span<uint8_t> scales, RoundRow round_row) {
  const int64_t rows = weights.shape[0], cols = weights.shape[1];
  CHECK(cols % kNvfp4Group == 0, "columns ", cols);
  CHECK(static_cast<int64_t>(codes.size()) == rows * cols / 2 &&
            static_cast<int64_t>(scales.size()) == rows * cols / kNvfp4Group,
        "rows ", rows, " columns ", cols);
  const float factor = std::ldexp(1.0F, -exponent);
  std::vector<float> u(static_cast<size_t>(cols));
  RoundStatistics total;
  for (int64_t n = 0; n < rows; ++n) {
    load_row(weights, n, factor, u);
    round_row(Row{.u = u.data(),
                  .cols = cols,
                  .codes = codes.data() + n * (cols / 2),
                  .scales = scales.data() + n * (cols / kNvfp4Group)},
              total);
  }
  total.scale_by(std::ldexp(1.0, 2 * exponent));
  return total;
}

}  // namespace nibble::detail
