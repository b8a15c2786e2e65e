// Files appear under their names by rename alone, so a reader never sees half of one.
#include "hub/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "hub/hub_name.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by huggingface_hub.\n"
    "# For information about cache directory tags, see:\n"
    "#\thttps://bford.info/cachedir/\n";
constexpr std::string_view kIncomplete = ".incomplete";
constexpr uint64_t kRefBytesMax = 4096;

Result<void> make_folders(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return {};
  errno = failure.value();
  return system_error("make the folder", folder);
}

/// Writes through a temporary file beside it, with these permissions.
Result<void> write_small(const fs::path& path, std::string_view text, mode_t mode) {
  TRY(write_file_atomically(path, text));
  if (mode != 0 && ::chmod(path.c_str(), mode) != 0) return system_error("set modes of", path);
  return {};
}

/// The folders of `relative` below `base`, which must be folders and no links.
Result<void> make_folders_below(const fs::path& base, const fs::path& relative) {
  fs::path at = base;
  for (const fs::path& part : relative) {
    at /= part;
    if (::mkdir(at.c_str(), 0777) == 0) continue;
    if (errno != EEXIST) return system_error("make the folder", at);
    std::error_code failure;
    if (fs::symlink_status(at, failure).type() != fs::file_type::directory)
      return make_error(ErrorCode::corrupt, {.what = at.string(),
                                             .expected = "a folder",
                                             .found = "a link or a file",
                                             .advice = "remove it and run the same command again"});
  }
  return {};
}

/// True if the descriptor is still the file of that name: a peer may remove a lock that it frees.
bool is_same_file(int descriptor, const fs::path& path) {
  struct stat mine = {};
  struct stat named = {};
  return ::fstat(descriptor, &mine) == 0 && ::stat(path.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

}  // namespace

Result<BlobLock> BlobLock::take(const fs::path& path, const std::function<bool()>& stop,
                                const std::function<void()>& tell_waiting) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr int kPausesUntilTold = 10;
  TRY(make_folders(path.parent_path()));
  for (int pause = 0;; ++pause) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (descriptor < 0) return system_error("open the lock", path);
    BlobLock lock(descriptor);
    ::fchmod(descriptor, 0664);  // a group may share a cache
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      if (is_same_file(descriptor, path)) return lock;
      continue;
    }
    // A file system without locks: then names alone keep two processes apart, as they do there.
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("lock", path);
    if (stop && stop()) return Error{ErrorCode::cancelled, "stopped"};
    if (pause == kPausesUntilTold && tell_waiting) tell_waiting();
    std::this_thread::sleep_for(kPause);
  }
}

BlobLock::BlobLock(BlobLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
BlobLock::~BlobLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

CacheFolder::CacheFolder(fs::path cache, std::string_view repository)
    : cache_(std::move(cache)),
      home_(cache_ / hub_folder_name(repository)),
      folder_(hub_folder_name(repository)) {}

fs::path CacheFolder::tree(std::string_view commit) const {
  return home_ / "trees" / concat(commit, ".json");
}

fs::path CacheFolder::lock(std::string_view etag) const {
  return cache_ / ".locks" / folder_ / concat(etag, ".lock");
}

fs::path CacheFolder::beginning(std::string_view etag) const {
  constexpr size_t kMarkBytes = 9;  // ".XXXXXXXX"
  const fs::path target = home_ / "blobs" / concat(etag, kIncomplete);
  std::error_code failure;
  uint64_t longest = fs::exists(target, failure) ? fs::file_size(target, failure) : 0;
  fs::path found;
  fs::directory_iterator at(home_ / "blobs", failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (name.size() != etag.size() + kMarkBytes + kIncomplete.size() || !name.starts_with(etag) ||
        !name.ends_with(kIncomplete))
      continue;
    std::error_code gone;
    if (fs::symlink_status(at->path(), gone).type() != fs::file_type::regular) continue;
    const uint64_t bytes = fs::file_size(at->path(), gone);
    if (gone || bytes <= longest) continue;
    longest = bytes;
    found = at->path();
  }
  if (!found.empty()) fs::rename(found, target, failure);
  return target;
}

Result<void> CacheFolder::prepare() const {
  TRY(make_folders(home_ / "blobs"));
  std::error_code failure;
  if (!fs::exists(cache_ / "CACHEDIR.TAG", failure)) {
    TRY(write_small(cache_ / "CACHEDIR.TAG", kTag, 0));
  }
  return {};
}

Result<void> CacheFolder::write_ref(std::string_view revision, std::string_view commit) const {
  if (revision == commit) return {};
  const fs::path path = home_ / "refs" / revision;
  const auto there = read_text_file(path, kRefBytesMax);
  if (there.ok() && there.value() == commit) return {};
  TRY(make_folders(path.parent_path()));
  return write_small(path, commit, 0);
}

Result<void> CacheFolder::write_tree(std::string_view commit, std::string_view text) const {
  const fs::path path = tree(commit);
  TRY(make_folders(path.parent_path()));
  return write_small(path, text, 0600);  // as huggingface_hub leaves it
}

bool CacheFolder::has(std::string_view commit, std::string_view path) const {
  std::error_code failure;
  return fs::is_regular_file(snapshot(commit) / path, failure);
}

Result<void> CacheFolder::link(std::string_view commit, std::string_view path,
                               std::string_view etag) const {
  const fs::path relative(path);
  TRY(make_folders(home_ / "snapshots"));
  TRY(make_folders_below(home_ / "snapshots", commit / relative.parent_path()));
  fs::path target = "../..";
  for (auto part = relative.begin(); part != std::prev(relative.end()); ++part) target /= "..";
  target = target / "blobs" / etag;
  const fs::path pointer = snapshot(commit) / relative;
  if (::symlink(target.c_str(), pointer.c_str()) == 0) return {};
  if (errno != EEXIST) return system_error("link", pointer);
  std::error_code failure;
  if (fs::read_symlink(pointer, failure) == target && !failure) return {};
  const fs::path fresh = concat(pointer.string(), ".tmp.", ::getpid());
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0) return system_error("link", fresh);
  if (::rename(fresh.c_str(), pointer.c_str()) == 0) return {};
  const Error error = system_error("replace", pointer);
  ::unlink(fresh.c_str());
  return error;
}

}  // namespace nibble
