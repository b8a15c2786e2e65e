// Sums and limits.
#include "eval/kv_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/concat.h"

namespace nibble {
namespace {

constexpr int64_t kFirstEnd = 256;
constexpr int64_t kGrowth = 4;
constexpr double kNormal95 = 1.96;

size_t bucket_of(size_t position) {
  size_t bucket = 0;
  for (int64_t end = kFirstEnd; static_cast<int64_t>(position) >= end; end *= kGrowth) ++bucket;
  return bucket;
}

}  // namespace

void KlByPosition::add(size_t sequence, size_t position, double divergence) {
  const size_t bucket = bucket_of(position);
  if (buckets_.size() <= bucket) buckets_.resize(bucket + 1);
  std::vector<Sums>& sums = buckets_[bucket];
  if (sums.size() <= sequence) sums.resize(sequence + 1);
  sums[sequence].divergence += divergence;
  ++sums[sequence].rows;
}

std::vector<KlAtPositions> KlByPosition::summary() const {
  std::vector<KlAtPositions> out;
  int64_t begin = 0;
  int64_t end = kFirstEnd;
  for (const std::vector<Sums>& sums : buckets_) {
    KlAtPositions at{.begin = begin, .end = end};
    double total = 0.0;
    for (const Sums& sequence : sums) {
      total += sequence.divergence;
      at.rows += sequence.rows;
      at.sequences += sequence.rows > 0 ? 1 : 0;
    }
    begin = end;
    end *= kGrowth;
    if (at.rows == 0) continue;
    const auto rows = static_cast<double>(at.rows);
    at.mean = total / rows;
    double squares = 0.0;
    for (const Sums& sequence : sums) {
      const double rest = sequence.divergence - at.mean * static_cast<double>(sequence.rows);
      squares += rest * rest;
    }
    const auto draws = static_cast<double>(at.sequences);
    const double error = at.sequences < 2 ? std::numeric_limits<double>::infinity()
                                          : std::sqrt(squares * draws / (draws - 1.0)) / rows;
    at.interval = {std::max(at.mean - kNormal95 * error, 0.0), at.mean + kNormal95 * error};
    out.push_back(at);
  }
  return out;
}

std::string_view kv_verdict_name(KvVerdict verdict) {
  return verdict == KvVerdict::harmless  ? "harmless"
         : verdict == KvVerdict::harmful ? "harmful"
                                         : "faulty";
}

KvJudgement judge_kv(const KvFinding& finding, const KvLimits& limits) {
  const std::string fault = kv_format_fault(finding.format, finding.errors);
  if (!fault.empty()) return {KvVerdict::faulty, fault};
  for (const KvTask& task : finding.tasks)
    if (task.difference.interval.high < 0.0)
      return {KvVerdict::harmful, concat(task.name, " loses ", -100.0 * task.difference.delta,
                                         " points, which chance does not explain")};
  if (!finding.tasks.empty() && -100.0 * finding.tasks.back().difference.delta > limits.points)
    return {KvVerdict::harmful, concat("loses ", -100.0 * finding.tasks.back().difference.delta,
                                       " points, more than ", limits.points)};
  for (const KlAtPositions& kl : finding.kl)
    if (!(kl.interval.low <= limits.kl))
      return {KvVerdict::harmful, concat("KL ", kl.mean, " at positions from ", kl.begin,
                                         " on, more than ", limits.kl)};
  return {};
}

const KvFinding* recommended_kv(const std::vector<KvFinding>& findings, const KvLimits& limits) {
  const KvFinding* best = nullptr;
  for (const KvFinding& finding : findings)
    if (judge_kv(finding, limits).verdict == KvVerdict::harmless &&
        (best == nullptr || finding.token_bytes < best->token_bytes))
      best = &finding;
  return best;
}
}  // namespace nibble
