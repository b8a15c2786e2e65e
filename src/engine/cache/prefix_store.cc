// The folder of prefix files.
#include "engine/cache/prefix_store.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/file.h"
#include "engine/cache/prefix_file.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kExtension = ".prefix";
constexpr std::string_view kTemporary = ".prefix-part";  // a save that was cut short

std::string file_name(const PrefixBytes& prefix, std::span<const std::byte> media) {
  Checksum sum;
  sum.add(std::as_bytes(std::span(&prefix.salt, 1)));
  sum.add(std::as_bytes(std::span(prefix.tokens)));
  sum.add(media);
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4)
    name += "0123456789abcdef"[(sum.value() >> shift) & 15];
  return name;
}

Result<PrefixFileHeader> read_header(const File& file, const PrefixStoreOptions& options) {
  std::array<std::byte, kPrefixHeaderBytes> bytes;
  TRY(file.read_at(bytes, 0));
  return parse_prefix_header(bytes, TRY(file.size()), options);
}

}  // namespace

struct PrefixStore::State {
  fs::path folder;
  PrefixStoreOptions options;
  std::mutex writing;        // one save at a time
  mutable std::mutex lists;  // the two below; never held while the disk works
  std::vector<Entry> entries;
  std::vector<Dropped> dropped;

  void forget(const fs::path& file) {
    const std::lock_guard lock(lists);
    std::erase_if(entries, [&](const Entry& e) { return e.file == file; });
  }
  void drop(const fs::path& file, Reason reason, std::string message) {
    std::error_code ignored;
    fs::remove(file, ignored);
    forget(file);
    const std::lock_guard lock(lists);
    dropped.push_back({file, reason, std::move(message)});
  }
  /// Deletes what the error says is of no use; a file that cannot be read now stays.
  void drop_for(const fs::path& file, const Error& error) {
    if (error.code == ErrorCode::corrupt) drop(file, Reason::corrupt, error.message);
    if (error.code == ErrorCode::unsupported) drop(file, Reason::stale, error.message);
  }
  uint64_t bytes() const {
    const std::lock_guard lock(lists);
    uint64_t sum = 0;
    for (const Entry& entry : entries) sum += entry.bytes;
    return sum;
  }
  void make_room(uint64_t wanted) {
    while (bytes() + wanted > options.bytes_max) {
      const fs::path oldest = [this] {
        const std::lock_guard lock(lists);
        return entries.empty() ? fs::path() : entries.front().file;
      }();
      if (oldest.empty()) return;  // removed meanwhile
      drop(oldest, Reason::over_limit,
           concat(oldest.filename().string(), ": room for newer pinned prefixes, of ",
                  options.bytes_max, " bytes"));
    }
  }
  void scan(const fs::path& file) {
    const auto opened = File::open_read(file);
    if (!opened.ok()) return;
    const auto header = read_header(opened.value(), options);
    if (!header.ok()) return drop_for(file, header.error());
    const std::lock_guard lock(lists);
    entries.push_back({file, header.value().salt, header.value().tokens,
                       kPrefixHeaderBytes + header.value().body_bytes()});
  }
};

PrefixStore::PrefixStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
PrefixStore::PrefixStore(PrefixStore&&) noexcept = default;
PrefixStore& PrefixStore::operator=(PrefixStore&&) noexcept = default;
PrefixStore::~PrefixStore() = default;

Result<PrefixStore> PrefixStore::open(const fs::path& folder, const PrefixStoreOptions& options) {
  CHECK(options.page_bytes > 0 && options.state_slot_bytes >= 0, "page of ", options.page_bytes);
  std::error_code failure;
  fs::create_directories(folder, failure);
  auto files = fs::directory_iterator(folder, failure);
  if (failure) {
    return make_error(ErrorCode::io, {.what = concat("cannot use ", folder.string(),
                                                     " for pinned prefixes: ", failure.message())});
  }
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->options = options;
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  for (const auto& file : files) {
    std::error_code ignored;
    if (!file.is_regular_file(ignored)) continue;
    if (file.path().extension() == kTemporary) fs::remove(file.path(), ignored);
    if (file.path().extension() == kExtension)
      found.emplace_back(file.last_write_time(ignored), file.path());
  }
  std::ranges::sort(found);
  for (const auto& [written, file] : found) state->scan(file);
  state->make_room(0);
  return PrefixStore(std::move(state));
}

Result<void> PrefixStore::save(const PrefixBytes& prefix) {
  const std::lock_guard writing(state_->writing);
  const std::vector<std::byte> media = prefix_media_bytes(prefix.media);
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(prefix.tokens)), media,
                                              prefix.pages, prefix.state};
  Checksum sum;
  for (const auto part : parts) sum.add(part);
  const PrefixFileHeader header{prefix.salt,         prefix.tokens.size(), prefix.media.size(),
                                prefix.pages.size(), prefix.state.size(),  sum.value()};
  const auto head = prefix_header_bytes(header, state_->options);
  const uint64_t bytes = kPrefixHeaderBytes + header.body_bytes();
  TRY(parse_prefix_header(head, bytes, state_->options));  // what is written can be read
  if (bytes > state_->options.bytes_max) {
    return make_error(ErrorCode::no_space,
                      {.what = "a pinned prefix is too large for the disk",
                       .expected = concat("at most ", state_->options.bytes_max, " bytes"),
                       .found = concat(bytes)});
  }
  const fs::path file = state_->folder / concat(file_name(prefix, media), kExtension);
  const fs::path part_file = fs::path(file).replace_extension(kTemporary);
  const auto write = [&]() -> Result<void> {
    ::unlink(part_file.c_str());
    File out = TRY(File::create_new(part_file));
    TRY(out.reserve(bytes));
    TRY(out.write_at(head, 0));
    uint64_t at = head.size();
    for (const auto part : parts) {
      TRY(out.write_at(part, at));
      at += part.size();
    }
    TRY(out.sync());
    if (::rename(part_file.c_str(), file.c_str()) != 0)
      return system_error("rename a temporary file to", file);
    return sync_folder(state_->folder);
  };
  state_->forget(file);
  state_->make_room(bytes);
  if (auto written = write(); !written.ok()) {
    ::unlink(part_file.c_str());
    state_->scan(file);  // what it would have replaced is still there
    return written;
  }
  const std::lock_guard lock(state_->lists);
  state_->entries.push_back({file, header.salt, header.tokens, bytes});
  return {};
}

std::vector<PrefixStore::Entry> PrefixStore::entries() const {
  const std::lock_guard lock(state_->lists);
  return state_->entries;
}

std::vector<PrefixStore::Dropped> PrefixStore::dropped() const {
  const std::lock_guard lock(state_->lists);
  return state_->dropped;
}

Result<PrefixBytes> PrefixStore::load(const Entry& entry) {
  const auto read = [&]() -> Result<PrefixBytes> {
    const File file = TRY(File::open_read(entry.file));
    const PrefixFileHeader header = TRY(read_header(file, state_->options));
    std::vector<std::byte> body(header.body_bytes());
    TRY(file.read_at(body, kPrefixHeaderBytes));
    return parse_prefix_body(header, body);
  };
  auto prefix = read();
  if (!prefix.ok()) state_->drop_for(entry.file, prefix.error());
  if (!prefix.ok() && prefix.error().code == ErrorCode::not_found) state_->forget(entry.file);
  return prefix;
}

void PrefixStore::remove(const Entry& entry) {
  std::error_code ignored;
  std::filesystem::remove(entry.file, ignored);
  state_->forget(entry.file);
}

}  // namespace nibble
