// A plan of one linear, and links.
#include "quantize/convert/convert_head.h"

#include <cmath>

#include "model/config/config.h"
#include "quantize/convert/converted_papers.h"
#include "quantize/group_rounder.h"
#include "quantize/recipe/model_linears.h"

namespace nibble {
namespace {

constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kFormatNames[] = {"bf16", "fp8-block", "nvfp4"};

Error unsupported(std::string_view what, std::string_view expected, std::string_view found,
                  std::string_view advice = "") {
  return make_error(ErrorCode::unsupported,
                    {.what = what, .expected = expected, .found = found, .advice = advice});
}

QuantScheme scheme_of(HeadFormat format) {
  if (format == HeadFormat::nvfp4) return {WeightFormat::nvfp4, ActivationFormat::high};
  if (format == HeadFormat::fp8_block)
    return {WeightFormat::fp8_block, ActivationFormat::fp8_group};
  return {};
}

bool is_head(std::string_view tensor) { return tensor.starts_with("lm_head."); }

/// All files but the head's, and the head's bytes.
Result<std::vector<LinkedFile>> other_files(const Checkpoint& checkpoint, int64_t& head_bytes) {
  std::vector<LinkedFile> files;
  for (const std::string& name : checkpoint.files())
    files.push_back({.path = checkpoint.folder() / name});
  std::vector<bool> has_head(files.size());
  for (const TensorEntry& entry : checkpoint.entries()) {
    const auto file = static_cast<size_t>(entry.file);
    if (is_head(entry.name)) {
      has_head[file] = true;
      head_bytes += entry.bytes;
      continue;
    }
    files[file].tensors.push_back(entry.name);
    files[file].bytes += entry.bytes;
  }
  std::vector<LinkedFile> others;
  for (size_t i = 0; i < files.size(); ++i) {
    if (has_head[i] && !files[i].tensors.empty())
      return unsupported(files[i].path.string(), "a file with the head alone",
                         concat(files[i].tensors.size(), " other tensors in it"),
                         "quantize again; this program writes model_head.safetensors");
    if (!has_head[i]) others.push_back(std::move(files[i]));
  }
  return others;
}

/// A last rule for the head; the last match wins.
std::string head_rule(HeadFormat format) {
  constexpr std::string_view kWeights[] = {"keep", "fp8-block", "nvfp4"};
  return concat("  # convert --head ", kFormatNames[static_cast<size_t>(format)],
                "\n  - match: lm_head\n    weights: ", kWeights[static_cast<size_t>(format)], "\n");
}

class HeadConverter {
 public:
  HeadConverter(const Checkpoint& checkpoint, const Checkpoint& source, HeadFormat format,
                int64_t block_bytes)
      : checkpoint_(checkpoint),
        source_(source),
        scheme_(scheme_of(format)),
        format_(format),
        block_bytes_(block_bytes) {}
  Result<HeadReport> run(const std::filesystem::path& output);

 private:
  Result<void> plan();
  Result<void> write_head(CheckpointWriter& writer);
  Conversion conversion(std::optional<Hashes> hashes) const;

  const Checkpoint& checkpoint_;
  const Checkpoint& source_;
  QuantScheme scheme_;
  HeadFormat format_;
  int64_t block_bytes_;
  Dialect dialect_ = Dialect::compressed_tensors;
  LinearSource head_;  // of the source
  QuantDeclaration declaration_;
  std::vector<TensorPlan> outputs_;
  HeadReport report_;
  KindReport head_row_ = {.kind = std::string(kHead), .scheme = {}, .rounding = {}};
  int64_t linked_bytes_ = 0;
};

Result<void> HeadConverter::plan() {
  dialect_ = TRY(dialect_of(checkpoint_));
  const ModelConfig config = TRY(ModelConfig::parse(checkpoint_.config()));
  const Weights weights = TRY(bind_linears(checkpoint_, config));
  const ModelConfig source_config = TRY(ModelConfig::parse(source_.config()));
  const Weights sources = TRY(Weights::bind(source_, source_config));
  head_ = sources.head();
  if (weights.head().module != kHead || head_.module != kHead)
    return unsupported(checkpoint_.folder().string(), "a head of its own",
                       "one that is tied to the embedding");
  if (head_.scheme.weights != WeightFormat::plain)
    return unsupported(source_.folder().string(), "an unquantized lm_head", "a quantized one");
  if (head_.rows != weights.head().rows || head_.cols != weights.head().cols)
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source_.folder().string(), ": lm_head"),
                       .expected = concat("[", weights.head().rows, ", ", weights.head().cols, "]"),
                       .found = concat("[", head_.rows, ", ", head_.cols, "]"),
                       .advice = "name the checkpoint this one was made from"});
  const bool plain = scheme_.weights == WeightFormat::plain;
  if (!plain && !dialect_can_say(scheme_, dialect_))
    return unsupported("--head", concat("a format that ", dialect_name(dialect_), " can say"),
                       kFormatNames[static_cast<size_t>(format_)]);
  declaration_ = stored_declaration(weights);
  std::erase_if(declaration_.quantized, [](const auto& module) { return module.name == kHead; });
  std::erase(declaration_.plain, kHead);
  if (plain && declaration_.quantized.empty())
    return unsupported(checkpoint_.folder().string(), "a quantized linear beside lm_head", "none",
                       concat("use ", source_.folder().string(), " itself"));
  if (plain) {
    declaration_.plain.emplace_back(kHead);
    const DType dtype = source_.find(head_.values)->dtype;
    outputs_ = {{concat(kHead, ".weight"), dtype, {head_.rows, head_.cols}}};
  } else {
    declaration_.quantized.push_back({std::string(kHead), scheme_});
    outputs_ = stored_tensors(kHead, head_.rows, head_.cols, scheme_, dialect_);
  }
  declare_other_areas(checkpoint_, weights, declaration_);
  for (TensorPlan& tensor : outputs_) {
    tensor.file = "model_head";
    report_.bytes_after += dtype_bytes(tensor.dtype, tensor.shape.count());
  }
  return {};
}

