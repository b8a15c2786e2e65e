// Sums and limits.
#include "eval/kv_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

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

constexpr int kLines = 512;

/// Normal numbers by Box and Muller from splitmix64: the same on every machine up to rounding.
class NormalLines {
 public:
  std::vector<float> next(int64_t size) {
    std::vector<float> line;
    while (static_cast<int64_t>(line.size()) < size) {
      const double radius = std::sqrt(-2.0 * std::log(uniform()));
      line.push_back(static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform())));
    }
    return line;
  }

 private:
  double uniform() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return (static_cast<double>((x ^ (x >> 31)) >> 11) + 0.5) * 0x1p-53;
  }
  uint64_t state_ = 0;
};

double square_sum(const std::vector<float>& line) {
  double sum = 0.0;
  for (const float x : line) sum += double{x} * x;
  return sum;
}

/// The largest errors of a sound format: on normal numbers, and of a norm.
struct Allowed {
  double error;
  double key_norm;
};
Allowed allowed(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return {0.0, 0.0};
    case KvFormat::bf16:
      return {0.0025, 0.002};
    case KvFormat::fp8:
      return {0.032, 0.02};
    case KvFormat::turboquant_4bit_nc:
      return {0.12, 0.001};
    case KvFormat::nvfp4:
      return {0.105, 0.1};
  }
  return {};
}

}  // namespace

KvFormatErrors measure_kv_format(KvFormat format, int64_t head_dim, const KvKeep& keep) {
  NormalLines lines;
  double all = 0.0;
  double of_keys = 0.0;
  double of_values = 0.0;
  KvFormatErrors errors;
  for (int i = 0; i < kLines; ++i) {
    const std::vector<float> line = lines.next(head_dim);
    std::vector<float> turned = line;
    kv_turn_query(format, turned);
    std::vector<float> key(line.size());
    std::vector<float> value(line.size());
    keep(format, KvSide::keys, line, key.data());
    keep(format, KvSide::values, line, value.data());
    all += square_sum(line);
    const double norm = std::sqrt(square_sum(key) / square_sum(line));
    errors.key_norm = std::max(errors.key_norm, std::fabs(norm - 1.0));
    for (size_t d = 0; d < line.size(); ++d) {
      key[d] -= turned[d];
      value[d] -= line[d];
    }
    of_keys += square_sum(key);
    of_values += square_sum(value);
  }
  errors.keys = std::sqrt(of_keys / all);
  errors.values = std::sqrt(of_values / all);
  return errors;
}

std::string kv_format_fault(KvFormat format, const KvFormatErrors& errors) {
  const Allowed most = allowed(format);
  const auto beyond = [](std::string_view what, double found, double limit) {
    return !(found <= limit) ? concat(what, " ", found, ", expected at most ", limit) : "";
  };
  for (const std::string& fault :
       {beyond("relative error of keys", errors.keys, most.error),
        beyond("relative error of values", errors.values, most.error),
        beyond("change of a key's norm", errors.key_norm, most.key_norm)})
    if (!fault.empty()) return fault;
  return {};
}

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
