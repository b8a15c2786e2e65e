// The work of a run: units (a fused group, a copied tensor) go to threads; a large group is cut in
// row blocks that all threads share. Output places are fixed by the plan, so the order of work
// leaves no trace in the bytes.
#include "quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/source_fingerprint.h"
#include "quantize/finished_unit.h"
#include "quantize/group_rounder.h"
#include "quantize/quantize_papers.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/report/content_hashes.h"

namespace nibble {
namespace {

constexpr int64_t kKeptBytes = int64_t{64} << 20;  // freed, but kept by the allocator for later
constexpr int64_t kHashBytes = 512;                // of a tensor, with its name, twice

class QuantizeRun {
 public:
  QuantizeRun(const Checkpoint& checkpoint, const QuantPlan& plan, const QuantizeOptions& options,
              CheckpointWriter& writer, TensorHasher& hasher)
      : checkpoint_(checkpoint),
        plan_(plan),
        options_(options),
        writer_(writer),
        hasher_(hasher),
        rounder_(checkpoint, writer,
                 {.algorithm = options.algorithm,
                  .dialect = plan.dialect,
                  .held_bytes_max = options.held_bytes_max,
                  .block_bytes = options.block_bytes,
                  .statistics = statistics(),
                  .input_scale = input_scale(),
                  .device = gptq_device(),
                  .check = [this] { return check_cancelled(); }}),
        outcomes_(plan.rounded.size()) {}

  Result<void> run();
  /// One per linear, in the plan's order.
  const LinearOutcomes& outcomes() const { return outcomes_; }

 private:
  /// The outcome of a piece of work.
  struct Done {
    Json outcomes = {};            // for the run that continues
    std::string source_hash = {};  // empty: of the one tensor it wrote, which is a copy
  };
  /// A piece of work that is done or not, and what it writes.
  struct Unit {
    std::string name;
    int64_t bytes = 0;  // of its source
    std::vector<std::string> tensors;
    int part = -1;  // of the calibration that it needs; -1: none
    std::function<Result<Done>(ThreadPool&)> work;
    std::function<Result<std::string>()> source_hash;      // of what it reads, now
    std::function<Result<void>(const Json&)> recall = {};  // takes outcomes of an earlier run
  };
  using Statistics = std::function<const InputStatistics*(const LinearSource&)>;
  Statistics statistics() const;
  std::function<float(const PlannedLinear&)> input_scale() const;
  GptqDevice* gptq_device() const {
    return options_.calibration == nullptr ? nullptr : options_.calibration->gptq_device();
  }
  std::vector<Unit> units();
  Unit group_unit(size_t index);
  Unit separated_unit(size_t index);
  Unit copied_unit(size_t index);
  Result<void> finish(const Unit& unit, ThreadPool& threads);
  Result<bool> recall(const Unit& unit);
  Result<void> check_source(const Unit& unit) const;
  Result<void> each_alone(const std::vector<const Unit*>& units, ThreadPool& threads,
                          const std::function<Result<void>(const Unit&, ThreadPool&)>& work) const;
  Result<void> run_part(const std::vector<Unit>& all, int part, ThreadPool& threads);
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  Result<void> read_tensor(const TensorEntry& entry, const Take& take) const;
  Result<void> separate(const PlannedLinear& linear);
  Result<void> check_cancelled() const;

