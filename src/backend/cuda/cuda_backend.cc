// Owns weights, pools, workspace and recorded passes. A pass of single generated tokens is a
// recording of the same walk, made once per number of rows in reserve(); every other pass is
// launched block by block.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>

#include "backend/cuda/bench_access.h"
#include "backend/cuda/context.h"
#include "backend/cuda/declared.h"
#include "backend/cuda/kernel_table.h"
#include "backend/cuda/ops/attention/rope.h"
#include "backend/cuda/ops/head/head_results.h"
#include "backend/cuda/pass_probe.h"
#include "backend/cuda/recorded_plan.h"
#include "backend/cuda/reserved.h"
#include "backend/cuda/runtime/card.h"
#include "backend/cuda/runtime/host_copy.h"
#include "backend/cuda/runtime/recorded_passes.h"
#include "backend/cuda/selection.h"
#include "backend/cuda/weights/device_checks.h"
#include "model/forward.h"
#include "model/kv_codec.h"

namespace nibble {
namespace {

using namespace cuda;

KvFormat kv_format(const BackendOptions& options) {
  const bool wide = options.activations == Activations::f32;
  return kv_format_of(options.kv_cache, wide ? KvFormat::f32 : KvFormat::bf16);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const ModelConfig& config, Device device, const BackendOptions& options)
      : config_(config),
        device_(std::move(device)),
        card_(options.card),
        activations_(options.activations),
        kv_(kv_format(options)),
        state_(options.state == StateCache::bf16 ? StateFormat::bf16 : StateFormat::f32) {}
  ~CudaBackend() override;
  /// `make` gives the weights once the stream is there.
  template <typename MakeWeights>
  Result<void> load(const MakeWeights& make);
  void skip(uint32_t steps) { context_.launcher.skipped = steps; }
  void watch_blocks(BlockWatch watch) { watch_ = std::move(watch); }
  void spoil_row(int32_t row) {
    cuda::spoil_row(work_, batch_.device_row(row), config_.hidden, stream_);
  }
  int64_t experts_met() {
    return cuda::experts_met(work_, *config_.moe, context_.batch.rows, stream_);
  }
  double recorded_pass_us(int32_t rows, int repeats) {
    return replay_us(recordings_.at(rows), repeats, stream_);
  }

  std::string_view name() const override { return "cuda"; }
  std::string kernel_table() override {
    return cuda::kernel_table({.config = config_,
                               .device = device_,
                               .weights = weights_,
                               .kv = kv_,
                               .state = state_,
                               .activations = activations_,
                               .launcher = context_.launcher});
  }
  std::string arithmetic() override {
    return concat("cuda ", device_.code.name(), ", activations ", activations_name(activations_),
                  ", KV ", kv_traits(kv_).name, " of scale 1, state ",
                  state_ == StateFormat::bf16 ? "bf16" : "f32", "\n", kernel_table());
  }
  std::optional<DeviceMemory> device_memory() const override;
  int64_t workspace_bytes(const PoolSizes& sizes) const override {
    return Workspace::cut(config_, workspace_needs(config_, sizes, activations_), nullptr).bytes;
  }
  int64_t recorded_bytes(const PoolSizes& sizes) const override {
    return cuda::recorded_bytes(config_, sizes);
  }
  std::optional<ReservedBytes> reserved_bytes() const override {
    return reserved_in(weights_, rope_, pools_, arena_);
  }
  bool takes_media() const override { return false; }  // no kernel puts their rows in
  std::string description() const override {
    const std::string_view compiled =
        device_.code.kind == CodeTarget::Kind::ptx ? " compiled by the driver" : "";
    return concat("cuda, ", device_.name, " (", device_.compute_major, ".", device_.compute_minor,
                  ", runs ", device_.code.name(), compiled, ", ", device_.multiprocessors,
                  " multiprocessors), ", weights_.bytes() >> 20, " MiB of weights, activations ",
                  declares() ? "declared (emulated)"
                  : in_f32() ? "f32 (slow, for tests)"
                             : "bf16",
                  ", KV ", kv_traits(kv_).name, ", state ",
                  state_ == StateFormat::bf16 ? "bf16" : "f32");
  }

