// Workspace: the activations of one pass, reserved once for rows_max rows.
#pragma once

#include <cstdint>

#include "backend/cpu/packed_linear.h"
#include "model/backend.h"
#include "tensor/tensor.h"

namespace nibble::cpu {

/// Rows of floats, each padded with zeros to a multiple of 16 columns, so that any of them may be
/// the input of a linear. Writers touch only the first `columns`.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns);
  float* row(int64_t index) { return data() + index * stride_; }
  float* data() { return reinterpret_cast<float*>(buffer_.data()); }
  int64_t stride() const { return stride_; }
  int64_t columns() const { return columns_; }
  int64_t rows() const { return rows_; }

 private:
  Buffer buffer_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t stride_ = 0;
};

/// The most padded input values that one list of products of a block reads, each product's counted
/// for itself.
int64_t block_input_floats(const ModelConfig& config, int64_t rows);

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

  Matrix head_in;  // [R, hidden]
  Buffer logits;   // [R, vocab_rows], no padding
  Buffer head_hidden;

  Workspace() = default;
  Workspace(const ModelConfig& config, int64_t rows, int64_t replay_rows);
};

}  // namespace nibble::cpu
