// Owns weights, pools and workspace; forwards each block to its file.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "backend/cpu/context.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/pass_memory.h"
#include "backend/cpu/weight_bytes.h"
#include "model/forward.h"
#include "model/host_pools.h"
#include "model/kv_codec.h"

namespace nibble {
namespace {

using cpu::Context;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelConfig& config, const cpu::KernelTable& kernels,
             const BackendOptions& options)
      : config_(config),
        kernels_(kernels),
        activations_(cpu::settled_activations(options.activations)),
        kv_cache_(options.kv_cache),
        has_kv_scales_(!options.kv_scales.empty()),
        pool_(options.threads),
        linears_(kernels, pool_, activations_, options.input_scales) {
    context_.state = options.state;
    if (config.kv_layers() > 0) rope_ = make_rope_table(config.attention.rope);
  }

  Result<void> load(const Weights& weights, const BackendOptions& options) {
    weights_ = TRY(cpu::CpuWeights::load(weights, config_, pool_,
                                         {.memory_bytes = options.host_memory_bytes,
                                          .place = options.weights,
                                          .beyond = options.beyond_memory,
                                          .report = options.loading}));
    weights_.take_kv_scales(config_, options.kv_scales);
    return {};
  }

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return concat("cpu ", kernels_.isa, ", ", pool_.size(),
                  pool_.size() == 1 ? " thread" : " threads", ", activations ",
                  activations_words(activations_, linears_.input_scales()),
                  kv_cache_ == KvCache::automatic ? "" : concat(", KV ", kv_cache_name(kv_cache_)),
                  has_kv_scales_ ? " by the checkpoint's scales" : "",
                  context_.state == StateCache::bf16 ? ", state rounded to bf16" : "");
  }

  std::string arithmetic() override {
    return concat("cpu ", kernels_.isa, ", activations ",
                  activations_words(activations_, linears_.input_scales()), ", KV ",
                  kv_cache_name(kv_cache_), has_kv_scales_ ? " by the checkpoint's scales" : "",
                  ", state ", state_cache_name(context_.state), draft_entry_words(config_));
  }
  int64_t media_bytes(const PoolSizes& sizes) const override {
    return config_.vision ? cpu::VisionMemory::bytes_of(*config_.vision, sizes) : 0;
  }
  int64_t workspace_bytes(const PoolSizes& sizes) const override {
    return cpu::pass_memory_bytes(config_, sizes, activations_);
  }
  std::optional<ReservedBytes> reserved_bytes() const override;
  void outlive_device() override {
    if (weights_.mapping) weights_.mapping->outlive();
  }
  std::optional<HostWeights> host_weights() const override {
    HostWeights all = weights_.stored;
    all.copied = weights_.bytes() - all.mapped;
    return all;
  }
  Result<void> alive() const override {
    return weights_.mapping ? weights_.mapping->intact() : Result<void>();
  }
  Result<void> reserve(const PoolSizes& sizes) override;
  int64_t page_bytes() const override {
    return cpu::Pools::page_bytes(config_, kv_format_of(kv_cache_, KvFormat::f32));
  }
  int64_t state_slot_bytes() const override {
    return cpu::Pools::state_floats(config_) * int64_t{sizeof(float)};
  }
  int64_t replay_row_bytes() const override {
    return cpu::Pools::saved_row_floats(config_) * int64_t{sizeof(float)};
  }

  Residual embed(const Batch& batch) override {
    CHECK(batch.rows() <= work_.hidden.rows(), "batch of ", batch.rows(), " rows, reserved ",
          work_.hidden.rows());
    linears_.show_inputs(batch.taps);
    cpu::embed(context_, batch);
    return {.data = work_.hidden.data(), .rows = batch.rows()};
  }
  Residual attention_block(int layer, const Batch& batch, Residual h) override {
    cpu::attention_block(
        context_, {.weights = context_.layer(layer), .kv_layer = config_.kind_index(layer)}, batch);
    return h;
  }
  Residual delta_net_block(int layer, const Batch& batch, Residual h) override {
    cpu::delta_net_block(context_, layer, batch);
    return h;
  }
  Residual moe_block(int layer, const Batch& batch, Residual h) override {
    cpu::moe_block(context_, context_.layer(layer), batch);
    return h;
  }
  Residual dense_mlp_block(int layer, const Batch& batch, Residual h) override {
    cpu::dense_mlp_block(context_, context_.layer(layer), batch);
    return h;
  }
  HeadOutput head(const Batch& batch, Residual) override { return cpu::head(context_, batch); }

  bool drafts() const override { return weights_.mtp.has_value(); }
  void keep_draft_entries(const Batch& batch, Residual) override {
    if (drafts()) cpu::keep_draft_entries(context_, batch);
  }
  DraftOutput draft(const DraftBatch& batch) override {
    CHECK(drafts(), "no layer that drafts is loaded");
    linears_.show_inputs(nullptr);
    return cpu::draft(context_, batch, draft_choice_);
  }
  void set_sampleable(std::span<const uint32_t> bits) override {
    draft_choice_.allowed.assign(bits.begin(), bits.end());
  }

  bool has_vision() const override { return media_.rows.rows() > 0; }
  void embed_patches(const VisionPiece& piece) override {
    linears_.show_inputs(nullptr);
    cpu::embed_patches(context_, piece);
  }
  void project_patches(int block, const VisionPiece& piece) override {
    cpu::project_patches(context_, block, piece);
  }
  void attend_patches(int block, const VisionPiece& piece) override {
    cpu::attend_patches(context_, block, piece);
  }
  void merge_patches(const VisionPiece& piece) override { cpu::merge_patches(context_, piece); }
  bool finite_media(std::span<const int32_t> rows) override {
    return std::ranges::all_of(rows, [&](int32_t row) {
      return all_finite({media_.rows.row(row), static_cast<size_t>(config_.hidden)});
    });
  }

  void move_media(CacheMove move, std::span<const IdPair> rows) override {
    host_.move_media(move, rows, [&](int32_t id) { return media_.rows.row(id); });
  }
  void poison_media(std::span<const int32_t> rows) override {
    for (const int32_t row : rows) std::fill_n(media_.rows.row(row), config_.hidden, kPoison);
  }

  bool calibrates() const override { return true; }
  void read_residual(Residual h, std::span<float> out) override {
    CHECK(static_cast<int64_t>(out.size()) == h.rows * config_.hidden, "residual of ", h.rows);
    for (int64_t r = 0; r < h.rows; ++r)
      std::copy_n(work_.hidden.row(r), config_.hidden, out.begin() + r * config_.hidden);
  }
  void zero_states(std::span<const int32_t> slots) override {
    for_each_id(slots, [&](int32_t slot) { std::ranges::fill(pools_.state(slot), 0.0F); });
  }
  void poison_state(int32_t slot) override { std::ranges::fill(pools_.slot(slot), kPoison); }
  void move_pages(CacheMove move, std::span<const IdPair> pages) override {
    for_each_id(pages, [&](IdPair pair) {
      std::ranges::copy(
          move == CacheMove::load ? host_.page(pair.from) : pools_.page(pair.from),
          (move == CacheMove::store ? host_.page(pair.to) : pools_.page(pair.to)).begin());
    });
  }
  void move_states(CacheMove move, std::span<const IdPair> slots) override {
    const auto here = [&](int32_t id) { return std::as_writable_bytes(pools_.slot(id)); };
    for_each_id(slots, [&](IdPair pair) {
      std::ranges::copy(move == CacheMove::load ? host_.state(pair.from) : here(pair.from),
                        (move == CacheMove::store ? host_.state(pair.to) : here(pair.to)).begin());
    });
  }
  std::span<std::byte> host_page(int32_t host_page) override { return host_.page(host_page); }
  std::span<std::byte> host_state(int32_t host_slot) override {
    return host_.state(host_slot).first(static_cast<size_t>(state_slot_bytes()));
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override {
    return std::ranges::all_of(pages, [&](int32_t id) { return pools_.finite_page(id); }) &&
           std::ranges::all_of(slots, [&](int32_t id) { return all_finite(pools_.state(id)); });
  }
  /// All bits set are NaN in every format.
  void poison_page(int32_t page) override { std::ranges::fill(pools_.page(page), std::byte{0xFF}); }

 private:
  /// Calls `run` with each of `ids`, on all threads.
  template <typename Id, typename Run>
  void for_each_id(std::span<const Id> ids, const Run& run) {
    pool_.parallel_for(ids.size(), 1, [&](size_t begin, size_t end) {
      for (const Id& id : ids.subspan(begin, end - begin)) run(id);
    });
  }

  static constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

  ModelConfig config_;
  const cpu::KernelTable& kernels_;
  Activations activations_;
  KvCache kv_cache_;
  bool has_kv_scales_;
  ThreadPool pool_;
  cpu::LinearRunner linears_;
  RopeTable rope_;
  cpu::CpuWeights weights_;
  cpu::Pools pools_;
  HostPools host_;
  cpu::Workspace work_;
  cpu::Routing routing_;
  std::vector<cpu::LinearCall> calls_;
  cpu::VisionMemory media_;
  cpu::DraftChoice draft_choice_;
  Context context_{.config = config_,
                   .kernels = kernels_,
                   .weights = weights_,
                   .rope = rope_,
                   .pool = pool_,
                   .linears = linears_,
                   .pools = pools_,
                   .work = work_,
                   .routing = routing_,
                   .calls = calls_,
                   .media = media_};
};