  const Checkpoint& checkpoint_;
  const QuantPlan& plan_;
  const QuantizeOptions& options_;
  CheckpointWriter& writer_;
  TensorHasher& hasher_;
  GroupRounder rounder_;
  LinearOutcomes outcomes_;
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

Result<void> QuantizeRun::read_tensor(const TensorEntry& from, const Take& take) const {
  Buffer buffer(std::min(from.bytes, options_.block_bytes));
  for (int64_t done = 0; done < from.bytes;) {
    TRY(check_cancelled());
    const auto piece = static_cast<size_t>(std::min(buffer.bytes(), from.bytes - done));
    TRY(checkpoint_.read_bytes(from, done, buffer.span().first(piece)));
    TRY(take(buffer.span().first(piece)));
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
  unit.work = [this, index](ThreadPool& threads) -> Result<Done> {
    RoundedGroup rounded = TRY(rounder_.round(plan_.rounded[index], threads));
    outcomes_[index] = std::move(rounded.outcomes);
    Json facts{Json::Array()};
    for (const LinearOutcome& outcome : outcomes_[index]) facts.push_back(outcome.json());
    return Done{.outcomes = std::move(facts), .source_hash = std::move(rounded.source_hash)};
  };
  unit.source_hash = [this, index] { return rounder_.source_hash(plan_.rounded[index]); };
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

QuantizeRun::Unit QuantizeRun::separated_unit(size_t index) {
  const PlannedLinear& linear = plan_.separated[index];
  return {.name = concat("s", index),
          .tensors = {linear.source.module + ".weight"},
          .work = [this, &linear](ThreadPool&) -> Result<Done> {
            TRY(separate(linear));
            return Done{};
          },
          .source_hash = [this, &linear]() -> Result<std::string> {
            Tensor values = TRY(rounder_.read_rows(linear.source, 0, linear.source.rows));
            return hash_of(values.span());
          }};
}

QuantizeRun::Unit QuantizeRun::copied_unit(size_t index) {
  const TensorEntry* tensor = plan_.copied[index];
  return {
      .name = concat("c", index),
      .tensors = {tensor->name},
      .work = [this, tensor](ThreadPool&) -> Result<Done> {
        TRY(read_tensor(*tensor, [&](auto data) { return writer_.append(tensor->name, data); }));
        return Done{};
      },
      .source_hash = [this, tensor]() -> Result<std::string> {
        Sha256 hasher;
        TRY(read_tensor(*tensor, [&](auto data) -> Result<void> {
          hasher.add(data);
          return {};
        }));
        return hasher.hex();
      }};
}

std::vector<QuantizeRun::Unit> QuantizeRun::units() {
  std::vector<Unit> all;
  for (size_t i = 0; i < plan_.rounded.size(); ++i) all.push_back(group_unit(i));
  for (size_t i = 0; i < plan_.separated.size(); ++i) all.push_back(separated_unit(i));
  for (size_t i = 0; i < plan_.copied.size(); ++i) all.push_back(copied_unit(i));
  return all;
}

/// True if an earlier run did it.
Result<bool> QuantizeRun::recall(const Unit& unit) {
  const Json* facts = writer_.find_finished(unit.name);
  if (facts == nullptr) return false;
  const FinishedUnit finished = TRY(FinishedUnit::parse(*facts, unit.tensors.size()));
  if (unit.recall) TRY(unit.recall(finished.outcomes));
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    hasher_.keep(unit.tensors[i], finished.tensor_hashes[i]);
    writer_.keep(unit.tensors[i]);
  }
  return true;
}

/// The source of a unit that an earlier run finished is read again, as no size and no time proves
/// that it is the same.
Result<void> QuantizeRun::check_source(const Unit& unit) const {
  const Json& facts = *writer_.find_finished(unit.name);
  const FinishedUnit finished = TRY(FinishedUnit::parse(facts, unit.tensors.size()));
  if (TRY(unit.source_hash()) == finished.source_hash) return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat("cannot go on in ", writer_.folder().string()),
       .expected = concat("the source that ", unit.tensors.front(), " was made from"),
       .found = "other weights, although sizes and times are the same",
       .advice = "give back the source as it was, or remove the folder to begin again"});
}

Result<void> QuantizeRun::finish(const Unit& unit, ThreadPool& threads) {
  Done done = TRY(unit.work(threads));
  FinishedUnit finished{.outcomes = std::move(done.outcomes), .source_hash = done.source_hash};
  for (const std::string& tensor : unit.tensors)
    finished.tensor_hashes.push_back(hasher_.finish(tensor));
  if (finished.source_hash.empty()) finished.source_hash = finished.tensor_hashes.front();
  return writer_.note_finished(unit.name, finished.json());
}

/// One thread each.
Result<void> QuantizeRun::each_alone(
    const std::vector<const Unit*>& units, ThreadPool& threads,
    const std::function<Result<void>(const Unit&, ThreadPool&)>& work) const {
  std::mutex mutex;
  std::atomic<bool> failed = false;
  Result<void> first = {};
  threads.parallel_for(units.size(), 1, [&](size_t begin, size_t end) {
    ThreadPool alone(1);
    for (size_t i = begin; i < end && !failed; ++i) {
      auto done = work(*units[i], alone);
      if (done.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) first = std::move(done);
    }
  });
  return first;
}

Result<void> QuantizeRun::run_part(const std::vector<Unit>& all, int part, ThreadPool& threads) {
  std::vector<const Unit*> small, large, finished;
  for (const Unit& unit : all) {
    if (unit.part != part) continue;
    const bool before = TRY(recall(unit));
    const bool shared = unit.bytes > options_.held_bytes_max / 8;
    (before ? finished : shared ? large : small).push_back(&unit);
  }
  TRY(each_alone(finished, threads,
                 [this](const Unit& unit, ThreadPool&) { return check_source(unit); }));
  for (const Unit* unit : large) TRY(finish(*unit, threads));
  return each_alone(small, threads,
                    [this](const Unit& unit, ThreadPool& alone) { return finish(unit, alone); });
}

/// First what needs no data, then what each part of the calibration tells about. Work that is gone
/// on with calibrates anew, as the report holds what was seen.
Result<void> QuantizeRun::run() {
  ThreadPool threads(options_.threads > 0 ? options_.threads : usable_cores());
  const std::vector<Unit> all = units();
  if (options_.calibration != nullptr) options_.calibration->begin();
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
         code == ErrorCode::no_memory || code == ErrorCode::invalid_argument;
}

/// gptq's moment in doubles and its factor in floats, of the widest linear that the CPU rounds.
int64_t factor_bytes(const QuantPlan& plan, const QuantizeOptions& options,
                     const GptqDevice* device) {
  if (options.algorithm != RoundAlgorithm::gptq) return 0;
  int64_t cols = 0;
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears) {
      const bool elsewhere = device != nullptr && device->takes(linear.source.cols);
      if (!elsewhere && !is_embedding(linear.source.module))
        cols = std::max(cols, linear.source.cols);
    }
  return cols * cols * static_cast<int64_t>(sizeof(double) + sizeof(float));
}

}  // namespace

