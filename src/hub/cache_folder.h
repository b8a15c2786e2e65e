// A model's folder in the Hugging Face cache, entry for entry as huggingface_hub makes it:
//   models--ORG--NAME/{blobs/ETAG, refs/REVISION, snapshots/COMMIT/PATH -> blobs,
//   trees/COMMIT.json}
// and .locks/models--ORG--NAME/ETAG.lock beside it. It fetches nothing (snapshot_download.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace nibble {

/// A lock that other processes, huggingface_hub among them, take for the same file. Freed at the
/// end of its life or of the process.
class BlobLock {
 public:
  /// Waits for it. `waiting` is asked often: true ends the wait (cancelled). Errors: io.
  static Result<BlobLock> take(const std::filesystem::path& path, const std::function<bool()>& stop,
                               const std::function<void()>& tell_waiting);
  BlobLock(BlobLock&& other) noexcept;
  BlobLock& operator=(BlobLock&&) = delete;
  ~BlobLock();

 private:
  explicit BlobLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

class CacheFolder {
 public:
  CacheFolder(std::filesystem::path cache, std::string_view repository);

  const std::filesystem::path& home() const { return home_; }
  std::filesystem::path blob(std::string_view etag) const { return home_ / "blobs" / etag; }
  std::filesystem::path snapshot(std::string_view commit) const {
    return home_ / "snapshots" / commit;
  }
  std::filesystem::path tree(std::string_view commit) const;
  std::filesystem::path lock(std::string_view etag) const;
  /// Where the beginning of a file is kept. A longer one of an ended huggingface_hub 2
  /// (ETAG.XXXXXXXX.incomplete) takes its place; call it with the file's lock.
  std::filesystem::path beginning(std::string_view etag) const;

  /// Makes the folders and CACHEDIR.TAG. Errors: io.
  Result<void> prepare() const;
  /// refs/REVISION is `commit`. Nothing for a revision that is the commit itself.
  Result<void> write_ref(std::string_view revision, std::string_view commit) const;
  Result<void> write_tree(std::string_view commit, std::string_view text) const;
  /// True if the snapshot has the file with its bytes.
  bool has(std::string_view commit, std::string_view path) const;
  /// snapshots/COMMIT/PATH is a relative link to the blob. Errors: io; corrupt where a folder on
  /// the way is a link or a file.
  Result<void> link(std::string_view commit, std::string_view path, std::string_view etag) const;

 private:
  std::filesystem::path cache_;
  std::filesystem::path home_;
  std::string folder_;
};

}  // namespace nibble
