// The declaration's method and algorithm against the option's name.
#include "cli/serving/declared_quantization.h"

#include "base/file.h"
#include "base/json.h"

namespace nibble {

namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;

struct Declaration {
  std::string method;     // "modelopt", "compressed-tensors"; empty: none
  std::string algorithm;  // ModelOpt's: "NVFP4", "MIXED_PRECISION", ...
};

std::string text_of(const Json& section, std::string_view key) {
  const Json* value = section.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

Result<Json> read_json(const std::filesystem::path& file) {
  const std::string text = TRY(read_text_file(file, kConfigBytesMax));
  return parse_json(text, file.string());
}

Result<Declaration> read_declaration(const std::filesystem::path& folder) {
  const Json config = TRY(read_json(folder / "config.json"));
  if (const Json* section = config.find("quantization_config"))
    return Declaration{text_of(*section, "quant_method"), text_of(*section, "quant_algo")};
  const auto side = folder / "hf_quant_config.json";  // written by older ModelOpt
  if (!std::filesystem::exists(side)) return Declaration();
  const Json json = TRY(read_json(side));
  const Json* section = json.find("quantization");
  return Declaration{"modelopt", section == nullptr ? "" : text_of(*section, "quant_algo")};
}

/// vLLM's "modelopt" stands for whatever ModelOpt wrote.
bool agrees(std::string_view name, const Declaration& found) {
  if (name == "compressed-tensors") return found.method == name;
  if (found.method != "modelopt") return false;
  if (name == "modelopt_fp4") return found.algorithm == "NVFP4";
  if (name == "modelopt_mixed") return found.algorithm == "MIXED_PRECISION";
  return true;
}

}  // namespace

Result<std::string> quantization_name(const Arguments& arguments) {
  auto name = arguments.choice(kQuantizationOption.name, {"modelopt", "modelopt_fp4",
                                                          "modelopt_mixed", "compressed-tensors"});
  if (name.ok()) return name;
  return Error{name.error().code,
               concat(name.error().message,
                      "; --quantize RECIPE quantizes a BF16 checkpoint before it is served")};
}

Result<void> check_quantization(const Arguments& arguments, const std::filesystem::path& folder) {
  if (!arguments.given(kQuantizationOption.name)) return {};
  const std::string name = TRY(quantization_name(arguments));
  const Declaration found = TRY(read_declaration(folder));
  if (agrees(name, found)) return {};
  const std::string declared =
      concat(found.method, found.algorithm.empty() ? "" : " ", found.algorithm);
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--quantization ", name),
                     .expected = "what config.json declares",
                     .found = declared.empty() ? "a checkpoint that is not quantized" : declared,
                     .advice = "leave the flag out, or name what the checkpoint is"});
}

}  // namespace nibble