  Result<void> reserve(const PoolSizes& sizes) override;
  int64_t page_bytes() const override { return DevicePools::page_bytes(config_, kv_); }
  int64_t state_slot_bytes() const override { return DevicePools::slot_bytes(config_, state_); }

  Residual embed(const Batch& batch) override;
  Residual attention_block(int layer, const Batch& batch, Residual h) override {
    if (launches_) cuda::attention_block(context_, layer);
    return after_block(batch, h);
  }
  Residual delta_net_block(int layer, const Batch& batch, Residual h) override {
    if (launches_) cuda::delta_net_block(context_, layer);
    return after_block(batch, h);
  }
  Residual moe_block(int layer, const Batch& batch, Residual h) override {
    if (launches_) cuda::moe_block(context_, layer);
    return after_block(batch, h);
  }
  Residual dense_mlp_block(int layer, const Batch& batch, Residual h) override {
    if (launches_) cuda::dense_mlp_block(context_, layer);
    return after_block(batch, h);
  }
  HeadOutput head(const Batch& batch, Residual h) override;
  void set_sampleable(std::span<const uint32_t> bits) override {
    head_results_.set_sampleable(bits);
  }

  void zero_state(int32_t slot) override {
    CUDA_CHECK(cudaMemsetAsync(pools_.slot(slot), 0, slot_size(), stream_));
  }
  void copy_state(int32_t from, int32_t to) override {
    copy(pools_.slot(to), pools_.slot(from), slot_size(), cudaMemcpyDeviceToDevice);
  }
  void copy_page(int32_t from, int32_t to) override {
    copy(pools_.page(to), pools_.page(from), page_size(), cudaMemcpyDeviceToDevice);
  }
  void store_page(int32_t page, int32_t host_page) override {
    store(pools_.host_page(host_page), pools_.page(page));
  }
  void load_page(int32_t host_page, int32_t page) override {
    load_from(pools_.host_page(host_page), pools_.page(page));
  }
  void store_state(int32_t slot, int32_t host_slot) override {
    store(pools_.host_slot(host_slot), pools_.slot(slot));
  }
  void load_state(int32_t host_slot, int32_t slot) override {
    load_from(pools_.host_slot(host_slot), pools_.slot(slot));
  }
  // The copies above are only queued: a wait for each would cost as much as a small copy, and an
  // evicted prompt of 2,048 tokens is 33 of them.
  std::span<std::byte> host_page(int32_t id) override {
    finish();
    return pools_.host_page(id);
  }
  std::span<std::byte> host_state(int32_t id) override {
    finish();
    return pools_.host_slot(id);
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override;
  int64_t device_allocations() const override { return device_ledger().allocations; }
  Result<void> sleep() override;
  Result<void> wake() override;
  void outlive_device() override { cuda::outlive_device(); }
  Result<void> alive() const override { return device_alive(device_); }
  /// All bits set is NaN in E4M3, BF16 and F32.
  void poison_page(int32_t page) override {
    CUDA_CHECK(cudaMemsetAsync(pools_.page(page), 0xFF, page_size(), stream_));
  }
  void poison_state(int32_t slot) override {
    CUDA_CHECK(cudaMemsetAsync(pools_.slot(slot), 0xFF, slot_size(), stream_));
  }

 private:
  bool declares() const { return activations_ == Activations::declared; }
  bool in_f32() const { return activations_ == Activations::f32; }
  size_t slot_size() const { return static_cast<size_t>(state_slot_bytes()); }
  size_t page_size() const { return static_cast<size_t>(page_bytes()); }
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_));
  }
  void finish() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  void store(std::span<std::byte> host, const std::byte* device) {
    copy(host.data(), device, host.size(), cudaMemcpyDeviceToHost);
  }
  void load_from(std::span<const std::byte> host, std::byte* device) {
    copy(device, host.data(), host.size(), cudaMemcpyHostToDevice);
  }
  Residual after_block(const Batch& batch, Residual h) {
    if (watch_ && !recording_) watch_(batch, block_++);
    return h;
  }
  /// Splits the rows of this pass by their arithmetic.
  void split_rows(const Batch& batch);
  /// A pass of so many rows on padding alone, for real, and then as a recording if that is asked.
  enum class Padding : uint8_t { run, record };
  Result<void> run_padding(int32_t rows, Padding padding);
  /// All that reserve() takes but the pools.
  Result<void> reserve_workspace(const PoolSizes& sizes);
  /// True if the recording of this pass ends with the head, which holds kRowBlock rows of logits.
  bool head_recorded() const { return graph_ > 0 && graph_ <= kRowBlock; }
  /// The recording a batch can run on: its number of rows, or 0.
  int32_t graph_rows(const Batch& batch) const;

  ModelConfig config_;
  Device device_;
  CardLimit card_;
  Activations activations_;
  KvFormat kv_;
  StateFormat state_;
  cudaStream_t stream_ = nullptr;
  WeightStore weights_;
  HostCopy asleep_;  // the weights while the card is free
  DeviceRope rope_;
  DevicePools pools_;
  DeviceBuffer arena_;  // of work_
  Workspace work_;
  DeviceBatch batch_;
  PromptPlan plan_;
  BlockWatch watch_;      // of tests
  int block_ = 0;         // of the pass, for it
  bool prompts_ = false;  // the prompt kernels hold this model, and prompts go through them
  PoolSizes sizes_;
  RecordedPasses recordings_;
  int32_t graph_ = 0;       // rows of the recording this pass runs on; 0: none
  bool recording_ = false;  // this walk is captured, not run
  bool launches_ = true;    // this walk launches kernels block by block
  HeadResults head_results_;
  Context context_{.config = config_,
                   .device = device_,
                   .weights = weights_,
                   .rope = rope_.view,
                   .pools = pools_,
                   .work = work_,
                   .plan = plan_};
};

