// One workspace for all layers: that of a model with one layer of each kind, whose weights are
// those of the layer in work.
#include "backend/cuda/layer_runner.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "backend/cuda/context.h"
#include "backend/cuda/gradient/gradient_sweep.h"
#include "backend/cuda/layer_loader.h"
#include "backend/cuda/ops/attention/rope.h"
#include "backend/cuda/ops/calibration/device_taps.h"
#include "backend/cuda/ops/gptq/gptq_lanes.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/selection.h"
#include "model/sample_passes.h"

namespace nibble {
namespace {

using namespace cuda;

constexpr int64_t kPassRowChoices[] = {16384, 4096, 1024};  // the most the card has room for
constexpr int64_t kPassSequences = 64;                      // each has a state slot
constexpr int64_t kGptqLanes = 12;                          // some wait for their threads
constexpr int64_t kSpareBytes = int64_t{256} << 20;         // flags, pinned copies, the driver

class CudaLayerRunner final : public LayerRunner {
 public:
  CudaLayerRunner(const Weights& weights, const ModelConfig& config,
                  std::unique_ptr<DeviceContext> device, const CardLimit& card)
      : weights_(weights),
        config_(config),
        kinds_(config),
        device_(std::move(device)),
        card_(card),
        loader_(weights, config, senders_) {
    kinds_.layers.clear();
    for (const LayerKind kind : config.layers)
      if (std::ranges::find(kinds_.layers, kind) == kinds_.layers.end())
        kinds_.layers.push_back(kind);
  }
  Result<void> open();

  std::string_view name() const override { return "cuda"; }
  std::string description() const override;
  Result<void> start(LayerSamples samples) override;
  Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                         const LayerWatch& watch) override;
  Result<void> run_head(InputStatistics& head, const LayerWatch& watch) override;
  LayerSeconds seconds() const override { return seconds_; }
  bool leaves_cores_free() const override { return true; }
  bool weighs_tokens() const override { return true; }
  bool sweeps() const override { return true; }
  int64_t moment_room_bytes() const override;
  GptqDevice* gptq_device() override { return gptq_.get(); }
  Result<std::unique_ptr<GradientDevice>> gradient_device(const GradientNeeds& needs) override;

 private:
  Result<void> reserve(int64_t rows);
  void reserve_gptq();
  Result<void> place_hidden(std::vector<uint16_t> hidden);
  int64_t free_bytes() const;
  /// The bytes that are allocated after start().
  int64_t layers_and_sums() const {
    const int64_t sums = gptq_ == nullptr ? 1 : 2;  // one part rounds, the next is summed up
    return 2 * samples_.layer_bytes + sums * samples_.moment_bytes + samples_.weight_bytes;
  }
  Result<void> open_layer(int layer);
  Context context_of(const SamplePass& pass);
  /// Computes h = the hidden states of the pass, and x = their norm in packed order.
  void enter(const Context& context, const SamplePass& pass, const float* norm);
  void leave(const SamplePass& pass);
  void run_pass(const SamplePass& pass, LayerKind kind, HiddenStates hidden);
  uint16_t* all_hidden();  // on the card or on the host
  uint16_t* hidden_of(const SamplePass& pass);
  template <typename Pass>
  Result<void> for_each_pass(const LayerWatch& watch, const Pass& run);

