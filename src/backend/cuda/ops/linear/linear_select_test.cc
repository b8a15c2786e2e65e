// The choice of kernels of products of generation, experts among them, without a card.
#include "backend/cuda/ops/linear/linear_select.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/ops/experts/experts_select.h"
#include "backend/cuda/testing/plan_tables.h"
#include "backend/cuda/workspace.h"
#include "plan/testing/real_models.h"

namespace nibble::cuda {
namespace {

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

std::vector<DeviceLinear> shapes_of(std::initializer_list<const LinearSource*> sources) {
  std::vector<DeviceLinear> all;
  for (const LinearSource* source : sources)
    if (source->present()) all.push_back(shape_of(*source));
  return all;
}

void add_mixers(const SyntheticWeights& weights, std::vector<Product>& products) {
  const LayerSources* delta = nullptr;
  const LayerSources* attention = nullptr;
  for (const LayerSources& layer : weights.layers) {
    if (layer.delta_net.qkv.present() && delta == nullptr) delta = &layer;
    if (layer.attention.q.present() && attention == nullptr) attention = &layer;
  }
  if (delta != nullptr) {
    const DeltaNetSources& d = delta->delta_net;
    products.push_back({"delta net in", shapes_of({&d.qkv, &d.z, &d.a, &d.b}), true});
    products.push_back({"delta net out", shapes_of({&d.out}), false, Finish::add});
  }
  if (attention != nullptr) {
    const AttentionSources& a = attention->attention;
    products.push_back({"attention in", shapes_of({&a.q, &a.k, &a.v}), true});
  }
}

void add_feed_forward(const ModelConfig& config, const LayerSources& layer,
                      std::vector<Product>& products) {
  ExpertArgs up;
  ExpertArgs down;
  if (config.moe) {
    products.push_back({"router", shapes_of({&layer.moe.router, &layer.moe.shared_gate})});
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
  products.push_back({.name = "gate and up", .part = ExpertPart::gate_up, .experts = up});
  if (config.moe)
    products.push_back({.name = "down", .part = ExpertPart::down, .experts = down});
  else
    products.push_back({.name = "down", .linears = {down.shared_low}, .finish = Finish::add});
}

std::vector<Product> products_of(const std::string& model, WeightLayout layout) {
  ModelConfig config = real_config(model);
  config.layers.resize(4);  // three of a delta net, one of attention, as all others
  const SyntheticWeights weights = synthetic_weights(config, formats_of(layout));
  std::vector<Product> products;
  add_mixers(weights, products);
  add_feed_forward(config, weights.layers[0], products);
  products.push_back({"head", {shape_of(config.tied_head ? weights.embedding : weights.head)}});
  return products;
}

}  // namespace

std::string product_lines(const std::string& name, WeightLayout layout) {
  std::string out;
  for (const Product& product : products_of(name, layout))
    out += concat(name, ", ", weight_layout_name(layout), ", ", product.name, ": ",
                  choice_of(product, 1, cards()[0].facts).bytes, " bytes of weights for 1 row, ",
                  choice_of(product, 64, cards()[0].facts).bytes, " for 64\n",
                  lines_of(kGeneratedRows, [&](int rows, const Architecture& card) {
                    return choice_of(product, rows, card).text;
                  }));
  return out;
}

namespace {

LinearArgs head() {
  LinearArgs args{.count = 1, .rows = 1};
  args.outputs[0].weight = {
      .format = Format::nvfp4, .layout = FactorLayout::scalar, .rows = 248320, .cols = 2048};
  return args;
}
bool streams(const LinearArgs& args) {
  return select_linear(args, cards()[3].facts).plans[0].kernel == LinearKernel::stream;
}

TEST(LinearSelectTest, StreamsAHeadAndNoOtherProductWhoseInputsFit) {
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

TEST(LinearSelectTest, StreamsLongRows) {
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
TEST(LinearSelectTest, AMatrixKeepsItsOrderOfSums) {
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

}  // namespace
}  // namespace nibble::cuda
