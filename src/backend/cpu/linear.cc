// Cuts products into units of panels for the threads, and rounds inputs where the mode asks for it.
#include "backend/cpu/linear.h"

#include <algorithm>

#include "backend/cpu/split.h"
#include "base/check.h"
#include "tensor/activation_codec.h"
#include "tensor/float_formats.h"

namespace nibble::cpu {
namespace {

constexpr int64_t kPanelsPerUnit = 8;  // few rows: one pass of the widest direct kernel
constexpr int64_t kPanelsPerBlock = 2;

int64_t panels_per_unit(const LinearCall& call) {
  return call.rows <= kRowsDirectMax ? kPanelsPerUnit : kPanelsPerBlock;
}

int64_t units(const LinearCall& call) {
  const int64_t size = panels_per_unit(call);
  return (call.weight->panels() + size - 1) / size;
}

/// Bytes of inputs in few bits: at most those of BF16 and what keeps rows apart.
int64_t low_bytes_max(int64_t input_floats) { return 2 * input_floats + input_floats / 32; }

int64_t input_rows(const LinearCall& call) {
  return call.picked == nullptr ? call.rows : call.x_rows;
}

/// True if both weights, which have inputs in few bits, have them in the same form.
bool one_input(const PackedLinear& a, const PackedLinear& b) {
  const auto integers = [](const PackedLinear& w) { return w.format() == PanelFormat::nvfp4; };
  return a.cols() == b.cols() && integers(a) == integers(b);
}

/// Inputs in few bits, or null, and the weight that is multiplied afterwards, or null.
struct Surroundings {
  const std::byte* low;
  const PackedLinear* after;
};

void compute_units(const KernelTable& kernels, const LinearCall& call, const Surroundings& around,
                   int64_t begin, int64_t end) {
  LinearPanels args = call.weight->view();
  if (around.after != nullptr) {
    const LinearPanels after = around.after->view();
    args.panels_after = after.panels;
    args.scales_after = after.scales;
  }
  const int64_t size = panels_per_unit(call);
  args.panel_begin = begin * size;
  args.panel_end = std::min(call.weight->panels(), end * size);
  args.x = call.x;
  args.x_stride = call.x_stride;
  args.x_rows = call.rows;
  args.y = call.y;
  args.y_stride = call.y_stride;
  args.add = call.add;
  if (around.low == nullptr) return kernels.linear(args);
  args.low_x = around.low;
  args.low_rows = call.picked;
  args.low_stride = low_row_bytes(args.format, args.k_padded);
  kernels.linear_low(args);
}

/// One row of inputs in BF16, or in the precision the checkpoint declares for this weight.
void round_row(const PackedLinear& weight, Activations mode, InputScales scales, const float* x,
               float* out) {
  const int64_t cols = weight.cols();
  if (mode == Activations::bf16) {
    for (int64_t k = 0; k < cols; ++k) out[k] = round_to_bf16(x[k]);
    return;
  }
  std::copy_n(x, cols, out);
  switch (weight.activations()) {
    case ActivationFormat::high:
      return;
    case ActivationFormat::nvfp4:
      return round_nvfp4_activations(out, {.global = weight.input_scale(), .scales = scales}, cols,
                                     out);
    case ActivationFormat::fp8_token:
      return round_fp8_dynamic(out, SourceType::f32, cols, cols, out);
    case ActivationFormat::fp8_group:
      return round_fp8_dynamic(out, SourceType::f32, kFp8Block, cols, out);
    case ActivationFormat::fp8_tensor:
      return round_fp8_static(out, weight.input_scale().value, SourceType::f32, cols, out);
  }
}

}  // namespace

void LinearRunner::reserve(size_t calls, int64_t input_floats) {
  unit_begin_.reserve(calls + 1);
  if (!rounds(activations_)) low_begin_.reserve(calls);
  if (activations_ == Activations::int8) {
    low_inputs_.reserve(calls);
    low_.reserve(static_cast<size_t>(low_bytes_max(input_floats)));
  }
  if (!rounds(activations_)) return;
  rounded_calls_.reserve(calls);
  rounded_.resize(static_cast<size_t>(input_floats));
}

int64_t LinearRunner::bytes_of(Activations activations, size_t calls, int64_t input_floats) {
  size_t bytes = (calls + 1) * sizeof(int64_t);
  const auto floats = static_cast<size_t>(input_floats);
  if (!rounds(activations)) bytes += calls * sizeof(int64_t);
  if (activations == Activations::int8)
    bytes += calls * sizeof(LowInput) + static_cast<size_t>(low_bytes_max(input_floats));
  if (rounds(activations)) bytes += calls * sizeof(LinearCall) + floats * sizeof(float);
  return static_cast<int64_t>(bytes);
}

bool LinearRunner::pick_rows(const PackedLinear& weight, const PackedLinear& neighbour) const {
  return taps_ == nullptr && lowers(weight) && lowers(neighbour) && one_input(weight, neighbour);
}

int64_t LinearRunner::bytes() const {
  const size_t bytes = (unit_begin_.capacity() + low_begin_.capacity()) * sizeof(int64_t) +
                       rounded_calls_.capacity() * sizeof(LinearCall) +
                       rounded_.capacity() * sizeof(float) +
                       low_inputs_.capacity() * sizeof(LowInput) + low_.capacity();
  return static_cast<int64_t>(bytes);
}

void LinearRunner::tap(std::span<const LinearCall> calls) {
  for (const LinearCall& call : calls)
    if (InputStatistics* wanted = taps_->find(call.weight->module()))
      wanted->add({.x = call.x,
                   .count = call.rows,
                   .stride = call.x_stride,
                   .first_token = taps_->first_token(),
                   .ids = call.ids},
                  pool_);
}

void LinearRunner::run(std::span<const LinearCall> calls) {
  if (taps_ != nullptr) tap(calls);
  if (rounds(activations_)) {
    run_rounded(calls);
  } else {
    lower(calls);
    compute(calls);
  }
}

/// Makes the inputs in few bits of all calls that take such; neighbours with the same input share
/// it.
void LinearRunner::lower(std::span<const LinearCall> calls) {
  low_begin_.assign(calls.size(), -1);
  low_inputs_.clear();
  int64_t bytes = 0;
  int64_t rows = 0;
  int64_t cost = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const LinearCall& call = calls[i];
    if (!lowers(*call.weight)) {
      CHECK(call.picked == nullptr, call.weight->module(), " picks rows of inputs in F32");
      continue;
    }
    const bool shared = !low_inputs_.empty() && low_inputs_.back().call->x == call.x &&
                        input_rows(*low_inputs_.back().call) == input_rows(call) &&
                        one_input(*low_inputs_.back().call->weight, *call.weight);
    if (!shared) {
      const int64_t count = input_rows(call);
      low_inputs_.push_back({.call = &call, .rows_before = rows, .begin = bytes});
      rows += count;
      bytes += count * low_row_bytes(call.weight->format(), call.weight->k_padded());
      cost += count * call.weight->k_padded() / 4;
    }
    low_begin_[i] = low_inputs_.back().begin;
  }
  if (rows == 0) return;
  low_.resize(static_cast<size_t>(bytes));
  split(pool_, rows, cost / rows, [&](int64_t begin, int64_t end) {
    auto at = std::ranges::upper_bound(low_inputs_, begin, {}, &LowInput::rows_before) - 1;
    for (; begin < end; ++begin) {
      while (begin >= at->rows_before + input_rows(*at->call)) ++at;
      lower_row(*at, begin - at->rows_before);
    }
  });
}

