// Findings of `nibble eval kv` about a format of keys and values, and the verdict: what it keeps of
// known lines (a mistake in storing or reading shows without a model), the tasks that it loses
// beside BF16 pages, the divergence by position with intervals. Arithmetic only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/confidence.h"
#include "model/kv_codec.h"

namespace nibble {

/// Relative errors of read lines: the root of the mean of |read - line|^2 over that of |line|^2.
/// Keys of a format that rotates are compared in its own space.
struct KvFormatErrors {
  double keys = 0.0;
  double values = 0.0;
  double key_norm = 0.0;  // the largest | |read| / |key| - 1 |
};

/// Stores a line and reads it, as kv_keep() does.
using KvKeep = std::function<void(KvFormat, KvSide, std::span<const float>, float*)>;

/// Measures 512 lines of `head_dim` normal numbers, the same every time. CHECKs that the format can
/// keep them.
KvFormatErrors measure_kv_format(KvFormat format, int64_t head_dim, const KvKeep& keep = kv_keep);

/// Empty if the errors are those of the format; else one line that says which is not. The errors of
/// a format on normal numbers follow from its definition: E4M3 0.027, 16 Lloyd-Max levels 0.0975,
/// 16 uniform steps over a line's range and E2M1 under a scale for 16 about 0.1; BF16 0.0017.
std::string kv_format_fault(KvFormat format, const KvFormatErrors& errors);

/// The mean divergence of the rows at positions [begin, end), in nats.
struct KlAtPositions {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows = 0;
  int64_t sequences = 0;
  double mean = 0.0;
  Interval interval;  // 95 %, of the mean; sequences are the independent draws
};

/// Collects the divergences of rows by their position: 0 to 255, and then 4 times as far each.
class KlByPosition {
 public:
  void add(size_t sequence, size_t position, double divergence);
  /// Those that have rows, in order. The interval is mean +- 1.96 standard errors of a ratio of
  /// sums over sequences; of one sequence alone it is from 0 to infinity.
  std::vector<KlAtPositions> summary() const;

 private:
  struct Sums {
    double divergence = 0.0;
    int64_t rows = 0;
  };
  std::vector<std::vector<Sums>> buckets_;  // by bucket, then by sequence
};

struct KvTask {
  std::string name;
  int64_t right = 0;  // with this format
  int64_t scored = 0;
  PairedDifference difference;  // to BF16 pages
};

struct KvFinding {
  KvFormat format = KvFormat::bf16;
  int64_t token_bytes = 0;  // of a token in all layers
  KvFormatErrors errors;
  std::vector<KvTask> tasks;  // the last is all of them
  std::vector<KlAtPositions> kl;
};

/// The most that a format may cost and still be called harmless.
struct KvLimits {
  double points = 1.0;  // lost over all tasks
  double kl = 0.0;      // mean divergence at any position, by the lower end of its interval
};

enum class KvVerdict : uint8_t { harmless, harmful, faulty };
std::string_view kv_verdict_name(KvVerdict verdict);
struct KvJudgement {
  KvVerdict verdict = KvVerdict::harmless;
  std::string why;  // one line; empty if it is harmless
};
/// faulty: its numbers are not those of the format. harmful: tasks are lost beyond what chance
/// explains, or more than `points`; or the divergence is beyond the limit.
KvJudgement judge_kv(const KvFinding& finding, const KvLimits& limits);

/// The smallest harmless one; null if there is none.
const KvFinding* recommended_kv(const std::vector<KvFinding>& findings, const KvLimits& limits);

}  // namespace nibble