Result<void> CpuBackend::reserve(const PoolSizes& sizes) try {
  pools_ = cpu::Pools(config_, sizes, kv_format_of(kv_cache_, KvFormat::f32));
  host_ = HostPools(sizes, {.page = page_bytes(),
                            .state = state_slot_bytes(),
                            .replay_row = replay_row_bytes(),
                            .media_row = int64_t{config_.hidden} * int64_t{sizeof(float)}});
  work_ = cpu::Workspace(config_, cpu::workspace_rows(sizes));
  const size_t calls = cpu::calls_most(config_);
  if (config_.moe) {
    routing_.reserve(*config_.moe, sizes.rows_max);
    calls_.reserve(calls);
  }
  linears_.reserve(calls, cpu::block_input_floats(config_, sizes.rows_max));
  if (config_.vision) media_ = cpu::VisionMemory(*config_.vision, sizes);
  return {};
} catch (const std::bad_alloc&) {
  return make_error(
      ErrorCode::no_memory,
      {.what = concat("reserving ", sizes.pages, " KV pages of ", page_bytes(), " bytes, ",
                      sizes.state_slots, " state slots of ", state_slot_bytes(),
                      " bytes and a workspace for ", sizes.rows_max, " rows"),
       .advice = "use a shorter context or fewer sequences"});
}

