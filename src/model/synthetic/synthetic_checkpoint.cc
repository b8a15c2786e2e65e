// Writes the tensors of SyntheticNumbers and the declaration that other engines want.
#include "model/synthetic/synthetic_checkpoint.h"

#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "model/synthetic/synthetic_numbers.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

/// The words of a compressed-tensors checkpoint for one format.
struct Said {
  std::string_view weights, inputs;  // strategies; no inputs: they stay high
};

Json side_args(int bits, std::string_view strategy, Json dynamic) {
  Json args = Json::Object{};
  args.set("num_bits", bits);
  args.set("type", "float");
  args.set("strategy", strategy);
  if (strategy == "tensor_group") args.set("group_size", kNvfp4Group);
  if (strategy == "group") args.set("group_size", kFp8Block);
  if (strategy == "block") args.set("block_structure", Json::Array{kFp8Block, kFp8Block});
  args.set("symmetric", true);
  args.set("dynamic", std::move(dynamic));
  return args;
}

Json scheme_group(const std::vector<std::string>& targets, int bits, const Said& said) {
  Json group = Json::Object{};
  Json::Array names;
  for (const std::string& target : targets) names.emplace_back(target);
  group.set("targets", std::move(names));
  group.set("format", bits == 4 ? "nvfp4-pack-quantized" : "float-quantized");
  group.set("weights", side_args(bits, said.weights, false));
  group.set("input_activations",
            said.inputs.empty()
                ? Json()
                : side_args(bits, said.inputs,
                            bits == 4 ? Json("local") : Json(said.inputs != "tensor")));
  return group;
}

/// Strategies of weights and declared inputs.
Said said_of(int bits, SyntheticFp8 fp8) {
  if (bits == 4) return {"tensor_group", "tensor_group"};
  if (fp8 == SyntheticFp8::by_block) return {"block", "group"};
  return {"tensor", fp8 == SyntheticFp8::by_tensor ? "tensor" : "token"};
}

/// The same for weights that have a scale for each row where others have one.
Said by_row(Said said) {
  if (said.weights == "tensor") said.weights = "channel";
  return said;
}

/// No linear has eight bits.
bool is_four(WeightLayout layout) {
  return layout == WeightLayout::nvfp4 || layout == WeightLayout::w4a4;
}

/// Patterns as quantize writes them (target_patterns.h).
std::string pattern(std::string_view tail) {
  return concat(R"(re:(?:model\.|language_model\.)*)", tail, "$");
}

Json scheme_groups(const std::map<std::string, int>& declared, const SyntheticOptions& options) {
  const std::string experts = pattern(R"(layers\.\d+\.mlp\.experts\.\d+\.(?:gate|up|down)_proj)");
  const std::string mlp = pattern(R"(layers\.\d+\.mlp\.(?:shared_expert\.)?(?:gate|up|down)_proj)");
  const std::string attention = pattern(R"(layers\.\d+\.self_attn\.[qkvo]_proj)");
  const std::string delta =
      pattern(R"(layers\.\d+\.linear_attn\.(?:in_proj_qkv|in_proj_z|out_proj))");
  const std::string head = pattern("lm_head");
  const WeightLayout layout = options.layout;
  const bool folder = options.scope == SyntheticScope::folder;
  const bool rows_of_head = layout == WeightLayout::mixed;
  const auto plain_inputs = [&](int bits) {
    Said said = said_of(bits, options.fp8);
    if (bits == 4 || !folder) said.inputs = "";
    return said;
  };
  Json groups = Json::Object{};
  for (const auto& [ending, bits] : declared) {  // first: of two groups the first counts
    const Said said = said_of(bits, options.fp8);
    groups.set(concat("inputs_", ending),
               scheme_group({ending, concat("re:.*", ending, "$")}, bits,
                            rows_of_head && ending == "lm_head" ? by_row(said) : said));
  }
  if (is_four(layout)) {
    std::vector<std::string> targets = {experts, mlp, attention};
    if (layout == WeightLayout::nvfp4) targets.push_back(head);
    groups.set("group_0", scheme_group(targets, 4, plain_inputs(4)));
  } else if (layout == WeightLayout::fp8 && folder && options.fp8 != SyntheticFp8::by_block) {
    groups.set("group_0", scheme_group({experts}, 8, {"channel", "token"}));
    groups.set("group_1", scheme_group({mlp, head, attention, delta}, 8, plain_inputs(8)));
  } else {
    const int bits = layout == WeightLayout::fp8 ? 8 : 4;
    std::vector<std::string> targets = {experts, mlp};
    if (!rows_of_head) targets.push_back(head);
    groups.set("group_0", scheme_group(targets, bits, plain_inputs(bits)));
    groups.set("group_1", scheme_group({attention, delta}, 8, plain_inputs(8)));
    if (rows_of_head) groups.set("group_2", scheme_group({head}, 8, by_row(plain_inputs(8))));
  }
  return groups;
}

