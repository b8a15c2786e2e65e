// The numbers of quantization_config and of hf_quant_config.json, wherever they stand in them.
#include <filesystem>
#include <set>

#include "base/file.h"
#include "quantize/verify/verify_sense.h"
#include "tensor/nvfp4.h"

namespace nibble {

namespace {

constexpr std::string_view kSideFile = "hf_quant_config.json";
constexpr uint64_t kSideBytesMax = uint64_t{64} << 20;

void add_error(Findings& findings, std::string_view subject, std::string text) {
  findings.push_back({Severity::error, std::string(subject), std::move(text)});
}

/// True for an object that speaks of 4-bit numbers: a side of a group, a layer of ModelOpt.
bool is_four_bit(const Json& object) {
  const Json* bits = object.find("num_bits");
  if (bits != nullptr && *bits == Json(4)) return true;
  const Json* algorithm = object.find("quant_algo");
  return algorithm != nullptr && algorithm->is_string() &&
         algorithm->as_string().find("NVFP4") != std::string::npos;
}

/// The objects of a tree that speak of 4-bit numbers and whose groups are not of 16.
void check_group_sizes(const Json& json, const std::string& at, std::string_view file,
                       Findings& findings) {
  if (json.is_array())
    for (const Json& one : json.as_array()) check_group_sizes(one, at, file, findings);
  if (!json.is_object()) return;
  const Json* size = json.find("group_size");
  if (size != nullptr && !size->is_null() && is_four_bit(json) && *size != Json(kNvfp4Group))
    add_error(findings, file,
              concat(at, ".group_size: expected ", kNvfp4Group,
                     ", as the block scales of NVFP4 have it, found ", size->dump().substr(0, 40)));
  for (const auto& [key, value] : json.as_object())
    check_group_sizes(value, concat(at, ".", key), file, findings);
}

std::string shown(const Json* json) {
  return json == nullptr ? "nothing" : json->dump().substr(0, 60);
}

/// Both say it, and the same.
void check_same(const Json* here, const Json* there, std::string_view key, Findings& findings) {
  if (here == nullptr || there == nullptr || *here == *there) return;
  add_error(findings, kSideFile,
            concat(key, ": expected ", shown(there), " as in config.json, found ", shown(here)));
}

std::set<std::string> names_of(const Json& list) {
  std::set<std::string> names;
  if (!list.is_array()) return names;
  for (const Json& name : list.as_array())
    if (name.is_string()) names.insert(name.as_string());
  return names;
}

/// The modules that stay unquantized, in any order.
void check_same_names(const Json* here, const Json* there, Findings& findings) {
  if (here == nullptr || there == nullptr) return;
  const auto one = names_of(*here), other = names_of(*there);
  if (one == other) return;
  for (const auto* list : {&one, &other})
    for (const std::string& name : *list)
      if (one.contains(name) != other.contains(name)) {
        const bool extra = one.contains(name);
        return add_error(
            findings, kSideFile,
            concat("exclude_modules ", extra ? "has " : "lacks ", Json(name).dump(),
                   ", which quantization_config.ignore of config.json ", extra ? "lacks" : "has"));
      }
}

void check_side_file(const Json& declared, const Json& side, Findings& findings) {
  const Json* method = declared.find("quant_method");
  const bool modelopt =
      method != nullptr && method->is_string() && method->as_string().starts_with("modelopt");
  if (!modelopt) {
    findings.push_back({Severity::warning, std::string(kSideFile),
                        concat("stands beside a config.json of another dialect, ", shown(method),
                               ": engines disagree which one counts")});
    return;
  }
  const Json* quantization = side.find("quantization");
  if (quantization == nullptr) return;
  check_same(quantization->find("quant_algo"), declared.find("quant_algo"), "quant_algo", findings);
  check_same(quantization->find("quantized_layers"), declared.find("quantized_layers"),
             "quantized_layers", findings);
  check_same_names(quantization->find("exclude_modules"), declared.find("ignore"), findings);
  const Json* cache = quantization->find("kv_cache_quant_algo");
  const Json* scheme = declared.find("kv_cache_scheme");
  const bool cache_here = cache != nullptr && !cache->is_null();
  const bool cache_there = scheme != nullptr && !scheme->is_null();
  if (cache != nullptr && scheme != nullptr && cache_here != cache_there)
    add_error(findings, kSideFile,
              concat("kv_cache_quant_algo is ", shown(cache),
                     ", but kv_cache_scheme of config.json "
                     "is ",
                     shown(scheme)));
  const Json* size = quantization->find("group_size");
  const Json* algorithm = quantization->find("quant_algo");
  const bool mixed = algorithm != nullptr && *algorithm == Json("MIXED_PRECISION");
  if (size != nullptr && !size->is_null() && mixed && *size != Json(kNvfp4Group))
    add_error(findings, kSideFile,
              concat("quantization.group_size: expected ", kNvfp4Group, ", found ", shown(size)));
}

}  // namespace

void check_declared_numbers(const Checkpoint& checkpoint, Findings& findings) {
  const Json* declared = checkpoint.config().find("quantization_config");
  if (declared != nullptr)
    check_group_sizes(*declared, "quantization_config", "config.json", findings);
  std::error_code failure;
  const auto path = checkpoint.folder() / kSideFile;
  if (!std::filesystem::exists(path, failure)) return;
  const auto text = read_text_file(path, kSideBytesMax);
  const auto side = text.ok() ? parse_json(text.value(), kSideFile) : Result<Json>(text.error());
  if (!side.ok()) return add_error(findings, kSideFile, side.error().message);
  check_group_sizes(side.value(), "hf_quant_config", kSideFile, findings);
  if (declared != nullptr) check_side_file(*declared, side.value(), findings);
}

}  // namespace nibble
