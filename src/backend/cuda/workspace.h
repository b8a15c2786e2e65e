// Device memory of one pass between the blocks and inside them: one buffer, reserved once and cut
// by one function. Without a buffer the same function only counts, so a plan and the server cannot
// differ, and it needs no card.
#pragma once

#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/runtime/device_slice.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble::cuda {

inline constexpr int32_t kRowBlock = 64;      // rows of one launch of the head
inline constexpr int32_t kMoeRowBlock = 256;  // of the experts, which each launch reads once

/// Integers of Workspace::choices: per choice an expert, a weight and an assignment, two lists of
/// experts, three counts, a row's announced experts, and 16-byte items at the end.
constexpr int64_t choice_ints(int64_t row_block, int64_t top_k, int64_t experts) {
  return (3 * row_block * top_k + 2 * experts + 4 + top_k + 3) / 4 * 4 + 4 * row_block * top_k;
}

/// WorkspaceNeeds has the facts that decide the size of a workspace.
struct WorkspaceNeeds {
  PoolSizes sizes;
  Activations activations = Activations::bf16;
  bool prompts = false;    // prompts have kernels of their own
  int32_t splits_max = 1;  // KV splits of attention
};
/// True if the prompt kernels support the shapes of a model; else all rows are computed as
/// generated ones are.
bool prompts_supported(const ModelConfig& config);
/// Returns the most sequences of a pass: each writes a state slot of its own.
int64_t sequences_most(const ModelConfig& config, const PoolSizes& sizes);
/// Returns the bytes of the rotary tables, which lie beside weights and workspace.
int64_t table_bytes(const ModelConfig& config);
/// Returns the needs of a server.
WorkspaceNeeds workspace_needs(const ModelConfig& config, const PoolSizes& sizes,
                               Activations activations);

/// PromptMlpMemory is the memory of the feed-forward of prompts, with A = rows * top_k assignments.
struct PromptMlpMemory {
  DeviceSlice act;  // BF16 [A][act_stride], then [rows][act_stride] of the shared expert
  // These are slices of Workspace::shared.
  DeviceSlice router;         // F32 [rows][experts | shared gate]
  DeviceSlice chosen;         // I32 [A]
  DeviceSlice chosen_weight;  // F32 [A]
  DeviceSlice token;          // I32 [A]
  DeviceSlice position;       // I32 [A]
  DeviceSlice scratch;
  DeviceSlice tiles;       // ExpertTile
  DeviceSlice tile_count;  // I32 [1]
  DeviceSlice y;           // BF16 [A][hidden], then [rows][hidden]
};

/// PromptMemory has the lists of a PromptPlan, and the memory of the feed-forward.
struct PromptMemory {
  DeviceSlice chunks, sequences, runs;  // of the delta nets
  DeviceSlice tiles;                    // of attention
  PromptMlpMemory mlp;
};

/// Sizes of what a TokenChooser keeps.
struct ChoiceSizes {
  int64_t rows = 0;           // logit rows of a pass; 0: tokens are chosen on the host
  int64_t tables = 0;         // sequences whose tokens are counted
  int64_t counts_stride = 0;  // entries of a table
};
ChoiceSizes choice_sizes(const ModelConfig& config, const PoolSizes& sizes);

/// Memory of a TokenChooser (ops/head/choose_token.h).
struct ChoiceMemory {
  DeviceSlice state;       // of kRowBlock rows
  DeviceSlice rows;        // ChoiceRow [rows]
  DeviceSlice biases;      // LogitBias
  DeviceSlice masks;       // U32 [rows][choice_mask_words(vocab)]
  DeviceSlice sampleable;  // U32 [choice_mask_words(vocab)]
  DeviceSlice counts;      // U16 [tables][counts_stride]
  DeviceSlice counted;     // CountedToken
};

/// Memory of the entries of a layer that drafts, for all rows of a pass. Each lies where the one
/// before it is read no more.
struct EntryMemory {
  int64_t joined_stride = 0;
  DeviceSlice joined;  // BF16 [rows][joined_stride]
  DeviceSlice x;       // BF16 [rows][x_stride], the normed input of keys and values
};

