// The speed of memory, of products like those of generated tokens (few rows, so bound by the bytes
// of weights) and like those of prompts (bound by products), as the backend launches them.
#include <chrono>
#include <numeric>

#include "backend/cuda/checks/block_operands.h"
#include "backend/cuda/checks/linear_weights.h"
#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/proof/card_receipt.h"

namespace nibble {
namespace {

using namespace checks;
using cuda::DeviceLinear;
using cuda::FactorLayout;
using cuda::Format;
using cuda::Launcher;

constexpr int64_t kMemoryBytes = int64_t{1} << 30;
constexpr int64_t kNeededBytes = int64_t{4} << 30;
constexpr int kVocabulary = 248320;  // rows of a head
constexpr int kHidden = 2048;
constexpr int kWide = 17408;  // of a dense model's feed-forward
constexpr int kDense = 5120;  // and its residual stream
constexpr int kTokens = 4096;

/// Reads everything once.
__global__ void __launch_bounds__(256) read_all(const uint4* from, int64_t count, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += 4 * stride) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t at = i + j * stride;
      if (at >= count) break;
      const uint4 v = from[at];
      sum += v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 0x12345678U) *out = sum;
}

struct Timed {
  CardFigure figure;
  std::function<void()> launch;
  int calls = 10;
};

/// Holds all that is measured, with its memory.
class CardTimes {
 public:
  CardTimes();
  ~CardTimes() {
    for (void* each : memory_) cudaFree(each);
    for (const DeviceLinear& each : weights_) free_weight(each);
    for (const QuantizedSide& each : sides_) each.free();
  }
  std::vector<CardFigure> measure(double seconds);

 private:
  template <typename T>
  T* take(int64_t count) {
    T* memory = device_array<T>(count);
    memory_.push_back(memory);
    return memory;
  }
  const DeviceLinear& weight(Format format, int rows, int cols) {
    const auto layout = format == Format::bf16 ? FactorLayout::none : FactorLayout::scalar;
    return weights_.emplace_back(
        make_weight(format, layout, rows, cols, static_cast<uint32_t>(100 + weights_.size())));
  }
  void add_memory();
  void add_generation();
  void add_prompts();
  void put_in_blocks(cuda::QuantizedGemm& gemm, const QuantizedSide& x, const Launcher& launcher);
  void add_codes(const SideFormat& kind, const char* name, SpeedLimit limit);
  void add_rounding();
  void add_steps();
  void add_linear(const char* name, const DeviceLinear& w, int rows);
  void add_prompt(const char* name, const DeviceLinear& w);

  const Launcher native_ = launcher_of(Kernels::native);
  const std::string code_ = concat("native (", native_.card.code.name(), ")");
  std::vector<void*> memory_;
  std::vector<DeviceLinear> weights_;
  std::vector<QuantizedSide> sides_;
  uint16_t* x_ = nullptr;
  uint16_t* act_ = nullptr;
  float* y_ = nullptr;
  std::vector<Timed> timed_;
};

double bytes_of(const DeviceLinear& w) {
  const int64_t scales = w.scales == nullptr ? 0 : w.cols / 16;
  return static_cast<double>(w.rows * (value_bytes(w.format, w.cols) + scales));
}

CardTimes::CardTimes() {
  weights_.reserve(32);  // references stay
  x_ = take<uint16_t>(int64_t{kTokens} * kWide);
  fill_normal(x_, int64_t{kTokens} * kWide, 3, 0.05F);
  act_ = take<uint16_t>(int64_t{kTokens} * kWide);
  y_ = take<float>(int64_t{32} * kVocabulary);
  prefill_gemm_prepare(native_);
  add_memory();
  add_generation();
  add_prompts();
  quantized_gemm_prepare(fp4_launcher());
  add_codes({}, "4-bit", SpeedLimit::fp4_products);
  if (native_.card.converts_fp8())
    add_codes({Format::fp8, FactorLayout::row, ActivationFormat::fp8_token}, "FP8",
              SpeedLimit::fp8_products);
  add_rounding();
  add_steps();
  must(cudaDeviceSynchronize(), "what is measured");
}

