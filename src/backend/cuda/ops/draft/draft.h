// The steps of a layer that drafts for which other layers have no kernels (model.md 3.2): its
// inputs, the hidden rows of state slots, and the choice of a draft. The input of the entry of
// token t + 1 is
//   joined = [norm(embedding(token t + 1)) | norm(hidden row of token t)], BF16, 2 hidden numbers.
// An entry whose embedding or hidden row is not finite is made of zeros: nothing but drafts reads
// it. A draft of such a row is none.
//   Oracle: backend/reference/mtp.cc (DraftChecks, src/testing). Bytes moved: a row of the
//   embedding and a hidden row in, a joined row out; logits once. Any number of rows, up to
//   kRowBlock rows of drafts. A row has the same bits alone and in any batch.
#pragma once

#include <cstdint>

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

struct JoinArgs {
  BatchView batch;
  DeviceLinear table;  // [vocabulary][hidden]
  int32_t hidden = 0;
  const float* embedding_norm = nullptr;  // [hidden]
  const float* hidden_norm = nullptr;     // [hidden]
  float eps = 0.0F;
  /// Hidden rows of the tokens before the rows [rows][hidden]; null: those of the pass, and before
  /// the first row of a sequence that of its slot.
  const float* before = nullptr;
  const float* pass = nullptr;  // [rows][hidden], hidden rows of the pass
  HiddenView slots;
  uint16_t* joined = nullptr;  // [rows][joined_stride]
  int64_t joined_stride = 0;
  int32_t packed_from = INT32_MAX;  // rows from here on get their input in packed column order
};
void join_rows(const JoinArgs& args, const Launcher& launcher);

/// Hidden rows of a pass go to the slots that it writes: the last one of a sequence, those with a
/// snapshot, and of drafted rows all. Those that are not finite become zeros. Runs after
/// join_rows(), which reads what is overwritten here.
struct KeepHiddenArgs {
  BatchView batch;
  int32_t hidden = 0;
  const float* pass = nullptr;  // [rows][hidden]
  HiddenView slots;
};
void keep_hidden(const KeepHiddenArgs& args, const Launcher& launcher);

inline constexpr int32_t kDraftsMost = 5;  // of a sequence in one round

/// The rows of a round of drafts, one for each sequence, while its steps follow one another on the
/// device: what a step reads is what the one before wrote.
struct DraftRows {
  int32_t rows = 0;
  int32_t* tokens = nullptr;               // [rows], as BatchView
  int32_t* positions = nullptr;            // [3][rows]
  int32_t* kv_index = nullptr;             // [rows]
  const int32_t* count = nullptr;          // [rows], drafts that are wanted
  const int32_t* next_position = nullptr;  // [rows], of the newest token, on all axes
  int32_t* done = nullptr;                 // [rows], drafts that were made
  int32_t* out = nullptr;                  // [rows][kDraftsMost], -1: none
  uint64_t* best = nullptr;                // [rows], 0 between steps
};

/// Finds the best token of each row among those whose bit is set; of equal ones the first. It makes
/// that the row's next token, moves the row to the next place, and keeps `hidden` for it. A row
/// with a logit that is not finite among them, or after such a one, has no draft: -1. A row that
/// has all drafts becomes padding.
struct TakeDraftArgs {
  DraftRows rows;
  const float* logits = nullptr;         // [rows][vocab]
  int32_t vocab = 0;                     // rows of the head
  const int32_t* tokens = nullptr;       // [vocab], rising: the token of each; null: its number
  const uint32_t* sampleable = nullptr;  // a bit for each token; null: all
  const float* hidden = nullptr;         // [rows][hidden_width], of the layer
  float* before = nullptr;               // [rows][hidden_width], for the next step
  int32_t hidden_width = 0;
};
void take_draft(const TakeDraftArgs& args, const Launcher& launcher);

/// Sets up a round: copies the hidden rows of `state` and `replay` of each sequence to `before`,
/// and marks that nothing is done.
struct BeginDraftArgs {
  DraftRows rows;
  BatchView batch;  // its state_in and replay
  HiddenView slots;
  float* before = nullptr;  // [rows][hidden]
  int32_t hidden = 0;
};
void begin_draft(const BeginDraftArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