/// Memory of a round of drafts, for kRowBlock sequences (ops/draft/draft.h).
struct DraftMemory {
  DeviceSlice asked;   // I32 [2][row block]: drafts wanted, position of the newest token
  DeviceSlice done;    // I32
  DeviceSlice out;     // I32 [row block][kDraftsMost]
  DeviceSlice best;    // U64
  DeviceSlice before;  // F32 [row block][hidden]
};

/// Row strides of BF16 inputs of linears are padded_columns(), times `parts`; the padding stays
/// zero. What is needed at different times lies in the same memory.
struct Workspace {
  /// Cuts all slices from the front of `base`, which is zeroed and 256-byte aligned; without one
  /// only `bytes` and the strides mean anything.
  static Workspace cut(const ModelConfig& config, const WorkspaceNeeds& needs, std::byte* base);

  int64_t bytes = 0;  // of all
  /// A row of x, mixed and act has so many parts: kF32Parts with activations f32.
  int32_t parts = 1;

  int64_t x_stride = 0;      // of x
  int64_t mixed_stride = 0;  // of mixed
  int64_t act_stride = 0;    // of act, in prompts too
  int64_t gate_stride = 0;   // of gates and router

  DeviceSlice h;       // F32 [rows][hidden], the residual stream
  DeviceSlice x;       // BF16 [rows], the normed input of a block
  DeviceSlice mixed;   // BF16 [rows], what o_proj and out_proj read
  DeviceSlice first;   // F32 [rows]: q with gate, or raw qkv
  DeviceSlice third;   // F32 [rows]: k and v, or z
  DeviceSlice gates;   // F32 [rows][a | b]
  DeviceSlice y;       // F32 [rows][hidden], the output of a prompt's mixer or dense MLP: `first`
  DeviceSlice hidden;  // F32 [rows][hidden], after the final norm: `third`

  DeviceSlice router;    // F32 [MoE row block][experts | shared gate]
  DeviceSlice act;       // BF16 [MoE row block * (top_k + 1)], dense: [rows]
  DeviceSlice expert_y;  // F32 [MoE row block * (top_k + 1)][hidden]
  DeviceSlice choices;   // I32, as `struct Routing` (ops/route/route.h)
  DeviceSlice flag;      // I32 [1]
  DeviceSlice rounded;   // BF16, inputs as the checkpoint declares them (declared.h), or nothing
  DeviceSlice ahead;     // codes of x that a norm made for the products after it, or nothing
  DeviceSlice groups;    // ExpertGroups, with declared activations of experts, or nothing
  DeviceSlice ordered;   // F32 [MoE row block * top_k][hidden], likewise: rows in order of experts

  // With activations f32, else nothing (f32_products.h); places are assignments and shared rows.
  DeviceSlice spread;   // BF16 [places][x_stride], the inputs of experts
  DeviceSlice gate_up;  // F32 [2][places][act columns]
  DeviceSlice rest;     // F32 [places][hidden or act columns], zero between products

  DeviceSlice batch;    // I32, a DeviceBatch
  ChoiceMemory choice;  // nothing for a vocabulary beyond kChoiceVocabMax
  PromptMemory prompt;  // nothing without prompt kernels
  EntryMemory entry;    // nothing without a layer that drafts
  DraftMemory draft;    // likewise

  DeviceSlice shared;       // of one block of the model after another; from here on slices of it:
  DeviceSlice partial;      // partial results of attention
  DeviceSlice convolved;    // F32 [rows], qkv of a delta net
  DeviceSlice replayed;     // F32 [sequences][replay rows][convolved qkv | a | b]
  DeviceSlice logits;       // F32 [row block][vocab]
  DeviceSlice hidden_rows;  // F32 [row block][hidden]
};

DeltaShape delta_shape(const ModelConfig& config);

}  // namespace nibble::cuda
