// Implements the Backend interface by the blocks of this folder.
#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <limits>

#include "backend/reference/attention.h"
#include "backend/reference/caches.h"
#include "backend/reference/delta_net.h"
#include "backend/reference/dense_mlp.h"
#include "backend/reference/embed.h"
#include "backend/reference/head.h"
#include "backend/reference/moe.h"
#include "backend/reference/mtp.h"
#include "backend/reference/prompt_rounding.h"
#include "backend/reference/vision.h"
#include "model/host_pools.h"
#include "model/kv_codec.h"

namespace nibble {
namespace {

using reference::Linear;
using reference::RmsNorm;

struct Layer {
  RmsNorm input_norm, post_norm;
  reference::Attention attention;
  reference::DeltaNet delta_net;
  reference::DenseMlp dense_mlp;
  reference::Moe moe;
};

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(const ModelConfig& config, const BackendOptions& options, Activations mode,
                   PromptRounding rounding)
      : config_(config),
        options_{.mode = mode,
                 .rounding = rounding,
                 .input_scales = options.input_scales,
                 .taps = &taps_},
        rounding_(rounding),
        pages_(options.kv_cache, options.kv_scales),
        slots_(options.state) {}
  Result<void> load(const Weights& weights);

  std::string_view name() const override { return "reference"; }
  std::string description() const override;
  std::string arithmetic() override { return description(); }
  Result<void> reserve(const PoolSizes& sizes) override;
  int64_t page_bytes() const override { return reference::KvPages::bytes(config_); }
  int64_t state_slot_bytes() const override { return reference::StateSlots::bytes(config_); }
  int64_t replay_row_bytes() const override {
    return reference::StateSlots::saved_row_bytes(config_);
  }

  Residual embed(const Batch& batch) override;
  Residual attention_block(int layer, const Batch& batch, Residual h) override;
  Residual delta_net_block(int layer, const Batch& batch, Residual h) override;
  Residual moe_block(int layer, const Batch& batch, Residual h) override;
  Residual dense_mlp_block(int layer, const Batch& batch, Residual h) override;
  HeadOutput head(const Batch& batch, Residual h) override;

  bool drafts() const override { return mtp_.has_value(); }
  void keep_draft_entries(const Batch& batch, Residual h) override;
  DraftOutput draft(const DraftBatch& batch) override;
  void set_sampleable(std::span<const uint32_t> bits) override {
    sampleable_.assign(bits.begin(), bits.end());
  }

  bool has_vision() const override { return vision_ && vision_->reserved(); }
  void embed_patches(const VisionPiece& piece) override { vision_->embed(piece); }
  void project_patches(int block, const VisionPiece& piece) override {
    vision_->project(block, piece);
  }
  void attend_patches(int block, const VisionPiece& piece) override {
    vision_->attend(block, piece);
  }
  void merge_patches(const VisionPiece& piece) override { vision_->merge(piece); }
  bool finite_media(std::span<const int32_t> rows) override { return vision_->finite(rows); }

  void move_media(CacheMove move, std::span<const IdPair> rows) override {
    host_.move_media(move, rows, [&](int32_t id) { return vision_->media_row(id); });
  }
  void poison_media(std::span<const int32_t> rows) override { vision_->poison(rows); }

