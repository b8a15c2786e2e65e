// Opens the files of a folder, puts their headers together and holds them against the index.
#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "base/file.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/direct_file.h"
#include "checkpoint/safetensors_header.h"

namespace nibble {

struct Checkpoint::State {
  std::filesystem::path folder;
  std::vector<std::string> names;
  std::vector<File> files;
  std::vector<DirectFile> direct;        // as files; empty: not asked for
  std::shared_ptr<MappedFiles> mapping;  // null: not asked for
  std::vector<TensorEntry> entries;
  Json config;
};

namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{64} << 20;

Result<Json> parse_config_text(std::string_view text) {
  Json config = TRY(parse_json(text, kConfigFile));
  if (config.is_object()) return config;
  return make_error(ErrorCode::corrupt, {.what = "config.json is no model configuration",
                                         .expected = "an object",
                                         .found = config.type_name()});
}

Result<void> require_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  if (std::filesystem::is_directory(folder, failure)) return {};
  const bool exists = std::filesystem::exists(folder, failure);
  return make_error(exists ? ErrorCode::invalid_argument : ErrorCode::not_found,
                    {.what = concat("cannot open checkpoint ", folder.string()),
                     .expected = "a folder with config.json and safetensors files",
                     .found = exists ? "a file" : "nothing there"});
}

void add_tensors(SafetensorsHeader header, int file, std::vector<TensorEntry>& entries) {
  for (TensorEntry& tensor : header.tensors) {
    tensor.file = file;
    entries.push_back(std::move(tensor));
  }
}

Result<void> refuse_duplicates(const std::vector<TensorEntry>& sorted,
                               const std::vector<std::string>& names) {
  const auto twice = std::ranges::adjacent_find(sorted, {}, &TensorEntry::name);
  if (twice == sorted.end()) return {};
  const auto file_of = [&](const TensorEntry& entry) {
    return names[static_cast<size_t>(entry.file)];
  };
  return make_error(ErrorCode::corrupt,
                    {.what = concat("tensor ", quoted_name(twice->name), " exists twice"),
                     .expected = "one file",
                     .found = concat(file_of(*twice), " and ", file_of(*(twice + 1)))});
}

Error index_disagrees(std::string_view tensor, std::string_view expected, std::string_view found) {
  return make_error(
      ErrorCode::corrupt,
      {.what = concat(kIndexFile, " disagrees with the files about tensor ", quoted_name(tensor)),
       .expected = expected,
       .found = found,
       .advice = "download or copy the checkpoint again"});
}

/// Both lists are sorted by name; every tensor must be in both, in the same file.
Result<void> match_index(const std::vector<TensorEntry>& entries, const CheckpointIndex& index) {
  size_t i = 0;
  for (const auto& place : index.places) {
    const auto& file = index.files[static_cast<size_t>(place.file)];
    if (i < entries.size() && entries[i].name < place.tensor) {
      return index_disagrees(entries[i].name, "an entry in the index", "none");
    }
    if (i == entries.size() || entries[i].name != place.tensor) {
      return index_disagrees(place.tensor, concat("it in ", file), "it in no file");
    }
    if (entries[i].file != place.file) {
      return index_disagrees(place.tensor, concat("it in ", file),
                             concat("it in ", index.files[static_cast<size_t>(entries[i].file)]));
    }
    ++i;
  }
  if (i == entries.size()) return {};
  return index_disagrees(entries[i].name, "an entry in the index", "none");
}

/// Sorts the tensors of all files, and holds them against the index if there is one.
Result<void> settle_entries(const std::vector<std::string>& names,
                            const std::optional<CheckpointIndex>& index,
                            std::vector<TensorEntry>& entries) {
  std::ranges::sort(entries, {}, &TensorEntry::name);
  TRY(refuse_duplicates(entries, names));
  return index ? match_index(entries, *index) : Result<void>();
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  TRY(require_folder(folder));
  auto state = std::make_unique<State>();
  state->folder = folder;
  const std::string config = TRY(read_text_file(folder / kConfigFile, kConfigBytesMax));
  state->config = TRY(parse_config_text(config));
  std::optional<CheckpointIndex> index;
  std::error_code failure;
  if (std::filesystem::exists(folder / kIndexFile, failure)) {
    const auto text = TRY(read_text_file(folder / kIndexFile, kSafetensorsHeaderBytesMax));
    index = TRY(parse_checkpoint_index(text));
    state->names = index->files;
  } else {
    state->names = TRY(list_safetensors(folder));
  }
  for (size_t i = 0; i < state->names.size(); ++i) {
    state->files.push_back(TRY(File::open_read(folder / state->names[i])));
    add_tensors(TRY(read_safetensors_header(state->files.back())), static_cast<int>(i),
                state->entries);
  }
  TRY(settle_entries(state->names, index, state->entries));
  return Checkpoint(std::move(state));
}

