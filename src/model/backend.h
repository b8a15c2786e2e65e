// Backend: the one seam between the model and the hardware, at the size of a transformer block, so
// that a backend can fuse freely inside it. backend/reference is the truth; all others are tested
// against it. A backend owns weights, caches and workspace; the engine sees ids and byte counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/backend_options.h"
#include "model/batch.h"
#include "model/cache_moves.h"
#include "model/config/config.h"
#include "model/draft.h"
#include "model/kv_format.h"
#include "model/reserved_bytes.h"
#include "model/vision.h"
#include "model/weights/weights.h"
#include "tensor/tensor.h"

namespace nibble {

/// Cache pools, reserved once, never grown.
struct PoolSizes {
  int32_t pages = 0;        // KV pages of kPageTokens tokens, over all attention layers
  int32_t state_slots = 0;  // recurrent + convolution state of one sequence, all delta-net layers
  int32_t rows_max = 0;     // rows of the largest batch
  int32_t host_pages = 0;   // the same in host memory: swapped sequences, the prefix cache's second
  int32_t host_slots = 0;   // tier
  // Rows of a pass with StateWrite::replayed, whose inputs a slot has room for; 0: no such passes.
  int32_t replay_rows = 0;
  int32_t sequences_max = 0;  // sequences of one pass; 0: as many as there are state slots
  // Rows of a pass whose logits have a place reserved; 0: all. More of them (log-probabilities of
  // prompts) take host memory for as long as they are wanted.
  int32_t logit_rows = 0;
  int32_t media_rows = 0;       // rows of the text model that encoded media may take; 0: none are
  int32_t host_media_rows = 0;  // rows of those that had to go, in host memory
  int64_t vision_rows = 0;      // patches of the tower's workspace, a multiple of kVisionPage
};

/// The residual stream of one pass, [T, hidden]; memory of the backend, valid until the next embed.
struct Residual {
  void* data = nullptr;
  int64_t rows = 0;
};

/// Host-visible results of `head`, valid until the next embed; those of `end_head`, until the next
/// head is begun.
struct HeadOutput {
  std::span<const float> logits;  // [R, vocab_rows], R = logit_rows
  std::span<const float> hidden;  // [R, hidden], after the final norm
  /// [R], of a batch with `choices`, from a backend that chooses tokens itself; the other two are
  /// empty then.
  std::span<const ChosenToken> chosen;
};

/// The memory of the device a backend computes on, in bytes.
struct DeviceMemory {
  int64_t card = 0;         // all of it, or of the smaller one that is imitated
  int64_t free = 0;         // free bytes now
  int64_t weights = 0;      // as they are on the device
  int64_t driver = 0;       // taken before anything was allocated: the context, other processes
  int64_t context = 0;      // the part of `driver` that is the context, from a table
  int64_t allocated = 0;    // by this process, weights included
  int64_t allocations = 0;  // number of allocations so far
};

/// First face of a backend: one pass. embed, then for each layer a mixer and a feed-forward block,
/// then head.
class BlockWalk {
 public:
  virtual ~BlockWalk() = default;
  virtual Residual embed(const Batch& batch) = 0;
  virtual Residual attention_block(int layer, const Batch& batch, Residual h) = 0;
  virtual Residual delta_net_block(int layer, const Batch& batch, Residual h) = 0;
  virtual Residual moe_block(int layer, const Batch& batch, Residual h) = 0;
  virtual Residual dense_mlp_block(int layer, const Batch& batch, Residual h) = 0;
  virtual HeadOutput head(const Batch& batch, Residual h) = 0;
  /// Begins what head() does for a batch with choices, without waiting for it; end_head() gives the
  /// output. Between the two the next pass may be begun, as far as its head, with the tokens of
  /// this one (Batch::carried); other calls take effect in their order. False: nothing was done,
  /// and head() is to be called.
  virtual bool begin_head(const Batch& /*batch*/, Residual /*h*/) { return false; }
  /// Waits for the tokens of the head that was begun. After a true begin_head() only.
  virtual HeadOutput end_head();
  /// True if a layer that drafts is loaded. Then every pass keeps its entries, and state slots
  /// carry the hidden row of their last token.
  virtual bool drafts() const { return false; }
  /// Between the last layer of a pass and its head: the entries of all rows go to the pages, hidden
  /// rows to the slots that the pass writes. Rows whose numbers are not finite leave zeros there,
  /// since nothing but drafts reads them.
  virtual void keep_draft_entries(const Batch& /*batch*/, Residual /*h*/) {}
  /// Drafts tokens, each made of the one before, and of nothing that is not in pages and slots. It
  /// writes entries from place kv_begin on, which the next pass over these places replaces.
  virtual DraftOutput draft(const DraftBatch& batch);
  /// The tokens that may be chosen, listed or drafted: one bit per vocabulary row, token t at bit
  /// t % 32 of word t / 32. After reserve(); all until then.
  virtual void set_sampleable(std::span<const uint32_t> /*bits*/) {}
  /// True if the backend heeds Batch::taps and can read_residual: calibration needs both.
  virtual bool calibrates() const { return false; }
  /// The residual stream in F32, [T, hidden].
  virtual void read_residual(Residual h, std::span<float> out);
};

/// The face of a vision tower. VisionWalk calls it, piece by piece and in the order that each
/// needs; whatever the pieces are, the rows have the same bits. Calls take effect in their order
/// and that of the passes, and may still be under way when they return.
class VisionTower {
 public:
  virtual ~VisionTower() = default;
  /// True if a tower is loaded, and after reserve() there is room for its rows.
  virtual bool has_vision() const { return false; }
  /// Patches of one piece at most.
  virtual int64_t vision_piece_rows() const { return kVisionPieceRows; }
  /// x = W levels + b + interpolated positions, for the patches of a piece.
  virtual void embed_patches(const VisionPiece& piece);
  /// q, k, v = W norm1(x) + b, q and k turned by row and column.
  virtual void project_patches(int block, const VisionPiece& piece);
  /// x += proj(attention over the frame's patches); x += fc2(gelu(fc1(norm2(x)))). After all of the
  /// frame's patches were projected.
  virtual void attend_patches(int block, const VisionPiece& piece);
  /// Whole merged rows, to their places in the media rows.
  virtual void merge_patches(const VisionPiece& piece);
  /// True if every number of these media rows is finite. Nothing else may be read by a pass.
  virtual bool finite_media(std::span<const int32_t> rows);
  /// Copies media rows to host memory (store) or back (load), as CacheStore's calls copy pages.
  virtual void move_media(CacheMove move, std::span<const IdPair> rows);
  /// Waits until the pieces so far are computed, so that their time is known.
  virtual void wait_vision() {}
  /// Fills media rows with NaN, so that a stale read is loud. For tests.
  virtual void poison_media(std::span<const int32_t> rows);
};

/// Second face: the bytes of caches. Ids and sizes are the caller's, the layout is the backend's
/// own.
class CacheStore {
 public:
  virtual ~CacheStore() = default;
  virtual int64_t page_bytes() const = 0;
  virtual int64_t state_slot_bytes() const = 0;
  /// Bytes that the saved inputs of one row add to a slot; 0: the backend cannot replay.
  virtual int64_t replay_row_bytes() const { return 0; }