std::optional<ReservedBytes> CpuBackend::reserved_bytes() const {
  ReservedBytes bytes = {
      .weights = weights_.bytes(),
      .tables = cpu::table_bytes(rope_),
      .pages = pools_.all_pages_bytes(),
      .states = pools_.all_slots_bytes(),
      .workspace = work_.bytes + linears_.bytes() + routing_.bytes() +
                   static_cast<int64_t>(calls_.capacity() * sizeof(cpu::LinearCall)),
      .media = media_.bytes};
  bytes.mapped = bytes.total();
  return bytes;
}

/// Shapes for which a block keeps lists on the stack.
Result<void> refuse_oversized(const ModelConfig& config) {
  const auto at_most = [](std::string_view what, int limit, int found) -> Result<void> {
    if (found <= limit) return {};
    return make_error(
        ErrorCode::unsupported,
        {.what = what, .expected = concat("at most ", limit), .found = concat(found)});
  };
  if (config.moe) TRY(at_most("experts per token", cpu::kExpertsPerTokenMax, config.moe->top_k));
  if (config.count(LayerKind::delta_net) > 0)
    TRY(at_most("convolution taps", cpu::kConvTapsMax, config.delta_net.conv_kernel));
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const Weights& weights, const ModelConfig& config,
                                                  const BackendOptions& options) {
  const cpu::KernelTable* kernels = TRY(cpu::select_kernels(options.isa));
  TRY(refuse_oversized(config));
  TRY(check_kv_head_dim(kv_format_of(options.kv_cache, KvFormat::f32), config));
  auto backend = std::make_unique<CpuBackend>(config, *kernels, options);
  TRY(backend->load(weights, options));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace nibble
