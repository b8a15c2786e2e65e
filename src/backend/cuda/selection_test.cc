// The choice of kernels on cards of every architecture, for the shapes of real models, against a
// recorded table (tests/golden/cuda_plans.txt): a change of a condition shows as changed lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "backend/cuda/ops/attention/attention_select.h"
#include "backend/cuda/ops/delta_net/delta_select.h"
#include "backend/cuda/ops/experts/experts_select.h"
#include "backend/cuda/ops/linear/prefill_gemm_select.h"
#include "backend/cuda/ops/route/route_select.h"
#include "backend/cuda/workspace.h"
#include "base/concat.h"
#include "base/file.h"
#include "model/weights/synthetic_weights.h"
#include "plan/real_models.h"

namespace nibble::cuda {
namespace {

struct Card {
  std::string_view name;
  Architecture facts;
};

/// Cards that people have. Shared memory and SMs are those of NVIDIA's tables; clusters
/// of sm_90a were asked of an H200.
std::vector<Card> cards() {
  const auto card = [](std::string_view name, int major, int minor, int multiprocessors,
                       int shared_kib) {
    return Card{name,
                {.code = {.major = major, .minor = minor},
                 .multiprocessors = multiprocessors,
                 .shared_bytes = shared_kib << 10}};
  };
  std::vector<Card> all = {card("A100", 8, 0, 108, 163),    card("RTX3090", 8, 6, 82, 99),
                           card("RTX4090", 8, 9, 128, 99),  card("H200", 9, 0, 132, 227),
                           card("B200", 10, 0, 148, 227),   card("B300", 10, 3, 148, 227),
                           card("RTX5090", 12, 0, 170, 99), card("GB10", 12, 1, 48, 99)};
  all[3].facts.code.reach = CodeTarget::Reach::exact;
  all[3].facts.clusters = {66, 33, 16};
  return all;
}

DeviceLinear shape_of(const LinearSource& source) {
  if (!source.present()) return {};
  static const uint8_t something = 0;
  return {.format = format_of(source.scheme),
          .layout = layout_of(source.scheme),
          .values = &something,
          .rows = static_cast<int32_t>(source.rows),
          .cols = static_cast<int32_t>(padded_columns(source.cols))};
}

/// One product of a model, or of both halves of a feed-forward.
struct Product {
  std::string_view name;
  std::vector<DeviceLinear> linears;  // empty: of experts
  bool normed = false;                // takes a single row from its norm
  Finish finish = Finish::store;
  ExpertPart part = ExpertPart::gate_up;
  ExpertArgs experts = {};
};

/// The launches of a product, and the bytes of weights that they read.
struct Choice {
  std::string text;
  int64_t bytes = 0;
};
Choice choice_of(const Product& product, int rows, const Architecture& card) {
  Choice choice;
  const float h = 0.0F;
  const auto add = [&](const auto& plans) {
    for (const auto& plan : plans.all()) {
      choice.text += concat(choice.text.empty() ? "" : "; then ", plan.text());
      choice.bytes += plan.weight_bytes;
    }
  };
  if (product.linears.empty()) {
    ExpertArgs args = product.experts;
    args.rows = rows;
    add(select_experts(product.part, args, card));
    return choice;
  }
  LinearArgs args{.rows = rows};
  for (const DeviceLinear& linear : product.linears)
    args.outputs[args.count++] = {.weight = linear, .finish = product.finish};
  if (product.normed && rows == 1 && std::ranges::all_of(product.linears, inputs_fit))
    args.norm.h = &h;
  if (product.name == "router" && norms_rows(args, card)) args.norm.h = &h;
  add(select_linear(args, card));
  return choice;
}

std::vector<Product> products_of(const std::string& model, WeightLayout layout) {
  ModelConfig config = real_config(model);
  config.layers.resize(4);  // three of a delta net, one of attention, as all others
  const SyntheticWeights weights = synthetic_weights(config, formats_of(layout));
  std::vector<Product> products;
  const auto shapes = [](std::initializer_list<const LinearSource*> sources) {
    std::vector<DeviceLinear> all;
    for (const LinearSource* source : sources)
      if (source->present()) all.push_back(shape_of(*source));
    return all;
  };
  const LayerSources* delta = nullptr;
  const LayerSources* attention = nullptr;
  for (const LayerSources& layer : weights.layers) {
    if (layer.delta_net.qkv.present() && delta == nullptr) delta = &layer;
    if (layer.attention.q.present() && attention == nullptr) attention = &layer;
  }
  if (delta != nullptr) {
    const DeltaNetSources& d = delta->delta_net;
    products.push_back({"delta net in", shapes({&d.qkv, &d.z, &d.a, &d.b}), true});
    products.push_back({"delta net out", shapes({&d.out}), false, Finish::add});
  }
  if (attention != nullptr) {
    const AttentionSources& a = attention->attention;
    products.push_back({"attention in", shapes({&a.q, &a.k, &a.v}), true});
  }
  ExpertArgs up;
  ExpertArgs down;
  const LayerSources& layer = weights.layers[0];
  if (config.moe) {
    products.push_back({"router", shapes({&layer.moe.router, &layer.moe.shared_gate})});
    up.experts = down.experts = config.moe->experts;
    up.top_k = down.top_k = config.moe->top_k;
    up.routed_low = shape_of(layer.moe.experts[0].gate);
    up.routed_high = shape_of(layer.moe.experts[0].up);
    down.routed_low = down.routed_high = shape_of(layer.moe.experts[0].down);
  }
  const MlpSources& mlp = config.moe ? layer.moe.shared : layer.dense_mlp;
  up.shared_low = shape_of(mlp.gate);
  up.shared_high = shape_of(mlp.up);
  down.shared_low = down.shared_high = shape_of(mlp.down);
  if (config.moe) {
    products.push_back({.name = "gate and up", .part = ExpertPart::gate_up, .experts = up});
    products.push_back({.name = "down", .part = ExpertPart::down, .experts = down});
  } else {
    products.push_back({.name = "gate and up", .part = ExpertPart::gate_up, .experts = up});
    products.push_back({.name = "down", .linears = {down.shared_low}, .finish = Finish::add});
  }
  products.push_back({"head", {shape_of(config.tied_head ? weights.embedding : weights.head)}});
  return products;
}

using ChoiceOf = std::function<std::string(int rows, const Architecture& card)>;

/// Lines of one operation: cards with the same choice together, rows with the same choice together.
std::string lines_of(std::span<const int> all_rows, const ChoiceOf& choose) {
  std::vector<std::pair<std::string, std::string>> groups;  // cards, their lines
  for (const Card& card : cards()) {
    std::string lines;
    std::string before;
    int begin = 0;
    int end = 0;
    const auto flush = [&] {
      if (!before.empty())
        lines += concat("    ", begin, begin == end ? "" : concat("..", end), ": ", before, "\n");
    };
    for (const int rows : all_rows) {
      std::string text = choose(rows, card.facts);
      if (text != before) {
        flush();
        before = std::move(text);
        begin = rows;
      }
      end = rows;
    }
    flush();
    bool known = false;
    for (auto& [names, other] : groups)
      if (other == lines) {
        names += concat(" ", card.name);
        known = true;
      }
    if (!known) groups.emplace_back(card.name, lines);
  }
  std::string text;
  for (const auto& [names, lines] : groups) text += concat("  ", names, "\n", lines);
  return text;
}

constexpr KvFormat kPageFormats[] = {KvFormat::bf16, KvFormat::fp8, KvFormat::turboquant_4bit_nc,
                                     KvFormat::nvfp4};
constexpr int kGeneratedRows[] = {1, 2, 4, 8, 9, 16, 17, 24, 32, 33, 48, 64};
constexpr int kFewRows[] = {1, 9, 64};  // of operations whose plans change with the rows little
constexpr int kPromptRows[] = {1, 512};

std::string lines_of(const Product& product) {
  return lines_of(kGeneratedRows, [&](int rows, const Architecture& card) {
    return choice_of(product, rows, card).text;
  });
}

/// Attention of a model with pages in one format: generated rows, one of each sequence and four of
/// each, and prompts.
std::string attention_lines(const std::string& name, const ModelConfig& config, KvFormat kv) {
  const AttentionConfig& a = config.attention;
  AttentionArgs args{.q_heads = a.q_heads,
                     .kv_heads = a.kv_heads,
                     .head_dim = a.head_dim,
                     .kv = {.format = kv},
                     .splits_max = kAttendSplitsMax};
  std::string out;
  for (const int each : {1, 4}) {
    out +=
        concat(name, ", attention of ", each, " rows of a sequence, pages in ", kv_traits(kv).name,
               ": ", attend_token_bytes(args), " bytes of a token of history\n");
    out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
      args.batch = {.rows = rows * each, .sequences = rows};
      const AttendPlan plan = select_attend(args, card);
      return concat(plan.text(), ", ", plan.blocks(std::min(rows * each, kAttendRowsMax)),
                    " blocks");
    });
  }
  out += concat(name, ", attention of prompts, pages in ", kv_traits(kv).name, "\n");
  return out + lines_of(std::span(kPromptRows).first(1), [&](int, const Architecture& card) {
           return select_flash({.shape = {.q_heads = a.q_heads,
                                          .kv_heads = a.kv_heads,
                                          .head_dim = a.head_dim},
                                .kv = {.format = kv}},
                               card)
               .text();
         });
}

