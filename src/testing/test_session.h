// TestSession: drives a backend as an engine would, but as nastily as allowed: pages in scattered
// order, states that move to another slot with every pass, everything unused full of NaN.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/backend.h"
#include "model/batch.h"

namespace nibble {

struct SessionLimits {
  int sequences = 1;
  int tokens_max = 256;  // of one sequence
  int rows_max = 256;    // of one pass
  int replay_rows = 0;   // drafted rows of one sequence in a pass
  int media_rows = 0;    // the same as in PoolSizes
  int64_t vision_rows = 0;
};

class TestSession {
 public:
  /// Tokens of one sequence for one pass.
  struct Feed {
    int sequence = 0;
    std::span<const int32_t> tokens;
    std::span<const std::array<int32_t, 3>> positions;  // empty: 0, 1, 2, ... of the sequence
    Arithmetic arithmetic = Arithmetic::prompt;
    int snapshot_after = -1;              // index into tokens: keep the state after it
    StateWrite write = StateWrite::rows;  // replayed: drafts; accept() says how many count
    /// The place of each token in the backend's media rows, or -1; empty: all are text.
    std::span<const int32_t> media = {};
  };

  /// Reserves the backend's pools. CHECKs what fails.
  TestSession(Backend& backend, const ModelConfig& config, const SessionLimits& limits);

  /// One forward pass. Logits of every row, [T, vocab_rows], in feed order.
  std::vector<float> pass(const std::vector<Feed>& feeds);
  /// The newest token of a sequence that drafts, and how many are wanted.
  struct Newest {
    int sequence = 0;
    int32_t token = 0;
    int32_t position = -1;  // rotary, on all axes; -1: as many as there are tokens
    int32_t count = 1;
  };
  struct Drafted {
    std::vector<std::vector<int32_t>> tokens;  // of each
    std::vector<float> logits;                 // of the last step, of those that took it
  };
  /// Drafts of a backend that does, in descending order of `count`.
  Drafted draft(const std::vector<Newest>& newest);
  /// Accepts the first `count` drafts of the sequence's last pass.
  void accept(int sequence, int count);
  /// Replaces the hidden row that the slot carries for drafts, which ends a stored state.
  void break_hidden_row(int sequence, std::span<const float> row);
  /// True if all whole pages of the sequence, and its state, are finite.
  bool finite(int sequence);
  int tokens(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  /// Rewinds a sequence to its last snapshot: later tokens are forgotten.
  void restore(int sequence);

 private:
  void add_rows(Batch& batch, const Feed& feed);
  /// Pages of a sequence for `end` tokens; its table goes to the end of `pages`.
  void add_pages(int sequence, int end, std::vector<int32_t>& pages);
  std::array<int32_t, 3> last_position(size_t sequence) const;
  int32_t free_slot();

  Backend& backend_;
  const ModelConfig& config_;
  PoolSizes sizes_;
  std::vector<int> lengths_;                                    // tokens in the cache, per sequence
  std::vector<std::vector<std::array<int32_t, 3>>> positions_;  // of tokens, also rejected ones
  std::vector<int> replays_;                                    // of those, not in the state yet
  std::vector<std::vector<int32_t>> pages_;                     // page tables
  std::vector<int32_t> free_pages_;
  std::vector<int32_t> slots_;         // current state slot, per sequence
  std::vector<int32_t> snapshots_;     // slot of the last snapshot, -1 before one
  std::vector<int> snapshot_lengths_;  // tokens it covers
  std::vector<int32_t> free_slots_;
};

}  // namespace nibble
