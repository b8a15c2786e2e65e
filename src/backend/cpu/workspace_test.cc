// The workspace of a pass is the sum of what its blocks write, counted here from the shapes.
#include "backend/cpu/workspace.h"

#include <gtest/gtest.h>

#include "testing/golden_checks.h"

namespace nibble {
namespace {

using Shapes = std::vector<std::pair<int64_t, int64_t>>;  // rows, columns

void add_attention(const AttentionConfig& a, int64_t rows, Shapes& shapes) {
  const int64_t queries = int64_t{a.q_heads} * a.head_dim;
  const int64_t keys = int64_t{a.kv_heads} * a.head_dim;
  const int64_t pairs = a.rope.rotary_dims / 2;
  for (const int64_t columns :
       {pairs, pairs, a.output_gate ? 2 * queries : queries, keys, keys, queries})
    shapes.emplace_back(rows, columns);
}

/// The rows of the pass come first, then those that are replayed, then the state that drafts run
/// on.
void add_delta_net(const DeltaNetConfig& d, int64_t rows, int64_t replay, Shapes& shapes) {
  const int64_t values = int64_t{d.v_heads} * d.v_dim;
  const int64_t mixed = 2 * int64_t{d.k_heads} * d.k_dim + values;
  const int64_t heads = d.v_heads;
  for (const int64_t columns : {mixed, mixed, values, heads, heads, values})
    shapes.emplace_back(rows, columns);
  for (const int64_t columns : {mixed, mixed, heads, heads, values})
    shapes.emplace_back(replay, columns);
  if (replay > 0) shapes.emplace_back(heads, int64_t{d.k_dim} * d.v_dim);
}

void add_mlp(const ModelConfig& config, int64_t rows, Shapes& shapes) {
  int64_t width = config.dense_width;
  if (config.moe) {
    const MoeConfig& m = *config.moe;
    width = m.shared_width;
    for (const int64_t columns : {m.experts + 1, m.experts, config.hidden})
      shapes.emplace_back(rows, columns);
    for (const int64_t columns :
         {config.hidden, m.expert_width, m.expert_width, m.expert_width, config.hidden})
      shapes.emplace_back(rows * m.top_k, columns);
  }
  for (int i = 0; i < 3; ++i) shapes.emplace_back(rows, width);
}

int64_t bytes_of(const ModelConfig& config, const cpu::WorkspaceRows& rows) {
  const int64_t hidden = config.hidden;
  Shapes shapes = {{rows.pass, hidden}, {rows.pass, hidden}, {rows.logits, hidden}};
  if (config.count(LayerKind::attention) > 0) add_attention(config.attention, rows.pass, shapes);
  if (config.count(LayerKind::delta_net) > 0)
    add_delta_net(config.delta_net, rows.pass, rows.replay, shapes);
  add_mlp(config, rows.pass, shapes);
  if (config.draft_layers > 0)
    for (const int64_t columns : {2 * hidden, hidden}) shapes.emplace_back(rows.pass, columns);
  int64_t bytes = 4 * rows.logits * (config.vocab_rows + hidden);
  for (const auto& [count, columns] : shapes) bytes += cpu::Matrix::bytes_of(count, columns);
  return bytes;
}

TEST(CpuWorkspace, IsTheSumOfWhatBlocksWrite) {
  std::vector<std::string> names = golden_names();
  for (const std::string& name : mtp_golden_names()) names.push_back(name);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Golden golden = load_golden(name);
    for (const cpu::WorkspaceRows& rows :
         {cpu::WorkspaceRows{.pass = 1, .logits = 1}, cpu::WorkspaceRows{.pass = 200, .logits = 7},
          cpu::WorkspaceRows{.pass = 64, .logits = 64, .replay = 5}}) {
      EXPECT_EQ(cpu::Workspace::bytes_of(golden.config, rows), bytes_of(golden.config, rows));
      EXPECT_EQ(cpu::Workspace(golden.config, rows).bytes, bytes_of(golden.config, rows));
    }
  }
}

/// Rows are filled up to 16 columns, and never a whole number of pages long.
TEST(CpuWorkspace, RowsArePaddedAndDoNotMeetInCaches) {
  for (const auto& [columns, stride] : Shapes{
           {1, 16}, {16, 16}, {17, 32}, {1008, 1008}, {1009, 1040}, {1024, 1040}, {2048, 2064}}) {
    EXPECT_EQ(cpu::Matrix(2, columns).stride(), stride) << columns;
    EXPECT_EQ(cpu::Matrix::bytes_of(3, columns), 3 * 4 * stride) << columns;
  }
}

}  // namespace
}  // namespace nibble