/// The delta net of a model with states in one format.
std::string delta_net_lines(const std::string& name, const ModelConfig& config, StateFormat state) {
  const std::string_view state_name = state == StateFormat::bf16 ? "bf16" : "f32";
  const DeltaNetConfig& d = config.delta_net;
  const float number = 0.0F;
  DeltaNetArgs args{.k_heads = d.k_heads,
                    .v_heads = d.v_heads,
                    .k_dim = d.k_dim,
                    .v_dim = d.v_dim,
                    .taps = d.conv_kernel,
                    .state = {.format = state}};
  std::string out;
  for (const bool convolved : {false, true})
    for (const int each : {1, 4}) {
      args.qkv = convolved ? nullptr : &number;
      args.batch = {.rows = 1, .sequences = 1};
      out += concat(name, ", delta net of ", each, " rows of a sequence",
                    convolved ? ", convolved by the product" : "", ", state in ", state_name, ": ",
                    delta_state_bytes(args), " bytes of states for 1 sequence\n");
      out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
        args.batch = {.rows = rows * each, .sequences = rows};
        return select_delta_net(args, card).text();
      });
    }
  for (const DeltaRuns runs : {DeltaRuns::one, DeltaRuns::several}) {
    out +=
        concat(name, ", delta net of ", runs == DeltaRuns::one ? "one prompt" : "several prompts",
               ", state in ", state_name, "\n");
    out += lines_of(std::span(kPromptRows).first(1), [&](int, const Architecture& card) {
      return select_delta_chunk(delta_shape(config), state, runs, card).text();
    });
  }
  return out;
}

