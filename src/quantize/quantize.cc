// The work of a run: units (a fused group, a copied tensor) go to threads; a large group is cut in
// row blocks that all threads share. Output places are fixed by the plan, so the order of work
// leaves no trace in the bytes.
#include "quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>

#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/sha256.h"
#include "checkpoint/source_fingerprint.h"
#include "quantize/group_rounder.h"
#include "quantize/report/model_card.h"

namespace nibble {
namespace {

constexpr uint64_t kReadmeBytesMax = uint64_t{4} << 20;
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
                  .block_bytes = options.block_bytes,
                  .statistics = statistics(),
                  .input_scale = input_scale(),
                  .check = [this] { return check_cancelled(); }}),
        outcomes_(plan.rounded.size()) {}

  Result<void> run();
  /// One per linear, in the plan's order.
  const std::vector<std::vector<LinearOutcome>>& outcomes() const { return outcomes_; }
  RoundAlgorithm algorithm() const { return options_.algorithm; }
  const std::string& data_hash() const { return options_.data_hash; }
  const Calibration* calibration() const { return options_.calibration; }

 private:
  /// A piece of work that is done or not, and what it writes.
  struct Unit {
    std::string name;
    int64_t bytes = 0;  // of its source
    std::vector<std::string> tensors;
    int part = -1;                                  // of the calibration that it needs; -1: none
    std::function<Result<Json>(ThreadPool&)> work;  // gives the facts for the journal
    std::function<Result<void>(const Json&)> recall = {};  // takes those of an earlier run
  };
  using Statistics = std::function<const InputStatistics*(const LinearSource&)>;
  Statistics statistics() const;
  std::function<float(const PlannedLinear&)> input_scale() const;
  std::vector<Unit> units();
  Unit group_unit(size_t index);
  Result<void> finish(const Unit& unit, ThreadPool& threads);
  Result<bool> recall(const Unit& unit);
  Result<void> run_part(const std::vector<Unit>& all, int part, ThreadPool& threads);
  Result<void> run_small(const std::vector<const Unit*>& small, ThreadPool& threads);
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
  return Error{ErrorCode::cancelled, "stopped; the same command goes on where it stopped"};
}

QuantizeRun::Statistics QuantizeRun::statistics() const {
  if (options_.calibration == nullptr) return {};
  return [this](const LinearSource& source) { return options_.calibration->find(source.module); };
}

/// The measured scale, or the recipe's where nothing was measured.
std::function<float(const PlannedLinear&)> QuantizeRun::input_scale() const {
  if (options_.calibration == nullptr) return {};
  return [this](const PlannedLinear& linear) {
    const float amax = options_.calibration->amax(linear.source.module);
    if (!(amax > 0.0F)) return linear.becomes.input_scale;
    const bool fp8 = linear.becomes.scheme.activations == ActivationFormat::fp8_tensor;
    return fp8 ? fp8_input_scale(amax) : nvfp4_input_scale(amax);
  };
}