Json declaration(const std::map<std::string, int>& declared, const SyntheticOptions& options) {
  const bool four = is_four(options.layout);
  Json config = Json::Object{};
  config.set("quant_method", "compressed-tensors");
  config.set("format", four ? "nvfp4-pack-quantized" : "mixed-precision");
  config.set("quantization_status", "compressed");
  config.set("config_groups", scheme_groups(declared, options));
  Json::Array ignored;  // readers that want an entry for each linear
  for (const char* name :
       {R"(re:.*\.mlp\.gate$)", R"(re:.*\.shared_expert_gate$)", R"(re:.*\.in_proj_[ab]$)",
        R"(re:.*embed_tokens$)", R"(re:.*visual\..*)", "re:^mtp.*"})
    ignored.emplace_back(name);
  if (four) ignored.emplace_back(R"(re:.*\.linear_attn\..*)");
  if (options.layout == WeightLayout::w4a4) ignored.emplace_back(R"(re:.*lm_head$)");
  config.set("ignore", std::move(ignored));
  return config;
}

Json without_declaration(const Json& config) {
  Json::Object kept;
  for (const Json::Member& member : config.as_object())
    if (member.key != "quantization_config") kept.push_back(member);
  return kept;
}

/// The model that is written: the text model, and the MTP layer and, for a whole folder, the vision
/// tower that config.json promises.
Result<ModelConfig> written_model(const Json& config, SyntheticScope scope) {
  ModelConfig model = TRY(ModelConfig::parse(config));
  if (model.mtp_layers > 1)
    return make_error(
        ErrorCode::unsupported,
        {.what = "mtp_num_hidden_layers", .expected = "0 or 1", .found = concat(model.mtp_layers)});
  model.draft_layers = model.mtp_layers;
  if (scope == SyntheticScope::folder)
    model.vision = TRY(VisionConfig::parse(config, model.hidden, model.vocab_rows));
  return model;
}

Result<void> append(CheckpointWriter& writer, const SyntheticNumbers& numbers,
                    const SyntheticTensor& tensor) {
  const TensorPlan& plan = tensor.plan;
  return numbers.pieces(
      tensor, 0, dtype_bytes(plan.dtype, plan.shape.count()),
      [&](std::span<const std::byte> piece) { return writer.append(plan.name, piece); });
}

}  // namespace

Result<void> write_synthetic_checkpoint(const Json& config, const std::filesystem::path& output,
                                        const SyntheticOptions& options) {
  const bool folder = options.scope == SyntheticScope::folder;
  Json written = without_declaration(config);
  const ModelConfig model = TRY(written_model(written, options.scope));
  const FormatOf formats = formats_of(options.layout);
  const SyntheticWeights weights = synthetic_weights(model, [&](std::string_view module) {
    for (const std::string& ending : options.zero)
      if (module.ends_with(ending)) return WeightFormat::plain;
    const WeightFormat format = formats(module);
    if (format != WeightFormat::fp8_tensor && format != WeightFormat::fp8_channel) return format;
    if (options.fp8 == SyntheticFp8::by_block) return WeightFormat::fp8_block;
    const bool expert = module.find(".experts.") != std::string_view::npos;
    return folder && expert ? WeightFormat::fp8_channel : format;
  });
  SyntheticNumbers numbers(options);
  numbers.add(weights, model);
  if (options.layout != WeightLayout::bf16)
    written.set("quantization_config", declaration(numbers.declared(), options));

  std::vector<TensorPlan> plans;
  for (const SyntheticTensor& tensor : numbers.tensors()) plans.push_back(tensor.plan);
  CheckpointWriter writer = TRY(CheckpointWriter::create(output, std::move(plans)));
  std::mutex mutex;
  Result<void> outcome;
  ThreadPool pool(options.threads);
  pool.parallel_for(numbers.tensors().size(), 8, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Result<void> done = append(writer, numbers, numbers.tensors()[i]);
      const std::lock_guard lock(mutex);
      if (!done.ok() && outcome.ok()) outcome = done;
    }
  });
  TRY(outcome);
  for (const auto& [name, text] : options.files) TRY(writer.add_file(name, text));
  return writer.finish(written);
}

}  // namespace nibble