std::string route_lines(const std::string& name, const ModelConfig& config) {
  const MoeConfig& m = *config.moe;
  std::string out = concat(name, ", choice of ", m.top_k, " of ", m.experts, " experts\n");
  out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
    return select_route({.rows = rows, .experts = m.experts, .top_k = m.top_k}, card).text();
  });
  return out + concat(name, ", choice of experts in prompts: ",
                      select_route({.experts = m.experts, .top_k = m.top_k}).text(), "\n");
}

/// Every kernel of the prompt GEMM, for a matrix of 4,096 rows and one of experts.
std::string gemm_lines() {
  std::string out;
  for (const Format format : {Format::bf16, Format::fp8, Format::nvfp4})
    for (const FactorLayout layout : {FactorLayout::scalar, FactorLayout::block128})
      for (const GemmOutput output : {GemmOutput::bf16, GemmOutput::swiglu}) {
        if (layout == FactorLayout::block128 && format != Format::fp8) continue;
        PrefillGemm gemm{.weight = {.format = format, .layout = layout, .rows = 4096, .cols = 2048},
                         .output = output};
        out += concat("prompt product in ", format_name(format),
                      layout == FactorLayout::block128 ? " with block factors" : "", ", output ",
                      static_cast<int>(output), "\n");
        out += lines_of(kPromptRows, [&](int rows, const Architecture& card) {
          gemm.rows = rows;
          return select_prefill_gemm(gemm, card).text();
        });
      }
  return out;
}

