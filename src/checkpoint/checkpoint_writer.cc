// The life of an output folder: made, filled, finished, or taken away again.
#include "checkpoint/checkpoint_writer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "base/file.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_layout.h"
#include "checkpoint/write_journal.h"

namespace nibble {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

struct CheckpointWriter::State {
  fs::path folder;
  std::vector<TensorPlan> plan;
  CheckpointLayout layout;
  CheckpointWriterOptions options;
  std::vector<size_t> by_name;    // plan indices, sorted by name
  std::vector<int64_t> appended;  // bytes per plan entry
  std::vector<File> shards;
  std::vector<fs::path> made_folders;  // innermost first
  std::vector<fs::path> made_files;
  std::optional<WriteJournal> journal;
  std::vector<WriteJournal::Record> pending;  // finished, not yet in the journal
  Clock::time_point noted = Clock::now();
  bool noting = false;  // some thread is at it
  std::mutex journal_mutex;
  std::mutex progress_mutex;
  int64_t done = 0;
  int64_t total = 0;
  bool kept = false;  // finished, or suspended

  ~State() { remove_unfinished(); }
  void remove_unfinished();
  size_t index_of(std::string_view name) const;
  void advance(int64_t bytes);
  Result<void> make_shards();
  Result<void> link_files();
  Result<void> note_pending();
};

void CheckpointWriter::State::remove_unfinished() {
  if (kept) return;
  shards.clear();
  std::error_code ignored;
  for (const auto& file : made_files) fs::remove(file, ignored);
  if (journal) fs::remove(folder / kJournalFile, ignored);
  for (const auto& made : made_folders) fs::remove(made, ignored);
}

namespace {

Error refuse_output(const fs::path& folder, std::string_view expected, std::string_view found,
                    std::string_view advice = "name a new folder; nothing is overwritten") {
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("cannot write to ", folder.string()),
                     .expected = expected,
                     .found = found,
                     .advice = advice});
}

/// True if a folder is as a killed run without a journal leaves it: shards, but no config.json.
bool looks_unfinished(const fs::path& folder) {
  std::error_code failure;
  if (fs::exists(folder / kConfigFile, failure)) return false;
  return list_safetensors(folder).ok();
}

/// Links among what a run before has left were put there by somebody else, to make this one write
/// elsewhere.
Result<void> check_no_links(const fs::path& folder) {
  std::error_code failure;
  for (fs::recursive_directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure))
    if (at->is_symlink(failure))
      return refuse_output(folder, "no symbolic links in it", at->path().filename().string(),
                           "remove the link, or name a new folder");
  return {};
}

Result<void> check_output(const fs::path& folder, const CheckpointWriterOptions& options) {
  std::error_code failure;
  if (!fs::exists(folder, failure)) return {};
  for (const auto& input : options.inputs) {
    if (fs::equivalent(folder, input, failure)) {
      return refuse_output(folder, "an output other than the input", "the same folder");
    }
  }
  if (!fs::is_directory(folder, failure)) return refuse_output(folder, "a new folder", "a file");
  if (fs::exists(folder / kJournalFile, failure)) {
    TRY(check_no_links(folder));
    if (options.work.is_object()) return {};  // the journal will say whether it may be
    return refuse_output(folder, "a new or an empty folder", "the unfinished output of another run",
                         "run that command again to finish it, or remove the folder");
  }
  if (looks_unfinished(folder)) {
    return refuse_output(folder, "a new or an empty folder",
                         "an unfinished checkpoint (no config.json)",
                         "remove it, or name a new folder");
  }
  if (!fs::is_empty(folder, failure) || failure) {
    return refuse_output(folder, "a new or an empty folder", "one with files in it");
  }
  return {};
}

/// Makes the folder and its missing parents; records what it made, innermost first.
Result<void> make_folders(const fs::path& folder, std::vector<fs::path>& made) {
  std::error_code failure;
  fs::path at = folder;
  std::vector<fs::path> missing;
  while (!at.empty() && !fs::exists(at, failure)) {
    if (at.has_filename()) missing.push_back(at);
    at = at.parent_path();
  }
  for (size_t i = missing.size(); i-- > 0;) {
    if (fs::create_directory(missing[i], failure)) made.insert(made.begin(), missing[i]);
    if (!failure) continue;
    return Error{ErrorCode::io,
                 concat("cannot make folder ", missing[i].string(), ": ", failure.message())};
  }
  return {};
}