void LinearRunner::lower_row(const LowInput& input, int64_t row) {
  const LinearCall& call = *input.call;
  const int64_t k = call.weight->k_padded();
  const PanelFormat format = call.weight->format();
  const float* x = call.x + row * call.x_stride;
  std::byte* out = low_.data() + input.begin + row * low_row_bytes(format, k);
  if (format == PanelFormat::nvfp4) return kernels_.quantize_row(x, k, out);
  kernels_.round_row(x, k, out);
}

void LinearRunner::run_rounded(std::span<const LinearCall> calls) {
  int64_t floats = 0;
  for (const LinearCall& call : calls) floats += call.rows * call.weight->k_padded();
  if (static_cast<int64_t>(rounded_.size()) < floats) reserve(calls.size(), floats);
  rounded_calls_.assign(calls.begin(), calls.end());
  float* next = rounded_.data();
  for (LinearCall& call : rounded_calls_) {
    const int64_t stride = call.weight->k_padded();
    float* rows = next;
    next += call.rows * stride;
    split(pool_, call.rows, stride, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        round_row(*call.weight, activations_, input_scales_, call.x + r * call.x_stride,
                  rows + r * stride);
        std::fill(rows + r * stride + call.weight->cols(), rows + (r + 1) * stride, 0.0F);
      }
    });
    call.x = rows;
    call.x_stride = stride;
  }
  compute(rounded_calls_);
}

void LinearRunner::compute(std::span<const LinearCall> calls) {
  unit_begin_.assign(1, 0);
  int64_t cost = 0;
  for (const LinearCall& call : calls) {
    unit_begin_.push_back(unit_begin_.back() + units(call));
    cost += call.weight->panels() * call.weight->k_padded() * call.rows;
  }
  const int64_t count = unit_begin_.back();
  if (count == 0) return;
  split(pool_, count, cost / count, [&](int64_t begin, int64_t end) {
    auto at = std::upper_bound(unit_begin_.begin(), unit_begin_.end(), begin) - 1;
    for (; begin < end; ++at) {
      const int64_t last = std::min(end, *(at + 1));
      const auto call = static_cast<size_t>(at - unit_begin_.begin());
      const int64_t low = call < low_begin_.size() ? low_begin_[call] : -1;
      compute_units(kernels_, calls[call],
                    {.low = low < 0 ? nullptr : low_.data() + low,
                     .after = call + 1 < calls.size() ? calls[call + 1].weight : nullptr},
                    begin - *at, last - *at);
      begin = last;
    }
  });
}

}  // namespace nibble::cpu
