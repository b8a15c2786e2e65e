// Renames, reciprocals and the other declaration.
#include "quantize/convert/convert.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/file.h"
#include "checkpoint/checkpoint_writer.h"
#include "model/config/config.h"
#include "model/weights/weights.h"
#include "quantize/convert/converted_papers.h"
#include "quantize/recipe/model_linears.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr uint64_t kModeloptConfigBytesMax = uint64_t{64} << 20;

/// The change of one tensor.
struct Move {
  std::string to;
  enum class Kind : uint8_t { copy, reciprocal, leave_out } kind = Kind::copy;
  std::optional<Shape> shape = {};  // another one, of the same elements
};

std::string_view unsayable(const QuantScheme& scheme) {
  if (scheme.weights == WeightFormat::fp8_block) return "FP8 weights in blocks";
  if (scheme == QuantScheme{WeightFormat::fp8_tensor, ActivationFormat::fp8_token})
    return "FP8 weights with activations per token";
  return "a scheme that is not known there";
}

class Converter {
 public:
  Converter(const Checkpoint& checkpoint, Dialect target, const ConvertOptions& options)
      : checkpoint_(checkpoint), target_(target), options_(options) {}
  Result<ConvertReport> run(const std::filesystem::path& output);

 private:
  Result<void> check_source() const;
  Result<void> check_cache_declaration() const;
  Result<void> plan();
  Result<void> plan_linear(const LinearSource& linear);
  void plan_nvfp4(const LinearSource& linear);
  void plan_fp8(const LinearSource& linear);
  Dialect source_dialect() const {
    return target_ == Dialect::modelopt ? Dialect::compressed_tensors : Dialect::modelopt;
  }
  Result<void> plan_rest();
  std::string own_file(const TensorEntry& entry) const;
  Result<void> move(const TensorEntry& entry, CheckpointWriter& writer);
  Result<void> copy(const TensorEntry& entry, const std::string& to,
                    CheckpointWriter& writer) const;
  Result<float> reciprocal(const TensorEntry& entry);
  Conversion papers() const;
  Error refuse(std::string_view what, std::string_view found) const {
    return make_error(ErrorCode::unsupported,
                      {.what = what,
                       .expected = concat("something ", dialect_name(target_), " can say here"),
                       .found = found});
  }

  const Checkpoint& checkpoint_;
  Dialect target_;
  const ConvertOptions& options_;
  std::map<std::string, Move, std::less<>> moves_;
  std::vector<TensorPlan> outputs_;
  QuantDeclaration declaration_;
  ConvertReport report_;
};

Result<void> Converter::check_source() const {
  const Json* declared = checkpoint_.config().find("quantization_config");
  const Json* method = declared == nullptr ? nullptr : declared->find("quant_method");
  const bool modelopt_file = std::filesystem::exists(checkpoint_.folder() / "hf_quant_config.json");
  std::string found = modelopt_file ? "modelopt" : "no quantization_config";
  if (method != nullptr && method->is_string()) found = method->as_string();
  if (found.starts_with(dialect_name(source_dialect()))) return {};
  return make_error(
      ErrorCode::unsupported,
      {.what = checkpoint_.folder().string(),
       .expected = concat("a checkpoint in the ", dialect_name(source_dialect()), " dialect"),
       .found = found,
       .advice = found.starts_with(dialect_name(target_)) ? "it needs no conversion"
                                                          : "`quantize` makes one from BF16"});
}

/// The dialects store cache scales under other names and in other types; a format without scales is
/// a promise about a reader. Neither is translated.
Result<void> Converter::check_cache_declaration() const {
  const Json* config = checkpoint_.config().find("quantization_config");
  const Json* scheme = config == nullptr ? nullptr : config->find("kv_cache_scheme");
  if (scheme != nullptr && !scheme->is_null())
    return refuse("quantization_config.kv_cache_scheme", scheme->dump());
  const auto side = checkpoint_.folder() / "hf_quant_config.json";
  if (!std::filesystem::exists(side)) return {};
  const std::string text = TRY(read_text_file(side, kModeloptConfigBytesMax));
  const Json file = TRY(parse_json(text, "hf_quant_config.json"));
  const Json* quantization = file.find("quantization");
  const Json* cache = quantization == nullptr ? nullptr : quantization->find("kv_cache_quant_algo");
  if (cache != nullptr && !cache->is_null())
    return refuse("hf_quant_config.json: kv_cache_quant_algo", cache->dump());
  return {};
}

