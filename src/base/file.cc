// The implementation of base/file.h by POSIX calls.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/own_file.h"

namespace nibble {

Error system_error(std::string_view action, const std::filesystem::path& path) {
  const int code = errno;
  ErrorCode kind = ErrorCode::io;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorCode::not_found;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) kind = ErrorCode::no_space;
  if (code == EEXIST) kind = ErrorCode::invalid_argument;
  return Error{kind, concat("cannot ", action, " ", path.string(), ": ", std::strerror(code))};
}

File::File(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}
File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}
File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> File::open_read(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return system_error("open", path);
  File file(descriptor, path);
  struct stat facts = {};
  if (::fstat(descriptor, &facts) != 0) return system_error("inspect", path);
  if (!S_ISREG(facts.st_mode)) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(path.string(), " cannot be read"),
                       .expected = "a regular file",
                       .found = S_ISDIR(facts.st_mode) ? "a directory" : "a special file"});
  }
  return file;
}

Result<File> File::create_new(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("create", path);
  return File(descriptor, path);
}

Result<File> File::open_write(const std::filesystem::path& path) {
  return File(TRY(open_own_file(path)), path);
}

Result<int> open_own_file(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int descriptor = ::open(path.c_str(), kFlags, 0644);
  if (descriptor < 0 && errno != ELOOP) return system_error("open", path);
  struct stat facts = {};
  const bool link = descriptor < 0;
  if (!link && ::fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode)) return descriptor;
  if (!link) ::close(descriptor);
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat(path.string(), " cannot be written"),
                     .expected = "a regular file or none",
                     .found = link ? "a symbolic link" : "a special file",
                     .advice = "remove it, or name another place"});
}

Result<uint64_t> File::size() const {
  struct stat facts = {};
  if (::fstat(descriptor_, &facts) != 0) return system_error("inspect", path_);
  return static_cast<uint64_t>(facts.st_size);
}

Result<void> File::read_at(std::span<std::byte> out, uint64_t offset) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path_);
    if (got == 0) {
      return make_error(ErrorCode::corrupt,
                        {.what = concat(path_.string(), " is truncated"),
                         .expected = concat("at least ", offset + out.size(), " bytes"),
                         .found = concat("the end at ", offset + done),
                         .advice = "download or copy the file again"});
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

Result<void> File::write_at(std::span<const std::byte> data, uint64_t offset) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t put = ::pwrite(descriptor_, data.data() + done, data.size() - done,
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", path_);
    done += static_cast<size_t>(put);
  }
  return {};
}

Result<void> File::reserve(uint64_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  const int code = ::posix_fallocate(descriptor_, 0, size);
  if (code != 0 && code != EOPNOTSUPP && code != EINVAL) {  // not every file system can
    errno = code;
    return system_error("reserve space for", path_);
  }
  if (::ftruncate(descriptor_, size) != 0) return system_error("size", path_);
  return {};
}

Result<void> File::sync() {
  if (::fsync(descriptor_) != 0) return system_error("flush", path_);
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max) {
  const File file = TRY(File::open_read(path));
  const uint64_t size = TRY(file.size());
  if (size > bytes_max) {
    return make_error(ErrorCode::corrupt, {.what = concat(path.string(), " is too large"),
                                           .expected = concat("at most ", bytes_max, " bytes"),
                                           .found = concat(size)});
  }
  std::string text(size, '\0');
  TRY(file.read_at(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", folder);
  const int outcome = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  errno = code;
  // Some file systems cannot flush a folder (EINVAL); the files themselves are flushed.
  if (outcome != 0 && code != EINVAL) return system_error("flush", folder);
  return {};
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view data) {
  const std::filesystem::path temporary = concat(path.string(), ".tmp.", ::getpid());
  ::unlink(temporary.c_str());
  const auto write = [&]() -> Result<void> {
    File file = TRY(File::create_new(temporary));
    TRY(file.write_at(std::as_bytes(std::span(data)), 0));
    return file.sync();
  };
  if (auto written = write(); !written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = system_error("rename a temporary file to", path);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

}  // namespace nibble