CudaBackend::~CudaBackend() {
  recordings_.clear();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

template <typename MakeWeights>
Result<void> CudaBackend::load(const MakeWeights& make) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  context_.launcher = {.stream = stream_, .card = architecture_of(device_, card_)};
  weights_ = TRY(make(context_.launcher));
  CUDA_CHECK(cudaDeviceSynchronize());
  rope_ = TRY(upload_rope(config_));
  if (prompts_supported(config_) && !in_f32()) prepare_prompt_kernels(context_.launcher.card);
  return {};
}

Result<void> CudaBackend::reserve(const PoolSizes& sizes) {
  if (sizes.replay_rows > 0)
    return make_error(ErrorCode::unsupported, {.what = "drafted rows on the cuda backend",
                                               .advice = "leave out --speculative-config"});
  recordings_.clear();
  pools_ = DevicePools();
  TRY(reserve_workspace(sizes));
  TRY(pools_.reserve(config_, kv_, state_, sizes));
  CUDA_CHECK(cudaDeviceSynchronize());
  // Passes that are not recorded run once too: afterwards every kernel is loaded.
  const size_t recorded = recorded_rows(config_, sizes).size();
  const std::span<const int32_t> all = recordable_rows();
  for (size_t i = 0; i < all.size() && all[i] <= sizes.rows_max; ++i)
    if (i < recorded || all[i] <= kRowBlock)
      TRY(run_padding(all[i], i < recorded ? Padding::record : Padding::run));
  return {};
}

Result<void> CudaBackend::reserve_workspace(const PoolSizes& sizes) {
  sizes_ = sizes;
  arena_ = DeviceBuffer();
  const WorkspaceNeeds needs = workspace_needs(config_, sizes, activations_);
  context_.splits_max = needs.splits_max;
  prompts_ = needs.prompts;
  arena_ = TRY(DeviceBuffer::allocate(workspace_bytes(sizes), "the workspace"));
  work_ = Workspace::cut(config_, needs, arena_.as<std::byte>());
  TRY(batch_.reserve(sizes, work_.batch));
  TRY(head_results_.reserve(config_, sizes, work_));
  return prompts_ ? plan_.reserve(config_, work_) : Result<void>();
}

