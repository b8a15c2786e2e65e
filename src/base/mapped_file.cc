// The signal handler can reach nothing but the table of guards, the one mutable global here: a
// signal has no other way to learn what it is about.
#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

namespace nibble {

struct MappedFile::Guard {
  static constexpr size_t kMost = 1024;
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> outlives = false;
  std::atomic<bool> lost = false;
  std::array<char, 512> name = {};  // for the line that is written before the process ends

  static std::array<Guard, kMost>& table();
  static Guard* take(std::span<const std::byte> bytes, const std::string& name);
  static void on_signal(int signal, siginfo_t* info, void* context);
  static void install();
  void lose(uintptr_t address);
};

std::array<MappedFile::Guard, MappedFile::Guard::kMost>& MappedFile::Guard::table() {
  static std::array<Guard, kMost> guards;
  return guards;
}

namespace {

struct sigaction previous_action;  // what SIGBUS did before; written once

/// Calls write() alone, so that a signal handler may call it.
void say_lost(const char* name) {
  for (const char* text :
       {"nibble: ", name,
        " was truncated, or could not be read, while its weights were in use; expected: a file "
        "that stays as it is; copy the checkpoint again\n"})
    static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text)));
}

/// The pages that bytes lie in.
struct Pages {
  void* begin;
  size_t bytes;
  explicit Pages(std::span<const std::byte> part) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<uintptr_t>(part.data());
    begin = reinterpret_cast<void*>(at / page * page);
    bytes = part.size() + at % page;
  }
};

void act_as_before(int signal) { ::sigaction(signal, &previous_action, nullptr); }

}  // namespace

/// Puts zeros where the file was, from the lost page to the end. Other numbers of it are of no use
/// any more, so nothing is kept.
void MappedFile::Guard::lose(uintptr_t address) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = address / page * page;
  void* zeros = ::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) outlives = false;
  lost = true;
}

/// Returning repeats the read: of zeros, or to the action that was there before.
void MappedFile::Guard::on_signal(int signal, siginfo_t* info, void* /*context*/) {
  const int code = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Guard& guard : table()) {
    if (address < guard.begin || address >= guard.end) continue;
    if (guard.outlives) guard.lose(address);
    errno = code;
    if (guard.outlives) return;
    say_lost(guard.name.data());
    break;
  }
  act_as_before(signal);
}

void MappedFile::Guard::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    table();
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

MappedFile::Guard* MappedFile::Guard::take(std::span<const std::byte> bytes,
                                           const std::string& name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (Guard& guard : table()) {
    if (guard.begin != 0) continue;
    guard.name = {};
    std::copy_n(name.begin(), std::min(name.size(), guard.name.size() - 1), guard.name.begin());
    guard.outlives = false;
    guard.lost = false;
    guard.end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
    guard.begin = reinterpret_cast<uintptr_t>(bytes.data());
    return &guard;
  }
  return nullptr;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      facts_(other.facts_),
      bytes_(std::exchange(other.bytes_, {})),
      guard_(std::exchange(other.guard_, nullptr)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(facts_, other.facts_);
  std::swap(bytes_, other.bytes_);
  std::swap(guard_, other.guard_);
  return *this;
}
MappedFile::~MappedFile() {
  if (guard_ != nullptr) guard_->begin = 0;
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<MappedFile::Facts> MappedFile::facts() const {
  struct stat facts = {};
  if (::fstat(file_.descriptor(), &facts) != 0) return system_error("inspect", file_.path());
  return Facts{.bytes = static_cast<uint64_t>(facts.st_size),
               .seconds = facts.st_mtim.tv_sec,
               .nanoseconds = facts.st_mtim.tv_nsec};
}

Result<MappedFile> MappedFile::map(const std::filesystem::path& path) {
  MappedFile mapped(TRY(File::open_read(path)));
  mapped.facts_ = TRY(mapped.facts());
  const auto size = static_cast<size_t>(mapped.facts_.bytes);
  if (size == 0) return mapped;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, mapped.file_.descriptor(), 0);
  if (memory == MAP_FAILED && (errno == ENODEV || errno == EACCES))
    return make_error(ErrorCode::unsupported, {.what = concat("mapping ", path.string()),
                                               .expected = "a file system that maps files",
                                               .found = "one that refuses"});
  if (memory == MAP_FAILED) return system_error("map", path);
  mapped.bytes_ = {static_cast<const std::byte*>(memory), size};
  Guard::install();
  mapped.guard_ = Guard::take(mapped.bytes_, path.string());
  if (mapped.guard_ != nullptr) return mapped;
  return make_error(ErrorCode::unsupported, {.what = concat("mapping ", path.string()),
                                             .expected = concat("at most ", Guard::kMost, " files"),
                                             .found = "one more"});
}

Result<void> MappedFile::fetch(std::span<const std::byte> part) const {
  if (part.empty()) return {};
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, since Linux 5.14
  const Pages pages(part);
  while (::madvise(pages.begin, pages.bytes, kPopulateRead) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL || errno == ENOSYS) return {};  // an older system reads at the first use
    if (errno == ENOMEM) return system_error("map", file_.path());
    return make_error(ErrorCode::corrupt,
                      {.what = concat(file_.path().string(), " is truncated or cannot be read"),
                       .expected = concat(facts_.bytes, " bytes"),
                       .found = concat("none at ", part.data() - bytes_.data()),
                       .advice = "download or copy the file again"});
  }
  return {};
}

void MappedFile::read_at_random() {
  if (!bytes_.empty())
    static_cast<void>(::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_RANDOM));
}

void will_need(std::span<const std::byte> bytes) {
  const Pages pages(bytes);
  static_cast<void>(::madvise(pages.begin, pages.bytes, MADV_WILLNEED));
}

void MappedFile::outlive() {
  if (guard_ != nullptr) guard_->outlives = true;
}

Result<void> MappedFile::intact() const {
  const Facts now = TRY(facts());
  const bool lost = guard_ != nullptr && guard_->lost;
  if (!lost && now == facts_) return {};
  return make_error(
      ErrorCode::corrupt,
      {.what = concat(file_.path().string(), " was changed while its weights were in use"),
       .expected = concat("the ", facts_.bytes, " bytes that were there at start"),
       .found = lost && now == facts_ ? std::string("bytes that cannot be read")
                                      : concat(now.bytes, " bytes, written since"),
       .advice = "start again, and replace checkpoints by renaming, not in place"});
}

}  // namespace nibble
