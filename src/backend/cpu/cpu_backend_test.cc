// The CPU backend says in a line what it computes, and refuses shapes for which a block has no
// room.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

/// arithmetic() is a key of what is kept on disk: whatever changes numbers is in it, and what does
/// not (threads) is not.
TEST(CpuLines, SayWhatIsComputed) {
  const Golden golden = load_golden(golden_names().front());
  const std::string isa(cpu::usable_kernels().front()->isa);
  std::vector<KvScale> scales(static_cast<size_t>(golden.config.count(LayerKind::attention)),
                              {.keys = 0.5F, .values = 0.25F});
  struct Case {
    BackendOptions options;
    std::string description, arithmetic;
  };
  const Case cases[] = {
      {{.threads = 1}, "1 thread, activations int8", "activations int8, KV auto, state f32"},
      {{.threads = 2}, "2 threads, activations int8", "activations int8, KV auto, state f32"},
      {{.activations = Activations::f32, .kv_cache = KvCache::bf16, .threads = 1},
       "1 thread, activations f32, KV bf16",
       "activations f32, KV bf16, state f32"},
      {{.activations = Activations::bf16, .state = StateCache::bf16, .threads = 1},
       "1 thread, activations bf16, state rounded to bf16",
       "activations bf16, KV auto, state bf16"},
      {{.activations = Activations::declared,
        .input_scales = InputScales::four_over_six,
        .kv_cache = KvCache::fp8,
        .kv_scales = scales,
        .threads = 1},
       "1 thread, activations declared with four-over-six, KV fp8 by the checkpoint's scales",
       "activations declared with four-over-six, KV fp8 by the checkpoint's scales, state f32"}};
  for (const Case& c : cases) {
    const auto backend = make_cpu_backend(golden.weights, golden.config, c.options).value();
    EXPECT_EQ(backend->name(), "cpu");
    EXPECT_EQ(backend->description(), concat("cpu ", isa, ", ", c.description));
    EXPECT_EQ(backend->arithmetic(), concat("cpu ", isa, ", ", c.arithmetic));
  }
  const auto scalar =
      make_cpu_backend(golden.weights, golden.config, {.threads = 1, .isa = "scalar"}).value();
  EXPECT_EQ(scalar->description(), "cpu scalar, 1 thread, activations int8");
  EXPECT_EQ(scalar->arithmetic(), "cpu scalar, activations int8, KV auto, state f32");
}

/// The largest lists that a block keeps on its stack are taken, larger ones refused, and only where
/// a model has such blocks.
TEST(CpuShapes, AreRefusedBeyondTheRoomOnTheStack) {
  const auto message = [](const Golden& golden, const ModelConfig& config) {
    const auto made = make_cpu_backend(golden.weights, config, {.threads = 1});
    return made.ok() ? std::string("made") : made.error().message;
  };
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    const Golden golden = load_golden(name);
    const bool recurs = golden.config.count(LayerKind::delta_net) > 0;
    ModelConfig config = golden.config;
    config.delta_net.conv_kernel = 16;
    EXPECT_EQ(message(golden, config), "made");
    config.delta_net.conv_kernel = 17;
    EXPECT_EQ(message(golden, config),
              recurs ? "convolution taps: expected at most 16, found 17" : "made");
    if (!golden.config.moe) continue;
    config = golden.config;
    config.moe->top_k = 64;
    EXPECT_EQ(message(golden, config), "made");
    config.moe->top_k = 65;
    EXPECT_EQ(message(golden, config), "experts per token: expected at most 64, found 65");
  }
}

}  // namespace
}  // namespace nibble
