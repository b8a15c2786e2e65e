// Owns weights, pools, workspace and recorded passes. A pass of single generated tokens is a
// recording of the same walk, made once per number of rows in reserve(); every other pass is
// launched block by block.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <optional>

#include "backend/cuda/activations/declared.h"
#include "backend/cuda/bench_access.h"
#include "backend/cuda/context.h"
#include "backend/cuda/draft/draft_rounds.h"
#include "backend/cuda/kernel_table.h"
#include "backend/cuda/ops/attention/rope.h"
#include "backend/cuda/ops/head/head_results.h"
#include "backend/cuda/pass_probe.h"
#include "backend/cuda/recorded_plan.h"
#include "backend/cuda/reserved.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/host_copy.h"
#include "backend/cuda/runtime/recorded_passes.h"
#include "backend/cuda/runtime/slot_layout.h"
#include "backend/cuda/runtime/stream.h"
#include "backend/cuda/selection.h"
#include "backend/cuda/vision/tower_backend.h"
#include "model/forward.h"
#include "model/kv_codec.h"

namespace nibble {
namespace {

using namespace cuda;

KvFormat kv_format(const BackendOptions& options) {
  const bool wide = options.activations == Activations::f32;
  return kv_format_of(options.kv_cache, wide ? KvFormat::f32 : KvFormat::bf16);
}

class CudaBackend final : public TowerBackend {
 public:
  CudaBackend(const ModelConfig& config, std::unique_ptr<DeviceContext> device,
              const BackendOptions& options)
      : config_(config),
        device_(std::move(device)),
        stream_(device_->stream()),
        card_(options.card),
        activations_(options.activations),
        kv_(kv_format(options)),
        state_(options.state == StateCache::bf16 ? StateFormat::bf16 : StateFormat::f32),
        has_kv_scales_(!options.kv_scales.empty()) {}
  /// The tower belongs to the base class, which outlives device_: its memory goes back before.
  ~CudaBackend() override { tower_.reset(); }
  /// `make` gives the weights.
  template <typename MakeWeights>
  Result<void> load(const MakeWeights& make);
  Result<void> take_products(Fp4Products way) {
    return take_fp4_products(activations_, way, config_, weights_, context_.launcher);
  }
  void skip(uint32_t steps) { context_.launcher.skipped = steps; }
  void watch_blocks(BlockWatch watch) { watch_ = std::move(watch); }
  void spoil_row(int32_t row) {
    cuda::spoil_row(work_, batch_.device_row(row), config_.hidden, stream_);
  }
  int64_t experts_met() {
    return cuda::experts_met(work_, *config_.moe, context_.batch.rows, stream_);
  }
  double recorded_pass_us(const Extent& extent, int repeats) {
    return replay_us(recordings_.at(extent), repeats, stream_);
  }

  std::string_view name() const override { return "cuda"; }
  std::string kernel_table() override { return cuda::kernel_table(planned()); }
  std::string arithmetic() override { return cuda::arithmetic(planned()); }
  std::optional<DeviceMemory> device_memory() const override;
  int64_t workspace_bytes(const PoolSizes& sizes) const override {
    return Workspace::cut(config_, workspace_needs(config_, sizes, activations_), nullptr).bytes;
  }
  int64_t recorded_bytes(const PoolSizes& sizes) const override {
    return cuda::recorded_bytes(config_, sizes);
  }
  std::optional<ReservedBytes> reserved_bytes() const override {
    return reserved_in(weights_, rope_, pools_, arena_, tower_ ? &tower_->memory() : nullptr);
  }
  int64_t media_bytes(const PoolSizes& sizes) const override {
    return config_.vision ? VisionMemory::cut(*config_.vision, sizes, nullptr).bytes : 0;
  }
  std::string description() const override { return cuda::description(planned()); }

  Result<void> reserve(const PoolSizes& sizes) override;
  int64_t page_bytes() const override { return DevicePools::page_bytes(config_, kv_); }
  int64_t state_slot_bytes() const override { return cuda::state_slot_bytes(config_, state_); }
  int64_t replay_row_bytes() const override { return saved_row_bytes(config_); }

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
  /// Takes recorded passes only: the host lays out prompts in memory that the device still reads.
  bool begin_head(const Batch& batch, Residual h) override;
  HeadOutput end_head() override;
  bool drafts() const override { return config_.draft_layers > 0; }
  void keep_draft_entries(const Batch&, Residual) override {
    if (launches_ && drafts()) cuda::draft_entries_block(context_);
  }
  DraftOutput draft(const DraftBatch& batch) override {
    CHECK(drafts(), "no layer that drafts is loaded");
    return draft_rounds_.run(context_, batch_, batch);
  }
  /// The batch has one arithmetic, so its rows are in its order on the device too.
  void read_residual(Residual h, std::span<float> out) override {
    CHECK(std::ssize(out) == h.rows * config_.hidden, "residual of ", h.rows, " rows");
    copy(out.data(), h.data, out.size_bytes(), cudaMemcpyDeviceToHost);
    finish();
  }
  void set_sampleable(std::span<const uint32_t> bits) override {
    head_results_.set_sampleable(bits);
  }

