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

namespace nibble {
namespace {

constexpr int64_t kBlockBytes = int64_t{8} << 20;  // read, rounded or copied in one piece
constexpr int64_t kKeptBytes = int64_t{64} << 20;  // freed, but kept by the allocator for later

std::span<const std::byte> as_bytes(const std::vector<uint8_t>& values) {
  return std::as_bytes(std::span(values));
}

/// Rows [begin, begin + count) of one linear in a fused group, as they are in the file.
struct RowBlock {
  size_t linear = 0;
  int64_t begin = 0;
  int64_t rows = 0;
  Tensor values = {};
};

class QuantizeRun {
 public:
  QuantizeRun(const Checkpoint& checkpoint, const QuantPlan& plan, const QuantizeOptions& options,
              CheckpointWriter& writer)
      : checkpoint_(checkpoint),
        plan_(plan),
        options_(options),
        writer_(writer),
        path_(best_round_path()),
        statistics_(plan.rounded.size()) {}

  Result<void> run();
  /// One per linear, in the plan's order.
  const std::vector<std::vector<RoundStatistics>>& statistics() const { return statistics_; }

 private:
  Result<void> round_group(size_t index, ThreadPool& threads);
  Result<void> read_block(const PlannedLinear& linear, RowBlock& block) const;
  Error bad_weight(const PlannedLinear& linear, const RowBlock& block) const;
  Result<void> write_block(const PlannedLinear& linear, const RowBlock& block, int exponent,
                           RoundStatistics& statistics, ThreadPool& threads);
  Result<void> write_scales(const FusedGroup& group, int exponent);
  Result<void> copy_tensor(const TensorEntry& entry);
  Result<void> separate(const PlannedLinear& linear);
  Result<void> check_cancelled() const;
  std::vector<RowBlock> cut(const FusedGroup& group) const;
  const TensorEntry& entry(const LinearSource& source) const {
    return *checkpoint_.find(source.values);
  }

