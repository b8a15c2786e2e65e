// Walks over linears and tensors.
#include "cli/plan/plan_sizes.h"

#include <cctype>
#include <map>
#include <set>

#include "backend/cpu/matrix_loader.h"
#include "backend/cpu/weight_bytes.h"
#include "model/config/target_patterns.h"
#include "model/weights/fused_linears.h"
#include "quantize/recipe/dialect.h"
#include "quantize/recipe/quant_plan.h"

namespace nibble {
namespace {

int64_t entry_bytes(const Checkpoint& checkpoint, const std::string& tensor) {
  const TensorEntry* entry = tensor.empty() ? nullptr : checkpoint.find(tensor);
  return entry == nullptr ? 0 : entry->bytes;
}

/// The scheme of a linear. A large model has 30,000 experts' linears and patterns are slow, so the
/// experts of a layer share one answer unless a pattern with a number in it may tell them apart.
class SchemeFinder {
 public:
  explicit SchemeFinder(const Recipe& recipe) : recipe_(recipe) {
    for (const RecipeRule& rule : recipe.rules)
      for (const unsigned char c : rule.match.text()) alike_ = alike_ && std::isdigit(c) == 0;
  }

  QuantScheme find(const std::string& module) {
    constexpr std::string_view kExperts = ".experts.";
    const size_t at = module.find(kExperts);
    if (!alike_ || at == std::string::npos) return of(module);
    const size_t end = module.find('.', at + kExperts.size());
    const std::string key = module.substr(0, at) + module.substr(end);
    const auto [found, added] = answers_.try_emplace(key);
    if (added) found->second = of(module);
    return found->second;
  }

 private:
  QuantScheme of(const std::string& module) const {
    return recipe_scheme(recipe_, module, Dialect::compressed_tensors).scheme;
  }

  const Recipe& recipe_;
  bool alike_ = true;
  std::map<std::string, QuantScheme> answers_;
};

/// Gives each linear of some layers its scheme.
class SchemeGiver {
 public:
  explicit SchemeGiver(const Recipe& recipe) : schemes_(recipe) {}

  void give(LinearSource& linear) {
    if (linear.present()) linear.scheme = schemes_.find(linear.module);
  }
  void give(MlpSources& mlp) {
    for (LinearSource* part : {&mlp.gate, &mlp.up, &mlp.down}) give(*part);
  }
  void give(LayerSources& layer) {
    AttentionSources& a = layer.attention;
    DeltaNetSources& d = layer.delta_net;
    for (LinearSource* part : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out})
      give(*part);
    give(layer.moe.router);
    give(layer.moe.shared_gate);
    give(layer.moe.shared);
    for (MlpSources& expert : layer.moe.experts) give(expert);
    give(layer.dense_mlp);
  }

 private:
  SchemeFinder schemes_;
};

}  // namespace

void apply_recipe(const Recipe& recipe, SyntheticWeights& weights) {
  SchemeGiver schemes(recipe);
  schemes.give(weights.embedding);
  if (weights.head.module != weights.embedding.module) schemes.give(weights.head);
  for (LayerSources& layer : weights.layers) schemes.give(layer);
}

void apply_recipe(const Recipe& recipe, MtpSources& mtp) {
  SchemeGiver schemes(recipe);
  schemes.give(mtp.joined);
  schemes.give(mtp.layer);
}

FileBytes sizes_in(const Checkpoint& checkpoint, const Recipe* recipe) {
  const auto plain = [&checkpoint](const LinearSource& source) {
    const TensorEntry* entry = checkpoint.find(source.values);
    CHECK(entry != nullptr, source.values);
    return dtype_bytes(entry->dtype, source.rows * source.cols);
  };
  return {
      .linear =
          [&checkpoint, recipe, plain](const LinearSource& source) {
            if (source.scheme.weights == WeightFormat::plain) return plain(source);
            if (recipe != nullptr)
              return stored_bytes(source.rows, source.cols, source.scheme,
                                  Dialect::compressed_tensors);
            int64_t bytes = 0;
            for (const std::string* name :
                 {&source.values, &source.scales, &source.global_scale, &source.input_scale})
              bytes += entry_bytes(checkpoint, *name);
            return bytes;
          },
      .vector = [&checkpoint](
                    const VectorSource& source) { return entry_bytes(checkpoint, source.name); }};
}