Result<void> HeadConverter::write_head(CheckpointWriter& writer) {
  const TensorEntry& entry = *source_.find(head_.values);
  head_row_.bytes_in = entry.bytes;
  head_row_.bytes_out = report_.bytes_after;
  if (scheme_.weights == WeightFormat::plain) {
    Buffer buffer(std::min(entry.bytes, block_bytes_));
    for (int64_t done = 0; done < entry.bytes;) {
      const auto piece =
          buffer.span().first(static_cast<size_t>(std::min(buffer.bytes(), entry.bytes - done)));
      TRY(source_.read_bytes(entry, done, piece));
      TRY(writer.append(outputs_.front().name, piece));
      done += static_cast<int64_t>(piece.size());
    }
    return {};
  }
  head_row_.scheme = scheme_text(scheme_);
  head_row_.tensors = 1;
  head_row_.weights = head_.rows * head_.cols;
  ThreadPool threads(usable_cores());
  const GroupRounder rounder(
      source_, writer,
      {.dialect = dialect_, .block_bytes = block_bytes_, .check = [] { return Result<void>(); }});
  const FusedGroup group{.linears = {{.source = head_, .kind = "lm_head", .becomes = {scheme_}}},
                         .bytes = entry.bytes};
  const RoundedGroup rounded = TRY(rounder.round(group, threads));
  const RoundStatistics& statistics = rounded.outcomes.front().statistics;
  head_row_.rounding = statistics;
  if (statistics.weight_squares > 0)
    report_.relative_error = std::sqrt(statistics.error_squares / statistics.weight_squares);
  return {};
}

Conversion HeadConverter::conversion(std::optional<Hashes> hashes) const {
  return {.command = concat("nibble convert SRC DST --head ",
                            kFormatNames[static_cast<size_t>(format_)], " --source BASE"),
          .dialect = dialect_,
          .declaration = declaration_,
          .tensor_bytes = linked_bytes_ + report_.bytes_after,
          .head = head_row_,
          .head_rule = head_rule(format_),
          .weights = Conversion::Weights::other,
          .hashes = std::move(hashes)};
}

Result<HeadReport> HeadConverter::run(const std::filesystem::path& output) {
  TRY(plan());
  const auto linked = TRY(other_files(checkpoint_, report_.bytes_before));
  report_.linked_files = static_cast<int64_t>(linked.size());
  for (const LinkedFile& file : linked) linked_bytes_ += file.bytes;
  TensorHasher hasher;
  CheckpointWriter writer = TRY(CheckpointWriter::create(
      output, outputs_,
      {.linked = linked,
       .inputs = {checkpoint_.folder(), source_.folder()},
       .appended = [&hasher](auto tensor, auto data) { hasher.add(tensor, data); }}));
  TRY(write_head(writer));
  for (const TensorPlan& tensor : outputs_) hasher.finish(tensor.name);
  TRY(finish_converted(checkpoint_, conversion(with_linked(checkpoint_, linked, hasher.take())),
                       writer));
  return report_;
}

}  // namespace

Result<HeadFormat> parse_head_format(std::string_view name) {
  for (size_t i = 0; i < std::size(kFormatNames); ++i)
    if (kFormatNames[i] == name) return static_cast<HeadFormat>(i);
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--head", .expected = "bf16, fp8-block or nvfp4", .found = name});
}

Result<HeadReport> convert_head(const Checkpoint& checkpoint, const Checkpoint& source,
                                HeadFormat format, const std::filesystem::path& output,
                                int64_t block_bytes) {
  return HeadConverter(checkpoint, source, format, block_bytes).run(output);
}

}  // namespace nibble
