// The order of the launches.
#include "backend/cuda/ops/delta_net/delta_chunk_parts.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {

void delta_chunk_prepare(const Launcher& launcher) {
  prepare_delta_within(launcher);
  prepare_delta_along(launcher);
}

void delta_prefill(const DeltaPrefill& prefill, const Launcher& launcher) {
  const Launcher in_order = launcher.in_order();
  log_launch(launcher,
             select_delta_chunk(prefill.shape, prefill.state.format, DeltaRuns::one, launcher.card),
             {});
  for (const DeltaGroup& group : prefill.groups) {
    DeviceCarver workspace(static_cast<std::byte*>(prefill.workspace));
    DeltaArgs args{.in = prefill,
                   .group = group,
                   .work = DeltaWorkspace::carve(prefill.shape, group.chunk_count, workspace)};
    args.in.chunks += group.chunk_begin;
    args.in.runs += group.run_begin;
    launch_delta_inputs(args, in_order);
    launch_delta_within(args, in_order);
    launch_delta_along(args, in_order);
    launch_delta_outputs(args, in_order);
  }
  // After the last group: a sequence's first chunk needs what its slot had before.
  launch_delta_keep(prefill, in_order);
}

}  // namespace nibble::cuda