namespace {

/// The type of a linear's values; without a checkpoint BF16.
DType stored_type(const Checkpoint* checkpoint, const LinearSource& source) {
  const TensorEntry* entry = checkpoint == nullptr ? nullptr : checkpoint->find(source.values);
  return entry == nullptr ? DType::bf16 : entry->dtype;
}

/// True for an embedding that is not the head too, whose rows are looked up and not multiplied.
bool is_looked_up(const SyntheticWeights& weights, const LinearSource& source) {
  return &source == &weights.embedding && weights.head.values != weights.embedding.values;
}

/// The linears of an MTP layer as it is loaded that have another format than as it is stored.
std::set<const LinearSource*> rounded_linears(const std::optional<MtpSources>& loaded,
                                              const std::optional<MtpSources>& stored) {
  std::set<const LinearSource*> rounded;
  if (!loaded || !stored) return rounded;
  const auto before = fused_linears(*stored), after = fused_linears(*loaded);
  for (size_t group = 0; group < after.size(); ++group)
    for (size_t i = 0; i < after[group].size(); ++i)
      if (before[group][i]->scheme.weights != after[group][i]->scheme.weights)
        rounded.insert(after[group][i]);
  return rounded;
}

}  // namespace

FileBytes sizes_on_cpu(const SyntheticWeights& weights, const Checkpoint* checkpoint) {
  return {.linear =
              [&weights, checkpoint](const LinearSource& source) {
                const DType stored = stored_type(checkpoint, source);
                return is_looked_up(weights, source) ? cpu::embedding_bytes(source, stored)
                                                     : cpu::linear_bytes(source, stored);
              },
          .vector =
              [](const VectorSource& source) {
                return source.name.ends_with(".A_log") ? cpu::decay_bytes(source)
                                                       : cpu::vector_bytes(source);
              }};
}

std::vector<WeightRow> tally_mapped(const ModelRequest& request, SyntheticWeights weights,
                                    const std::optional<MtpSources>& stored,
                                    const Checkpoint* checkpoint) {
  const WeightPlace place = request.options.weights;
  if (place == WeightPlace::copied || request.dummy || request.direct_io) return {};
  if (weights.mtp) weights.mtp->head = {};
  const std::set<const LinearSource*> made = rounded_linears(weights.mtp, stored);
  const FileBytes readable = {.linear = [&](const LinearSource& source) -> int64_t {
                                const DType type = stored_type(checkpoint, source);
                                const bool plain = source.scheme.weights == WeightFormat::plain;
                                if (is_looked_up(weights, source))
                                  return plain ? cpu::embedding_bytes(source, type) : 0;
                                return made.contains(&source) ? 0
                                                              : cpu::readable_bytes(source, type);
                              },
                              .vector = [](const VectorSource&) { return int64_t{0}; }};
  std::vector<WeightRow> rows = tally_in_file(weights, readable);
  std::erase_if(rows, [&](const WeightRow& row) {
    if (row.kind == WeightKind::embedding && is_looked_up(weights, weights.embedding)) return false;
    return !cpu::stays_mapped(
        place, row.kind == WeightKind::experts ? cpu::Reading::routed : cpu::Reading::always);
  });
  return rows;
}

OtherWeights others_of(const Checkpoint& checkpoint) {
  OtherWeights others;
  for (const TensorEntry& entry : checkpoint.entries()) {
    if (is_text_tensor(entry.name)) continue;
    (is_mtp(entry.name) ? others.mtp_bytes : others.vision_bytes) += entry.bytes;
  }
  return others;
}

}  // namespace nibble
