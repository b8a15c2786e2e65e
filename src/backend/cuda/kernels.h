// Launches of this backend's kernels: plain pointers and sizes in, work on a stream out. Every
// kernel of generation arithmetic also takes prompt rows; only speed differs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// The parts of a pass, as benchmarks name them.
enum class Step : uint8_t {
  embed,
  project,  // what a mixer reads its input with
  attend,   // norms, rotation, attention
  convolve,
  recur,
  project_out,
  finish,  // add and norm
  router,
  route,
  gate_up,
  down,
  head,
  short_list,
};
inline constexpr int kStepCount = 13;
constexpr uint32_t step_bit(Step step) { return 1U << static_cast<int>(step); }

/// Neighbours that divide a multiprocessor's L1 differently do not run beside each other.
inline constexpr unsigned kCarveoutPercent = 44;

/// How to launch: overlapped kernels start while the one before drains (compute capability 9.0 up).
struct Launcher {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  bool overlap = false;
  int32_t cluster = 1;          // blocks that share their shared memory (compute capability 9.0 up)
  int32_t shared_bytes = 0;     // a limit for one block below the card's own; 0: none
  uint32_t carveout_steps = 0;  // bit s: launches of Step s have kCarveoutPercent of the L1 at
                                // least for shared memory; others as much as the kernel needs
  uint32_t skipped = 0;         // bit s: launches of Step s do nothing (benchmarks)
  Step step = Step::embed;

  constexpr Launcher of(Step which) const {
    Launcher other = *this;
    other.step = which;
    return other;
  }
};

/// A RowDraw on the device.
struct DrawView {
  float scale;  // log2(e) / temperature
  float u;
};

/// A Batch on the device. Rows of generation come first; a row of no sequence is padding.
struct BatchView {
  int32_t rows = 0;
  int32_t sequences = 0;
  const int32_t* tokens = nullptr;     // [rows]
  const int32_t* positions = nullptr;  // [3][positions_stride]
  int32_t positions_stride = 0;
  const int32_t* kv_index = nullptr;       // [rows], index of the row in its sequence; -1: padding
  const int32_t* page_begin = nullptr;     // [rows], into pages
  const int32_t* snapshot_slot = nullptr;  // [rows], -1: none
  const int32_t* row_begin = nullptr;      // [sequences]
  const int32_t* row_count = nullptr;      // [sequences], 0: padding
  const int32_t* state_in = nullptr;       // [sequences]
  const int32_t* state_out = nullptr;      // [sequences]
  const int32_t* pages = nullptr;
  const int32_t* logit_rows = nullptr;
  const DrawView* draws = nullptr;  // [rows], of logit rows; in a recorded pass, of rows
};

inline constexpr int kHiddenMax = 8192;

/// h = embedding rows, x = norm(h).
struct EmbedArgs {
  BatchView batch;
  DeviceLinear table;
  int32_t hidden = 0;
  float* h = nullptr;           // [rows][hidden]
  const float* norm = nullptr;  // [hidden]
  uint16_t* x = nullptr;        // [rows][x_stride]
  int64_t x_stride = 0;
  float eps = 0.0F;
  int32_t packed_from = INT32_MAX;  // rows from here on get x as prompts want it
};
void embed(const EmbedArgs& args, const Launcher& launcher);

/// h += the block's output, x = norm(h): the seam between two blocks. The output is `y`, or the sum
/// over the experts of a row by its choices, plus the shared expert.
struct AddNormArgs {
  int32_t rows = 0;
  int32_t hidden = 0;
  const float* y = nullptr;            // [rows][hidden]; with experts: [rows * top_k][hidden];
                                       // null: h has it already
  int32_t top_k = 0;                   // 0: no experts
  const float* weights = nullptr;      // [rows][top_k]
  const float* shared = nullptr;       // [rows][hidden], or null
  const float* shared_gate = nullptr;  // [rows], logits at stride `gate_stride`
  int64_t gate_stride = 0;
  float* h = nullptr;
  const float* norm = nullptr;
  uint16_t* x = nullptr;
  int64_t x_stride = 0;
  float* hidden_out = nullptr;  // [rows][hidden] F32 norm(h), or null
  float eps = 0.0F;
  int32_t packed_from = INT32_MAX;  // as EmbedArgs
};
void add_norm(const AddNormArgs& args, const Launcher& launcher);

/// add_norm for prompts: the experts' results in BF16, sorted by expert.
struct CombineNormArgs {
  AddNormArgs base;                   // its y and shared unused
  const uint16_t* y = nullptr;        // [rows * top_k][hidden]
  const int32_t* position = nullptr;  // [rows * top_k] -> row of y
  const uint16_t* shared = nullptr;   // [rows][hidden], or null
};
void combine_norm(const CombineNormArgs& args, const Launcher& launcher);