  bool calibrates() const override { return true; }
  void read_residual(Residual, std::span<float> out) override {
    CHECK(out.size() == h_.size(), "residual of ", h_.size());
    std::ranges::copy(h_, out.begin());
  }
  void zero_states(std::span<const int32_t> slots) override {
    for (const int32_t slot : slots) slots_.fill(slot, 0.0F);
  }
  void move_pages(CacheMove move, std::span<const IdPair> pages) override {
    for (const auto [from, to] : pages) {
      if (move == CacheMove::copy) pages_.copy(from, to);
      if (move == CacheMove::store)
        std::ranges::copy(std::as_bytes(pages_.page(from)), host_.page(to).begin());
      if (move == CacheMove::load)
        std::ranges::copy(host_.page(from), std::as_writable_bytes(pages_.page(to)).begin());
    }
  }
  void move_states(CacheMove move, std::span<const IdPair> slots) override {
    for (const auto [from, to] : slots) {
      if (move == CacheMove::copy) slots_.copy(from, to);
      if (move == CacheMove::store) slots_.store(from, host_.state(to));
      if (move == CacheMove::load) slots_.load(host_.state(from), to);
    }
  }
  std::span<std::byte> host_page(int32_t host_page) override { return host_.page(host_page); }
  std::span<std::byte> host_state(int32_t host_slot) override {
    return host_.state(host_slot).first(static_cast<size_t>(state_slot_bytes()));
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override {
    return std::ranges::all_of(pages, [&](int32_t id) { return all_finite(pages_.page(id)); }) &&
           std::ranges::all_of(slots, [&](int32_t id) { return slots_.finite(id); });
  }
  void poison_page(int32_t page) override { pages_.poison(page); }
  void poison_state(int32_t slot) override {
    slots_.fill(slot, std::numeric_limits<float>::quiet_NaN());
  }

 private:
  const Layer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  const reference::Vision* tower() const { return vision_ ? &*vision_ : nullptr; }
  /// h += y.
  Residual add(const std::vector<float>& y);
  reference::MtpHost mtp_host() {
    return {.embedding = embedding_,
            .output = output_,
            .vision = tower(),
            .slots = slots_,
            .pages = pages_};
  }

  ModelConfig config_;
  Taps* taps_ = nullptr;  // of the pass under way
  reference::LinearOptions options_;
  PromptRounding rounding_;
  Linear embedding_, output_;
  RmsNorm final_norm_;
  std::vector<Layer> layers_;
  std::optional<reference::Mtp> mtp_;
  std::optional<reference::Vision> vision_;
  std::vector<uint32_t> sampleable_;  // empty: all
  reference::Mtp::Drafts drafts_;
  reference::KvPages pages_;
  reference::StateSlots slots_;
  HostPools host_;
  std::vector<float> h_;  // [T, hidden]
  reference::HeadRows head_;
};

Result<Layer> load_layer(const Weights& weights, const ModelConfig& config, size_t index,
                         const reference::LinearOptions& options, PromptRounding rounding) {
  const LayerSources& sources = weights.layers()[index];
  Layer layer;
  layer.input_norm = TRY(RmsNorm::load(weights, sources.input_norm, config));
  layer.post_norm = TRY(RmsNorm::load(weights, sources.post_norm, config));
  if (config.layers[index] == LayerKind::attention) {
    layer.attention =
        TRY(reference::Attention::load(weights, sources.attention, config, options, rounding));
  } else {
    layer.delta_net =
        TRY(reference::DeltaNet::load(weights, sources.delta_net, config, options, rounding));
  }
  if (config.moe) {
    layer.moe = TRY(reference::Moe::load(weights, sources.moe, config, options));
  } else {
    layer.dense_mlp = TRY(reference::DenseMlp::load(weights, sources.dense_mlp, options));
  }
  return layer;
}

Result<void> ReferenceBackend::load(const Weights& weights) {
  embedding_ = TRY(Linear::load(weights, weights.embedding(), options_));
  output_ = TRY(Linear::load(weights, weights.head(), options_));
  final_norm_ = TRY(RmsNorm::load(weights, weights.final_norm(), config_));
  for (size_t i = 0; i < config_.layers.size(); ++i)
    layers_.push_back(TRY(load_layer(weights, config_, i, options_, rounding_)));
  if (config_.draft_layers > 0)
    mtp_ = TRY(reference::Mtp::load(weights, config_, options_, rounding_));
  if (config_.vision) vision_ = TRY(reference::Vision::load(weights, *config_.vision, options_));
  return {};
}

std::string ReferenceBackend::description() const {
  return concat("reference: scalar, one thread, F32 caches, ",
                pages_.kind() == KvCache::automatic
                    ? ""
                    : concat("keys and values rounded to ", kv_cache_name(pages_.kind()),
                             pages_.has_scales() ? " by the checkpoint's scales, " : ", "),
                slots_.kind() == StateCache::bf16 ? "state rounded to bf16, " : "", "activations ",
                activations_words(options_.mode, options_.input_scales),
                draft_entry_words(config_));
}

Result<void> ReferenceBackend::reserve(const PoolSizes& sizes) {
  try {
    pages_.reserve(config_, sizes.pages);
    slots_.reserve(config_, sizes);
    if (vision_) vision_->reserve(sizes.vision_rows, sizes.media_rows);
    host_ = HostPools(sizes, {.page = page_bytes(),
                              .state = state_slot_bytes(),
                              .replay_row = replay_row_bytes(),
                              .media_row = int64_t{config_.hidden} * int64_t{sizeof(float)}});
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::no_memory,
                      {.what = "cache pools",
                       .expected = concat(sizes.pages * page_bytes(), " + ",
                                          sizes.state_slots * state_slot_bytes(), " bytes")});
  }
  return {};
}

Residual ReferenceBackend::embed(const Batch& batch) {
  taps_ = batch.taps;
  h_ = reference::embed(embedding_, tower(), batch, config_.hidden);
  return {.data = h_.data(), .rows = batch.rows()};
}

Residual ReferenceBackend::add(const std::vector<float>& y) {
  for (size_t i = 0; i < h_.size(); ++i) h_[i] += y[i];
  return {.data = h_.data(), .rows = static_cast<int64_t>(h_.size()) / config_.hidden};
}

Residual ReferenceBackend::attention_block(int index, const Batch& batch, Residual) {
  const auto x = layer(index).input_norm.apply(h_);
  return add(layer(index).attention.run(batch, config_.kind_index(index), x, pages_));
}

Residual ReferenceBackend::delta_net_block(int index, const Batch& batch, Residual) {
  const auto x = layer(index).input_norm.apply(h_);
  return add(layer(index).delta_net.run(batch, config_.kind_index(index), x, slots_));
}

Residual ReferenceBackend::moe_block(int index, const Batch&, Residual) {
  return add(layer(index).moe.run(layer(index).post_norm.apply(h_)));
}

Residual ReferenceBackend::dense_mlp_block(int index, const Batch&, Residual) {
  return add(layer(index).dense_mlp.run(layer(index).post_norm.apply(h_)));
}

HeadOutput ReferenceBackend::head(const Batch& batch, Residual) {
  head_ = reference::head(final_norm_, output_, batch, h_);
  return {.logits = head_.logits, .hidden = head_.hidden};
}

void ReferenceBackend::keep_draft_entries(const Batch& batch, Residual) {
  if (mtp_) mtp_->keep_pass(mtp_host(), batch, final_norm_.apply(h_));
}

DraftOutput ReferenceBackend::draft(const DraftBatch& batch) {
  CHECK(mtp_.has_value(), "no layer that drafts is loaded");
  taps_ = nullptr;
  drafts_ = mtp_->draft(mtp_host(), batch, sampleable_);
  return {.tokens = drafts_.tokens, .logits = drafts_.logits};
}

Result<std::unique_ptr<Backend>> make_backend(const Weights& weights, const ModelConfig& config,
                                              const BackendOptions& options,
                                              PromptRounding rounding) {
  TRY(check_kv_head_dim(kv_format_of(options.kv_cache, KvFormat::f32), config));
  const bool automatic = options.activations == Activations::automatic;  // no FP4 hardware here
  const Activations mode = automatic ? Activations::f32 : options.activations;
  auto backend = std::make_unique<ReferenceBackend>(config, options, mode, rounding);
  TRY(backend->load(weights));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_reference_backend(const Weights& weights,
                                                        const ModelConfig& config,
                                                        const BackendOptions& options) {
  return make_backend(weights, config, options, PromptRounding::none);
}

Result<std::unique_ptr<Backend>> make_bf16_prompt_reference_backend(const Weights& weights,
                                                                    const ModelConfig& config,
                                                                    const BackendOptions& options) {
  return make_backend(weights, config, options, PromptRounding::bf16);
}

}  // namespace nibble
