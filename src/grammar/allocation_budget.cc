// The replaced operator new and delete are malloc and free with a look at the thread's budget. All
// forms are replaced, since a sanitizer has its own of each, but those for larger alignments: they
// are not counted.
#include "grammar/allocation_budget.h"

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace nibble {

namespace {
thread_local AllocationBudget* budget = nullptr;
}  // namespace

AllocationBudget::Clock::time_point AllocationBudget::Clock::now() {
  timespec used = {};
  CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0, "the clock of a thread");
  return time_point(std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec));
}

AllocationBudget::AllocationBudget(size_t bytes_max, Clock::time_point deadline)
    : bytes_max_(bytes_max), deadline_(deadline) {
  CHECK(budget == nullptr, "two allocation budgets on a thread");
  budget = this;
}

AllocationBudget::~AllocationBudget() { budget = nullptr; }

AllocationBudget* AllocationBudget::current() { return budget; }

void AllocationBudget::check(size_t bytes) {
  constexpr uint64_t kChecksPerLookAtTheClock = 1024;
  if (bytes > bytes_max_ - std::min(bytes_, bytes_max_)) {
    if (spent_ == Spent::no) spent_ = Spent::memory;
    throw std::bad_alloc();
  }
  if (checks_++ % kChecksPerLookAtTheClock != 0 || Clock::now() < deadline_) return;
  if (spent_ == Spent::no) spent_ = Spent::time;
  throw std::bad_alloc();
}

void AllocationBudget::add(size_t bytes) {
  bytes_ += bytes;
  bytes_most_ = std::max(bytes_most_, bytes_);
}

/// Memory that was allocated before the budget began may be freed during it, so no more is taken
/// off than was added.
void AllocationBudget::remove(size_t bytes) { bytes_ -= std::min(bytes, bytes_); }

}  // namespace nibble

void* operator new(std::size_t bytes) {
  nibble::AllocationBudget* const budget = nibble::budget;
  if (budget != nullptr) budget->check(bytes);
  void* made = std::malloc(std::max<std::size_t>(bytes, 1));
  while (made == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    made = std::malloc(std::max<std::size_t>(bytes, 1));
  }
  if (budget != nullptr) budget->add(malloc_usable_size(made));
  return made;
}

void operator delete(void* made) noexcept {
  if (nibble::budget != nullptr && made != nullptr)
    nibble::budget->remove(malloc_usable_size(made));
  std::free(made);
}

void operator delete(void* made, std::size_t) noexcept { operator delete(made); }
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete[](void* made) noexcept { operator delete(made); }
void operator delete[](void* made, std::size_t) noexcept { operator delete(made); }

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& quiet) noexcept {
  return operator new(bytes, quiet);
}
void operator delete(void* made, const std::nothrow_t&) noexcept { operator delete(made); }
void operator delete[](void* made, const std::nothrow_t&) noexcept { operator delete(made); }