std::vector<size_t> sorted_by_name(const std::vector<TensorPlan>& plan) {
  std::vector<size_t> order(plan.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return std::string_view(plan[i].name); });
  for (size_t i = 1; i < order.size(); ++i) {
    CHECK(plan[order[i - 1]].name != plan[order[i]].name,
          "tensor planned twice: ", plan[order[i]].name);
  }
  return order;
}

/// Removes the temporary files of a writer that was killed: "report.json.tmp.4711".
void remove_leftovers(const fs::path& folder) {
  std::error_code failure;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    const size_t mark = name.rfind(".tmp.");
    if (mark != std::string::npos &&
        name.find_first_not_of("0123456789", mark + 5) == std::string::npos)
      leftovers.push_back(at->path());
  }
  for (const auto& leftover : leftovers) fs::remove(leftover, failure);
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Result<CheckpointWriter> CheckpointWriter::create(const fs::path& folder,
                                                  std::vector<TensorPlan> tensors,
                                                  CheckpointWriterOptions options) {
  CHECK(!tensors.empty() || !options.linked.empty(), "a checkpoint without tensors");
  CHECK(options.shard_bytes_max > 0, options.shard_bytes_max);
  TRY(check_output(folder, options));
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->plan = std::move(tensors);
  state->options = std::move(options);
  state->by_name = sorted_by_name(state->plan);
  state->appended.resize(state->plan.size());
  state->layout = lay_out_shards(state->plan, state->options.shard_bytes_max);
  for (const auto& place : state->layout.places) state->total += place.bytes;
  TRY(make_folders(folder, state->made_folders));
  if (state->options.work.is_object()) {
    auto journal = WriteJournal::open(folder, state->options.work);
    if (!journal.ok()) {
      state->kept = true;  // nothing here is ours to remove
      return journal.error();
    }
    state->journal = std::move(journal).value();
    if (state->journal->resumed()) remove_leftovers(folder);
  }
  TRY(state->make_shards());
  TRY(state->link_files());
  return CheckpointWriter(std::move(state));
}

/// New ones, or those of the run before: then with the same head over the same head.
Result<void> CheckpointWriter::State::make_shards() {
  const bool goes_on = journal && journal->resumed();
  for (const ShardLayout& shard : layout.shards) {
    const fs::path path = folder / shard.file;
    File file = goes_on ? TRY(File::open_write(path)) : TRY(File::create_new(path));
    made_files.push_back(path);
    TRY(file.reserve(shard.head.size() + static_cast<uint64_t>(shard.data_bytes)));
    TRY(file.write_at(std::as_bytes(std::span(shard.head)), 0));
    shards.push_back(std::move(file));
  }
  return {};
}

Result<void> CheckpointWriter::State::link_files() {
  for (const LinkedFile& file : options.linked) {
    const fs::path to = folder / file.path.filename();
    std::error_code failure;
    const fs::path from = fs::canonical(file.path, failure);  // hub caches are made of links
    if (!failure) fs::create_hard_link(from, to, failure);
    if (failure) TRY(copy_bytes(file.path, to));
    made_files.push_back(to);
  }
  return {};
}

size_t CheckpointWriter::State::index_of(std::string_view name) const {
  const auto name_of = [&](size_t i) { return std::string_view(plan[i].name); };
  const auto found = std::ranges::lower_bound(by_name, name, {}, name_of);
  CHECK(found != by_name.end() && name_of(*found) == name, "not in the plan: ", name);
  return *found;
}

void CheckpointWriter::State::advance(int64_t bytes) {
  const std::lock_guard lock(progress_mutex);
  done += bytes;
  if (options.progress) options.progress(done, total);
}

bool CheckpointWriter::resumed() const { return state_->journal && state_->journal->resumed(); }

const Json* CheckpointWriter::find_finished(std::string_view unit) const {
  return state_->journal ? state_->journal->find(unit) : nullptr;
}

void CheckpointWriter::keep(std::string_view name) {
  const size_t index = state_->index_of(name);
  const int64_t bytes = state_->layout.places[index].bytes;
  CHECK(state_->appended[index] == 0, name, ": ", state_->appended[index]);
  state_->appended[index] = bytes;
  state_->advance(bytes);
}

/// The data first, then the note of it.
Result<void> CheckpointWriter::State::note_pending() {
  std::vector<WriteJournal::Record> records;
  {
    const std::lock_guard lock(journal_mutex);
    records.swap(pending);
  }
  for (File& shard : shards) TRY(shard.sync());
  return journal->append(records);
}

