// Attention of single rows over paged keys and values, on tensor cores (mma.sync, sm_80 up):
// attend_block.cuh is the work of a thread block, attend_combine.cu adds the splits of a row.
// head_dim is at most 256, any number of query heads may share a KV head. Bound: the bytes of keys
// and values; an H200 reaches 87 % (BF16), 68 % (FP8) at 131,072 tokens of context.
#include "backend/cuda/ops/attention/attend_block.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

/// Each block of the grid takes adjacent splits.
template <KvFormat kFormat, int kDim, bool kExact>
__global__ void __launch_bounds__(kAttendThreads, kAttendSmBlocks)
    attend_kernel(const __grid_constant__ AttentionArgs a,
                  const __grid_constant__ AttendLaunch of) {
  __shared__ __align__(16) typename AttendBlock<kFormat, kDim, kExact>::Shared shared;
  touch(a);
  AttendBlock<kFormat, kDim, kExact> block(a, of, shared);
  block.run();
}

using AttendKernel = void (*)(AttentionArgs, AttendLaunch);

AttendKernel kernel_of(const AttendPlan& plan) {
  return with_kv_format(plan.format, [&]<KvFormat kFormat>() {
    return with_value<64, 128, 256>(plan.compiled_dim, [&]<int kDim>() {
      return plan.fit == AttendPlan::Fit::exact ? attend_kernel<kFormat, kDim, true>
                                                : attend_kernel<kFormat, kDim, false>;
    });
  });
}

}  // namespace

void attention(const AttentionArgs& args, const Launcher& launcher) {
  const AttendPlan plan = select_attend(args, launcher.card);
  log_launch(launcher, plan, {.kv_tokens = args.batch.rows * attend_token_bytes(args)});
  const AttendKernel kernel = kernel_of(plan);
  AttendLaunch of{.group = args.q_heads / args.kv_heads,
                  .passes = plan.passes,
                  .fresh = plan.store == AttendPlan::Store::by_block};
  if (!of.fresh) attention_store(args, launcher);
  for (of.row_begin = 0; of.row_begin < args.batch.rows; of.row_begin += kAttendRowsMax) {
    of.rows = min(kAttendRowsMax, args.batch.rows - of.row_begin);
    launch(kernel, launcher, static_cast<unsigned>(plan.blocks(of.rows)), kAttendThreads, 0, args,
           of);
    attend_combine(args, of.row_begin, of.rows, launcher);
  }
}

}  // namespace nibble::cuda
