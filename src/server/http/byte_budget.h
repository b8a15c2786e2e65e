// ByteBudget: memory that many requests share: each takes a share before it needs the bytes and
// gives them back with the share's life. A budget may be a part of another, which counts its bytes
// too. It counts; it allocates nothing. From any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace nibble {

class ByteBudget {
 public:
  /// Bytes taken from a budget, until the end of its life.
  class Share {
   public:
    explicit Share(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
    ~Share() { budget_->give_back(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    /// Makes it at least `bytes` large. False, and it stays as it is, where so much is not free.
    bool grow_to(size_t bytes) {
      if (bytes <= bytes_) return true;
      if (!budget_->take(bytes - bytes_)) return false;
      bytes_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<ByteBudget> budget_;
    size_t bytes_ = 0;
  };

  /// `whole`: the budget that this one is a part of; empty: none.
  explicit ByteBudget(size_t bytes_max, std::shared_ptr<ByteBudget> whole = {})
      : bytes_max_(bytes_max), whole_(std::move(whole)) {}
  size_t bytes_max() const { return bytes_max_; }
  size_t taken() const { return taken_; }

 private:
  bool take(size_t bytes) {
    size_t taken = taken_;
    do {
      if (bytes > bytes_max_ - taken) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    if (!whole_ || whole_->take(bytes)) return true;
    taken_ -= bytes;
    return false;
  }
  void give_back(size_t bytes) {
    taken_ -= bytes;
    if (whole_) whole_->give_back(bytes);
  }

  size_t bytes_max_;
  std::shared_ptr<ByteBudget> whole_;
  std::atomic<size_t> taken_ = 0;
};

}  // namespace nibble
