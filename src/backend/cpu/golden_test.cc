// The CPU backend on every golden model: against transformers on every instruction set, and bit for
// bit against itself for every way of cutting and mixing the work.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/random_weights.h"
#include "backend/reference/reference_backend.h"
#include "testing/cache_checks.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const cpu::KernelTable* table : cpu::usable_kernels()) names.emplace_back(table->isa);
  return names;
}

std::vector<std::string> all_golden_names() {
  std::vector<std::string> names = golden_names();
  for (const std::string& name : quantized_golden_names()) names.push_back(name);
  return names;
}

/// Tests run on the fastest instruction set; CpuBits.InstructionSets says that the others give the
/// same bits.
class CpuGolden : public testing::TestWithParam<std::string> {
 protected:
  GoldenChecks checks_{GetParam(), make_cpu_backend, {.threads = 2}, 3e-5};
};

TEST_P(CpuGolden, PrefillInOnePiece) {
  checks_.expect_prefill(0);
  checks_.report();
}
TEST_P(CpuGolden, PrefillInPieces) {
  for (const int piece : {1, 7, 64}) checks_.expect_prefill(piece);
}
TEST_P(CpuGolden, MixedBatch) { checks_.expect_mixed_batch(); }
TEST_P(CpuGolden, Snapshots) { checks_.expect_snapshots(); }
TEST_P(CpuGolden, Drafts) { checks_.expect_drafts(); }
TEST_P(CpuGolden, DraftsOnAStateInBf16) {
  GoldenChecks checks(GetParam(), make_cpu_backend, {.state = StateCache::bf16, .threads = 2}, 0.2);
  checks.expect_drafts();
}
TEST_P(CpuGolden, KeysAndValuesOfFewBits) {
  for (const KvCache kind : {KvCache::fp8, KvCache::turboquant_4bit_nc, KvCache::nvfp4}) {
    if (!has_kv_golden(GetParam(), kind)) continue;
    GoldenChecks checks(GetParam(), make_cpu_backend, {.kv_cache = kind, .threads = 2});
    for (const int piece : {0, 7}) checks.expect_prefill_with_kv(kind, piece);
    checks.report();
  }
}
TEST_P(CpuGolden, Greedy) { checks_.expect_greedy(); }

