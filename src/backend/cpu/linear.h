// Products of activations with packed weights: several at once share the threads, and inputs take
// the precision the activation mode asks for. The arithmetic itself: linear_kernels.inl, and
// low_blocked.inl and low_direct.inl for inputs that get few bits where the weights have few.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/taps.h"

namespace nibble::cpu {

/// y = x W^T for `rows` rows. x columns K .. Kp-1 must be zero.
struct LinearCall {
  const PackedLinear* weight = nullptr;
  const float* x = nullptr;  // [rows, x_stride], or [x_rows, x_stride] if rows are picked
  int64_t x_stride = 0;
  int64_t rows = 0;
  float* y = nullptr;  // [rows, y_stride]
  int64_t y_stride = 0;
  bool add = false;              // y += instead of y =
  const int32_t* ids = nullptr;  // rows of the pass, for taps; nullptr: all in order
  /// The rows of x to multiply, [rows], of weights that pick_rows(); nullptr: all in order.
  const int32_t* picked = nullptr;
  int64_t x_rows = 0;  // of x, if rows are picked
};

class LinearRunner {
 public:
  LinearRunner(const KernelTable& kernels, ThreadPool& pool, Activations activations,
               InputScales input_scales = InputScales::amax)
      : kernels_(kernels), pool_(pool), activations_(activations), input_scales_(input_scales) {}

  /// Makes room, so that run() allocates nothing: lists of up to `calls` products whose inputs,
  /// each counted once per product, hold up to `input_floats` padded values.
  void reserve(size_t calls, int64_t input_floats);
  /// Bytes that reserve() takes in such a mode.
  static int64_t bytes_of(Activations activations, size_t calls, int64_t input_floats);
  /// Bytes that its lists and inputs hold now.
  int64_t bytes() const;

  InputScales input_scales() const { return input_scales_; }
  /// True if products with both weights take inputs in few bits, in the same form: those of one x
  /// are then made once, and each product may pick its rows of them.
  bool pick_rows(const PackedLinear& weight, const PackedLinear& neighbour) const;
  /// The inputs of calls from now on are shown to `taps`; nullptr: to nobody.
  void show_inputs(Taps* taps) { taps_ = taps; }
  /// All calls, in any order and split over the threads; outputs must not overlap.
  void run(std::span<const LinearCall> calls);

 private:
  /// Rows that calls share, in few bits.
  struct LowInput {
    const LinearCall* call;
    int64_t rows_before;
    int64_t begin;  // bytes
  };
  static bool rounds(Activations mode) {
    return mode == Activations::bf16 || mode == Activations::declared;
  }
  void tap(std::span<const LinearCall> calls);
  /// True if a product takes its inputs in few bits.
  bool lowers(const PackedLinear& weight) const {
    return activations_ == Activations::int8 && have_low_activations(weight.format());
  }
  void run_rounded(std::span<const LinearCall> calls);
  void lower(std::span<const LinearCall> calls);
  void lower_row(const LowInput& input, int64_t row);
  void compute(std::span<const LinearCall> calls);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  Activations activations_;
  InputScales input_scales_;
  Taps* taps_ = nullptr;
  std::vector<int64_t> unit_begin_;  // work units before each call
  std::vector<LinearCall> rounded_calls_;
  std::vector<float> rounded_;      // inputs in reduced precision; unused for F32 activations
  std::vector<int64_t> low_begin_;  // of each call, where its inputs in few bits begin; -1: none
  std::vector<LowInput> low_inputs_;
  std::vector<std::byte> low_;
};

}  // namespace nibble::cpu
