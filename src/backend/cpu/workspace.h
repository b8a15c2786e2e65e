// Workspace: the activations of one pass, reserved once for rows_max rows. The walk that makes it
// also counts it, so that a plan and the backend cannot differ.
#pragma once

#include <cstdint>

#include "backend/cpu/packed_linear.h"
#include "model/backend.h"
#include "tensor/tensor.h"

namespace nibble::cpu {

/// Rows of floats, each padded with zeros to a multiple of 16 columns or more, so that any of them
/// may be the input of a linear. Writers touch only the first `columns`.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns);
  /// Bytes that such a matrix takes.
  static int64_t bytes_of(int64_t rows, int64_t columns);
  float* row(int64_t index) { return data() + index * stride_; }
  float* data() { return reinterpret_cast<float*>(buffer_.data()); }
  int64_t stride() const { return stride_; }
  int64_t columns() const { return columns_; }
  int64_t rows() const { return rows_; }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t stride_ = 0;
};

/// The most padded input values that one list of products of a block reads, each product's counted
/// for itself.
int64_t block_input_floats(const ModelConfig& config, int64_t rows);

/// The rows that decide the size of a workspace.
struct WorkspaceRows {
  int64_t pass = 0;
  int64_t logits = 0;  // that have a place for their logits
  int64_t replay = 0;
};
WorkspaceRows workspace_rows(const PoolSizes& sizes);

/// Memory of the head for R rows.
struct HeadMemory {
  Matrix in;      // [R, hidden]
  Buffer logits;  // [R, vocab_rows], no padding
  Buffer hidden;  // [R, hidden], no padding
};

struct Workspace {
  Matrix hidden;  // [T, hidden], the residual stream
  Matrix normed;  // [T, hidden], input of the block's linears

  Matrix cos, sin;       // [T, rotary/2]
  Matrix q, k, v;        // [T, heads * head_dim] (q: with its gate)
  Matrix attention_out;  // [T, q_heads * head_dim]

  Matrix qkv_raw, qkv;  // [T, qkv_rows] before and after the convolution
  Matrix z;             // [T, z_rows]
  Matrix alpha, beta;   // [T, v_heads]; first a and b, then the gates made of them
  Matrix delta_out;     // [T, z_rows]
  // The same of the rows that one sequence replays, and the state that its drafts run on.
  Matrix replay_raw, replay_qkv, replay_alpha, replay_beta, replay_out;
  Matrix draft_state;  // [v_heads, k_dim * v_dim]

  Matrix router;                              // [T, experts + 1]: logits, last the shared gate
  Matrix probabilities;                       // [T, experts]
  Matrix gathered;                            // [T * top_k, hidden], rows by expert
  Matrix expert_gate, expert_up, expert_act;  // [T * top_k, width]
  Matrix expert_out;                          // [T * top_k, hidden]
  Matrix gate, up, act;                       // [T, shared or dense width]
  Matrix shared_out;                          // [T, hidden]

  // A model that drafts has these.
  Matrix joined;   // [T, 2 * hidden]: an embedding, then the hidden row of the token before
  Matrix entries;  // [T, hidden]

  HeadMemory head;       // of the rows whose logits are reserved
  HeadMemory more_head;  // beyond `bytes`, while a pass wants the logits of more rows

  int64_t bytes = 0;  // of all above but more_head, by the buffers themselves

  Workspace() = default;
  Workspace(const ModelConfig& config, const WorkspaceRows& rows);
  /// Bytes that such a workspace takes; makes nothing.
  static int64_t bytes_of(const ModelConfig& config, const WorkspaceRows& rows);
  /// Memory for the logits of so many rows.
  HeadMemory& head_of(const ModelConfig& config, int64_t rows);
};

}  // namespace nibble::cpu