  const Weights& weights_;
  const ModelConfig& config_;
  ModelConfig kinds_;  // one layer of each kind
  std::unique_ptr<DeviceContext> device_;
  CardLimit card_;
  Launcher launcher_;
  DeviceRope rope_;
  DeviceBuffer arena_;  // the memory of work_
  Workspace work_;
  DevicePools pools_;
  DeviceBatch batch_;
  PromptPlan plan_;
  DeviceTaps taps_;
  std::vector<SamplePass> passes_;
  LayerSamples samples_;
  DeviceBuffer hidden_;  // BF16 [tokens, D]; empty: in samples_.hidden, and `staged_` has a pass
  DeviceBuffer staged_;
  std::unique_ptr<GptqLanes> gptq_;  // nullptr: the CPU rounds
  std::string gptq_note_;
  WeightSenders senders_;
  LayerLoader loader_;
  int64_t start_bytes_ = 0;  // bytes of the card that start() took
  LayerSeconds seconds_;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Result<void> CudaLayerRunner::open() {
  TRY(refuse_oversized(config_));
  if (!prompts_supported(kinds_))
    return make_error(ErrorCode::unsupported,
                      {.what = "calibration on the backend cuda",
                       .expected = "shapes that its prompt kernels hold",
                       .found = "other head, state or expert sizes in this model",
                       .advice = "calibrate with --backend cpu"});
  launcher_ = launcher_of(*device_, card_);
  loader_.use(launcher_, kinds_.layers.size());  // the layer stands for each of its kind
  rope_ = TRY(upload_rope(*device_, kinds_));
  prepare_prompt_kernels(launcher_);
  return {};
}

std::string CudaLayerRunner::description() const {
  if (passes_.empty()) return concat("cuda, ", device_->facts().name);
  return concat("cuda, ", device_->facts().name, ", passes of ",
                work_.h.bytes() / 4 / config_.hidden, " tokens; hidden states on the ",
                hidden_.bytes() > 0 ? "card" : "host", "; of the card at most ",
                (start_bytes_ + layers_and_sums()) >> 20, " MiB", gptq_note_);
}

// ---- memory ----

/// The bytes of the card that this process may still take.
int64_t CudaLayerRunner::free_bytes() const {
  size_t free = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &all));
  const auto now = static_cast<int64_t>(free);
  if (card_.memory_bytes == 0) return now;
  const int64_t others = static_cast<int64_t>(all) - now;  // this process included
  return std::min(now, card_.memory_bytes - others);
}

Result<void> CudaLayerRunner::reserve(int64_t rows) {
  arena_ = DeviceBuffer();
  pools_ = DevicePools();
  taps_ = DeviceTaps();
  const PassLimits limits{.rows = rows, .sequences = kPassSequences};
  passes_ = sample_passes(samples_.lengths, limits);
  const PoolSizes sizes = pools_for(passes_, limits);
  const WorkspaceNeeds needs{.sizes = sizes, .prompts = true};
  const int64_t bytes = Workspace::cut(kinds_, needs, nullptr).bytes;
  arena_ = TRY(DeviceBuffer::allocate(*device_, bytes, "the workspace"));
  work_ = Workspace::cut(kinds_, needs, arena_.as<std::byte>());
  TRY(batch_.reserve(sizes, work_.batch));
  TRY(plan_.reserve(kinds_, work_));
  TRY(pools_.reserve(*device_, kinds_, KvFormat::bf16, StateFormat::f32, sizes));
  const auto tokens =
      samples_.weight_bytes > 0 ? DeviceTaps::Tokens::weighed : DeviceTaps::Tokens::alike;
  TRY(taps_.reserve(*device_, kinds_, rows, tokens));
  const int64_t needed = layers_and_sums() + kSpareBytes;
  const int64_t left = free_bytes();
  if (left >= needed) return {};
  return make_error(ErrorCode::no_memory,
                    {.what = "memory of the card for calibration",
                     .expected = concat(needed, " bytes beside the workspace: two layers of ",
                                        samples_.layer_bytes, ", sums ", samples_.moment_bytes),
                     .found = concat(std::max<int64_t>(left, 0)),
                     .advice = "calibrate with --backend cpu"});
}

/// Half of what a large card has beside layers, passes and places to round in, which take less than
/// kRestBytes for the models that fit such a card: there are two parts at a time.
int64_t CudaLayerRunner::moment_room_bytes() const {
  constexpr int64_t kRestBytes = int64_t{24} << 30;
  constexpr int64_t kMost = int64_t{10} << 30;
  return std::clamp<int64_t>((free_bytes() - kRestBytes) / 2, 0, kMost);
}

/// Reserves as many places as fit; without one the CPU rounds, to the same bytes.
void CudaLayerRunner::reserve_gptq() {
  if (samples_.gptq_cols == 0) return;
  const int64_t each = GptqLanes::lane_bytes(samples_.gptq_cols);
  const int64_t left = free_bytes() - layers_and_sums() - samples_.moment_bytes - kSpareBytes;
  const int64_t lanes = std::min(kGptqLanes, left / each);
  if (lanes < 1) {
    gptq_note_ = concat("; gptq rounds on the CPU: one linear takes ", each >> 20,
                        " MiB of the card, which has ", std::max<int64_t>(left, 0) >> 20, " left");
    return;
  }
  auto made = GptqLanes::reserve(*device_, samples_.gptq_cols, static_cast<int>(lanes));
  if (!made.ok()) {
    gptq_note_ = concat("; gptq rounds on the CPU: ", made.error().message);
    return;
  }
  gptq_ = std::move(made).value();
  gptq_note_ = concat("; gptq rounds there too, ", gptq_->description());
}