Result<void> CudaBackend::run_padding(int32_t rows, Padding padding) {
  Batch batch;
  batch.tokens = {0};
  batch.positions = {0, 0, 0};
  graph_ = rows;
  recording_ = true;
  context_.launcher.carveout_steps = context_.launcher.card.has_wgmma() ? carveout_steps(rows) : 0;
  launches_ = true;
  batch_.upload(Batch(), rows, stream_);
  const auto walk = [&] {
    const Residual h = run_layers(*this, config_, batch);
    if (head_recorded()) head(batch, h);
  };
  walk();
  finish();
  Result<void> outcome;
  if (padding == Padding::record) outcome = recordings_.record(rows, stream_, walk);
  recording_ = false;
  context_.launcher.carveout_steps = 0;
  return outcome;
}

int32_t CudaBackend::graph_rows(const Batch& batch) const {
  if (watch_) return 0;
  for (const BatchSequence& sequence : batch.sequences)
    if (sequence.row_count != 1 || sequence.arithmetic != Arithmetic::generation) return 0;
  return recordings_.fitting(batch.rows());
}

Residual CudaBackend::embed(const Batch& batch) {
  CHECK(batch.embeddings.empty(), batch.embeddings.size(),
        " rows of media; takes_media() is false");
  if (!recording_) {
    graph_ = graph_rows(batch);
    launches_ = graph_ == 0;
    batch_.upload(batch, graph_, stream_);
  }
  split_rows(batch);
  // From here on the device computes, while the caller makes masks.
  if (!launches_) CUDA_CHECK(cudaGraphLaunch(recordings_.at(graph_), stream_));
  if (launches_) embed_block(context_);
  block_ = 0;
  return after_block(batch, {.data = work_.h.as<float>(), .rows = batch.rows()});
}

void CudaBackend::split_rows(const Batch& batch) {
  const BatchView& all = batch_.view();
  context_.all = context_.batch = all;
  context_.prompts = BatchView();
  const int32_t generated = batch_.generation_rows();
  if (recording_ || graph_ > 0 || !prompts_ || generated == all.rows) return;
  context_.batch.rows = generated;
  context_.batch.sequences = batch_.generation_sequences();
  context_.prompts = all;
  context_.prompts.rows = all.rows - generated;
  for (const int32_t** field :
       {&context_.prompts.tokens, &context_.prompts.positions, &context_.prompts.kv_index,
        &context_.prompts.page_begin, &context_.prompts.snapshot_slot})
    *field += generated;
  plan_.upload(
      batch, generated, [&](int32_t row) { return batch_.device_row(row); }, stream_);
}

HeadOutput CudaBackend::head(const Batch& batch, Residual) {
  if (recording_) {
    head_block(context_, nullptr, context_.batch.rows);
    return {};
  }
  head_results_.run(context_, batch_, batch,
                    head_recorded() ? HeadResults::Head::recorded : HeadResults::Head::to_launch);
  for (const DeviceBatch::Copy& copied : batch_.snapshot_copies())
    copy_state(copied.from, copied.to);
  finish();
  return head_results_.output();
}

