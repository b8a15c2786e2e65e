// The work of a run: units (a fused group, a copied tensor) go to threads; a large group is cut in
// row blocks that all threads share. Output places are fixed by the plan, so the order of work
// leaves no trace in the bytes.
#include "quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "quantize/group_rounder.h"

namespace nibble {
namespace {

constexpr int64_t kKeptBytes = int64_t{64} << 20;  // freed, but kept by the allocator for later

class QuantizeRun {
 public:
  QuantizeRun(const Checkpoint& checkpoint, const QuantPlan& plan, const QuantizeOptions& options,
              CheckpointWriter& writer)
      : checkpoint_(checkpoint),
        plan_(plan),
        options_(options),
        writer_(writer),
        rounder_(checkpoint, writer,
                 {.algorithm = options.algorithm,
                  .dialect = plan.dialect,
                  .held_bytes_max = options.held_bytes_max,
                  .check = [this] { return check_cancelled(); }}),
        outcomes_(plan.rounded.size()) {}

  Result<void> run();
  /// One per linear, in the plan's order.
  const std::vector<std::vector<LinearOutcome>>& outcomes() const { return outcomes_; }

 private:
  Result<void> round_group(size_t index, ThreadPool& threads);
  Result<void> copy_tensor(const TensorEntry& entry);
  Result<void> separate(const PlannedLinear& linear);
  Result<void> check_cancelled() const;

  const Checkpoint& checkpoint_;
  const QuantPlan& plan_;
  const QuantizeOptions& options_;
  CheckpointWriter& writer_;
  GroupRounder rounder_;
  std::vector<std::vector<LinearOutcome>> outcomes_;
};

Result<void> QuantizeRun::check_cancelled() const {
  if (!options_.cancelled || !options_.cancelled()) return {};
  return Error{ErrorCode::cancelled, "stopped; the unfinished output was removed"};
}

Result<void> QuantizeRun::round_group(size_t index, ThreadPool& threads) {
  outcomes_[index] = TRY(rounder_.round(plan_.rounded[index], threads));
  return {};
}

Result<void> QuantizeRun::copy_tensor(const TensorEntry& from) {
  Buffer buffer(std::min(from.bytes, kBlockBytes));
  for (int64_t done = 0; done < from.bytes;) {
    TRY(check_cancelled());
    const auto piece = static_cast<size_t>(std::min(buffer.bytes(), from.bytes - done));
    TRY(checkpoint_.read_bytes(from, done, buffer.span().first(piece)));
    TRY(writer_.append(from.name, buffer.span().first(piece)));
    done += static_cast<int64_t>(piece);
  }
  return {};
}

Result<void> QuantizeRun::separate(const PlannedLinear& linear) {
  Tensor values = TRY(rounder_.read_rows(linear.source, 0, linear.source.rows));
  return writer_.append(linear.source.module + ".weight", values.span());
}

Result<void> QuantizeRun::run() {
  const int count = options_.threads > 0 ? options_.threads : usable_cores();
  ThreadPool threads(count);
  std::vector<std::function<Result<void>(ThreadPool&)>> small, large;
  for (size_t i = 0; i < plan_.rounded.size(); ++i)
    (plan_.rounded[i].bytes > options_.held_bytes_max / 8 ? large : small)
        .push_back([this, i](ThreadPool& pool) { return round_group(i, pool); });
  for (const PlannedLinear& linear : plan_.separated)
    small.push_back([this, &linear](ThreadPool&) { return separate(linear); });
  for (const TensorEntry* tensor : plan_.copied)
    small.push_back([this, tensor](ThreadPool&) { return copy_tensor(*tensor); });

  for (const auto& unit : large) TRY(unit(threads));
  std::mutex mutex;
  std::atomic<bool> failed = false;
  Result<void> first = {};
  threads.parallel_for(small.size(), 1, [&](size_t begin, size_t end) {
    ThreadPool alone(1);
    for (size_t i = begin; i < end && !failed; ++i) {
      auto done = small[i](alone);
      if (done.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first = std::move(done);
    }
  });
  return first;
}

std::string recipe_text(const Recipe& recipe, const QuantizeReport& report) {
  std::string text =
      concat("# Made by nibble ", NIBBLE_VERSION, ": --format ", dialect_name(report.dialect),
             " --algorithm ", round_algorithm_name(report.algorithm), "\n# It resolved to:\n");
  for (const KindReport& kind : report.kinds)
    text += concat("#   ", kind.kind, ": ", kind.scheme, " (", kind.tensors, ")\n");
  return text + recipe.text;
}

void add_outcomes(QuantizeReport& report, const QuantPlan& plan,
                  const std::vector<std::vector<LinearOutcome>>& outcomes) {
  std::map<std::pair<std::string, std::string>, KindReport*> rows;
  for (KindReport& row : report.kinds) rows[{row.kind, row.scheme}] = &row;
  for (size_t i = 0; i < plan.rounded.size(); ++i)
    for (size_t j = 0; j < plan.rounded[i].linears.size(); ++j) {
      const PlannedLinear& linear = plan.rounded[i].linears[j];
      rows.at({linear.kind, scheme_text(linear.becomes.scheme)})->rounding +=
          outcomes[i][j].statistics;
      if (!outcomes[i][j].fallback.empty())
        report.warnings.push_back(
            concat(linear.source.module, ": rounded without data: ", outcomes[i][j].fallback));
    }
}

}  // namespace

int64_t quantize_memory_bytes(const QuantPlan& plan, const QuantizeOptions& options) {
  CHECK(options.threads > 0, "threads ", options.threads);
  const int64_t largest = std::min(plan.largest_group_bytes(), options.held_bytes_max);
  const int64_t each = std::min(largest, options.held_bytes_max / 8);
  return std::max(largest, options.threads * each) + options.threads * kBlockBytes + kKeptBytes;
}

Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantPlan& plan,
                                const Recipe& recipe, const std::filesystem::path& output,
                                const QuantizeOptions& options) {
  CheckpointWriter writer =
      TRY(CheckpointWriter::create(output, plan.outputs,
                                   {.shard_bytes_max = options.shard_bytes_max,
                                    .inputs = {checkpoint.folder()},
                                    .progress = options.progress}));
  QuantizeRun run(checkpoint, plan, options, writer);
  TRY(run.run());
  QuantizeReport report = start_report(plan, recipe, options.algorithm);
  add_outcomes(report, plan, run.outcomes());
  finish_report(report);
  TRY(writer.copy_other_files(checkpoint.folder()));
  TRY(writer.add_file("recipe.yaml", recipe_text(recipe, report)));
  TRY(writer.add_file("quantize_report.json", report.json().dump_pretty()));
  if (plan.dialect == Dialect::modelopt)
    TRY(writer.add_file("hf_quant_config.json", modelopt_file(plan.declaration).dump_pretty()));
  Json config = checkpoint.config();
  config.set("quantization_config", quantization_config(plan.declaration, plan.dialect));
  TRY(writer.finish(config));
  return report;
}

}  // namespace nibble
