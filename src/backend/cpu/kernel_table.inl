// The table of one instruction set.

namespace nibble::cpu {
namespace {

constexpr KernelTable make_table() {
  KernelTable table = {.isa = kIsaName,
                       .queries_per_tile = kQueriesPerTile,
                       .nvfp4_slots = {},
                       .linear = linear,
                       .unpack_row = unpack_row,
                       .rms_norm = rms_norm,
                       .gated_norm = gated_norm,
                       .l2_norm = l2_norm,
                       .swiglu = swiglu,
                       .sigmoid_gate = sigmoid_gate,
                       .conv_silu = conv_silu,
                       .add_weighted = add_weighted,
                       .softmax = softmax,
                       .delta_rule = delta_rule,
                       .attention = attention};
  for (int slot = 0; slot < 128; ++slot)
    table.nvfp4_slots[slot] =
        static_cast<uint8_t>(nvfp4_slot_column(slot) << 4 | nvfp4_slot_lane(slot));
  return table;
}

constexpr KernelTable kTable = make_table();

}  // namespace
}  // namespace nibble::cpu