bool CudaBackend::finite(std::span<const int32_t> pages, std::span<const int32_t> slots) {
  if (pages.empty() && slots.empty()) return true;
  auto* flag = work_.flag.as<int32_t>();
  CUDA_CHECK(cudaMemsetAsync(flag, 0, sizeof(int32_t), stream_));
  const auto find = [&](const std::byte* base, int64_t stride, int64_t bytes, KvFormat format,
                        std::span<const int32_t> ids) {
    find_not_finite({.base = reinterpret_cast<const uint8_t*>(base),
                     .stride = stride,
                     .bytes = bytes,
                     .format = format,
                     .kv_heads = config_.attention.kv_heads,
                     .head_dim = config_.attention.head_dim,
                     .ids = ids},
                    flag, context_.launcher);
  };
  if (!pages.empty()) find(pools_.page(0), page_bytes(), page_bytes(), kv_, pages);
  if (!slots.empty()) {
    const int64_t states = DevicePools::states_floats(config_, state_) * int64_t{sizeof(float)};
    const KvFormat format = state_ == StateFormat::bf16 ? KvFormat::bf16 : KvFormat::f32;
    find(pools_.slot(0), state_slot_bytes(), states, format, slots);
    find(pools_.slot(0) + states, state_slot_bytes(), state_slot_bytes() - states, KvFormat::f32,
         slots);
  }
  int32_t found = 0;
  copy(&found, flag, sizeof(found), cudaMemcpyDeviceToHost);
  finish();
  return found == 0 && device_failure() == cudaSuccess;
}

/// Addresses stay, so recorded passes do too.
Result<void> CudaBackend::sleep() {
  finish();
  asleep_ = TRY(HostCopy::of(weights_.memory()));
  weights_.memory().sleep();
  pools_.sleep();
  return {};
}

Result<void> CudaBackend::wake() {
  if (asleep_.empty()) return {};
  TRY(weights_.memory().wake("the weights"));
  TRY(pools_.wake());
  TRY(asleep_.restore(weights_.memory()));
  asleep_ = HostCopy();
  return {};
}

std::optional<DeviceMemory> CudaBackend::device_memory() const {
  DeviceMemory memory = card_memory(device_, card_);
  memory.weights = weights_.bytes();
  return memory;
}

/// `make_weights` gives a WeightStore once there is a device and a stream.
template <typename MakeWeights>
Result<std::unique_ptr<Backend>> make_backend(const ModelConfig& config,
                                              const BackendOptions& options,
                                              const MakeWeights& make_weights) {
  Device device = TRY(open_device());
  TRY(refuse_oversized(config));
  TRY(check_kv_head_dim(kv_format(options), config));
  const int64_t limit = options.card.memory_bytes;
  limit_device_memory(
      limit > 0 ? std::max<int64_t>(limit - (device.memory_bytes - device.free_bytes), 1) : 0);
  auto backend = std::make_unique<CudaBackend>(config, std::move(device), options);
  TRY(backend->load(make_weights));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const Weights& weights,
                                                   const ModelConfig& config,
                                                   const BackendOptions& options) {
  const auto load = [&](const Launcher& launcher) -> Result<WeightStore> {
    if (options.activations == Activations::declared) TRY(check_declared(weights));
    return WeightStore::load(weights, config, launcher, options.activations);
  };
  return make_backend(config, options, load);
}

Result<std::unique_ptr<Backend>> make_random_cuda_backend(const ModelConfig& config,
                                                          const FormatOf& formats,
                                                          const BackendOptions& options) {
  const auto make = [&](const Launcher& launcher) -> Result<WeightStore> {
    if (options.activations == Activations::declared)
      return make_error(ErrorCode::unsupported, {.what = "activations of weights without a file",
                                                 .expected = "auto, bf16 or f32",
                                                 .found = activations_name(options.activations)});
    return WeightStore::random(config, formats, launcher);
  };
  return make_backend(config, options, make);
}

namespace {

CudaBackend& as_cuda(Backend& backend) {
  CHECK(backend.name() == "cuda", "a backend ", backend.name());
  return static_cast<CudaBackend&>(backend);
}

}  // namespace

namespace cuda {

void skip_steps(Backend& backend, uint32_t steps) { as_cuda(backend).skip(steps); }
void watch_blocks(Backend& backend, BlockWatch watch) {
  as_cuda(backend).watch_blocks(std::move(watch));
}
void spoil_row(Backend& backend, int32_t row) { as_cuda(backend).spoil_row(row); }
int64_t experts_met(Backend& backend) { return as_cuda(backend).experts_met(); }
double recorded_pass_us(Backend& backend, int32_t rows, int repeats) {
  return as_cuda(backend).recorded_pass_us(rows, repeats);
}

}  // namespace cuda

}  // namespace nibble