int64_t quantize_memory_bytes(const QuantPlan& plan, const QuantizeOptions& options,
                              const GptqDevice* device) {
  CHECK(options.threads > 0, "threads ", options.threads);
  const int64_t largest = std::min(plan.largest_group_bytes(), options.held_bytes_max);
  const int64_t each = std::min(largest, options.held_bytes_max / 8);
  return std::max(largest, options.threads * each) +
         options.threads * (options.block_bytes + factor_bytes(plan, options, device)) +
         static_cast<int64_t>(plan.outputs.size()) * kHashBytes + kKeptBytes;
}

Result<void> fit_memory(const QuantPlan& plan, int64_t limit_bytes, const GptqDevice* device,
                        QuantizeOptions& options) {
  QuantizeOptions fitted = options;
  while (quantize_memory_bytes(plan, fitted, device) > limit_bytes) {
    if (fitted.held_bytes_max > fitted.block_bytes) {
      fitted.held_bytes_max /= 2;
    } else if (fitted.threads > 1) {
      --fitted.threads;
    } else {
      return make_error(
          ErrorCode::no_memory,
          {.what = "--memory-limit",
           .expected = concat("at least ", quantize_memory_bytes(plan, fitted, device),
                              " bytes for this checkpoint"),
           .found = concat(limit_bytes)});
    }
  }
  options = fitted;
  return {};
}

namespace {

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
  TensorHasher hasher;
  CheckpointWriter writer = TRY(CheckpointWriter::create(
      output, std::move(outputs),
      {.shard_bytes_max = one ? std::numeric_limits<int64_t>::max() : options.shard_bytes_max,
       .inputs = {checkpoint.folder()},
       .progress = options.progress,
       .appended = [&hasher](auto tensor, auto data) { hasher.add(tensor, data); },
       .work = work_of(checkpoint, source, plan, recipe, options),
       .journal_seconds = options.journal_seconds}));
  QuantizeRun run(checkpoint, plan, options, writer, hasher);
  auto done = run.run();
  if (done.ok()) done = check_unchanged(checkpoint, source);
  if (!done.ok()) {
    if (worth_going_on(done.error().code)) TRY(writer.suspend());
    return done.error();
  }
  auto report = finish_output({.checkpoint = checkpoint,
                               .plan = plan,
                               .recipe = recipe,
                               .options = options,
                               .outcomes = run.outcomes(),
                               .hashes = hasher.take()},
                              writer);
  if (!report.ok() && worth_going_on(report.error().code)) TRY(writer.suspend());
  return report;
}

}  // namespace nibble
