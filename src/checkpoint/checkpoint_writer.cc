// The life of an output folder: made, filled, finished, or taken away again.
#include "checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "base/file.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_layout.h"

namespace nibble {

namespace fs = std::filesystem;

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
  std::mutex progress_mutex;
  int64_t done = 0;
  int64_t total = 0;
  bool finished = false;

  ~State() { remove_unfinished(); }
  void remove_unfinished();
};

void CheckpointWriter::State::remove_unfinished() {
  if (finished) return;
  shards.clear();
  std::error_code ignored;
  for (const auto& file : made_files) fs::remove(file, ignored);
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

/// What a killed run leaves behind: shards, but no config.json.
bool looks_unfinished(const fs::path& folder) {
  std::error_code failure;
  if (fs::exists(folder / kConfigFile, failure)) return false;
  return list_safetensors(folder).ok();
}

Result<void> check_output(const fs::path& folder, const std::vector<fs::path>& inputs) {
  std::error_code failure;
  if (!fs::exists(folder, failure)) return {};
  for (const auto& input : inputs) {
    if (fs::equivalent(folder, input, failure)) {
      return refuse_output(folder, "an output other than the input", "the same folder");
    }
  }
  if (!fs::is_directory(folder, failure)) return refuse_output(folder, "a new folder", "a file");
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

/// So that the new names survive a power cut.
Result<void> sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", folder);
  const int outcome = ::fsync(descriptor);
  ::close(descriptor);
  // Some file systems cannot flush a folder (EINVAL); the files themselves are flushed.
  if (outcome != 0 && errno != EINVAL) return system_error("flush", folder);
  return {};
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Result<CheckpointWriter> CheckpointWriter::create(const fs::path& folder,
                                                  std::vector<TensorPlan> tensors,
                                                  CheckpointWriterOptions options) {
  CHECK(!tensors.empty(), "a checkpoint without tensors");
  CHECK(options.shard_bytes_max > 0, options.shard_bytes_max);
  TRY(check_output(folder, options.inputs));
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->plan = std::move(tensors);
  state->options = std::move(options);
  state->by_name = sorted_by_name(state->plan);
  state->appended.resize(state->plan.size());
  state->layout = lay_out_shards(state->plan, state->options.shard_bytes_max);
  for (const auto& place : state->layout.places) state->total += place.bytes;
  TRY(make_folders(folder, state->made_folders));
  for (const ShardLayout& shard : state->layout.shards) {
    const fs::path path = folder / shard.file;
    File file = TRY(File::create_new(path));
    state->made_files.push_back(path);
    TRY(file.reserve(shard.head.size() + static_cast<uint64_t>(shard.data_bytes)));
    TRY(file.write_at(std::as_bytes(std::span(shard.head)), 0));
    state->shards.push_back(std::move(file));
  }
  return CheckpointWriter(std::move(state));
}

Result<void> CheckpointWriter::append(std::string_view name, std::span<const std::byte> data) {
  State& state = *state_;
  const auto name_of = [&](size_t i) { return std::string_view(state.plan[i].name); };
  const auto found = std::ranges::lower_bound(state.by_name, name, {}, name_of);
  CHECK(found != state.by_name.end() && name_of(*found) == name, "not in the plan: ", name);
  const TensorPlace& place = state.layout.places[*found];
  int64_t& appended = state.appended[*found];
  const auto bytes = static_cast<int64_t>(data.size());
  CHECK(bytes <= place.bytes - appended, name, ": ", appended, " + ", bytes, " of ", place.bytes);
  TRY(state.shards[static_cast<size_t>(place.shard)].write_at(
      data, place.offset + static_cast<uint64_t>(appended)));
  appended += bytes;
  const std::lock_guard lock(state.progress_mutex);
  state.done += bytes;
  if (state.options.progress) state.options.progress(state.done, state.total);
  return {};
}

Result<void> CheckpointWriter::copy_other_files(const fs::path& from) {
  for (const auto& relative : TRY(companion_files(from))) {
    const fs::path to = state_->folder / relative;
    if (std::ranges::find(state_->made_files, to) != state_->made_files.end()) continue;
    TRY(make_folders(to.parent_path(), state_->made_folders));
    state_->made_files.push_back(to);
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

Result<void> CheckpointWriter::finish(const Json& config) {
  State& state = *state_;
  CHECK(!state.finished, "finish() twice");
  for (size_t i = 0; i < state.plan.size(); ++i) {
    if (state.appended[i] == state.layout.places[i].bytes) continue;
    return make_error(ErrorCode::internal,
                      {.what = concat("tensor ", quoted_name(state.plan[i].name), " is incomplete"),
                       .expected = concat(state.layout.places[i].bytes, " bytes"),
                       .found = concat(state.appended[i])});
  }
  for (File& shard : state.shards) TRY(shard.sync());
  if (state.shards.size() > 1) TRY(add_file(kIndexFile, index_text(state.plan, state.layout)));
  TRY(sync_folder(state.folder));
  state.made_files.push_back(state.folder / kConfigFile);
  TRY(write_file_atomically(state.folder / kConfigFile, config.dump_pretty()));
  TRY(sync_folder(state.folder));
  state.finished = true;
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