Result<void> CheckpointWriter::note_finished(std::string_view unit, Json facts) {
  State& state = *state_;
  if (!state.journal) return {};
  {
    const std::lock_guard lock(state.journal_mutex);
    state.pending.push_back({std::string(unit), std::move(facts)});
    const std::chrono::duration<double> since = Clock::now() - state.noted;
    if (state.noting || since.count() < state.options.journal_seconds) return {};
    state.noting = true;
  }
  auto noted = state.note_pending();
  const std::lock_guard lock(state.journal_mutex);
  state.noting = false;
  state.noted = Clock::now();
  return noted;
}

Result<bool> CheckpointWriter::suspend() {
  if (!state_->journal) return false;
  state_->kept = true;
  TRY(state_->note_pending());
  return true;
}

Result<void> CheckpointWriter::append(std::string_view name, std::span<const std::byte> data) {
  State& state = *state_;
  const size_t index = state.index_of(name);
  const TensorPlace& place = state.layout.places[index];
  int64_t& appended = state.appended[index];
  const auto bytes = static_cast<int64_t>(data.size());
  CHECK(bytes <= place.bytes - appended, name, ": ", appended, " + ", bytes, " of ", place.bytes);
  TRY(state.shards[static_cast<size_t>(place.shard)].write_at(
      data, place.offset + static_cast<uint64_t>(appended)));
  appended += bytes;
  if (state.options.appended) state.options.appended(name, data);
  state.advance(bytes);
  return {};
}

namespace {
/// True for a path in `folder` or its subfolders.
bool is_below(const fs::path& path, const fs::path& folder) {
  std::error_code failure;
  const fs::path home = fs::weakly_canonical(folder, failure);
  const fs::path place = fs::weakly_canonical(path.parent_path(), failure);
  return std::mismatch(home.begin(), home.end(), place.begin(), place.end()).first == home.end();
}
}  // namespace

Result<void> CheckpointWriter::copy_other_files(const fs::path& from,
                                                std::span<const std::string_view> without) {
  for (const auto& relative : TRY(companion_files(from))) {
    if (std::ranges::find(without, relative.string()) != without.end()) continue;
    const fs::path to = state_->folder / relative;
    if (is_below(from / relative, state_->folder)) continue;  // of this output, below its source
    if (std::ranges::find(state_->made_files, to) != state_->made_files.end()) continue;
    TRY(make_folders(to.parent_path(), state_->made_folders));
    state_->made_files.push_back(to);
    std::error_code failure;
    if (resumed()) fs::remove(to, failure);  // perhaps half of it
    TRY(copy_bytes(from / relative, to));
  }
  return {};
}

Result<void> CheckpointWriter::add_file(std::string_view name, std::string_view text) {
  CHECK(!name.empty() && name.find('/') == std::string_view::npos && name != kConfigFile, name);
  const fs::path path = state_->folder / name;
  state_->made_files.push_back(path);
  return write_file_atomically(path, text);
}

const fs::path& CheckpointWriter::folder() const { return state_->folder; }

std::vector<fs::path> CheckpointWriter::files() const {
  std::vector<fs::path> files;
  for (const fs::path& file : state_->made_files)
    files.push_back(file.lexically_relative(state_->folder));
  std::ranges::sort(files);
  files.erase(std::ranges::unique(files).begin(), files.end());
  return files;
}

Result<void> CheckpointWriter::write_index() {
  const State& state = *state_;
  if (state.shards.size() + state.options.linked.size() < 2) return {};
  return add_file(kIndexFile, index_text(state.plan, state.layout, state.options.linked));
}

Result<void> CheckpointWriter::finish(const Json& config) {
  State& state = *state_;
  CHECK(!state.kept, "finish() twice");
  for (size_t i = 0; i < state.plan.size(); ++i) {
    if (state.appended[i] == state.layout.places[i].bytes) continue;
    return make_error(ErrorCode::internal,
                      {.what = concat("tensor ", quoted_name(state.plan[i].name), " is incomplete"),
                       .expected = concat(state.layout.places[i].bytes, " bytes"),
                       .found = concat(state.appended[i])});
  }
  for (File& shard : state.shards) TRY(shard.sync());
  TRY(write_index());
  TRY(sync_folder(state.folder));
  state.made_files.push_back(state.folder / kConfigFile);
  TRY(write_file_atomically(state.folder / kConfigFile, config.dump_pretty()));
  TRY(sync_folder(state.folder));
  state.kept = true;
  if (!state.journal) return {};
  TRY(state.journal->remove());
  TRY(sync_folder(state.folder));
  return {};
}

int64_t CheckpointWriter::file_bytes() const {
  int64_t bytes = 0;
  for (const auto& shard : state_->layout.shards) {
    bytes += static_cast<int64_t>(shard.head.size()) + shard.data_bytes;
  }
  return bytes;
}

}  // namespace nibble