Result<void> Converter::plan_linear(const LinearSource& linear) {
  if (linear.scheme.weights == WeightFormat::plain) return {};
  if (!dialect_can_say(linear.scheme, target_))
    return refuse(linear.module, unsayable(linear.scheme));
  ++report_.linears;
  if (linear.scheme.weights == WeightFormat::nvfp4) {
    plan_nvfp4(linear);
  } else {
    plan_fp8(linear);
  }
  return {};
}

void Converter::plan_nvfp4(const LinearSource& linear) {
  const Nvfp4Names to = nvfp4_names(linear.module, target_);
  moves_[linear.values] = {.to = to.codes};
  moves_[linear.scales] = {.to = to.scales};
  const Shape scalar = scale_shape(target_);
  constexpr auto kReciprocal = Move::Kind::reciprocal;
  moves_[linear.global_scale] = {.to = to.global, .kind = kReciprocal, .shape = scalar};
  const std::string input = nvfp4_names(linear.module, source_dialect()).input_scale;
  if (checkpoint_.find(input) == nullptr) return;
  moves_[input] = {.to = to.input_scale, .kind = kReciprocal, .shape = scalar};
  // ModelOpt files carry input scales even where activations are not quantized, and readers skip
  // them; readers of the other dialect know no such tensor and stop.
  if (linear.scheme.activations == ActivationFormat::high &&
      target_ == Dialect::compressed_tensors) {
    moves_[input].kind = Move::Kind::leave_out;
    ++report_.unread_scales;
  }
}

/// The names are the same in both dialects, and scales multiply in both.
void Converter::plan_fp8(const LinearSource& linear) {
  moves_[linear.values] = {.to = linear.values};
  moves_[linear.scales] = {.to = linear.module + ".weight_scale",
                           .shape = fp8_scale_shape(linear.scheme.weights, linear.rows, target_)};
  const std::string input = linear.module + ".input_scale";
  if (checkpoint_.find(input) != nullptr)
    moves_[input] = {.to = input, .shape = scale_shape(target_)};
}

/// "model_mtp" of a file model_mtp.safetensors; empty for numbered shards.
std::string Converter::own_file(const TensorEntry& entry) const {
  const std::string& file = checkpoint_.files()[static_cast<size_t>(entry.file)];
  return file.starts_with("model_") ? file.substr(0, file.rfind('.')) : std::string();
}

/// All other tensors are copied, unless they are quantized in a place that is not known here.
Result<void> Converter::plan_rest() {
  std::vector<const TensorEntry*> in_order;
  for (const TensorEntry& entry : checkpoint_.entries()) in_order.push_back(&entry);
  std::ranges::sort(in_order, {},
                    [](const TensorEntry* e) { return std::pair(e->file, e->offset); });
  for (const TensorEntry* entry : in_order) {
    const auto found = moves_.find(entry->name);
    if (found == moves_.end()) {
      if (entry->dtype == DType::u8 || entry->dtype == DType::f8_e4m3 ||
          entry->name.ends_with("_scale"))
        return refuse(entry->name, "a quantized tensor outside of the text model's linears");
      outputs_.push_back({entry->name, entry->dtype, entry->shape, own_file(*entry)});
    } else if (found->second.kind != Move::Kind::leave_out) {
      const Move& move = found->second;
      const bool scalar = move.kind == Move::Kind::reciprocal;
      outputs_.push_back({move.to, scalar ? DType::f32 : entry->dtype,
                          move.shape.value_or(entry->shape), own_file(*entry)});
    }
  }
  return {};
}