/// The input of rows as what it is the norm of: x = bf16(norm(h)), in columns of 4.
struct NormInput {
  const float* h = nullptr;  // [rows][columns]; null: x is there
  const float* weight = nullptr;
  int32_t columns = 0;
  float eps = 0.0F;
  uint16_t* x = nullptr;  // [rows][x_stride], of several rows: left there for other readers
  int64_t x_stride = 0;
};

/// A causal convolution with SiLU as the end of a product of up to kConvolveRowsMax rows, one of
/// each sequence, and up to kConvolveTapsMax taps. It reads and writes what delta_net's own
/// convolution would.
inline constexpr int kConvolveTapsMax = 4;
inline constexpr int kConvolveRowsMax = 8;
struct ConvolveOutput {
  BatchView batch;
  StateView state;
  const float* weights = nullptr;  // [channels][taps]
  int32_t taps = 0;
  int32_t channels = 0;
};

/// y [rows][N] = x [rows][K] W^T in F32, for up to six matrices that share x.
enum class Finish : uint8_t { store, add, convolve };  // add: y += x W^T
struct LinearOutput {
  DeviceLinear weight;
  float* y = nullptr;
  int64_t y_stride = 0;
  Finish finish = Finish::store;
};
inline constexpr int kLinearsMax = 6;
struct LinearArgs {
  LinearOutput outputs[kLinearsMax];
  int32_t count = 0;
  int32_t rows = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;  // row of x per row of y; null: the same
  NormInput norm;                   // of a single row, if all outputs are held(); of more, if
                                    // norms_rows()
  ConvolveOutput convolve;          // of outputs that are held() and finish so
};
void linear(const LinearArgs& args, const Launcher& launcher);
/// Whether linear() keeps the inputs of this shape in registers (held.cuh): it has 16 slices at
/// most.
bool held(const DeviceLinear& weight);
/// Whether linear() takes several rows from their norm: few tiles of BF16, held().
bool norms_rows(const LinearArgs& args, const Launcher& launcher);

/// The rows of each chosen expert, grouped. `assignments` are row * top_k + rank.
struct Routing {
  int32_t* experts = nullptr;       // [rows][top_k]
  float* weights = nullptr;         // [rows][top_k]
  int32_t* active = nullptr;        // [experts], ids of experts with rows, ascending
  int32_t* begin = nullptr;         // [experts + 1], by place in `active`, into `assignments`
  int32_t* assignments = nullptr;   // [rows * top_k]
  int32_t* active_count = nullptr;  // [1]
  int32_t* active_sum = nullptr;    // [1], over all feed-forwards since reserve()
  int4* items = nullptr;            // [rows * top_k]: 8 or fewer assignments of one expert each:
                                    // (expert, first, count, 0)
  int32_t* item_count = nullptr;    // [1]
  int32_t* announced = nullptr;     // [top_k], of a single row alone: 1 + experts[rank] as soon as
                                    // gate_up knows it, until then 0
};
struct RouteArgs {
  const float* logits = nullptr;  // [rows][stride]
  int64_t stride = 0;
  const int32_t* kv_index = nullptr;  // [rows], -1: padding, takes no expert
  int32_t rows = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  bool renormalize = true;
  Routing routing;
};
inline constexpr int kRouteExpertsMax = 512;
inline constexpr int kRouteTopKMax = 32;
inline constexpr int kRouteRowsMax = 64;
void route(const RouteArgs& args, const Launcher& launcher);

/// One feed-forward: stacks of experts on their assignments, and a shared or dense matrix on all
/// rows. gate_up: act = silu(x gate^T) * (x up^T); down: y = act down^T. Row of act and y: the
/// assignment, or shared_begin + row.
struct ExpertArgs {
  DeviceLinear routed_low, routed_high;  // gate and up; for down both the same
  DeviceLinear shared_low, shared_high;
  Routing routing;
  int32_t rows = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  int64_t shared_begin = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  uint16_t* act = nullptr;
  int64_t act_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  // A single row alone: gate_up makes x and the choice itself, down adds the weighted sum to h.
  NormInput norm;                      // h null: x, routing and y are used
  const float* logits = nullptr;       // [experts]
  const float* shared_gate = nullptr;  // [1], logit
  bool renormalize = true;
  float* h = nullptr;
};
/// Whether experts_gate_up and experts_down can take a single row from its norm to its sum.
bool experts_take_a_row(const ExpertArgs& gate_up, const ExpertArgs& down,
                        const Launcher& launcher);
void experts_gate_up(const ExpertArgs& args, const Launcher& launcher);
void experts_down(const ExpertArgs& args, const Launcher& launcher);

/// Rotary frequencies on the device.
struct RopeView {
  const double* inverse_frequencies = nullptr;  // [pairs]
  const int32_t* axes = nullptr;                // [pairs]
  int32_t pairs = 0;
  float scale = 1.0F;
};