/// Operations whose plans do not depend on the format of weights.
std::string operation_lines() {
  std::string out;
  for (const std::string name : {"qwen3.6-35b-a3b", "qwen3.6-27b"}) {
    const ModelConfig config = real_config(name);
    for (const KvFormat kv : kPageFormats) out += attention_lines(name, config, kv);
    for (const StateFormat state : {StateFormat::f32, StateFormat::bf16})
      out += delta_net_lines(name, config, state);
    if (config.moe) out += route_lines(name, config);
  }
  return out + gemm_lines();
}

TEST(CudaSelectionTest, MatchesTheRecordedTable) {
  struct Model {
    std::string name;
    WeightLayout layout;
  };
  const Model models[] = {{"qwen3.6-35b-a3b", WeightLayout::mixed},
                          {"qwen3.6-35b-a3b", WeightLayout::nvfp4},
                          {"qwen3.6-35b-a3b", WeightLayout::bf16},
                          {"qwen3.6-27b", WeightLayout::mixed},
                          {"qwen3.5-4b", WeightLayout::fp8}};
  std::string found;
  for (const Model& model : models)
    for (const Product& product : products_of(model.name, model.layout))
      found +=
          concat(model.name, ", ", weight_layout_name(model.layout), ", ", product.name, ": ",
                 choice_of(product, 1, cards()[0].facts).bytes, " bytes of weights for 1 row, ",
                 choice_of(product, 64, cards()[0].facts).bytes, " for 64\n", lines_of(product));
  found += operation_lines();
  const std::string path = NIBBLE_SOURCE_DIR "/tests/golden/cuda_plans.txt";
  const std::string now = testing::TempDir() + "cuda_plans.txt";
  ASSERT_TRUE(write_file_atomically(now, found).ok());
  const auto recorded = read_text_file(path, uint64_t{1} << 20);
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;
  EXPECT_EQ(found, recorded.value()) << "if this change is wanted: cp " << now << " " << path;
}

LinearArgs head() {
  LinearArgs args{.count = 1, .rows = 1};
  args.outputs[0].weight = {
      .format = Format::nvfp4, .layout = FactorLayout::scalar, .rows = 248320, .cols = 2048};
  return args;
}
bool streams(const LinearArgs& args) {
  return select_linear(args, cards()[3].facts).plans[0].kernel == LinearKernel::stream;
}

TEST(CudaSelectionTest, StreamsAHeadAndNoOtherProductWhoseInputsFit) {
  EXPECT_TRUE(streams(head()));
  for (const Card& card : cards()) {
    const bool found = select_linear(head(), card.facts).plans[0].kernel == LinearKernel::stream;
    EXPECT_EQ(found, card.name == "H200") << card.name;
  }
  LinearArgs others[6] = {head(), head(), head(), head(), head(), head()};
  others[0].outputs[0].weight.rows = 12288;
  others[1].outputs[0].weight.format = Format::bf16;
  others[2].outputs[0].finish = Finish::add;
  others[3].outputs[0].finish = Finish::convolve;
  others[4].outputs[others[4].count++] = head().outputs[0];
  const float h = 0.0F;
  others[5].norm.h = &h;
  for (const LinearArgs& args : others) EXPECT_FALSE(streams(args));
}

TEST(CudaSelectionTest, StreamsLongRows) {
  constexpr int kColumnsMax = 18432;
  LinearArgs longs[4] = {head(), head(), head(), head()};
  for (LinearArgs& each : longs) {
    each.count = 2;
    each.outputs[0].weight.rows = 2900;
    each.outputs[0].weight.cols = 17408;
    each.outputs[1] = each.outputs[0];
    each.outputs[1].weight.rows = 72;
    each.outputs[1].finish = Finish::add;
  }
  EXPECT_TRUE(streams(longs[0]));
  longs[1].outputs[0].weight.rows = 2900 - 64;
  longs[2].outputs[1].weight.format = Format::fp8;
  longs[3].outputs[0].weight.cols = longs[3].outputs[1].weight.cols = kColumnsMax + 256;
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(streams(longs[i])) << i;
}

