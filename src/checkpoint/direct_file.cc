// Blocks of 4 KiB satisfy every file system that reads directly at all.
#include "checkpoint/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/file.h"

namespace nibble {
namespace {

constexpr size_t kBlockBytes = 4096;
constexpr size_t kBufferBytes = size_t{4} << 20;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

std::span<std::byte> buffer_of_thread() {
  thread_local const std::unique_ptr<std::byte, Freed> buffer(
      static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBufferBytes)));
  CHECK(buffer != nullptr, "no memory for ", kBufferBytes, " bytes");
  return {buffer.get(), kBufferBytes};
}

Error refused(const std::filesystem::path& path) {
  return make_error(ErrorCode::unsupported, {.what = concat("direct reads of ", path.string()),
                                             .expected = "a file system that has them (O_DIRECT)",
                                             .found = "one that refuses"});
}

}  // namespace

DirectFile::DirectFile(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}
DirectFile::DirectFile(DirectFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}
DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<DirectFile> DirectFile::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
  if (descriptor < 0 && errno == EINVAL) return refused(path);
  if (descriptor < 0) return system_error("open", path);
  DirectFile file(descriptor, path);
  TRY(file.read_blocks(buffer_of_thread().first(kBlockBytes), 0));
  return file;
}

/// Reads as many bytes as there are; `blocks` and `offset` are aligned.
Result<size_t> DirectFile::read_blocks(std::span<std::byte> blocks, uint64_t offset) const {
  while (true) {
    const ssize_t got =
        ::pread(descriptor_, blocks.data(), blocks.size(), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINVAL) return refused(path_);
    if (errno != EINTR) return system_error("read", path_);
  }
}

Result<void> DirectFile::read_at(std::span<std::byte> out, uint64_t offset) const {
  const std::span<std::byte> buffer = buffer_of_thread();
  while (!out.empty()) {
    const uint64_t begin = offset / kBlockBytes * kBlockBytes;
    const auto skipped = static_cast<size_t>(offset - begin);
    const size_t blocks = (skipped + out.size() + kBlockBytes - 1) / kBlockBytes;
    const size_t got =
        TRY(read_blocks(buffer.first(std::min(blocks * kBlockBytes, buffer.size())), begin));
    if (got <= skipped)
      return make_error(ErrorCode::corrupt,
                        {.what = concat(path_.string(), " is truncated"),
                         .expected = concat("at least ", offset + out.size(), " bytes"),
                         .found = concat("the end at ", begin + got),
                         .advice = "download or copy the file again"});
    const size_t count = std::min(got - skipped, out.size());
    std::memcpy(out.data(), buffer.data() + skipped, count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

}  // namespace nibble