inline constexpr int kHeadDimMax = 256;
inline constexpr int kAttendSplitsMax = 128;  // pieces of one row's history
inline constexpr int kAttendTokensMin = 128;  // of one piece
inline constexpr int kAttendRowsMax = 64;     // of one launch: the size of the partial results
/// Bytes of one partial result: out in F16, padded to 16 bytes, then its maximum and total.
constexpr int64_t attend_partial_bytes(int64_t head_dim) { return (head_dim + 7) / 8 * 16 + 16; }

struct AttentionArgs {
  BatchView batch;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  bool output_gate = false;
  const float* q = nullptr;  // [rows][q_heads * (2) * head_dim]; per head [q | gate]
  const float* k = nullptr;  // [rows][kv_heads * head_dim]
  const float* v = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float eps = 0.0F;
  RopeView rope;
  KvView kv;
  int32_t splits_max = 1;      // enough for the longest row
  uint8_t* partial = nullptr;  // [kAttendRowsMax][q_heads][splits][attend_partial_bytes]
  uint16_t* out = nullptr;     // [rows][out_stride]
  int64_t out_stride = 0;
};
/// The same in BF16, as prompt arithmetic has them; q is not scaled.
struct PromptAttentionArgs {
  AttentionArgs base;     // its q, k, v unused
  uint16_t* q = nullptr;  // [rows][q_heads * (2) * head_dim]
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
};
/// Norm and rotation of q (in place) and k; k and v into their pages.
void attention_prepare(const PromptAttentionArgs& args, const Launcher& launcher);
/// Norm and rotation of q and k; k and v into their pages; softmax over the history, gated.
void attention(const AttentionArgs& args, const Launcher& launcher);
/// The same with nothing rounded but what pages round, `out` in kF32Parts parts; slow.
void attention_f32(const AttentionArgs& args, const Launcher& launcher);
/// Its parts: k and v into their pages, where rows of this pass read those of others; the pieces
/// of histories added.
void attention_store(const AttentionArgs& args, const Launcher& launcher);
void attend_combine(const AttentionArgs& args, int row_begin, int rows, const Launcher& launcher);

inline constexpr int kDeltaDimMax = 128;
inline constexpr int kConvTapsMax = 8;

/// portable: what runs from compute capability 8.0 up, for any shape; the twin that tests force.
/// in_parts: that one, with `out` in kF32Parts parts.
enum class DeltaNetKernels : uint8_t { automatic, portable, in_parts };

struct DeltaNetArgs {
  BatchView batch;
  int32_t k_heads = 0;
  int32_t v_heads = 0;
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  int32_t taps = 0;
  const float* qkv = nullptr;  // [rows][qkv_rows], raw; null: convolved is there
  float* convolved = nullptr;  // [rows][qkv_rows]
  const float* z = nullptr;    // [rows][v_heads * v_dim]
  const float* a = nullptr;    // [rows] at stride gate_stride
  const float* b = nullptr;
  int64_t gate_stride = 0;
  const float* conv = nullptr;  // [qkv_rows][taps]
  const float* decay = nullptr;
  const float* dt_bias = nullptr;
  const float* norm = nullptr;
  float eps = 0.0F;
  StateView state;
  uint16_t* out = nullptr;  // [rows][out_stride]
  int64_t out_stride = 0;
  DeltaNetKernels kernels = DeltaNetKernels::automatic;
  constexpr int32_t qkv_rows() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
};
void delta_net(const DeltaNetArgs& args, const Launcher& launcher);

/// hidden_out[i] = hidden[logit_rows[i]].
void gather_rows(const float* from, const int32_t* rows, int32_t count, int32_t width, float* to,
                 const Launcher& launcher);
/// *found = 1 if a value is infinite or NaN.
void find_not_finite(const float* values, int64_t count, int32_t* found, const Launcher& launcher);
void find_not_finite(const uint16_t* values, int64_t count, int32_t* found,
                     const Launcher& launcher);
void find_not_finite(const uint8_t* e4m3, int64_t count, int32_t* found, const Launcher& launcher);
/// What a file may hold: finite numbers, and for NVFP4 block scales that are not negative.
enum class Soundness : uint8_t { bf16, e4m3, nvfp4_scale };
/// *found = 1 if one of the values is not sound. `bytes` a multiple of 2 for BF16.
void find_not_sound(const uint8_t* values, int64_t bytes, Soundness kind, int32_t* found,
                    const Launcher& launcher);
/// Lays a file's codes of format fp8 or nvfp4 in place (code_words.h). `bytes` a multiple of 8.
void lay_codes(uint8_t* values, int64_t bytes, Format format, const Launcher& launcher);
/// Random normal BF16, random codes, for benchmarks without files.
void fill_random(const DeviceLinear& weight, int64_t matrices, float deviation, uint32_t seed,
                 const Launcher& launcher);

}  // namespace nibble::cuda
