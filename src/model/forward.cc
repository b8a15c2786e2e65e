// The walk over the layers.
#include "model/forward.h"

#include "model/kv_codec.h"
#include "tensor/activation_codec.h"

namespace nibble {

std::string_view activations_name(Activations mode) {
  switch (mode) {
    case Activations::automatic:
      return "auto";
    case Activations::bf16:
      return "bf16";
    case Activations::declared:
      return "declared";
    case Activations::f32:
      return "f32";
    case Activations::int8:
      return "int8";
  }
  CHECK(false, "activation mode ", static_cast<int>(mode));
}

std::string activations_words(Activations mode, InputScales scales) {
  const bool plain = mode != Activations::declared || scales == InputScales::amax;
  return concat(activations_name(mode), plain ? "" : " with ",
                plain ? "" : input_scales_name(scales));
}

std::string_view kv_cache_name(KvCache kind) {
  // `automatic` is F32 here, which no option names.
  const std::string_view option = kv_traits(kv_format_of(kind, KvFormat::f32)).option;
  return option.empty() ? "auto" : option;
}

std::string_view state_cache_name(StateCache kind) {
  return kind == StateCache::bf16 ? "bf16" : "f32";
}

Result<void> Backend::sleep() {
  return make_error(ErrorCode::unsupported, {.what = concat("sleep of the backend ", name()),
                                             .found = "no device memory to give back"});
}
Result<void> Backend::wake() { return {}; }

HeadOutput BlockWalk::end_head() { CHECK(false, "no head was begun"); }
void BlockWalk::read_residual(Residual, std::span<float>) {
  CHECK(false, "this backend does not show its residual stream");
}

DraftOutput BlockWalk::draft(const DraftBatch&) {
  CHECK(false, "this backend has no layer that drafts");
}

void VisionTower::embed_patches(const VisionPiece&) { CHECK(false, "no vision tower is loaded"); }
void VisionTower::project_patches(int, const VisionPiece&) {
  CHECK(false, "no vision tower is loaded");
}
void VisionTower::attend_patches(int, const VisionPiece&) {
  CHECK(false, "no vision tower is loaded");
}
void VisionTower::merge_patches(const VisionPiece&) { CHECK(false, "no vision tower is loaded"); }
void VisionTower::poison_media(std::span<const int32_t>) {
  CHECK(false, "no vision tower is loaded");
}
void VisionTower::move_media(CacheMove, std::span<const IdPair>) {
  CHECK(false, "no vision tower is loaded");
}
bool VisionTower::finite_media(std::span<const int32_t>) {
  CHECK(false, "no vision tower is loaded");
}

Residual run_layers(BlockWalk& backend, const ModelConfig& config, const Batch& batch) {
  Residual h = backend.embed(batch);
  for (int layer = 0; layer < config.layer_count(); ++layer) {
    const bool attends = config.layers[static_cast<size_t>(layer)] == LayerKind::attention;
    h = attends ? backend.attention_block(layer, batch, h)
                : backend.delta_net_block(layer, batch, h);
    h = config.moe ? backend.moe_block(layer, batch, h) : backend.dense_mlp_block(layer, batch, h);
  }
  backend.keep_draft_entries(batch, h);
  return h;
}

HeadOutput forward(BlockWalk& backend, const ModelConfig& config, const Batch& batch) {
  return backend.head(batch, run_layers(backend, config, batch));
}

namespace {

void validate_replay(const BatchSequence& s, const Batch& batch, const PoolSizes& sizes) {
  CHECK(s.replay >= 0 && s.replay <= sizes.replay_rows, "replay of ", s.replay, " rows, ",
        sizes.replay_rows, " can be saved");
  if (s.write == StateWrite::rows) return;
  CHECK(s.row_count <= sizes.replay_rows && s.arithmetic == Arithmetic::generation, "a pass of ",
        s.row_count, " drafted rows, ", sizes.replay_rows, " can be saved");
  for (const StateSnapshot& snapshot : batch.snapshots)
    CHECK(snapshot.row < s.row_begin || snapshot.row >= s.row_begin + s.row_count,
          "snapshot of row ", snapshot.row, ", whose state is not written");
}

}  // namespace

void validate_draft(const DraftBatch& batch, const ModelConfig& config, const PoolSizes& sizes) {
  CHECK(!batch.sequences.empty() && std::ssize(batch.sequences) <= sizes.rows_max, "drafts of ",
        batch.sequences.size(), " sequences");
  int32_t most = batch.sequences.front().count;
  for (const DraftSequence& s : batch.sequences) {
    CHECK(s.count >= 1 && s.count <= most, "drafts of ", s.count, " tokens after ", most);
    most = s.count;
    CHECK(s.kv_begin >= 1, "a draft after ", s.kv_begin, " tokens");
    CHECK(s.page_begin >= 0 && s.page_begin + s.page_count <= std::ssize(batch.pages),
          "page table ", s.page_begin, "+", s.page_count);
    CHECK(int64_t{s.page_count} * kPageTokens >= int64_t{s.kv_begin} + s.count, "pages ",
          s.page_count, " for ", s.kv_begin + s.count, " tokens");
    CHECK(s.state >= 0 && s.state < sizes.state_slots, "state slot ", s.state);
    CHECK(s.replay >= 0 && s.replay <= sizes.replay_rows, "replay of ", s.replay, " rows");
    CHECK(s.token >= 0 && s.token < config.vocab_rows, "token ", s.token);
  }
  for (const int32_t page : batch.pages) CHECK(page >= 0 && page < sizes.pages, "page ", page);
}

void validate_batch(const Batch& batch, const ModelConfig& config, const PoolSizes& sizes) {
  const int rows = batch.rows();
  CHECK(rows > 0 && rows <= sizes.rows_max, "rows ", rows, " of at most ", sizes.rows_max);
  CHECK(batch.positions.size() == 3U * batch.tokens.size(), "positions ", batch.positions.size());
  for (const int32_t token : batch.tokens)
    CHECK(token >= 0 && token < config.vocab_rows, "token ", token);
  CHECK(batch.carried.empty() || batch.carried.size() == batch.tokens.size(), "carried tokens of ",
        batch.carried.size(), " of ", batch.tokens.size(), " rows");
  int next_row = 0;
  for (const auto& s : batch.sequences) {
    CHECK(s.row_begin == next_row && s.row_count > 0, "sequence rows ", s.row_begin);
    next_row += s.row_count;
    CHECK(s.page_begin >= 0 && s.page_begin + s.page_count <= static_cast<int>(batch.pages.size()),
          "page table ", s.page_begin, "+", s.page_count);
    CHECK(int64_t{s.page_count} * kPageTokens >= int64_t{s.kv_begin} + s.row_count, "pages ",
          s.page_count, " for ", s.kv_begin + s.row_count, " tokens");
    CHECK(s.state_in >= 0 && s.state_in < sizes.state_slots, "state slot ", s.state_in);
    CHECK(s.state_out >= 0 && s.state_out < sizes.state_slots, "state slot ", s.state_out);
    validate_replay(s, batch, sizes);
  }
  CHECK(next_row == rows, "sequences cover ", next_row, " of ", rows, " rows");
  for (const int32_t page : batch.pages) CHECK(page >= 0 && page < sizes.pages, "page ", page);
  for (const int32_t row : batch.logit_rows) CHECK(row >= 0 && row < rows, "logit row ", row);
  CHECK(batch.choices.empty() || batch.choices.size() == batch.logit_rows.size(), "choices of ",
        batch.choices.size(), " of ", batch.logit_rows.size(), " logit rows");
  int32_t next_override = 0;
  for (const EmbeddingOverride& media : batch.embeddings) {
    CHECK(media.row >= next_override && media.row < rows, "embedding of row ", media.row);
    CHECK(media.embedding != nullptr || (media.place >= 0 && media.place < sizes.media_rows),
          "media row ", media.place, " of ", sizes.media_rows);
    next_override = media.row + 1;
  }
}

}  // namespace nibble