Result<void> QuantizeRun::copy_tensor(const TensorEntry& from) {
  Buffer buffer(std::min(from.bytes, options_.block_bytes));
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

QuantizeRun::Unit QuantizeRun::group_unit(size_t index) {
  const FusedGroup& group = plan_.rounded[index];
  Unit unit{.name = concat("g", index), .bytes = group.bytes};
  if (options_.calibration != nullptr)
    unit.part = options_.calibration->part_of(group.linears.front().source.module);
  for (const PlannedLinear& linear : group.linears)
    for (TensorPlan& tensor :
         stored_tensors(linear.source.module, linear.source.rows, linear.source.cols,
                        linear.becomes.scheme, plan_.dialect))
      unit.tensors.push_back(std::move(tensor.name));
  unit.work = [this, index](ThreadPool& threads) -> Result<Json> {
    outcomes_[index] = TRY(rounder_.round(plan_.rounded[index], threads));
    Json facts{Json::Array()};
    for (const LinearOutcome& outcome : outcomes_[index]) facts.push_back(outcome.json());
    return facts;
  };
  unit.recall = [this, index](const Json& facts) -> Result<void> {
    const size_t count = plan_.rounded[index].linears.size();
    if (!facts.is_array() || facts.as_array().size() != count)
      return LinearOutcome::parse(facts).error();
    for (const Json& one : facts.as_array())
      outcomes_[index].push_back(TRY(LinearOutcome::parse(one)));
    return {};
  };
  return unit;
}

std::vector<QuantizeRun::Unit> QuantizeRun::units() {
  std::vector<Unit> all;
  for (size_t i = 0; i < plan_.rounded.size(); ++i) all.push_back(group_unit(i));
  for (size_t i = 0; i < plan_.separated.size(); ++i) {
    const PlannedLinear& linear = plan_.separated[i];
    all.push_back({.name = concat("s", i),
                   .tensors = {linear.source.module + ".weight"},
                   .work = [this, &linear](ThreadPool&) -> Result<Json> {
                     TRY(separate(linear));
                     return Json();
                   }});
  }
  for (size_t i = 0; i < plan_.copied.size(); ++i) {
    const TensorEntry* tensor = plan_.copied[i];
    all.push_back({.name = concat("c", i),
                   .tensors = {tensor->name},
                   .work = [this, tensor](ThreadPool&) -> Result<Json> {
                     TRY(copy_tensor(*tensor));
                     return Json();
                   }});
  }
  return all;
}

/// True if an earlier run did it.
Result<bool> QuantizeRun::recall(const Unit& unit) {
  const Json* facts = writer_.find_finished(unit.name);
  if (facts == nullptr) return false;
  if (unit.recall) TRY(unit.recall(*facts));
  for (const std::string& tensor : unit.tensors) writer_.keep(tensor);
  return true;
}

Result<void> QuantizeRun::finish(const Unit& unit, ThreadPool& threads) {
  Json facts = TRY(unit.work(threads));
  return writer_.note_finished(unit.name, std::move(facts));
}

/// One thread each.
Result<void> QuantizeRun::run_small(const std::vector<const Unit*>& small, ThreadPool& threads) {
  std::mutex mutex;
  std::atomic<bool> failed = false;
  Result<void> first = {};
  threads.parallel_for(small.size(), 1, [&](size_t begin, size_t end) {
    ThreadPool alone(1);
    for (size_t i = begin; i < end && !failed; ++i) {
      auto done = finish(*small[i], alone);
      if (done.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first = std::move(done);
    }
  });
  return first;
}

Result<void> QuantizeRun::run_part(const std::vector<Unit>& all, int part, ThreadPool& threads) {
  std::vector<const Unit*> small;
  std::vector<const Unit*> large;
  for (const Unit& unit : all) {
    if (unit.part != part || TRY(recall(unit))) continue;
    (unit.bytes > options_.held_bytes_max / 8 ? large : small).push_back(&unit);
  }
  for (const Unit* unit : large) TRY(finish(*unit, threads));
  return run_small(small, threads);
}

/// First what needs no data, then what each part of the calibration tells about. Work that is gone
/// on with calibrates anew, as the report holds what was seen.
Result<void> QuantizeRun::run() {
  ThreadPool threads(options_.threads > 0 ? options_.threads : usable_cores());
  const std::vector<Unit> all = units();
  TRY(run_part(all, -1, threads));
  const int parts = options_.calibration == nullptr ? 0 : options_.calibration->parts();
  for (int part = 0; part < parts; ++part) {
    TRY(options_.calibration->run(part));
    TRY(run_part(all, part, threads));
  }
  return {};
}

/// All that decides the bytes of the output.
Json work_of(const Checkpoint& checkpoint, const std::string& source, const QuantPlan& plan,
             const Recipe& recipe, const QuantizeOptions& options) {
  Sha256 layout;
  for (const TensorPlan& tensor : plan.outputs)
    layout.add(concat(tensor.name, " ", dtype_info(tensor.dtype).name, tensor.shape.text(), "\n"));
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears)
      layout.add(concat(linear.becomes.input_scale, "\n"));
  Json work;
  work.set("program", concat("nibble ", NIBBLE_VERSION));
  work.set("source", concat(checkpoint.folder().filename().string(), " ", source));
  work.set("recipe", concat(recipe.name, " ", sha256_hex(recipe.text)));
  work.set("format", dialect_name(plan.dialect));
  work.set("algorithm", round_algorithm_name(options.algorithm));
  work.set("calibration", options.data_hash);
  work.set("files", concat(options.files == OutputFiles::one ? "one" : "several", ", at most ",
                           options.shard_bytes_max, " bytes"));
  work.set("layout", layout.hex());
  return work;
}

/// True for errors that another attempt may well get past.
bool worth_going_on(ErrorCode code) {
  return code == ErrorCode::cancelled || code == ErrorCode::io || code == ErrorCode::no_space ||
         code == ErrorCode::no_memory;
}

/// 3 of "model.language_model.layers.3.mlp.gate"; -1 of a linear in no layer.
int layer_of(const std::string& module) {
  const size_t at = module.find("layers.");
  return at == std::string::npos ? -1 : std::atoi(module.c_str() + at + 7);
}

void add_outcomes(QuantizeReport& report, const QuantPlan& plan,
                  const std::vector<std::vector<LinearOutcome>>& outcomes) {
  std::map<std::pair<std::string, std::string>, KindReport*> rows;
  std::map<std::pair<std::string, int>, RoundStatistics> layers;
  for (KindReport& row : report.kinds) rows[{row.kind, row.scheme}] = &row;
  for (size_t i = 0; i < plan.rounded.size(); ++i)
    for (size_t j = 0; j < plan.rounded[i].linears.size(); ++j) {
      const PlannedLinear& linear = plan.rounded[i].linears[j];
      rows.at({linear.kind, scheme_text(linear.becomes.scheme)})->rounding +=
          outcomes[i][j].statistics;
      layers[{linear.kind, layer_of(linear.source.module)}] += outcomes[i][j].statistics;
      if (!outcomes[i][j].fallback.empty())
        report.fallbacks.emplace_back(linear.source.module, outcomes[i][j].fallback);
    }
  for (const auto& [key, statistics] : layers)
    report.layers.push_back({.kind = key.first, .layer = key.second, .rounding = statistics});
}

}  // namespace