  /// Copies pages, or state slots with their saved inputs, within the device's pool or between it
  /// and the host's. One call for many: it may cost as much as a small copy. The copies of one call
  /// take place in any order: no id is written twice, and none that is written is read
  /// (adjacent_runs() CHECKs it). Calls take effect in their order and that of the passes, and may
  /// still be under way when they return.
  virtual void move_pages(CacheMove move, std::span<const IdPair> pages) = 0;
  virtual void move_states(CacheMove move, std::span<const IdPair> slots) = 0;
  virtual void zero_states(std::span<const int32_t> slots) = 0;
  void zero_state(int32_t slot) { zero_states({&slot, 1}); }
  void copy_state(int32_t from, int32_t to) { move_state(CacheMove::copy, from, to); }
  void store_state(int32_t slot, int32_t host) { move_state(CacheMove::store, slot, host); }
  void load_state(int32_t host, int32_t slot) { move_state(CacheMove::load, host, slot); }
  void copy_page(int32_t from, int32_t to) { move_page(CacheMove::copy, from, to); }
  void store_page(int32_t page, int32_t host) { move_page(CacheMove::store, page, host); }
  void load_page(int32_t host, int32_t page) { move_page(CacheMove::load, host, page); }
  /// The host copies themselves, page_bytes() and state_slot_bytes() long, for the disk tier. Waits
  /// for every copy that was asked for before, so the bytes may be read and written at once.
  virtual std::span<std::byte> host_page(int32_t host_page) = 0;
  virtual std::span<std::byte> host_state(int32_t host_slot) = 0;
  /// True if every number of these pages and of the states of these slots is finite. Nothing else
  /// may be published for reuse. One call for many: a device is waited for once.
  virtual bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) = 0;
  bool finite_page(int32_t page) { return finite({&page, 1}, {}); }
  bool finite_state(int32_t slot) { return finite({}, {&slot, 1}); }
  /// Fills with NaN, so that a stale read is loud. For tests.
  virtual void poison_page(int32_t page) = 0;
  virtual void poison_state(int32_t slot) = 0;

