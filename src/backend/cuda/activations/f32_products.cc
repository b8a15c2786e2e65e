// Part by part: the largest as BF16 inputs go, the others added to it in their order. Weights of
// F16 and F32 files have parts too.
#include "backend/cuda/activations/f32_products.h"

#include <algorithm>

#include "backend/cuda/ops/linear/split_inputs.h"

namespace nibble::cuda {
namespace {

/// Returns the assignments and rows of the shared expert.
int64_t places_of(const ExpertArgs& args) {
  return args.shared_begin + (args.shared_low.present() ? args.rows : 0);
}

/// Computes gate and up of at most kMoeRowBlock rows as two plain products.
void gate_up_row_block(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  const Workspace& work = context.work;
  const int32_t columns = static_cast<int32_t>(args.act_stride / kF32Parts);
  ExpertArgs product = args;
  product.act = const_cast<uint16_t*>(args.x);
  product.act_stride = args.x_stride;
  product.y_stride = columns;
  if (args.routed_low.present()) {
    product.act = work.spread.as<uint16_t>();
    spread_rows({.assignments = args.rows * args.top_k,
                 .rows = args.shared_low.present() ? args.rows : 0,
                 .share = args.top_k,
                 .from = args.x,
                 .out = product.act,
                 .stride = args.x_stride},
                launcher);
  }
  const auto places = static_cast<int32_t>(places_of(args));
  auto* gate = work.gate_up.as<float>();
  float* up = gate + int64_t{places} * columns;
  product.y = gate;
  product.routed_high = args.routed_low;
  product.shared_high = args.shared_low;
  experts_down_f32(context, product, launcher);
  product.y = up;
  product.routed_low = product.routed_high = args.routed_high;
  product.shared_low = product.shared_high = args.shared_high;
  experts_down_f32(context, product, launcher);
  swiglu({.rows = places,
          .shared_begin = static_cast<int32_t>(args.shared_begin),
          .routed_columns = args.routed_low.rows,
          .shared_columns = args.shared_low.rows,
          .gate = gate,
          .up = up,
          .columns = columns,
          .out = args.act,
          .out_stride = args.act_stride},
         launcher);
}

}  // namespace

bool in_f32(const Context& context) { return context.work.parts > 1; }

void norm_f32(const AddNormArgs& args, const Launcher& launcher) {
  add_norm(args, launcher);
  split_rows({.rows = args.rows,
              .columns = args.hidden,
              .from = args.hidden_out,
              .out = args.x,
              .out_stride = args.x_stride},
             launcher);
}

void finish_embed_f32(const Context& context, const EmbedArgs& args) {
  const Workspace& work = context.work;
  EmbedArgs rest = args;
  rest.h = work.first.as<float>();
  rest.batch.media = nullptr;  // rows of media have no parts
  for (int i = 1; i < kF32Parts; ++i) {
    rest.table = rest_of(args.table, i);
    if (!rest.table.present()) break;
    embed(rest, context.launcher);
    add_and_clear(args.h, rest.h, int64_t{args.batch.rows} * args.hidden, context.launcher);
  }
  norm_f32({.rows = args.batch.rows,
            .hidden = args.hidden,
            .h = args.h,
            .norm = args.norm,
            .x = args.x,
            .x_stride = args.x_stride,
            .hidden_out = work.hidden.as<float>(),
            .eps = args.eps},
           context.launcher);
}

void linear_f32(const LinearArgs& args, const Launcher& launcher) {
  const int64_t part = args.x_stride / kF32Parts;
  linear(args, launcher);
  LinearArgs more = args;
  for (LinearOutput& out : more.outputs) out.finish = Finish::add;
  for (int i = 1; i < kF32Parts; ++i) {
    more.x = args.x + i * part;
    linear(more, launcher);
  }
  LinearArgs one = more;
  one.count = 1;
  for (int o = 0; o < args.count; ++o)
    for (int w = 1; w < kF32Parts; ++w) {
      one.outputs[0] = more.outputs[o];
      one.outputs[0].weight = rest_of(args.outputs[o].weight, w);
      if (!one.outputs[0].weight.present()) break;
      for (int i = 0; i < kF32Parts; ++i) {
        one.x = args.x + i * part;
        linear(one, launcher);
      }
    }
}

void experts_gate_up_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  CHECK(!args.routed_low.present() || args.rows <= kMoeRowBlock, args.rows, " rows of experts");
  ExpertArgs block = args;
  for (int32_t begin = 0; begin < args.rows; begin += kMoeRowBlock) {
    block.rows = std::min(kMoeRowBlock, args.rows - begin);
    block.x = args.x + begin * args.x_stride;
    block.act = args.act + begin * args.act_stride;
    gate_up_row_block(context, block, launcher);
  }
}

void experts_down_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  experts_down(args, launcher);
  ExpertArgs more = args;
  more.y = context.work.rest.as<float>();
  for (int w = 0; w < kF32Parts; ++w) {
    more.routed_low = more.routed_high = rest_of(args.routed_low, w);
    more.shared_low = more.shared_high = rest_of(args.shared_low, w);
    if (!more.routed_low.present() && !more.shared_low.present()) break;
    for (int i = w == 0 ? 1 : 0; i < kF32Parts; ++i) {
      more.act = args.act + i * (args.act_stride / kF32Parts);
      experts_down(more, launcher);
      add_and_clear(args.y, more.y, places_of(args) * args.y_stride, launcher);
    }
  }
}

}  // namespace nibble::cuda