Result<void> CudaLayerRunner::place_hidden(std::vector<uint16_t> hidden) {
  const auto bytes = static_cast<int64_t>(hidden.size() * sizeof(uint16_t));
  if (free_bytes() - layers_and_sums() - kSpareBytes < bytes) {
    samples_.hidden = std::move(hidden);
    staged_ = TRY(DeviceBuffer::allocate(*device_, work_.h.bytes() / 2, "hidden states of a pass"));
    return {};
  }
  hidden_ = TRY(DeviceBuffer::allocate(*device_, bytes, "hidden states"));
  copy_to_device(hidden_.as<void>(), hidden.data(), bytes);
  return {};
}

Result<void> CudaLayerRunner::start(LayerSamples samples) {
  CHECK(!samples.lengths.empty() && samples_.lengths.empty(), "started twice, or with nothing");
  std::vector<uint16_t> hidden = std::move(samples.hidden);
  samples_ = std::move(samples);
  Result<void> reserved;
  const int64_t tokens = std::reduce(samples_.lengths.begin(), samples_.lengths.end());
  const int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  for (const int64_t rows : kPassRowChoices) {
    reserved = reserve(std::min(rows, pages * kPageTokens));
    if (reserved.ok() || reserved.error().code != ErrorCode::no_memory) break;
  }
  TRY(std::move(reserved));
  reserve_gptq();
  TRY(place_hidden(std::move(hidden)));
  start_bytes_ = device_->ledger().used_bytes();
  return {};
}

// ---- weights ----

Result<void> CudaLayerRunner::open_layer(int layer) {
  const auto begin = Clock::now();
  TRY(loader_.open(layer, layer + 1));
  seconds_.weights += since(begin);
  return {};
}

/// Before the first run, when the card has no weights and no sums yet.
Result<std::unique_ptr<GradientDevice>> CudaLayerRunner::gradient_device(
    const GradientNeeds& needs) {
  device_->use();
  return make_gradient_sweep({.weights = weights_,
                              .config = config_,
                              .embedded = all_hidden(),
                              .launcher = launcher_,
                              .senders = senders_,
                              .needs = needs,
                              .layer_bytes = samples_.layer_bytes,
                              .free_bytes = free_bytes() - kSpareBytes});
}

// ---- passes ----

Context CudaLayerRunner::context_of(const SamplePass& pass) {
  batch_.upload(pass.batch, extent_of(pass.batch), launcher_.stream);
  plan_.upload(
      pass.batch, 0, [&](int32_t row) { return batch_.device_row(row); }, launcher_.stream);
  Context context{.config = kinds_,
                  .weights = loader_.store(),
                  .rope = rope_.view,
                  .pools = pools_,
                  .work = work_,
                  .plan = plan_,
                  .prompts = batch_.view(),
                  .all = batch_.view(),
                  .launcher = launcher_};
  context.taps = &taps_;
  taps_.begin_pass(pass.first_row);
  return context;
}

uint16_t* CudaLayerRunner::all_hidden() {
  return hidden_.bytes() > 0 ? hidden_.as<uint16_t>() : samples_.hidden.data();
}

uint16_t* CudaLayerRunner::hidden_of(const SamplePass& pass) {
  return all_hidden() + pass.first_row * config_.hidden;
}

void CudaLayerRunner::enter(const Context& context, const SamplePass& pass, const float* norm) {
  const int64_t count = int64_t{context.prompts.rows} * config_.hidden;
  const uint16_t* from = hidden_of(pass);
  if (hidden_.bytes() == 0) {
    CUDA_CHECK(cudaMemcpyAsync(staged_.as<void>(), from, static_cast<size_t>(2 * count),
                               cudaMemcpyHostToDevice, launcher_.stream));
    from = staged_.as<uint16_t>();
  }
  CUDA_CHECK(widen_rows(from, count, work_.h.as<float>(), launcher_.stream));
  add_norm({.rows = context.prompts.rows,
            .hidden = config_.hidden,
            .h = work_.h.as<float>(),
            .norm = norm,
            .x = work_.x.as<uint16_t>(),
            .x_stride = work_.x_stride,
            .eps = config_.rms_eps,
            .packed_from = 0},
           launcher_);
}

