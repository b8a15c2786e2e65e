// Each header is two requests: the 8 bytes that say its length, and then exactly itself.
#include "cli/hub/fetched_model.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/safetensors_header.h"
#include "cli/hub/hub_options.h"
#include "hub/remote_file.h"

namespace nibble {
namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
constexpr uint64_t kAllHeaderBytesMax = uint64_t{1} << 30;
constexpr int kConnections = 8;

/// One revision, its session, and how many bytes of its files have come.
struct Source {
  const HubSession& session;
  const HubRevision& revision;
  std::atomic<uint64_t> read_bytes = 0;

  const HubFile* find(std::string_view path) const {
    const auto found = std::ranges::find(revision.files, path, &HubFile::path);
    return found == revision.files.end() ? nullptr : &*found;
  }
  Result<std::string> whole(const HubFile& file, uint64_t bytes_max) {
    HubConnection connection;
    std::string text = TRY(read_remote_file(session, connection, revision, file, bytes_max));
    read_bytes += text.size();
    return text;
  }
  Result<std::string> part(HubConnection& connection, const HubFile& file, FileRange range) {
    std::string bytes = TRY(read_remote_range(session, connection, revision, file, range));
    read_bytes += bytes.size();
    return bytes;
  }
};

Error missing(const Source& source, std::string_view path, std::string_view found) {
  return make_error(ErrorCode::not_found,
                    {.what = concat(path, " of ", source.revision.repository),
                     .expected = "a file of the repository",
                     .found = found,
                     .advice = "the repository is incomplete, or holds no model"});
}

Error too_much(const Source& source, uint64_t bytes) {
  return make_error(ErrorCode::corrupt,
                    {.what = concat("headers of the weight files of ", source.revision.repository),
                     .expected = concat("at most ", kAllHeaderBytesMax, " bytes in all"),
                     .found = concat("at least ", bytes)});
}

/// The header of one file. `announced` counts those of all files.
Result<std::string> fetch_header(Source& source, HubConnection& connection, const HubFile& file,
                                 std::atomic<uint64_t>& announced) {
  const uint64_t bytes = file.content_bytes();
  std::string prefix;
  if (bytes >= kSafetensorsPrefixBytes)
    prefix = TRY(source.part(connection, file, {.begin = 0, .bytes = kSafetensorsPrefixBytes}));
  const uint64_t length =
      TRY(safetensors_header_bytes(std::as_bytes(std::span(prefix)), bytes, file.path));
  const uint64_t all = announced += length;
  if (all > kAllHeaderBytesMax) return too_much(source, all);
  if (length == 0) return std::string();
  return source.part(connection, file, {.begin = kSafetensorsPrefixBytes, .bytes = length});
}

/// The names of the weight files: those of the index, whose text goes to `headers`, or all.
Result<std::vector<std::string>> weight_files(Source& source, CheckpointHeaders& headers) {
  if (const HubFile* index = source.find(kIndexFile)) {
    headers.index = TRY(source.whole(*index, kSafetensorsHeaderBytesMax));
    return TRY(parse_checkpoint_index(*headers.index)).files;
  }
  std::vector<std::string> names;
  for (const HubFile& file : source.revision.files) names.push_back(file.path);
  return weight_files_of(names);
}

Result<FetchedModel> fetch_from(Source& source) {
  const HubFile* config = source.find(kConfigFile);
  if (config == nullptr) return missing(source, kConfigFile, "none");
  CheckpointHeaders headers{.name = source.revision.repository};
  headers.config = TRY(source.whole(*config, kConfigBytesMax));
  std::vector<const HubFile*> files;
  for (const std::string& name : TRY(weight_files(source, headers))) {
    files.push_back(source.find(name));
    if (files.back() == nullptr) return missing(source, name, "a name in the index alone");
    headers.files.push_back({.name = name, .bytes = files.back()->content_bytes()});
  }
  std::atomic<uint64_t> announced = 0;
  const auto fetch_one = [&](HubConnection& connection, size_t i) -> Result<void> {
    headers.files[i].header = TRY(fetch_header(source, connection, *files[i], announced));
    return {};
  };
  TRY(for_each_file(files.size(), kConnections, fetch_one));
  FetchedModel model;
  model.config = TRY(parse_json(headers.config, kConfigFile));
  if (!files.empty()) model.weights = TRY(Checkpoint::from_headers(headers));
  return model;
}

}  // namespace

Result<FetchedModel> fetch_model(const Arguments& arguments, const std::string& word,
                                 Terminal& terminal) {
  if (hub_is_offline())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--fetch",
                       .expected = "the network",
                       .found = "HF_HUB_OFFLINE in the environment, which forbids it",
                       .advice = "without --fetch the model is looked for in the cache"});
  const HubName name = TRY(hub_model_of(arguments, word));
  HubSettings settings = TRY(hub_settings(arguments));
  terminal.err(token_warning(settings));
  const InterruptFlag flag;
  settings.stop = [] { return interrupted(); };
  std::mutex mutex;
  settings.tell = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    terminal.err(text + "\n");
  };
  const HubSession session = TRY(HubSession::open(std::move(settings)));
  const HubRevision revision = TRY(find_revision(session, hub_cache(), name));
  Source source{.session = session, .revision = revision};
  FetchedModel model = TRY(fetch_from(source));
  terminal.err(concat(name.repository, " at ", revision.commit, ": ", source.read_bytes.load(),
                      " bytes of its files were read, and no tensor\n"));
  return model;
}

}  // namespace nibble
