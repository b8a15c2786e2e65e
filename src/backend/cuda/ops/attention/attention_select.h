// The choice of the kernels of attention: a pure function of the shape, the format of the pages,
// the extent of the launch and the card, so that it can be printed and tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/attention/flash_prefill.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

inline constexpr int kAttendHeads = 8;     // query heads of one pass over the keys
inline constexpr int kAttendSmBlocks = 2;  // thread blocks of attend.cu that share an SM

/// The plan of attention of generated rows, which attend.cu and then attend_combine.cu compute.
struct AttendPlan {
  KvFormat format = KvFormat::bf16;
  enum class Conversion : uint8_t { none, hardware, software } conversion = Conversion::none;
  int32_t compiled_dim = 0;  // 64, 128 or 256: the head size, or the next larger one
  enum class Fit : uint8_t { exact, padded } fit = Fit::exact;  // exact: they are equal
  int32_t passes = 0;  // over the keys of a KV head, kAttendHeads query heads at a time
  /// by_block: the block that has a row's own token stores it. before: a kernel stores the tokens
  /// of all rows first, because a row's history ends in tokens of the same pass.
  enum class Store : uint8_t { by_block, before } store = Store::by_block;
  int32_t launches = 0;    // each of kAttendRowsMax rows at most
  int64_t row_splits = 0;  // the most KV splits of a row, over all heads and passes
  int32_t blocks_max = 0;  // thread blocks of a launch

  bool operator==(const AttendPlan&) const = default;
  /// Thread blocks of a launch of `rows` rows.
  int32_t blocks(int32_t rows) const {
    const int64_t splits = row_splits * rows;
    return splits < blocks_max ? static_cast<int32_t>(splits) : blocks_max;
  }
  std::string text() const;
};
AttendPlan select_attend(const AttentionArgs& args, const Architecture& card);
/// Bytes of keys and values that attention reads for one token of a row's history.
int64_t attend_token_bytes(const AttentionArgs& args);

/// The plan of attention of prompt rows, which flash_prefill.cu computes.
struct FlashPlan {
  enum class Matrix : uint8_t { mma_sync, wgmma } matrix = Matrix::mma_sync;
  KvFormat format = KvFormat::bf16;
  int32_t head_dim = 0;
  int32_t heads = 1;   // query heads of a thread block
  int32_t stages = 1;  // pipeline stages that load keys and values
  int32_t shared_bytes = 0;

  bool operator==(const FlashPlan&) const = default;
  std::string text() const;
};
FlashPlan select_flash(const FlashPrefill& flash, const Architecture& card);

}  // namespace nibble::cuda