Result<Checkpoint> Checkpoint::from_headers(const CheckpointHeaders& headers) {
  auto state = std::make_unique<State>();
  state->folder = headers.name;
  state->config = TRY(parse_config_text(headers.config));
  std::optional<CheckpointIndex> index;
  if (headers.index) index = TRY(parse_checkpoint_index(*headers.index));
  for (const CheckpointHeaders::File& file : headers.files) {
    add_tensors(TRY(parse_safetensors_header(file.header, file.bytes, file.name)),
                static_cast<int>(state->names.size()), state->entries);
    state->names.push_back(file.name);
  }
  CHECK(!index || index->files == state->names, "files of ", headers.name, " and of its index");
  TRY(settle_entries(state->names, index, state->entries));
  return Checkpoint(std::move(state));
}

Result<void> Checkpoint::read_directly() {
  std::vector<DirectFile> direct;
  for (const std::string& name : state_->names)
    direct.push_back(TRY(DirectFile::open(state_->folder / name)));
  state_->direct = std::move(direct);
  return {};
}

Result<void> Checkpoint::map_files() {
  std::vector<MappedFile> files;
  for (const std::string& name : state_->names)
    files.push_back(TRY(MappedFile::map(state_->folder / name)));
  state_->mapping = std::make_shared<MappedFiles>(std::move(files));
  return {};
}

std::shared_ptr<MappedFiles> Checkpoint::mapping() const { return state_->mapping; }

MappedBytes Checkpoint::mapped(const TensorEntry& entry) const {
  const std::span<const TensorEntry> own = entries();
  if (!state_->mapping || &entry < own.data() || &entry >= own.data() + own.size()) return {};
  const MappedFile& file = state_->mapping->file(entry.file);
  if (entry.offset + static_cast<uint64_t>(entry.bytes) > file.bytes().size()) return {};
  return {.file = &file,
          .bytes = file.bytes().subspan(entry.offset, static_cast<size_t>(entry.bytes))};
}

const std::filesystem::path& Checkpoint::folder() const { return state_->folder; }
std::span<const std::string> Checkpoint::files() const { return state_->names; }
std::span<const TensorEntry> Checkpoint::entries() const { return state_->entries; }
const Json& Checkpoint::config() const { return state_->config; }

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(state_->entries, name, {}, &TensorEntry::name);
  return found != state_->entries.end() && found->name == name ? &*found : nullptr;
}

Result<const TensorEntry*> Checkpoint::expect(std::string_view name, std::span<const DType> dtypes,
                                              const Shape& shape) const {
  std::string wanted;
  for (const DType dtype : dtypes) {
    wanted += concat(wanted.empty() ? "" : " or ", dtype_info(dtype).name);
  }
  wanted += concat(" ", shape.text());
  const TensorEntry* entry = find(name);
  if (entry == nullptr) {
    return make_error(ErrorCode::not_found, {.what = concat("missing tensor ", quoted_name(name)),
                                             .expected = wanted,
                                             .found = "none",
                                             .advice = "the checkpoint is incomplete"});
  }
  if (std::ranges::find(dtypes, entry->dtype) != dtypes.end() && entry->shape == shape) {
    return entry;
  }
  return make_error(ErrorCode::corrupt,
                    {.what = concat("tensor ", quoted_name(name), " does not fit the model"),
                     .expected = wanted,
                     .found = concat(dtype_info(entry->dtype).name, " ", entry->shape.text())});
}

Result<void> Checkpoint::read_bytes(const TensorEntry& entry, int64_t begin,
                                    std::span<std::byte> out) const {
  const auto bytes = static_cast<int64_t>(out.size());
  CHECK(begin >= 0 && bytes <= entry.bytes - begin, "bytes ", begin, " + ", bytes, " of ",
        entry.bytes, " of ", entry.name);
  const auto file = static_cast<size_t>(entry.file);
  if (state_->files.empty())
    return make_error(ErrorCode::unsupported,
                      {.what = concat("tensor ", quoted_name(entry.name)),
                       .expected = "its file",
                       .found = concat("the headers of ", state_->folder.string(), " alone")});
  const uint64_t at = entry.offset + static_cast<uint64_t>(begin);
  if (!state_->direct.empty()) return state_->direct[file].read_at(out, at);
  return state_->files[file].read_at(out, at);
}

}  // namespace nibble