  const Checkpoint& checkpoint_;
  const QuantPlan& plan_;
  const QuantizeOptions& options_;
  CheckpointWriter& writer_;
  RoundPath path_;
  std::vector<std::vector<RoundStatistics>> statistics_;
};

Result<void> QuantizeRun::check_cancelled() const {
  if (!options_.cancelled || !options_.cancelled()) return {};
  return Error{ErrorCode::cancelled, "stopped; the unfinished output was removed"};
}

std::vector<RowBlock> QuantizeRun::cut(const FusedGroup& group) const {
  std::vector<RowBlock> blocks;
  for (size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSource& source = group.linears[i].source;
    const int64_t row_bytes = dtype_bytes(entry(source).dtype, source.cols);
    const int64_t step = std::max<int64_t>(1, kBlockBytes / row_bytes);
    for (int64_t row = 0; row < source.rows; row += step)
      blocks.push_back({.linear = i, .begin = row, .rows = std::min(step, source.rows - row)});
  }
  return blocks;
}

Result<void> QuantizeRun::read_block(const PlannedLinear& linear, RowBlock& block) const {
  const LinearSource& source = linear.source;
  const TensorEntry& from = entry(source);
  block.values = Tensor(from.dtype, {block.rows, source.cols});
  const int64_t begin = dtype_bytes(from.dtype, (source.row_begin + block.begin) * source.cols);
  return checkpoint_.read_bytes(from, begin, block.values.span());
}

/// Names the first weight that is no weight.
Error QuantizeRun::bad_weight(const PlannedLinear& linear, const RowBlock& block) const {
  const int64_t size = dtype_bytes(block.values.dtype(), 1);
  const int64_t count = block.values.shape().count();
  int64_t i = 0;
  float magnitude = 0;
  for (; i < count; ++i) {
    magnitude = largest_magnitude(block.values.view().data + i * size, block.values.dtype(), 1);
    if (!(magnitude <= kWeightMax)) break;
  }
  const int64_t row = block.begin + i / linear.source.cols;
  return make_error(ErrorCode::corrupt,
                    {.what = concat("tensor ", linear.source.values, " (", linear.source.module,
                                    " row ", row, " column ", i % linear.source.cols, ")"),
                     .expected = "a finite weight below 2^127",
                     .found = std::isnan(magnitude) ? std::string("NaN") : concat(magnitude),
                     .advice = "the source is damaged: fetch it again"});
}

Result<void> QuantizeRun::write_block(const PlannedLinear& linear, const RowBlock& block,
                                      int exponent, RoundStatistics& statistics,
                                      ThreadPool& threads) {
  const int64_t cols = linear.source.cols;
  std::vector<uint8_t> codes(static_cast<size_t>(block.rows * cols / 2));
  std::vector<uint8_t> scales(static_cast<size_t>(block.rows * cols / kNvfp4Group));
  std::vector<RoundStatistics> by_row(static_cast<size_t>(block.rows));
  const RoundRequest request{.exponent = exponent, .algorithm = options_.algorithm, .path = path_};
  const size_t row_bytes = static_cast<size_t>(dtype_bytes(block.values.dtype(), cols));
  threads.parallel_for(by_row.size(), 8, [&](size_t begin, size_t end) {
    const auto code_bytes = static_cast<size_t>(cols / 2);
    const auto scale_bytes = static_cast<size_t>(cols / kNvfp4Group);
    for (size_t row = begin; row < end; ++row)
      by_row[row] = round_nvfp4_rows(
          {block.values.view().data + row * row_bytes, block.values.dtype(), Shape{1, cols}},
          request, std::span(codes).subspan(row * code_bytes, code_bytes),
          std::span(scales).subspan(row * scale_bytes, scale_bytes));
  });
  for (const RoundStatistics& row : by_row) statistics += row;
  const Nvfp4Names names = nvfp4_names(linear.source.module, plan_.dialect);
  TRY(writer_.append(names.codes, as_bytes(codes)));
  return writer_.append(names.scales, as_bytes(scales));
}

/// The same global scale for every linear of the group: written from one number.
Result<void> QuantizeRun::write_scales(const FusedGroup& group, int exponent) {
  const auto direction = scale_direction(plan_.dialect);
  const float global = power_of_two_global(exponent, direction).value;
  CHECK(std::isfinite(global) && global > 0, "global scale ", global);
  for (const PlannedLinear& linear : group.linears) {
    const Nvfp4Names names = nvfp4_names(linear.source.module, plan_.dialect);
    TRY(writer_.append(names.global, std::as_bytes(std::span(&global, 1))));
    if (linear.becomes.scheme.activations != ActivationFormat::nvfp4) continue;
    const bool divides = direction == GlobalScale::Direction::divide;
    const float input = divides ? 1.0F / linear.becomes.input_scale : linear.becomes.input_scale;
    TRY(writer_.append(names.input_scale, std::as_bytes(std::span(&input, 1))));
  }
  return {};
}

/// Two passes over the group: its largest magnitude, then rounding under the global scale of it.
Result<void> QuantizeRun::round_group(size_t index, ThreadPool& threads) {
  const FusedGroup& group = plan_.rounded[index];
  std::vector<RowBlock> blocks = cut(group);
  float amax = 0;
  for (RowBlock& block : blocks) {
    TRY(check_cancelled());
    const PlannedLinear& linear = group.linears[block.linear];
    TRY(read_block(linear, block));
    const float largest = largest_magnitude(block.values.view().data, block.values.dtype(),
                                            block.values.shape().count());
    if (!(largest <= kWeightMax)) return bad_weight(linear, block);
    amax = std::max(amax, largest);
    if (group.bytes > options_.held_bytes_max) block.values = Tensor();
  }
  const int exponent = global_exponent(amax);
  auto& statistics = statistics_[index];
  statistics.resize(group.linears.size());
  for (RowBlock& block : blocks) {
    TRY(check_cancelled());
    if (group.bytes > options_.held_bytes_max) TRY(read_block(group.linears[block.linear], block));
    TRY(write_block(group.linears[block.linear], block, exponent, statistics[block.linear],
                    threads));
    block.values = Tensor();
  }
  return write_scales(group, exponent);
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
  RowBlock block{.rows = linear.source.rows};
  TRY(read_block(linear, block));
  return writer_.append(linear.source.module + ".weight", block.values.span());
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

void add_statistics(QuantizeReport& report, const QuantPlan& plan,
                    const std::vector<std::vector<RoundStatistics>>& statistics) {
  std::map<std::pair<std::string, std::string>, KindReport*> rows;
  for (KindReport& row : report.kinds) rows[{row.kind, row.scheme}] = &row;
  for (size_t i = 0; i < plan.rounded.size(); ++i)
    for (size_t j = 0; j < plan.rounded[i].linears.size(); ++j) {
      const PlannedLinear& linear = plan.rounded[i].linears[j];
      rows.at({linear.kind, scheme_text(linear.becomes.scheme)})->rounding += statistics[i][j];
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
  add_statistics(report, plan, run.statistics());
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