void CardTimes::add_memory() {
  auto* from = take<uint4>(kMemoryBytes / 16);
  auto* to = take<uint4>(kMemoryBytes / 16);
  auto* out = take<uint32_t>(1);
  const auto blocks = static_cast<unsigned>(native_.card.multiprocessors * 8);
  timed_.push_back({{"memory read", "a plain kernel", SpeedLimit::bandwidth, double{kMemoryBytes}},
                    [=] { read_all<<<blocks, 256>>>(from, kMemoryBytes / 16, out); },
                    4});
  timed_.push_back(
      {{"memory copied, read and written", "the driver", SpeedLimit::bandwidth, 2.0 * kMemoryBytes},
       [=] {
         must(cudaMemcpyAsync(to, from, kMemoryBytes, cudaMemcpyDeviceToDevice, nullptr), "copy");
       },
       4});
}

void CardTimes::add_linear(const char* name, const DeviceLinear& w, int rows) {
  cuda::LinearArgs args{.count = 1, .rows = rows, .x = x_, .x_stride = w.cols};
  args.outputs[0] = {.weight = w, .y = y_, .y_stride = w.rows};
  timed_.push_back({{concat(name, ", ", rows, rows == 1 ? " row" : " rows"), code_,
                     SpeedLimit::bandwidth, bytes_of(w)},
                    [args, launcher = native_] { cuda::linear(args, launcher); }});
}

void CardTimes::add_generation() {
  const DeviceLinear& head4 = weight(Format::nvfp4, kVocabulary, kHidden);
  const DeviceLinear& head8 = weight(Format::fp8, kVocabulary, kHidden);
  for (const int rows : {1, 32}) {
    add_linear("generated: head, NVFP4", head4, rows);
    add_linear("generated: head, FP8", head8, rows);
  }
  const DeviceLinear& both = weight(Format::nvfp4, 2 * kWide, kDense);
  for (const int rows : {1, 32}) {
    cuda::ExpertArgs args{.shared_low = both,
                          .shared_high = both,
                          .rows = rows,
                          .x = x_,
                          .x_stride = kDense,
                          .act = act_,
                          .act_stride = kWide};
    args.shared_low.rows = args.shared_high.rows = kWide;
    args.shared_high.values += kWide * value_bytes(Format::nvfp4, kDense);
    args.shared_high.scales += int64_t{kWide} * kDense / 16;
    timed_.push_back(
        {{concat("generated: gate and up, NVFP4, ", rows, rows == 1 ? " row" : " rows"), code_,
          SpeedLimit::bandwidth, bytes_of(both)},
         [args, launcher = native_] { cuda::experts_gate_up(args, launcher); }});
  }
}

void CardTimes::add_prompt(const char* name, const DeviceLinear& w) {
  const cuda::PrefillGemm gemm{.packed_x = x_,
                               .x_stride = w.cols,
                               .rows = kTokens,
                               .weight = w,
                               .output = cuda::GemmOutput::bf16,
                               .y = act_,
                               .y_stride = w.rows};
  timed_.push_back({{concat(name, ", ", kTokens, " tokens"), code_, SpeedLimit::bf16_products,
                     2.0 * kTokens * w.rows * w.cols},
                    [gemm, launcher = native_] { cuda::prefill_gemm(gemm, launcher); },
                    4});
}

void CardTimes::add_prompts() {
  constexpr int kRows = 8192;
  add_prompt("prompts: 8192 x 2048, BF16", weight(Format::bf16, kRows, kHidden));
  add_prompt("prompts: 8192 x 2048, FP8", weight(Format::fp8, kRows, kHidden));
  add_prompt("prompts: 8192 x 2048, NVFP4", weight(Format::nvfp4, kRows, kHidden));
  add_prompt("prompts: 5120 x 17408, NVFP4", weight(Format::nvfp4, kDense, kWide));
}

/// Nothing else reads these operands.
void CardTimes::put_in_blocks(cuda::QuantizedGemm& gemm, const QuantizedSide& x,
                              const Launcher& launcher) {
  constexpr int64_t kScratchBytes = int64_t{64} << 20;
  lay_blocks(gemm.weight, 1, cuda::CodeOrder::blocks,
             {take<uint8_t>(kScratchBytes), static_cast<size_t>(kScratchBytes)}, launcher);
  gemm.weight.order = cuda::CodeOrder::blocks;
  std::vector<int32_t> places(gemm.rows);
  std::iota(places.begin(), places.end(), 0);
  gemm.x.scales = blocked_scales(x, places);
  memory_.push_back(gemm.x.scales);
  gemm.x.scale_order = cuda::ScaleOrder::blocks;
}

