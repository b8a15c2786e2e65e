// Taps: what a calibration pass wants to know about the inputs of linears, and the sums it gathers.
// A batch carries a pointer to one, or none, which costs nothing. Sums are taken token by token in
// double precision, so they depend on neither batches nor threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"

namespace nibble {

/// The part of the sum of x x^T over tokens that is kept, for an input of K columns.
enum class SecondMoment : uint8_t {
  none,
  diagonal,  // [K]: sum of x_i^2
  blocks,    // [K/16, 16, 16]: the 16x16 blocks on the diagonal
  full,      // [K, K]: the upper triangle; below it zeros
};
inline constexpr int64_t kMomentBlock = 16;
/// Doubles of one sum. K is a multiple of 16 for blocks (CHECK).
int64_t moment_count(SecondMoment kind, int64_t cols);

/// Statistics of the input of one linear.
struct InputStatistics {
  int64_t cols = 0;        // K
  int64_t tokens = 0;      // rows summed up
  int64_t bad_tokens = 0;  // rows with a NaN or an infinity: counted, and left out of the sums
  float amax = 0;          // largest magnitude
  SecondMoment kind = SecondMoment::none;
  std::vector<double> moment = {};  // moment_count(kind, cols)

  InputStatistics() = default;
  InputStatistics(int64_t columns, SecondMoment wanted);
  /// Sum of x_i^2, from any kind but none (CHECK).
  double square(int64_t i) const;
  /// Sum of x_i x_j within a block of 16 or, from a full sum, anywhere.
  double product(int64_t i, int64_t j) const;
  /// Adds rows x [rows, stride], of which the first `cols` columns count.
  void add(const float* x, int64_t rows, int64_t stride, ThreadPool& threads);
};

class Taps {
 public:
  /// Observes the input of `module` from this call on. Naming a module twice is a CHECK.
  void want(std::string module, int64_t cols, SecondMoment kind);
  /// nullptr if nobody asked.
  InputStatistics* find(std::string_view module);
  const InputStatistics* find(std::string_view module) const;
  const std::map<std::string, InputStatistics, std::less<>>& all() const { return taps_; }
  /// Sum of moment bytes.
  int64_t bytes() const;

 private:
  std::map<std::string, InputStatistics, std::less<>> taps_;
};

}  // namespace nibble