/// Sums of kernels of one family have one order; a matrix keeps to its family at any number of
/// rows.
TEST(CudaSelectionTest, AMatrixKeepsItsOrderOfSums) {
  const auto family = [](LinearKernel kernel) {
    return kernel == LinearKernel::stream                                   ? 2
           : kernel == LinearKernel::split || kernel == LinearKernel::chain ? 1
                                                                            : 0;
  };
  for (const Card& card : cards())
    for (const int cols : {256, 2048, 4096, 4352, 17408})
      for (const int rows : {16, 512, 4096, 70000})
        for (const Format format : {Format::bf16, Format::fp8, Format::nvfp4}) {
          LinearArgs args = head();
          args.outputs[0].weight = {
              .format = format,
              .layout = format == Format::bf16 ? FactorLayout::none : FactorLayout::scalar,
              .rows = rows,
              .cols = cols};
          const int first = family(select_linear(args, card.facts).plans[0].kernel);
          for (args.rows = 2; args.rows <= 70; ++args.rows) {
            const LinearPlan plan = select_linear(args, card.facts).plans[0];
            ASSERT_EQ(family(plan.kernel), first) << card.name << " " << rows << " x " << cols;
            ASSERT_LE(plan.shared_bytes, card.facts.shared_bytes) << plan.text();
          }
        }
}

/// A plan never asks for more shared memory than a card has, and a row's kernels do not depend on
/// how many sequences there are where that would change its bits: drafted rows store their tokens
/// first, single rows do not.
TEST(CudaSelectionTest, OperationsFitTheirCards) {
  for (const Card& card : cards())
    for (const int head_dim : {64, 128, 256})
      for (const int group : {1, 2, 3, 8})
        for (const KvFormat kv : kPageFormats) {
          const FlashPlan plan =
              select_flash({.shape = {.q_heads = group, .kv_heads = 1, .head_dim = head_dim},
                            .kv = {.format = kv}},
                           card.facts);
          EXPECT_LE(plan.shared_bytes, card.facts.shared_bytes) << card.name << plan.text();
          EXPECT_EQ(group % plan.heads, 0) << plan.text();
        }
  for (const Card& card : cards())
    for (const int k_dim : {32, 64, 128})
      for (const DeltaRuns runs : {DeltaRuns::one, DeltaRuns::several}) {
        const DeltaChunkPlan plan =
            select_delta_chunk({.k_dim = k_dim}, StateFormat::f32, runs, card.facts);
        EXPECT_LE(plan.resident * plan.shared_bytes, card.facts.shared_bytes) << plan.text();
      }
  for (const Card& card : cards())
    for (const Format format : {Format::bf16, Format::fp8, Format::nvfp4}) {
      const PrefillGemm gemm{.rows = 100, .weight = {.format = format, .rows = 512, .cols = 512}};
      const PrefillGemmPlan plan = select_prefill_gemm(gemm, card.facts);
      EXPECT_LE(plan.shared_bytes, card.facts.shared_bytes) << plan.text();
      EXPECT_EQ(plan.blocks, 2);
    }
}

TEST(CudaSelectionTest, PortableKernelsAreChosenWhereTheyAreForced) {
  Architecture card = cards()[3].facts;
  card.kernels = Architecture::Kernels::portable;
  const FlashPrefill flash{.shape = {.q_heads = 16, .kv_heads = 2, .head_dim = 256}};
  EXPECT_EQ(select_flash(flash, card).matrix, FlashPlan::Matrix::mma_sync);
  EXPECT_EQ(select_prefill_gemm({.rows = 1, .weight = {.rows = 64, .cols = 64}}, card).matrix,
            PrefillGemmPlan::Matrix::mma_sync);
  EXPECT_EQ(select_route({.rows = 1, .experts = 8, .top_k = 2}, card).kernel,
            RoutePlan::Kernel::block);
  DeltaNetArgs args{.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128, .taps = 4};
  args.batch = {.rows = 64, .sequences = 64};
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::portable);
  card.kernels = Architecture::Kernels::native;
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::stream);
  args.kernels = DeltaNetKernels::in_parts;
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::portable);
}

}  // namespace
}  // namespace nibble::cuda
