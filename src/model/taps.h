// Taps: what a calibration pass wants to know about the inputs of linears, and the sums it gathers.
// A batch carries a pointer to one, or none, which costs nothing. Sums are taken token by token in
// double precision, so they depend on neither batches nor threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

/// device: the sums of all products stay on the device that makes them, for its GptqDevice.
enum class MomentPlace : uint8_t { host, device };

/// The weights of tokens in the sums over one linear's input. Tokens are counted over all samples.
struct TokenWeights {
  std::vector<int32_t> tokens = {};  // ascending; empty: 0, 1, 2, ...
  std::vector<float> weights = {};   // one for each of them
  float other = 0;                   // of tokens that are not among them
  float of(int64_t token) const;
};

/// Rows x [count, stride] of one linear's input, of which its own columns count.
struct InputRows {
  const float* x = nullptr;
  int64_t count = 0;
  int64_t stride = 0;
  int64_t first_token = 0;       // the token of the pass's row 0
  const int32_t* ids = nullptr;  // rows of the pass that these are; nullptr: all in order
  int64_t token(int64_t row) const { return first_token + (ids == nullptr ? row : ids[row]); }
};

/// Statistics of the input of one linear.
struct InputStatistics {
  int64_t cols = 0;        // K
  int64_t tokens = 0;      // rows summed up
  int64_t bad_tokens = 0;  // rows with a NaN or an infinity: counted, and left out of the sums
  float amax = 0;          // largest magnitude
  SecondMoment kind = SecondMoment::none;
  std::vector<double> moment =
      {};  // moment_count(kind, cols); kept on a device: the squares [cols]
  MomentPlace place = MomentPlace::host;
  /// The sums that a device has kept, in its memory, while this lives; nullptr: none so far.
  std::shared_ptr<const double> kept = nullptr;
  /// Each x x^T counts this much; nullptr: once. Must outlive the additions.
  const TokenWeights* weights = nullptr;

  InputStatistics() = default;
  InputStatistics(int64_t columns, SecondMoment wanted, MomentPlace where = MomentPlace::host);
  /// Sum of x_i^2, from any kind but none (CHECK).
  double square(int64_t i) const;
  /// Sum of x_i x_j within a block of 16 or, from a full sum on the host, anywhere.
  double product(int64_t i, int64_t j) const;
  void add(const InputRows& rows, ThreadPool& threads);
  /// Adds rows x [rows, stride] of sums without weights (CHECK).
  void add(const float* x, int64_t rows, int64_t stride, ThreadPool& threads);
};

class Taps {
 public:
  /// Observes the input of `module` from this call on. Naming a module twice is a CHECK.
  void want(std::string module, int64_t cols, SecondMoment kind,
            const TokenWeights* weights = nullptr, MomentPlace place = MomentPlace::host);
  /// The token of row 0 of the next pass: who runs the passes says so before each.
  void begin_pass(int64_t first_token) { first_token_ = first_token; }
  int64_t first_token() const { return first_token_; }
  /// nullptr if nobody asked.
  InputStatistics* find(std::string_view module);
  const InputStatistics* find(std::string_view module) const;
  const std::map<std::string, InputStatistics, std::less<>>& all() const { return taps_; }
  /// Sum of moment bytes.
  int64_t bytes() const;

 private:
  std::map<std::string, InputStatistics, std::less<>> taps_;
  int64_t first_token_ = 0;
};

}  // namespace nibble