  // These are only queued.
  void zero_states(std::span<const int32_t> slots) override { pools_.zero_slots(slots, stream_); }
  void move_pages(CacheMove move, std::span<const IdPair> pages) override {
    pools_.move_pages(move, pages, stream_);
    host_in_use_ |= move != CacheMove::copy;
  }
  void move_states(CacheMove move, std::span<const IdPair> slots) override {
    pools_.move_slots(move, slots, stream_);
    host_in_use_ |= move != CacheMove::copy;
  }
  std::span<std::byte> host_page(int32_t id) override {
    free_host();
    return pools_.host_page(id);
  }
  std::span<std::byte> host_state(int32_t id) override {
    free_host();
    return pools_.host_slot(id).first(static_cast<size_t>(state_slot_bytes()));
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override;
  int64_t device_allocations() const override { return device_->ledger().allocations(); }
  Result<void> sleep() override;
  Result<void> wake() override;
  void outlive_device() override { cuda::outlive_device(); }
  Result<void> alive() const override { return device_->alive(); }
  /// All bits set is NaN in E4M3, BF16 and F32.
  void poison_page(int32_t page) override {
    CUDA_CHECK(cudaMemsetAsync(pools_.page(page), 0xFF, page_size(), stream_));
  }
  void poison_state(int32_t slot) override {
    CUDA_CHECK(cudaMemsetAsync(pools_.slot(slot), 0xFF, slot_size(), stream_));
  }

 private:
  PlannedBackend planned() const {
    return {.config = config_,
            .weights = weights_,
            .kv = kv_,
            .state = state_,
            .activations = activations_,
            .launcher = context_.launcher,
            .has_kv_scales = has_kv_scales_};
  }
  bool in_f32() const { return activations_ == Activations::f32; }
  size_t slot_size() const { return static_cast<size_t>(pools_.slot_bytes()); }
  size_t page_size() const { return static_cast<size_t>(page_bytes()); }
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_));
  }
  void finish() {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    host_in_use_ = false;
  }
  /// Waits until no copy reads or writes the host pools.
  void free_host() {
    if (host_in_use_) finish();
  }
  Residual after_block(const Batch& batch, Residual h) {
    if (watch_ && !recording_) watch_(batch, block_++);
    return h;
  }
  /// Splits the rows of this pass by their arithmetic.
  void split_rows(const Batch& batch);
  /// A pass of that extent on padding alone, for real, and then as a recording if that is asked.
  enum class Padding : uint8_t { run, record };
  Result<void> run_padding(const Extent& extent, Padding padding);
  /// All that reserve() takes but the pools.
  Result<void> reserve_workspace(const PoolSizes& sizes);
  /// True if the recording of this pass ends with the head, which holds kRowBlock rows of logits.
  bool head_recorded() const { return graph_ && graph_->rows <= kRowBlock; }
  /// Queues the head, the choice of tokens, and the copies of snapshots.
  void launch_head(const Batch& batch);
  /// The extent of the recording that a batch can run on.
  std::optional<Extent> graph_of(const Batch& batch) const;

  ModelConfig config_;
  std::unique_ptr<DeviceContext> device_;
  cudaStream_t stream_;  // of passes
  CardLimit card_;
  Activations activations_;
  KvFormat kv_;
  StateFormat state_;
  bool has_kv_scales_;
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
  DraftRounds draft_rounds_;
  std::optional<Extent> graph_;  // of the recording this pass runs on
  bool recording_ = false;       // this walk is captured, not run
  bool launches_ = true;         // this walk launches kernels block by block
  bool host_in_use_ = false;     // copies of the host pools may be under way
  HeadResults head_results_;
  Event head_ended_;
  bool head_begun_ = false;
  Context context_{.config = config_,
                   .weights = weights_,
                   .rope = rope_.view,
                   .pools = pools_,
                   .work = work_,
                   .plan = plan_};
};