Result<void> Converter::plan() {
  TRY(check_source());
  TRY(check_cache_declaration());
  const ModelConfig config = TRY(ModelConfig::parse(checkpoint_.config()));
  const Weights weights = TRY(bind_linears(checkpoint_, config));
  for (const auto& group : fused_linears(weights))
    for (const LinearSource* linear : group) TRY(plan_linear(*linear));
  if (report_.linears == 0) return refuse(checkpoint_.folder().string(), "no quantized linear");
  declaration_ = stored_declaration(weights);
  declare_other_areas(checkpoint_, weights, declaration_);
  return plan_rest();
}

Result<float> Converter::reciprocal(const TensorEntry& entry) {
  const Tensor stored = TRY(checkpoint_.read(entry));
  float scale = 0;
  decode_plain(stored.view().data, stored.dtype(), 1, &scale);
  const float inverse = 1.0F / scale;
  if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(inverse) || inverse == 0.0F)
    return make_error(ErrorCode::corrupt, {.what = concat("tensor ", entry.name),
                                           .expected = "a finite positive scale",
                                           .found = std::isnan(scale) ? "NaN" : concat(scale)});
  if (1.0F / inverse != scale) ++report_.inexact_scales;
  return inverse;
}

Result<void> Converter::copy(const TensorEntry& entry, const std::string& to,
                             CheckpointWriter& writer) const {
  Buffer buffer(std::min(entry.bytes, options_.block_bytes));
  for (int64_t done = 0; done < entry.bytes;) {
    if (options_.cancelled && options_.cancelled())
      return Error{ErrorCode::cancelled, "stopped; the unfinished output was removed"};
    const auto piece = static_cast<size_t>(std::min(buffer.bytes(), entry.bytes - done));
    TRY(checkpoint_.read_bytes(entry, done, buffer.span().first(piece)));
    TRY(writer.append(to, buffer.span().first(piece)));
    done += static_cast<int64_t>(piece);
  }
  return {};
}

Result<void> Converter::move(const TensorEntry& entry, CheckpointWriter& writer) {
  const auto found = moves_.find(entry.name);
  if (found == moves_.end()) return copy(entry, entry.name, writer);
  if (found->second.kind == Move::Kind::leave_out) return {};
  if (found->second.kind == Move::Kind::copy) return copy(entry, found->second.to, writer);
  const float inverse = TRY(reciprocal(entry));
  return writer.append(found->second.to, std::as_bytes(std::span(&inverse, 1)));
}

Conversion Converter::papers() const {
  int64_t bytes = 0;
  for (const TensorPlan& tensor : outputs_)
    bytes += dtype_bytes(tensor.dtype, tensor.shape.count());
  return {.command = concat("nibble convert SRC DST --format ", dialect_name(target_)),
          .dialect = target_,
          .declaration = declaration_,
          .tensor_bytes = bytes,
          .weights =
              report_.inexact_scales == 0 ? Conversion::Weights::same : Conversion::Weights::other};
}

Result<ConvertReport> Converter::run(const std::filesystem::path& output) {
  TRY(plan());
  TensorHasher hasher;
  CheckpointWriter writer = TRY(CheckpointWriter::create(
      output, outputs_,
      {.shard_bytes_max = options_.shard_bytes_max,
       .inputs = {checkpoint_.folder()},
       .progress = options_.progress,
       .appended = [&hasher](auto tensor, auto data) { hasher.add(tensor, data); }}));
  for (const TensorEntry& entry : checkpoint_.entries()) {
    TRY(move(entry, writer));
    report_.bytes += entry.bytes;
  }
  for (const TensorPlan& tensor : outputs_) hasher.finish(tensor.name);
  Conversion conversion = papers();
  conversion.hashes = hasher.take();
  TRY(finish_converted(checkpoint_, conversion, writer));
  return report_;
}

}  // namespace

Result<ConvertReport> convert(const Checkpoint& checkpoint, Dialect target,
                              const std::filesystem::path& output, const ConvertOptions& options) {
  return Converter(checkpoint, target, options).run(output);
}

}  // namespace nibble
