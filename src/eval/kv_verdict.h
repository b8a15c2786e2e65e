// What `nibble eval kv` finds of a format of keys and values beside BF16 pages, and what follows:
// divergence by position with intervals, tasks lost, the verdict and the recommendation. Arithmetic
// only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/confidence.h"
#include "eval/kv_check.h"

namespace nibble {

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

/// What a format may cost and still be called harmless.
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
