// A recurrent state that is rounded to BF16 is rounded at the same tokens of a prompt whoever
// shares its passes, and again where the sequence goes on.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/random_weights.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

/// Logits of two sequences in two passes, the second of which begins with the states of the first.
std::vector<std::vector<float>> logits_of(const Golden& golden, StateCache state,
                                          const std::vector<std::vector<int32_t>>& ids,
                                          bool together) {
  const auto backend =
      make_cpu_backend(golden.weights, golden.config, {.state = state, .threads = 2}).value();
  TestSession session(*backend, golden.config, {.sequences = static_cast<int>(ids.size())});
  std::vector<std::vector<float>> out(ids.size());
  for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 64}, {64, 20}}) {
    std::vector<TestSession::Feed> feeds;
    for (size_t s = 0; s < ids.size(); ++s)
      feeds.push_back(
          {.sequence = static_cast<int>(s), .tokens = std::span(ids[s]).subspan(begin, count)});
    const auto take = [&](const std::vector<float>& logits, size_t first, size_t sequences) {
      const size_t each = logits.size() / sequences;
      for (size_t s = 0; s < sequences; ++s) {
        const auto from = logits.begin() + static_cast<ptrdiff_t>(s * each);
        out[first + s].insert(out[first + s].end(), from, from + static_cast<ptrdiff_t>(each));
      }
    };
    if (together) take(session.pass(feeds), 0, feeds.size());
    for (size_t s = 0; !together && s < feeds.size(); ++s) take(session.pass({feeds[s]}), s, 1);
  }
  return out;
}

TEST(CpuStateRounding, DoesNotDependOnWhoSharesAPass) {
  int models = 0;
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    const Golden golden = load_golden(name);
    if (golden.config.count(LayerKind::delta_net) == 0) continue;
    ++models;
    std::vector<std::vector<int32_t>> ids(2);
    for (int32_t i = 0; i < 84; ++i) {
      ids[0].push_back((i * 7 + 3) % 50);
      ids[1].push_back((i * 11 + 5) % 50);
    }
    const auto alone = logits_of(golden, StateCache::bf16, ids, false);
    const auto together = logits_of(golden, StateCache::bf16, ids, true);
    const auto wide = logits_of(golden, StateCache::f32, ids, false);
    for (size_t s = 0; s < ids.size(); ++s) {
      EXPECT_TRUE(cpu::same_bits(together[s], alone[s])) << "sequence " << s;
      EXPECT_FALSE(cpu::same_bits(wide[s], alone[s])) << "sequence " << s;
    }
  }
  EXPECT_GT(models, 0);
}

}  // namespace
}  // namespace nibble