template <typename MakeWeights>
Result<void> CudaBackend::load(const MakeWeights& make) {
  context_.launcher = launcher_of(*device_, card_);
  head_ended_ = Event::create();
  weights_ = TRY(make(context_.launcher));
  CUDA_CHECK(cudaDeviceSynchronize());
  rope_ = TRY(upload_rope(*device_, config_));
  if (prompts_supported(config_) && !in_f32()) prepare_prompt_kernels(context_.launcher);
  CHECK(!config_.vision || vision_fits_card(*config_.vision), "a tower without kernels");
  if (config_.vision) tower_.emplace(*config_.vision, weights_.vision, context_.launcher);
  return {};
}

Result<void> CudaBackend::reserve(const PoolSizes& sizes) {
  recordings_.clear();
  draft_rounds_.clear();
  pools_ = DevicePools();
  TRY(reserve_workspace(sizes));
  TRY(pools_.reserve(*device_, config_, kv_, state_, sizes));
  if (tower_) TRY(tower_->reserve(*device_, sizes));
  batch_.set_media(tower_ ? tower_->rows() : nullptr);
  CUDA_CHECK(cudaDeviceSynchronize());
  for (const Extent& extent : recorded_extents(config_, sizes))
    TRY(run_padding(extent, Padding::record));
  for (const int32_t rows : recorded_drafts(config_, sizes))
    TRY(draft_rounds_.record(context_, batch_, rows));
  // Passes that are not recorded run once too: afterwards every kernel is loaded.
  for (const int32_t rows : recordable_rows().subspan(recorded_rows(config_, sizes).size()))
    if (rows <= std::min(sizes.rows_max, kRowBlock))
      TRY(run_padding({.rows = rows, .sequences = rows}, Padding::run));
  return {};
}

Result<void> CudaBackend::reserve_workspace(const PoolSizes& sizes) {
  sizes_ = sizes;
  arena_ = DeviceBuffer();
  const WorkspaceNeeds needs = workspace_needs(config_, sizes, activations_);
  context_.splits_max = needs.splits_max;
  prompts_ = needs.prompts;
  arena_ = TRY(DeviceBuffer::allocate(*device_, workspace_bytes(sizes), "the workspace"));
  work_ = Workspace::cut(config_, needs, arena_.as<std::byte>());
  TRY(batch_.reserve(sizes, work_.batch,
                     drafts() ? DeviceBatch::Entries::kept : DeviceBatch::Entries::none));
  if (drafts()) TRY(draft_rounds_.reserve(config_, work_));
  TRY(head_results_.reserve(config_, sizes, work_));
  return prompts_ ? plan_.reserve(config_, work_) : Result<void>();
}

Result<void> CudaBackend::run_padding(const Extent& extent, Padding padding) {
  Batch batch;
  batch.tokens = {0};
  batch.positions = {0, 0, 0};
  graph_ = extent;
  recording_ = true;
  context_.launcher.carveout_steps =
      context_.launcher.card.has_wgmma() ? carveout_steps(extent.rows) : 0;
  launches_ = true;
  batch_.upload(Batch(), extent, stream_);
  const auto walk = [&] {
    const Residual h = run_layers(*this, config_, batch);
    if (head_recorded()) head(batch, h);
  };
  walk();
  finish();
  Result<void> outcome;
  if (padding == Padding::record) outcome = recordings_.record(extent, stream_, walk);
  recording_ = false;
  context_.launcher.carveout_steps = 0;
  return outcome;
}

std::optional<Extent> CudaBackend::graph_of(const Batch& batch) const {
  const Extent extent = extent_of(batch);
  const bool generates = std::ranges::all_of(batch.sequences, [](const BatchSequence& sequence) {
    return sequence.arithmetic == Arithmetic::generation;
  });
  // Only drafts make several rows of a sequence that are worth a recording.
  if (watch_ || !generates || (!extent.replays && !extent.single_rows())) return std::nullopt;
  return recordings_.fitting(extent);
}

Residual CudaBackend::embed(const Batch& batch) {
  if (!recording_) {
    graph_ = graph_of(batch);
    launches_ = !graph_;
    const Extent extent = graph_ ? *graph_ : extent_of(batch);
    if (batch.carried.empty())
      batch_.upload(batch, extent, stream_);
    else
      batch_.upload_carried(batch, extent, head_results_.chosen_rows(),
                            context_.launcher.of(Step::embed));
  }
  split_rows(batch);
  // From here on the device computes, while the caller makes masks.
  if (!launches_) CUDA_CHECK(cudaGraphLaunch(recordings_.at(*graph_), stream_));
  if (launches_) embed_block(context_);
  block_ = 0;
  return after_block(batch, {.data = work_.h.as<float>(), .rows = batch.rows()});
}