INSTANTIATE_TEST_SUITE_P(Models, CpuGolden, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

class CpuQuantized : public testing::TestWithParam<std::string> {};

TEST_P(CpuQuantized, DeclaredActivations) {
  GoldenChecks checks(GetParam(), make_cpu_backend, {.activations = Activations::declared});
  checks.expect_divergence(GoldenChecks::Distributions::declared);
}
TEST_P(CpuQuantized, PlainActivations) {
  GoldenChecks checks(GetParam(), make_cpu_backend, {.activations = Activations::f32});
  checks.expect_divergence(GoldenChecks::Distributions::weights_only);
}

INSTANTIATE_TEST_SUITE_P(Models, CpuQuantized, testing::ValuesIn(quantized_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

/// Logits of all sequences of a golden model, computed in many ways.
class CpuBits : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kTokensMax = 256;
  using Logits = std::vector<std::vector<float>>;  // of each sequence

  std::unique_ptr<Backend> backend(const BackendOptions& options) {
    return make_cpu_backend(golden_.weights, golden_.config, options).value();
  }

  /// Every round feeds each unfinished sequence piece(round, sequence) tokens, the last first in
  /// odd rounds.
  template <typename Piece>
  Logits run(Backend& backend, const Piece& piece) {
    const auto count = golden_.sequences.size();
    const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
    TestSession session(backend, golden_.config,
                        {.sequences = static_cast<int>(count), .tokens_max = kTokensMax});
    Logits out(count);
    for (size_t round = 0;; ++round) {
      std::vector<TestSession::Feed> feeds;
      for (size_t i = 0; i < count; ++i) {
        const size_t s = round % 2 == 0 ? i : count - 1 - i;
        const GoldenSequence& sequence = golden_.sequences[s];
        const size_t done = out[s].size() / vocab;
        const size_t tokens = std::min(piece(round, s), sequence.ids.size() - done);
        if (tokens == 0) continue;
        feeds.push_back({.sequence = static_cast<int>(s),
                         .tokens = std::span(sequence.ids).subspan(done, tokens),
                         .positions = std::span(sequence.positions).subspan(done, tokens),
                         .arithmetic = arithmetic_});
      }
      if (feeds.empty()) return out;
      const std::vector<float> logits = session.pass(feeds);
      auto at = logits.begin();
      for (const auto& feed : feeds) {
        const auto floats = static_cast<ptrdiff_t>(feed.tokens.size() * vocab);
        auto& to = out[static_cast<size_t>(feed.sequence)];
        to.insert(to.end(), at, at + floats);
        at += floats;
      }
    }
  }
  Logits run_whole(Backend& backend) {
    return run(backend, [](size_t, size_t) { return size_t{100000}; });
  }

  void expect_same(const Logits& found, const Logits& expected, const std::string& what) {
    for (size_t s = 0; s < expected.size(); ++s)
      EXPECT_TRUE(cpu::same_bits(found[s], expected[s])) << what << ", sequence " << s;
  }

  Golden golden_ = load_golden(GetParam());
  Arithmetic arithmetic_ = Arithmetic::prompt;
};

TEST_P(CpuBits, PiecesAndMixing) {
  const auto cpu = backend({.threads = 2});
  const Logits whole = run_whole(*cpu);
  for (const size_t piece : {1U, 5U, 7U, 64U})
    expect_same(run(*cpu, [&](size_t, size_t) { return piece; }), whole, concat("piece ", piece));
  const auto uneven = [](size_t round, size_t s) { return (round * 5 + s * 3) % 19; };
  expect_same(run(*cpu, [&](size_t r, size_t s) { return uneven(r, s) + (r % 2 == s % 2); }), whole,
              "uneven pieces");
}

TEST_P(CpuBits, Threads) {
  const Logits whole = run_whole(*backend({.threads = 1}));
  for (const int threads : {2, 3})
    expect_same(run_whole(*backend({.threads = threads})), whole, concat(threads, " threads"));
}

TEST_P(CpuBits, InstructionSets) {
  for (const Activations mode : {Activations::f32, Activations::int8}) {
    const Logits whole = run_whole(*backend({.activations = mode}));
    for (const std::string& isa : isas())
      expect_same(run_whole(*backend({.activations = mode, .isa = isa})), whole, isa);
  }
}

/// Activations with 8 bits, the default, move the logits of these random models, whose routers are
/// undecided, by some percent, and those of weights that are not quantized not at all.
TEST_P(CpuBits, EightBitActivationsAreForQuantizedWeights) {
  const Logits exact = run_whole(*backend({.activations = Activations::f32}));
  const Logits found = run_whole(*backend({}));
  const bool quantized = GetParam().starts_with("model-quantized/");
  for (size_t s = 0; s < exact.size(); ++s) {
    EXPECT_EQ(cpu::same_bits(found[s], exact[s]), !quantized);
    EXPECT_LE(relative_error(found[s], exact[s]), 0.1);
  }
}

TEST_P(CpuBits, ReducedActivationsToo) {
  for (const Activations mode : {Activations::bf16, Activations::declared, Activations::int8}) {
    const auto cpu = backend({.activations = mode, .threads = 2});
    const Logits whole = run_whole(*cpu);
    expect_same(run(*cpu, [](size_t, size_t) { return size_t{7}; }), whole, cpu->description());
  }
}

TEST_P(CpuBits, NearTheReferenceInEveryActivationMode) {
  struct Mode {
    Activations activations;
    double bar;  // a last bit of F32 turns some rounded inputs by one step of their format
  };
  for (const Mode& mode : {Mode{Activations::f32, 3e-5}, Mode{Activations::bf16, 1e-2},
                           Mode{Activations::declared, 5e-2}}) {
    const BackendOptions options = {.activations = mode.activations};
    const auto reference = make_reference_backend(golden_.weights, golden_.config, options).value();
    const Logits expected = run_whole(*reference);
    const Logits found = run_whole(*backend(options));
    for (size_t s = 0; s < expected.size(); ++s)
      EXPECT_LE(relative_error(found[s], expected[s]), mode.bar)
          << activations_name(mode.activations);
  }
}

/// The state is rounded after every generated token, however many a pass has, as in the reference.
TEST_P(CpuBits, StateInBf16) {
  arithmetic_ = Arithmetic::generation;
  const auto cpu = backend({.state = StateCache::bf16, .threads = 2});
  const Logits whole = run_whole(*cpu);
  for (const size_t piece : {1U, 7U})
    expect_same(run(*cpu, [&](size_t, size_t) { return piece; }), whole, concat("piece ", piece));
  const BackendOptions options = {.activations = Activations::f32, .state = StateCache::bf16};
  const auto reference = make_reference_backend(golden_.weights, golden_.config, options).value();
  const Logits expected = run_whole(*reference);
  const Logits found = run_whole(*backend(options));
  const Logits wide = run_whole(*backend({.activations = Activations::f32}));
  for (size_t s = 0; s < expected.size(); ++s) {
    EXPECT_LE(relative_error(found[s], expected[s]), 5e-3);
    if (golden_.config.count(LayerKind::delta_net) > 0)
      EXPECT_GT(relative_error(wide[s], expected[s]), 3 * relative_error(found[s], expected[s]));
  }
}

/// Keys and values rounded to the pages' format: the same bits however the work is cut, and what
/// the reference computes of the same rounded numbers.
TEST_P(CpuBits, SmallerPages) {
  const BackendOptions f32 = {.activations = Activations::f32, .threads = 2};
  const auto plain = backend(f32);
  const Logits wide = run_whole(*plain);
  for (const KvCache kv : {KvCache::bf16, KvCache::fp8}) {
    SCOPED_TRACE(kv_cache_name(kv));
    BackendOptions options = f32;
    options.kv_cache = kv;
    const auto cpu = backend(options);
    EXPECT_EQ(cpu->page_bytes() * (kv == KvCache::fp8 ? 4 : 2), plain->page_bytes());
    const Logits whole = run_whole(*cpu);
    for (const size_t piece : {1U, 7U})
      expect_same(run(*cpu, [&](size_t, size_t) { return piece; }), whole, concat("piece ", piece));
    const auto uneven = [](size_t round, size_t s) { return (round * 5 + s * 3) % 19; };
    expect_same(run(*cpu, [&](size_t r, size_t s) { return uneven(r, s) + (r % 2 == s % 2); }),
                whole, "uneven pieces");
    for (const std::string& isa : isas()) {
      options.isa = isa;
      expect_same(run_whole(*backend(options)), whole, isa);
    }
    const auto reference = make_reference_backend(golden_.weights, golden_.config, options).value();
    const Logits expected = run_whole(*reference);
    for (size_t s = 0; s < expected.size(); ++s) {
      EXPECT_LE(relative_error(whole[s], expected[s]), 5e-3);
      EXPECT_GT(relative_error(wide[s], expected[s]), 3 * relative_error(whole[s], expected[s]));
    }
  }
}

/// Scales of the checkpoint in FP8 pages give nearly what the reference gives, which divides and
/// multiplies the numbers themselves, and not what scale 1 gives.
TEST_P(CpuBits, ScalesOfKeysAndValues) {
  BackendOptions options = {
      .activations = Activations::f32, .kv_cache = KvCache::fp8, .threads = 2};
  const Logits unit = run_whole(*backend(options));
  for (int i = 0; i < golden_.config.count(LayerKind::attention); ++i)
    options.kv_scales.push_back({.keys = 0.03F + 0.011F * static_cast<float>(i % 3),
                                 .values = 0.0041F * static_cast<float>(1 + i % 2)});
  const auto scaled = backend(options);
  EXPECT_NE(scaled->arithmetic().find("by the checkpoint's scales"), std::string::npos);
  const Logits whole = run_whole(*scaled);
  expect_same(run(*scaled, [](size_t, size_t) { return size_t{7}; }), whole, "pieces of 7");
  const auto reference = make_reference_backend(golden_.weights, golden_.config, options).value();
  const Logits expected = run_whole(*reference);
  for (size_t s = 0; s < expected.size(); ++s) {
    EXPECT_LE(relative_error(whole[s], expected[s]), 5e-3);
    if (golden_.config.count(LayerKind::attention) > 0) {
      EXPECT_GT(relative_error(unit[s], expected[s]), 2 * relative_error(whole[s], expected[s]));
    }
  }
}

TEST_P(CpuBits, PagesOfEveryFormatAreFiniteUntilPoisoned) {
  for (const KvCache kv : {KvCache::automatic, KvCache::bf16, KvCache::fp8}) {
    const auto cpu = backend({.kv_cache = kv});
    ASSERT_TRUE(cpu->reserve({.pages = 2, .state_slots = 1, .rows_max = 64, .host_pages = 1}).ok());
    std::ranges::fill(cpu->host_page(0), std::byte{0});
    for (const int32_t page : {0, 1}) cpu->load_page(0, page);
    EXPECT_TRUE(cpu->finite_page(1));
    cpu->poison_page(1);
    EXPECT_FALSE(cpu->finite_page(1));
    EXPECT_TRUE(cpu->finite_page(0));
    cpu->copy_page(0, 1);
    EXPECT_TRUE(cpu->finite_page(1));
    EXPECT_EQ(static_cast<int64_t>(cpu->host_page(0).size()), cpu->page_bytes());
  }
}

TEST_P(CpuBits, OneCallMovesManyPagesAndStates) { expect_cache_moves(*backend({.threads = 2})); }

INSTANTIATE_TEST_SUITE_P(Models, CpuBits, testing::ValuesIn(all_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