int64_t quantize_memory_bytes(const QuantPlan& plan, const QuantizeOptions& options) {
  CHECK(options.threads > 0, "threads ", options.threads);
  const int64_t largest = std::min(plan.largest_group_bytes(), options.held_bytes_max);
  const int64_t each = std::min(largest, options.held_bytes_max / 8);
  return std::max(largest, options.threads * each) + options.threads * options.block_bytes +
         kKeptBytes;
}

Result<void> fit_memory(const QuantPlan& plan, int64_t limit_bytes, QuantizeOptions& options) {
  QuantizeOptions fitted = options;
  while (quantize_memory_bytes(plan, fitted) > limit_bytes) {
    if (fitted.held_bytes_max > fitted.block_bytes) {
      fitted.held_bytes_max /= 2;
    } else if (fitted.threads > 1) {
      --fitted.threads;
    } else {
      return make_error(ErrorCode::no_memory,
                        {.what = "--memory-limit",
                         .expected = concat("at least ", quantize_memory_bytes(plan, fitted),
                                            " bytes for this checkpoint"),
                         .found = concat(limit_bytes)});
    }
  }
  options = fitted;
  return {};
}

namespace {

/// The source's README.md, or empty.
Result<std::string> base_card(const Checkpoint& checkpoint) {
  const auto readme = checkpoint.folder() / "README.md";
  std::error_code failure;
  if (!std::filesystem::exists(readme, failure)) return std::string();
  return read_text_file(readme, kReadmeBytesMax);
}

/// Our README.md; the source's own is kept beside it.
Result<void> write_card(const Checkpoint& checkpoint, const QuantizeReport& report,
                        CheckpointWriter& writer) {
  const std::string base = TRY(base_card(checkpoint));
  if (!base.empty()) TRY(writer.add_file("README.base.md", base));
  return writer.add_file("README.md", model_card({.base_card = base,
                                                  .licence = licence_files(checkpoint.folder()),
                                                  .report = report,
                                                  .config = checkpoint.config()}));
}

/// Everything beside the weights.
Result<QuantizeReport> write_rest(const Checkpoint& checkpoint, const QuantPlan& plan,
                                  const Recipe& recipe, const QuantizeRun& run,
                                  CheckpointWriter& writer) {
  QuantizeReport report = start_report(plan, recipe, run.algorithm());
  report.base = hub_name(checkpoint.folder(), TRY(base_card(checkpoint)));
  report.commands = {concat("nibble quantize ", report.base, " DST --recipe ", recipe.name,
                            " --format ", dialect_name(plan.dialect), " --algorithm ",
                            round_algorithm_name(run.algorithm()),
                            run.data_hash().empty() ? "" : " --calib DATA")};
  report.data_hash = run.data_hash();
  add_outcomes(report, plan, run.outcomes());
  if (run.calibration() != nullptr) report.calibration = run.calibration()->json();
  finish_report(report);
  TRY(writer.copy_other_files(checkpoint.folder()));
  TRY(writer.add_file("recipe.yaml", recipe_file(recipe.text, report)));
  TRY(writer.add_file("quantize_report.json", report.json().dump_pretty()));
  TRY(writer.add_file("quantize_report.svg", report.chart()));
  TRY(write_card(checkpoint, report, writer));
  if (plan.dialect == Dialect::modelopt)
    TRY(writer.add_file("hf_quant_config.json", modelopt_file(plan.declaration).dump_pretty()));
  Json config = checkpoint.config();
  config.set("quantization_config", quantization_config(plan.declaration, plan.dialect));
  TRY(writer.finish(config));
  return report;
}

Result<void> check_unchanged(const Checkpoint& checkpoint, const std::string& before) {
  const std::string now = TRY(source_fingerprint(checkpoint));
  if (now == before) return {};
  return make_error(ErrorCode::corrupt, {.what = checkpoint.folder().string(),
                                         .expected = "the files as they were at the start",
                                         .found = "changed ones",
                                         .advice = "begin again when nobody writes there"});
}

}  // namespace

Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantPlan& plan,
                                const Recipe& recipe, const std::filesystem::path& output,
                                const QuantizeOptions& options) {
  const std::string source = TRY(source_fingerprint(checkpoint));
  std::vector<TensorPlan> outputs = plan.outputs;
  const bool one = options.files == OutputFiles::one;
  if (one)
    for (TensorPlan& tensor : outputs) tensor.file.clear();
  CheckpointWriter writer = TRY(CheckpointWriter::create(
      output, std::move(outputs),
      {.shard_bytes_max = one ? std::numeric_limits<int64_t>::max() : options.shard_bytes_max,
       .inputs = {checkpoint.folder()},
       .progress = options.progress,
       .work = work_of(checkpoint, source, plan, recipe, options),
       .journal_seconds = options.journal_seconds}));
  QuantizeRun run(checkpoint, plan, options, writer);
  auto done = run.run();
  if (done.ok()) done = check_unchanged(checkpoint, source);
  if (!done.ok()) {
    if (worth_going_on(done.error().code)) TRY(writer.suspend());
    return done.error();
  }
  auto report = write_rest(checkpoint, plan, recipe, run, writer);
  if (!report.ok() && worth_going_on(report.error().code)) TRY(writer.suspend());
  return report;
}

}  // namespace nibble