void CudaBackend::split_rows(const Batch& batch) {
  const BatchView& all = batch_.view();
  context_.all = context_.batch = all;
  context_.prompts = BatchView();
  const int32_t generated = batch_.generation_rows();
  if (recording_ || graph_ || !prompts_ || generated == all.rows) return;
  context_.batch.rows = generated;
  context_.batch.sequences = batch_.generation_sequences();
  context_.prompts = all;
  context_.prompts.rows = all.rows - generated;
  for (const int32_t** field :
       {&context_.prompts.tokens, &context_.prompts.positions, &context_.prompts.kv_index,
        &context_.prompts.page_begin, &context_.prompts.snapshot_slot,
        &context_.prompts.sequence_of, &context_.prompts.entry_positions})
    if (*field != nullptr) *field += generated;
  plan_.upload(
      batch, generated, [&](int32_t row) { return batch_.device_row(row); }, stream_);
}

HeadOutput CudaBackend::head(const Batch& batch, Residual) {
  if (recording_) {
    head_block(context_, nullptr, context_.batch.rows);
    return {};
  }
  launch_head(batch);
  finish();
  return head_results_.output();
}

void CudaBackend::launch_head(const Batch& batch) {
  CHECK(!head_begun_, "the tokens of the pass before were not read");
  head_results_.run(context_, batch_, batch,
                    head_recorded() ? HeadResults::Head::recorded : HeadResults::Head::to_launch);
  pools_.move_slots(CacheMove::copy, batch_.snapshot_copies(), stream_);
}

bool CudaBackend::begin_head(const Batch& batch, Residual) {
  if (!graph_ || !head_results_.takes(batch)) return false;
  launch_head(batch);
  head_ended_.record(stream_);
  head_begun_ = true;
  return true;
}

/// The next pass may be computing already.
HeadOutput CudaBackend::end_head() {
  CHECK(head_begun_, "no head was begun");
  head_begun_ = false;
  head_ended_.wait();
  return head_results_.output();
}

bool CudaBackend::finite(std::span<const int32_t> pages, std::span<const int32_t> slots) {
  if (pages.empty() && slots.empty()) return true;
  auto* flag = work_.flag.as<int32_t>();
  CUDA_CHECK(cudaMemsetAsync(flag, 0, sizeof(int32_t), stream_));
  pools_.find_not_finite(pages, slots, flag, context_.launcher);
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
  if (has_vision()) tower_->memory().sleep();
  return {};
}

Result<void> CudaBackend::wake() {
  if (asleep_.empty()) return {};
  TRY(weights_.memory().wake("the weights"));
  TRY(pools_.wake());
  if (has_vision()) TRY(tower_->wake());
  TRY(asleep_.restore(weights_.memory()));
  asleep_ = HostCopy();
  return {};
}

std::optional<DeviceMemory> CudaBackend::device_memory() const {
  DeviceMemory memory = device_->memory();
  memory.weights = weights_.bytes();
  return memory;
}

/// `make_weights` gives a WeightStore once there is a device and a stream.
template <typename MakeWeights>
Result<std::unique_ptr<Backend>> make_backend(const ModelConfig& config,
                                              const BackendOptions& options,
                                              const MakeWeights& make_weights) {
  auto device = TRY(DeviceContext::open(options.card));
  TRY(refuse_oversized(config));
  TRY(check_kv_head_dim(kv_format(options), config));
  auto backend = std::make_unique<CudaBackend>(config, std::move(device), options);
  TRY(backend->load(make_weights));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_settled_cuda_backend(const Weights& weights,
                                                           const ModelConfig& config,
                                                           const BackendOptions& options,
                                                           const ProductsChoice& products) {
  BackendOptions settled = options;
  settled.activations = products.activations;
  const auto load = [&](const Launcher& launcher) -> Result<WeightStore> {
    WeightStore store = TRY(load_weights(weights, config, launcher, settled));
    store.choice = products.reason;
    return store;
  };
  auto backend = TRY(make_backend(config, settled, load));
  TRY(static_cast<CudaBackend&>(*backend).take_products(products.way));
  return backend;
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
double recorded_pass_us(Backend& backend, const Extent& extent, int repeats) {
  return as_cuda(backend).recorded_pass_us(extent, repeats);
}

}  // namespace cuda

}  // namespace nibble