 private:
  void move_page(CacheMove move, int32_t from, int32_t to) {
    const IdPair pair{.from = from, .to = to};
    move_pages(move, {&pair, 1});
  }
  void move_state(CacheMove move, int32_t from, int32_t to) {
    const IdPair pair{.from = from, .to = to};
    move_states(move, {&pair, 1});
  }
};

/// Third face: facts about it, for people and for plans.
class BackendFacts {
 public:
  virtual ~BackendFacts() = default;
  virtual std::string_view name() const = 0;
  /// Instruction set or card, threads, activation precision. One line for people.
  virtual std::string description() const = 0;
  /// A few lines for people, each with its newline: the kernels that run and the bytes they move;
  /// empty where there is one choice only. Before the first pass.
  virtual std::string kernel_table() { return {}; }
  /// Names everything that decides the bits of pages and states: the kernels, and the formats of
  /// weights' inputs, of pages and of states. Where it differs, stored ones are of no use. The same
  /// on equal machines.
  virtual std::string arithmetic() = 0;
  /// Nothing: weights and caches lie in the host's own memory.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }
  /// Nothing from a backend that keeps no account.
  virtual std::optional<HostWeights> host_weights() const { return std::nullopt; }
  /// Bytes that reserve() allocates beside pages and states: on the device, or in host memory
  /// where that is the device. Allocates nothing.
  virtual int64_t workspace_bytes(const PoolSizes& /*sizes*/) const { return 0; }
  /// Bytes that reserve() allocates for media: the tower's workspace, and rows of what it encoded.
  /// 0 without a tower. Allocates nothing.
  virtual int64_t media_bytes(const PoolSizes& /*sizes*/) const { return 0; }
  /// The bytes that it holds now, counted from the buffers themselves. Nothing from a backend that
  /// allocates as it computes and keeps no account.
  virtual std::optional<ReservedBytes> reserved_bytes() const { return std::nullopt; }
  /// An upper bound of what recorded passes and the rounding of allocations add to that.
  virtual int64_t recorded_bytes(const PoolSizes& /*sizes*/) const { return 0; }
  /// Allocations of device memory that this process ever made. Between reserve() and the end only
  /// sleep and wake change it.
  virtual int64_t device_allocations() const { return 0; }
  /// A device that fails while it runs (a trapped kernel, an uncorrectable memory error) ends the
  /// process there, unless this was called before: then the results of a pass mean nothing, and
  /// alive() tells. Nothing but the destructor may be called afterwards.
  virtual void outlive_device() {}
  /// Errors: io, naming the device and its failure.
  virtual Result<void> alive() const { return {}; }
};

class Backend : public BlockWalk, public VisionTower, public CacheStore, public BackendFacts {
 public:
  /// Allocates all pools and workspace. Once, before the first pass. Errors: no_memory, unsupported
  /// (replay_rows on a backend that cannot replay).
  virtual Result<void> reserve(const PoolSizes& sizes) = 0;
  /// Gives the device's memory back: weights go to host memory, caches lose what they hold. Until
  /// wake() nothing else may be called. Errors: unsupported, no_memory.
  virtual Result<void> sleep();
  /// Takes the same memory again; pages and states are zero. Errors: no_memory.
  virtual Result<void> wake();
};

}  // namespace nibble
