// inspect: what is in a checkpoint. Facts of the architecture, and a table of what its tensors are
// and how they are stored. Reads headers and config.json only; whether they are right is verify.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/config/config.h"
#include "quantize/verify/inspect_modules.h"

namespace nibble {

/// Modules of one kind that are stored alike.
struct InspectRow {
  ModuleKind kind = ModuleKind::other;
  std::string stored_as;  // "NVFP4 W4A4", "BF16"
  int64_t modules = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;          // scales included
  std::vector<Shape> shapes;  // distinct ones, at most kInspectShapes + 1
};
inline constexpr size_t kInspectShapes = 3;

struct InspectTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t bytes = 0;
  std::string file;
};

/// The weights that one generated token reads: all of the text model but the embedding table, of
/// which it reads a row, and top-k of the experts. No KV cache, no MTP head, no vision tower.
struct ActiveCost {
  int64_t parameters = 0;
  int64_t bytes = 0;
};

struct Inspection {
  std::string folder;
  std::string architecture;  // as config.json has it
  std::string quantization;  // quant_method and format, or empty
  /// The file's words on the KV cache: its declaration, and how many scales of keys and values it
  /// has. They are shown and checked, and change nothing. Empty: nothing.
  std::string cache_scales;
  std::optional<ModelConfig> config;  // absent when this program does not know the model
  std::string config_trouble;         // why
  std::vector<InspectRow> rows;
  std::vector<InspectTensor> tensors;  // by name
  int64_t parameters = 0;
  int64_t bytes = 0;
  /// Elements of all tensors as their headers count them: two NVFP4 codes are one U8 element, and
  /// scales count. What hub pages show as the number of parameters.
  int64_t stored_elements = 0;
  std::optional<ActiveCost> per_token;
};

/// Errors: those of Checkpoint::open.
Result<Inspection> inspect_checkpoint(const std::filesystem::path& folder);

/// For people: facts, then the table.
std::string inspection_text(const Inspection& inspection);
/// One line per tensor.
std::string tensor_list_text(const Inspection& inspection);
enum class TensorList : uint8_t { left_out, included };
Json inspection_json(const Inspection& inspection, TensorList list);

}  // namespace nibble
