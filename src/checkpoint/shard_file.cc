// POSIX behind shard_file.h.
#include "checkpoint/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"

namespace nibble {

Result<ShardFile> ShardFile::open(const std::filesystem::path& path, ShardFileMode mode) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (mode == ShardFileMode::fresh ? O_EXCL : 0);
  const int descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) return system_error("create", path);
  return ShardFile(descriptor, path);
}

ShardFile::ShardFile(ShardFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

ShardFile& ShardFile::operator=(ShardFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

ShardFile::~ShardFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> ShardFile::reserve(uint64_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  const int code = ::posix_fallocate(descriptor_, 0, size);
  if (code != 0 && code != EOPNOTSUPP && code != EINVAL) {  // not every file system can
    errno = code;
    return system_error("reserve space for", path_);
  }
  if (::ftruncate(descriptor_, size) != 0) return system_error("size", path_);
  return {};
}

Result<void> ShardFile::write_at(std::span<const std::byte> data, uint64_t offset) {
  for (size_t done = 0; done < data.size();) {
    const ssize_t put = ::pwrite(descriptor_, data.data() + done, data.size() - done,
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", path_);
    done += static_cast<size_t>(put);
  }
  return {};
}

Result<void> ShardFile::sync() {
  if (::fdatasync(descriptor_) != 0) return system_error("flush", path_);
  return {};
}

}  // namespace nibble
