// Maps anonymous memory and asks for large pages.
#include "backend/cpu/weight_arena.h"

#include <sys/mman.h>

#include <utility>

namespace nibble::cpu {
namespace {

constexpr int64_t kLargePagesFrom = int64_t{256} << 20;

}  // namespace

Result<WeightArena> WeightArena::reserve(int64_t bytes) {
  WeightArena arena;
  if (bytes == 0) return arena;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return make_error(ErrorCode::no_memory,
                      {.what = concat("reserving ", bytes, " bytes of weights"),
                       .advice = "free memory or raise the limit (ulimit -v)"});
  // A wish: refusal costs speed only. The system may have to move pages about for it, which does
  // not pay for a small model.
  if (bytes >= kLargePagesFrom)
    static_cast<void>(::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE));
  arena.memory_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  return arena;
}

WeightArena::WeightArena(WeightArena&& other) noexcept { *this = std::move(other); }
WeightArena& WeightArena::operator=(WeightArena&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(taken_, other.taken_);
  return *this;
}
WeightArena::~WeightArena() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(bytes_));
}

std::span<std::byte> WeightArena::take(int64_t bytes) {
  CHECK(room(bytes) <= bytes_ - taken_, "bytes ", bytes, " of ", bytes_ - taken_, " left");
  const std::span<std::byte> span(memory_ + taken_, static_cast<size_t>(bytes));
  taken_ += room(bytes);
  return span;
}

}  // namespace nibble::cpu
