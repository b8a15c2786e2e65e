// A declaration from bound tensors, and links.
#include "quantize/convert/repair_config.h"

#include "model/config/config.h"
#include "quantize/convert/converted_papers.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/recipe/scheme_words.h"

namespace nibble {
namespace {

std::vector<LinkedFile> all_files(const Checkpoint& checkpoint) {
  std::vector<LinkedFile> files;
  for (const std::string& name : checkpoint.files())
    files.push_back({.path = checkpoint.folder() / name});
  for (const TensorEntry& entry : checkpoint.entries()) {
    LinkedFile& file = files[static_cast<size_t>(entry.file)];
    file.tensors.push_back(entry.name);
    file.bytes += entry.bytes;
  }
  return files;
}

/// Refuses a declaration beside that of the linears: it is not made anew and would be lost.
Result<void> check_cache_scheme(const Checkpoint& checkpoint) {
  const Json* config = checkpoint.config().find("quantization_config");
  const Json* scheme = config == nullptr ? nullptr : config->find("kv_cache_scheme");
  if (scheme == nullptr || scheme->is_null()) return {};
  return make_error(ErrorCode::unsupported, {.what = "quantization_config.kv_cache_scheme",
                                             .expected = "none in a config to repair",
                                             .found = scheme->dump()});
}

Result<void> check_schemes(const QuantDeclaration& declaration, Dialect dialect) {
  for (const auto& module : declaration.quantized)
    if (!dialect_can_say(module.scheme, dialect))
      return make_error(
          ErrorCode::unsupported,
          {.what = module.name,
           .expected = concat("a scheme that this program can declare in ", dialect_name(dialect)),
           .found = scheme_text(module.scheme)});
  return {};
}

}  // namespace

Result<RepairReport> repair_config(const Checkpoint& checkpoint,
                                   const std::filesystem::path& output) {
  const Dialect dialect = TRY(dialect_of(checkpoint));
  TRY(check_cache_scheme(checkpoint));
  const ModelConfig config = TRY(ModelConfig::parse(checkpoint.config()));
  const Weights weights = TRY(bind_linears(checkpoint, config));
  QuantDeclaration declaration = stored_declaration(weights);
  if (declaration.quantized.empty())
    return make_error(ErrorCode::unsupported, {.what = checkpoint.folder().string(),
                                               .expected = "a quantized checkpoint",
                                               .found = "no quantized linear"});
  TRY(check_schemes(declaration, dialect));
  declare_other_areas(checkpoint, weights, declaration);
  const std::vector<LinkedFile> linked = all_files(checkpoint);
  RepairReport report{.linears = static_cast<int64_t>(declaration.quantized.size()),
                      .linked_files = static_cast<int64_t>(linked.size())};
  int64_t bytes = 0;
  for (const LinkedFile& file : linked) bytes += file.bytes;
  CheckpointWriter writer = TRY(
      CheckpointWriter::create(output, {}, {.linked = linked, .inputs = {checkpoint.folder()}}));
  TRY(finish_converted(checkpoint,
                       {.command = "nibble convert SRC DST --repair",
                        .dialect = dialect,
                        .declaration = declaration,
                        .tensor_bytes = bytes,
                        .hashes = with_linked(checkpoint, linked, {})},
                       writer));
  return report;
}

}  // namespace nibble