/// In software a hundredth of the tokens of 4-bit codes is enough.
void CardTimes::add_codes(const SideFormat& kind, const char* name, SpeedLimit limit) {
  constexpr int kRows = 8192;
  Launcher launcher = fp4_launcher();
  const bool blocks = kind.format == Format::nvfp4 && launcher.card.has_tensor_memory();
  if (blocks) launcher.card.fp4 = cuda::Architecture::Fp4::machine;
  const bool machine = launcher.card.fp4 == cuda::Architecture::Fp4::machine;
  const bool software = kind.format == Format::nvfp4 && !machine;
  const int tokens = software ? 64 : kTokens;
  const QuantizedSide x = random_rows(kind, tokens, kHidden, Numbers::any, 31);
  const QuantizedSide w = random_weight(kind, {1, kRows, kHidden}, Numbers::any, 41);
  sides_.insert(sides_.end(), {x, w});
  cuda::QuantizedGemm gemm{.x = {.codes = x.codes, .scales = x.scales, .factors = x.factors},
                           .rows = tokens,
                           .weight = linear_of(w, kRows),
                           .output = cuda::QuantizedOutput::bf16,
                           .y = act_,
                           .y_stride = kRows};
  if (blocks) put_in_blocks(gemm, x, launcher);
  timed_.push_back({{concat("prompts: 8192 x 2048, ", name, " codes, ", tokens, " tokens"),
                     blocks     ? "tensor memory"
                     : software ? "emulated, slow"
                     : machine  ? "instruction"
                                : code_,
                     machine ? limit : SpeedLimit::none, 2.0 * tokens * kRows * kHidden},
                    [gemm, launcher] { cuda::quantized_gemm(gemm, launcher); },
                    software ? 1 : 10});
}

/// Rows of BF16 in, codes and their scales out.
void CardTimes::add_rounding() {
  float* scale = to_device(std::vector<float>{448.0F});
  memory_.push_back(scale);
  const int64_t bytes = cuda::fp4_row_bytes(kHidden) - int64_t{sizeof(float)};
  const cuda::QuantizeRows rows{
      .weight = {.format = Format::nvfp4,
                 .activations = ActivationFormat::nvfp4,
                 .factors = scale,
                 .cols = kHidden,
                 .factor_stride = 1},
      .count = kTokens,
      .x = x_,
      .x_stride = kHidden,
      .order = cuda::ColumnOrder::packed,
      .out = cuda::cut_fp4_rows(take<uint8_t>(kTokens * bytes), kTokens, kHidden)};
  timed_.push_back({{concat("prompts: inputs rounded to 4 bits, ", kTokens, " rows"), code_,
                     SpeedLimit::bandwidth, double(kTokens) * (2.0 * kHidden + bytes)},
                    [rows, launcher = native_] { cuda::quantize_rows(rows, launcher); }});
}

void CardTimes::add_steps() {
  const TimedStep attention = attention_step();
  timed_.push_back({{concat("prompts: attention, ", attention.name), code_,
                     SpeedLimit::bf16_products, attention.flops},
                    attention.launch,
                    4});
  const TimedStep delta = delta_step();
  timed_.push_back(
      {{concat("prompts: delta rule, ", delta.name), code_, SpeedLimit::bf16_products, delta.flops},
       delta.launch,
       4});
}

std::vector<CardFigure> CardTimes::measure(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (Timed& each : timed_)
      each.figure.seconds.push_back(time_us(each.launch, each.calls) * 1e-6);
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
           seconds);
  std::vector<CardFigure> figures;
  for (Timed& each : timed_) figures.push_back(std::move(each.figure));
  return figures;
}

}  // namespace

Result<std::vector<CardFigure>> time_card(double seconds) {
  const int64_t free_bytes = TRY(cuda::open_device()).free_bytes;
  if (free_bytes < kNeededBytes)
    return make_error(ErrorCode::no_memory,
                      {.what = "the benchmark of the card",
                       .expected = concat(kNeededBytes >> 20, " MiB of free memory"),
                       .found = concat(free_bytes >> 20, " MiB"),
                       .advice = "end other programs that use the card, or give --seconds 0"});
  std::vector<CardFigure> figures;
  try {
    figures = CardTimes().measure(seconds);
  } catch (const CardFailure& failure) {
    return make_error(ErrorCode::io, {.what = "the card failed", .found = failure.what()});
  }
  TRY(opened_device().alive());
  return figures;
}

}  // namespace nibble
