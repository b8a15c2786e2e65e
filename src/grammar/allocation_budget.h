// AllocationBudget: a hard limit on the memory and the time of code that is not ours and has none,
// the grammar compiler. It replaces the program's operator new, which throws std::bad_alloc on a
// thread whose budget is spent. It is not for our own code, which returns a Result.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace nibble {

/// While one lives, what its thread allocates with `new` and has not freed is counted. One at a
/// time on a thread; allocations of other threads are not counted.
class AllocationBudget {
 public:
  /// The time that its thread had a processor, so that what others do takes nothing away.
  struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    static time_point now();
  };
  enum class Spent : uint8_t { no, memory, time };

  AllocationBudget(size_t bytes_max, Clock::time_point deadline);
  ~AllocationBudget();
  AllocationBudget(const AllocationBudget&) = delete;
  AllocationBudget& operator=(const AllocationBudget&) = delete;

  /// The limit that ran out first and made an allocation throw.
  Spent spent() const { return spent_; }
  /// The bytes that are allocated now.
  size_t bytes() const { return bytes_; }
  /// The most bytes that were allocated at once.
  size_t bytes_most() const { return bytes_most_; }

  // For operator new and operator delete.
  /// Throws std::bad_alloc where `bytes` more are too many or the deadline has passed.
  void check(size_t bytes);
  void add(size_t bytes);
  void remove(size_t bytes);
  /// That of this thread, or null.
  static AllocationBudget* current();

 private:
  size_t bytes_max_;
  Clock::time_point deadline_;
  size_t bytes_ = 0;
  size_t bytes_most_ = 0;
  uint64_t checks_ = 0;
  Spent spent_ = Spent::no;
};

}  // namespace nibble