void CudaLayerRunner::leave(const SamplePass& pass) {
  const int64_t count = int64_t{pass.batch.rows()} * config_.hidden;
  const bool staged = hidden_.bytes() == 0;
  uint16_t* to = staged ? staged_.as<uint16_t>() : hidden_of(pass);
  CUDA_CHECK(narrow_rows(work_.h.as<float>(), count, to, launcher_.stream));
  if (staged)
    CUDA_CHECK(cudaMemcpyAsync(hidden_of(pass), to, static_cast<size_t>(2 * count),
                               cudaMemcpyDeviceToHost, launcher_.stream));
}

void CudaLayerRunner::run_pass(const SamplePass& pass, LayerKind kind, HiddenStates hidden) {
  const auto at = std::ranges::find(kinds_.layers, kind);
  const auto layer = static_cast<int>(at - kinds_.layers.begin());
  const Context context = context_of(pass);
  if (kind == LayerKind::delta_net)
    for (const int32_t slot : pass.fresh_slots)
      CUDA_CHECK(cudaMemsetAsync(pools_.slot(slot), 0, static_cast<size_t>(pools_.slot_bytes()),
                                 launcher_.stream));
  enter(context, pass, context.layer(layer).input_norm);
  if (kind == LayerKind::attention) {
    prompt_attention_block(context, layer);
  } else {
    prompt_delta_net_block(context, layer);
  }
  if (config_.moe) {
    prompt_moe_block(context, layer);
  } else {
    prompt_dense_mlp_block(context, layer);
  }
  if (hidden == HiddenStates::move_on) leave(pass);
}

/// Host buffers of a pass are free again when its work is done.
template <typename Pass>
Result<void> CudaLayerRunner::for_each_pass(const LayerWatch& watch, const Pass& run) {
  for (const SamplePass& pass : passes_) {
    if (watch.check) TRY(watch.check());
    run(pass);
    CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
    if (watch.rows_done) watch.rows_done(pass.batch.rows());
  }
  return {};
}

Result<void> CudaLayerRunner::run_layer(int layer, HiddenStates hidden, Taps& taps,
                                        const LayerWatch& watch) {
  TRY(open_layer(layer));
  const auto begin = Clock::now();
  TRY(taps_.begin(weights_.layers()[static_cast<size_t>(layer)], taps, launcher_.stream));
  const LayerKind kind = config_.layers[static_cast<size_t>(layer)];
  TRY(for_each_pass(watch, [&](const SamplePass& pass) { run_pass(pass, kind, hidden); }));
  seconds_.passes += since(begin);
  const auto fetching = Clock::now();
  taps_.fetch(launcher_.stream);
  seconds_.sums += since(fetching);
  return {};
}

Result<void> CudaLayerRunner::run_head(InputStatistics& head, const LayerWatch& watch) {
  const auto begin = Clock::now();
  TRY(open_layer(config_.layer_count() - 1));  // the final norm is read with every layer
  TRY(taps_.begin(head, launcher_.stream));
  TRY(for_each_pass(watch, [&](const SamplePass& pass) {
    const Context context = context_of(pass);
    enter(context, pass, loader_.store().final_norm);
    taps_.add(TapRole::mixer_in,
              {.x = work_.x.as<uint16_t>(), .stride = work_.x_stride, .rows = context.prompts.rows},
              launcher_.stream);
  }));
  taps_.fetch(launcher_.stream);
  seconds_.passes += since(begin);
  return {};
}

}  // namespace

Result<std::unique_ptr<LayerRunner>> make_cuda_layer_runner(const Weights& weights,
                                                            const ModelConfig& config,
                                                            const CardLimit& card) {
  auto device = TRY(DeviceContext::open(card));
  auto runner = std::make_unique<CudaLayerRunner>(weights, config, std::move(device), card);
  TRY(runner->open());
  return std::unique_ptr<LayerRunner>(std::move(runner));
}

}  // namespace nibble
