// Fused group by fused group: the source's linears of one are in memory whole, and one of the
// checkpoint's; rows are decoded in blocks.
#include "quantize/verify/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "model/config/config.h"
#include "model/weights/weights.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/rounding/nvfp4_round.h"
#include "quantize/verify/compare_rounding.h"

namespace nibble {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

class Comparer {
 public:
  Comparer(const Checkpoint& checkpoint, const Checkpoint& source, const CompareOptions& options)
      : checkpoint_(checkpoint), source_(source), options_(options) {}
  Result<Comparison> run();

 private:
  /// A linear of the checkpoint and what the source has for it.
  struct Pair {
    const LinearSource* after = nullptr;
    LinearWeight original = {};
  };
  Result<std::vector<Pair>> load_group(const std::vector<const LinearSource*>& group,
                                       const Weights& then);
  Result<void> compare_linear(const Weights& now, const Pair& pair, float group_amax);
  Result<void> compare_rest();
  void find_added(const Weights& now);
  Result<bool> same_bytes(const TensorEntry& a, const TensorEntry& b);
  Result<void> advance(int64_t bytes);

  const Checkpoint& checkpoint_;
  const Checkpoint& source_;
  const CompareOptions& options_;
  std::map<std::string_view, const LinearSource*> before_;
  std::set<std::string> seen_;  // tensors of the source that linears are made from
  Comparison out_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

Result<void> Comparer::advance(int64_t bytes) {
  done_ += bytes;
  if (options_.progress) options_.progress(done_, total_);
  if (options_.cancelled && options_.cancelled()) return Error{ErrorCode::cancelled, "stopped"};
  return {};
}

Result<void> Comparer::compare_linear(const Weights& now, const Pair& pair, float group_amax) {
  const LinearWeight& original = pair.original;
  const LinearWeight rounded = TRY(now.load(*pair.after));
  const int64_t step = std::max<int64_t>(1, kPieceBytes / 4 / original.cols);
  std::vector<float> a(static_cast<size_t>(step * original.cols)), b(a.size());
  ComparedLinear row{.module = rounded.module,
                     .kind = linear_kind(rounded.module),
                     .weights = original.rows * original.cols};
  for (int64_t begin = 0; begin < original.rows; begin += step) {
    const int64_t end = std::min(original.rows, begin + step);
    dequantize_rows(rounded, begin, end, a.data());
    dequantize_rows(original, begin, end, b.data());
    for (size_t i = 0; i < static_cast<size_t>((end - begin) * original.cols); ++i) {
      const double w = static_cast<double>(b[i]);
      const double difference = static_cast<double>(a[i]) - w;
      row.weight_squares += w * w;
      row.error_squares += difference * difference;
    }
  }
  row.relative_error = row.weight_squares > 0  ? std::sqrt(row.error_squares / row.weight_squares)
                       : row.error_squares > 0 ? INFINITY
                                               : 0.0;
  if (rounded.scheme.weights != WeightFormat::plain)
    row.odd = odd_rounding(rounded, original, group_amax);
  out_.linears.push_back(std::move(row));
  return advance(original.values.bytes());
}

Result<bool> Comparer::same_bytes(const TensorEntry& a, const TensorEntry& b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  Buffer one(std::min(kPieceBytes, a.bytes)), two(one.bytes());
  bool same = true;
  for (int64_t at = 0; at < a.bytes; at += kPieceBytes) {
    const auto size = static_cast<size_t>(std::min(kPieceBytes, a.bytes - at));
    TRY(checkpoint_.read_bytes(a, at, one.span().first(size)));
    TRY(source_.read_bytes(b, at, two.span().first(size)));
    same = same && std::memcmp(one.data(), two.data(), size) == 0;
    TRY(advance(static_cast<int64_t>(size)));
  }
  return same;
}

Result<void> Comparer::compare_rest() {
  for (const TensorEntry& entry : source_.entries()) {
    const TensorEntry* now = checkpoint_.find(entry.name);
    if (now == nullptr) {
      if (!seen_.contains(entry.name)) out_.missing.push_back(entry.name);
    } else if (!seen_.contains(entry.name)) {
      const bool same = TRY(same_bytes(*now, entry));
      out_.identical += same;
      if (!same) out_.changed.push_back(entry.name);
    }
  }
  return {};
}

/// The linears of a group that are to be compared; others are compared by their bytes.
Result<std::vector<Comparer::Pair>> Comparer::load_group(
    const std::vector<const LinearSource*>& group, const Weights& then) {
  std::vector<Pair> pairs;
  for (const LinearSource* linear : group) {
    const auto found = before_.find(linear->module);
    if (found == before_.end())
      return make_error(ErrorCode::corrupt, {.what = linear->module,
                                             .expected = "a linear that the source has too",
                                             .found = "none there"});
    const LinearSource& before = *found->second;
    if (before.scheme.weights != WeightFormat::plain)
      return make_error(ErrorCode::unsupported, {.what = source_.folder().string(),
                                                 .expected = "an unquantized checkpoint",
                                                 .found = "quantized linears"});
    if (linear->rows != before.rows || linear->cols != before.cols)
      return make_error(ErrorCode::corrupt,
                        {.what = linear->module,
                         .expected = concat("[", before.rows, ", ", before.cols, "]"),
                         .found = concat("[", linear->rows, ", ", linear->cols, "]")});
    const bool moved = linear->values != before.values;
    if (linear->scheme.weights == WeightFormat::plain && !moved) continue;
    seen_.insert(before.values);
    LinearWeight original = TRY(then.load(before));
    pairs.push_back({.after = linear, .original = std::move(original)});
  }
  return pairs;
}

/// Finds tensors that belong to no linear and are not of the source.
void Comparer::find_added(const Weights& now) {
  std::set<std::string_view> modules;
  for (const auto& group : fused_linears(now))
    for (const LinearSource* linear : group) modules.insert(linear->module);
  for (const TensorEntry& entry : checkpoint_.entries()) {
    const std::string_view name = entry.name;
    if (source_.find(name) != nullptr) continue;
    if (!modules.contains(name.substr(0, name.rfind('.')))) out_.added.push_back(entry.name);
  }
}

Result<Comparison> Comparer::run() {
  for (const TensorEntry& entry : source_.entries()) total_ += entry.bytes;
  const ModelConfig config = TRY(ModelConfig::parse(checkpoint_.config()));
  ModelConfig source_config = TRY(ModelConfig::parse(source_.config()));
  const Weights now = TRY(bind_linears(checkpoint_, config));
  if (now.mtp()) source_config.draft_layers = 1;
  const Weights then = TRY(Weights::bind(source_, source_config));
  for (const auto& group : fused_linears(then))
    for (const LinearSource* linear : group) before_[linear->module] = linear;
  for (const auto& group : fused_linears(now)) {
    const std::vector<Pair> pairs = TRY(load_group(group, then));
    float amax = 0;
    for (const Pair& pair : pairs) {
      if (pair.after->scheme.weights == WeightFormat::plain) continue;
      const TensorView weights = pair.original.values.view();
      if (weights.dtype == DType::f64) continue;  // odd_rounding() leaves it alone too
      const float most = largest_magnitude(weights.data, weights.dtype, weights.shape.count());
      if (!std::isnan(amax) && !(most <= amax)) amax = most;
    }
    for (const Pair& pair : pairs) TRY(compare_linear(now, pair, amax));
  }
  TRY(compare_rest());
  find_added(now);
  return std::move(out_);
}

}  // namespace

const ComparedLinear* Comparison::worst() const {
  const auto found = std::ranges::max_element(linears, {}, &ComparedLinear::relative_error);
  return found == linears.end() ? nullptr : &*found;
}

double Comparison::relative_error() const {
  double weights = 0, errors = 0;
  for (const ComparedLinear& linear : linears) {
    weights += linear.weight_squares;
    errors += linear.error_squares;
  }
  return weights > 0 ? std::sqrt(errors / weights) : 0.0;
}

Result<Comparison> compare_checkpoints(const Checkpoint& checkpoint, const Checkpoint& source,
                                       const CompareOptions& options) {
  return Comparer(checkpoint, source, options).run();
}

}  // namespace nibble
