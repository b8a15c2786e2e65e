// The conditions under which each kernel of attention runs.
#include "backend/cuda/ops/attention/attention_select.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/ptx/tile_bytes.h"
#include "base/concat.h"

namespace nibble::cuda {
namespace {

constexpr int32_t kFlashBarrierBytes = 64;  // barriers of the wgmma kernel

/// Returns the shared memory of a block of flash_prefill.cu, which has a tile of queries for each
/// head and keys and values of each stage.
int32_t flash_bytes(int32_t head_dim, int32_t heads, int32_t stages, FlashPlan::Matrix matrix) {
  return (heads + 2 * stages) * tile_bytes(head_dim) +
         (matrix == FlashPlan::Matrix::wgmma ? kFlashBarrierBytes : 0);
}

}  // namespace

AttendPlan select_attend(const AttentionArgs& args, const Architecture& card) {
  AttendPlan plan{.format = args.kv.format};
  if (plan.format == KvFormat::fp8)
    plan.conversion =
        card.converts_fp8() ? AttendPlan::Conversion::hardware : AttendPlan::Conversion::software;
  if (kv_traits(plan.format).keys.element_bits == 4)
    plan.conversion = AttendPlan::Conversion::software;
  plan.compiled_dim = args.head_dim <= 64 ? 64 : args.head_dim <= 128 ? 128 : 256;
  plan.fit = plan.compiled_dim == args.head_dim ? AttendPlan::Fit::exact : AttendPlan::Fit::padded;
  const int32_t group = args.q_heads / args.kv_heads;
  plan.passes = (group + kAttendHeads - 1) / kAttendHeads;
  plan.store =
      args.batch.extent().single_rows() ? AttendPlan::Store::by_block : AttendPlan::Store::before;
  plan.launches = (args.batch.rows + kAttendRowsMax - 1) / kAttendRowsMax;
  plan.row_splits = int64_t{args.splits_max} * args.kv_heads * plan.passes;
  plan.blocks_max = kAttendSmBlocks * card.multiprocessors;
  return plan;
}

int64_t attend_token_bytes(const AttentionArgs& args) {
  return args.kv_heads * kv_token_bytes(args.kv.format, args.head_dim);
}

FlashPlan select_flash(const FlashPrefill& flash, const Architecture& card) {
  const int32_t group = flash.shape.q_heads / flash.shape.kv_heads;
  FlashPlan plan{.format = flash.kv.format, .head_dim = flash.shape.head_dim};
  const auto use = [&](FlashPlan::Matrix matrix, int32_t heads, int32_t stages) {
    plan.matrix = matrix;
    plan.heads = heads;
    plan.stages = stages;
    plan.shared_bytes = flash_bytes(plan.head_dim, heads, stages, matrix);
    return group % heads == 0 && plan.shared_bytes <= card.shared_bytes;
  };
  if (card.has_wgmma() && plan.head_dim == 256 && use(FlashPlan::Matrix::wgmma, 2, 2)) return plan;
  if (use(FlashPlan::Matrix::mma_sync, 2, 2) || use(FlashPlan::Matrix::mma_sync, 1, 2)) return plan;
  use(FlashPlan::Matrix::mma_sync, 1, 1);
  return plan;
}

std::string AttendPlan::text() const {
  constexpr std::string_view kConversions[] = {"", ", converted in hardware",
                                               ", converted in software"};
  std::string out = concat("mma.sync, pages in ", kv_traits(format).name,
                           kConversions[static_cast<int>(conversion)], ", heads of ", compiled_dim,
                           fit == Fit::padded ? " and fewer" : "", ", ", passes,
                           passes == 1 ? " pass" : " passes", " over the keys");
  if (launches > 1) out += concat(", ", launches, " launches");
  return out + (store == Store::before ? ", tokens stored first" : "");
}

std::string FlashPlan::text() const {
  return concat(matrix == Matrix::wgmma ? "wgmma" : "mma.sync", ", pages in ",
                kv_traits(format).name, ", heads of ", head_dim, ", ", heads,
                heads == 1 ? " head" : " heads", " a block, ", stages,
                stages == 1 ? " stage, " : " stages, ", shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
